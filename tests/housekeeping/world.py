"""A small in-memory cluster with the interface of :mod:`rescheduler.kube`. Time passes only while code waits.

Replacements of evicted pods run on a spot node, unless a test configures another behavior.
"""

# ruff: noqa: ARG002 -- the signatures are those of the replaced classes

import contextlib
import datetime as dt
import enum
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
from freezegun import api, freeze_time
from freezegun.api import FrozenDateTimeFactory

from predicates.objects import Condition, Node, Object, OwnerReference, Pod, Taint
from predicates.snapshot import Snapshot
from rescheduler.clock import SystemClock
from rescheduler.draining.actions import ANNOTATION, Intent, parse
from rescheduler.draining.events import (
    EvictionAccepted,
    EvictionFailed,
    EvictionOutcome,
    EvictionRefused,
    EvictionRequested,
    PodGone,
    RequestOutcome,
    RequestSeen,
    RequestsUnserved,
)
from rescheduler.draining.state import Limits, Why
from rescheduler.errors import InputError, MarkLost, NotFound, ReschedulerError, Withheld
from rescheduler.execution.cluster_view import ClusterView, ViewSources
from rescheduler.execution.context import DrainContext, Threads
from rescheduler.execution.drainer import Drainer
from rescheduler.execution.landings import Landings
from rescheduler.facts.round_facts import Known
from rescheduler.housekeeping.bookkeeping import Bookkeeping, NoBookkeeping, Pricing
from rescheduler.housekeeping.candidates import Candidates
from rescheduler.housekeeping.command_reads import provider_prices
from rescheduler.housekeeping.daemon_parts import new_room
from rescheduler.housekeeping.drain_history import DrainHistory, DrainRecords
from rescheduler.housekeeping.loop import Loop
from rescheduler.housekeeping.node_writes import NewNodes, SoftTaint
from rescheduler.housekeeping.order_finder import KnownPrices, OrderPrices
from rescheduler.housekeeping.round_plans import Actors, Knowledge, Mode
from rescheduler.kube.cluster import NodeEdit
from rescheduler.observe.events import DrainEnded, DrainStarted, Event, Held, InvolvedLease, Planned, Waiting
from rescheduler.planning.controllers import Controller, ControllerReading, ControllerState
from rescheduler.planning.debts import Debt, is_ready
from rescheduler.planning.last_look import Fresh, FreshPod, NodeLease, PreemptedPod
from rescheduler.planning.memory import Memory, StoredSettings, load
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.node_info import is_on_demand
from rescheduler.planning.outcome import Blocker, PodRef, Rejected
from rescheduler.planning.pauses import DrainWindow
from rescheduler.planning.policy import DrainOrder, LeaderFacts, Leftovers, Policy
from rescheduler.planning.rules.interruptions import DRAIN_CONDITION, OUR_REASON, SpotWatch, is_reported
from rescheduler.planning.rules.pod_traits import is_built_in
from rescheduler.providers.base import (
    Accepted,
    CloudProvider,
    Deleted,
    DeleteOutcome,
    MayEnd,
    NodeGroup,
    NodeRef,
    Refusal,
    Refused,
    any_may_end,
)
from rescheduler.providers.none import NoProvider
from rescheduler.settings import RoomSettings, Running, Timing
from tests.housekeeping.config_map import InMemoryConfigMap
from tests.housekeeping.placeholders import PlaceholdersInMemory
from tests.planning import builders
from tests.planning.builders import ON_DEMAND, Manifest, snapshot

START = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
IDENTITY = "default/lease"
LIMITS = Limits(eviction=120, grace=60, headroom=30, release=20)
#: Two on-demand nodes whose pods fit on the spot node.
CLUSTER = (
    builders.node("od-1", ON_DEMAND),
    builders.node("od-2", ON_DEMAND),
    builders.node("spot-1", cpu="16"),
    builders.pod("web-1", "od-1"),
    builders.pod("db-1", "od-2"),
    builders.pod("db-2", "od-2"),
)


class Replacement(enum.Enum):
    """The behavior of the replacement pods of a controller."""

    READY = enum.auto()
    UNREADY = enum.auto()  #: bound, but never Ready
    UNBOUND = enum.auto()  #: the scheduler does not process them
    UNSCHEDULABLE = enum.auto()
    REFUSED = enum.auto()  #: their creation is rejected
    LATE = enum.auto()  #: they are not created
    RETURNING = enum.auto()  #: they run on another on-demand node
    NOT_ADMITTED = enum.auto()  #: the kubelet of the spot node refuses them, and their controller creates the next one


class LoopWorld:
    """The cluster, as watched and as in the API server, with leadership and stop requests."""

    seen_ready: Callable[[Pod], float | None] = staticmethod(lambda _: None)  #: when pods were seen to become Ready
    allow_returning_plans = False
    leftovers = Leftovers.PLAN

    def __init__(self, frozen: FrozenDateTimeFactory, objects: Sequence[Manifest]) -> None:
        self.frozen = frozen
        self.cluster = snapshot(objects)
        for name, row in self.cluster.nodes.row.items():
            node = self.cluster.nodes.nodes[row]
            assert node is not None
            named = msgspec.structs.replace(node.metadata, uid=f"uid-{name}")
            self.cluster.upsert("Node", msgspec.structs.replace(node, metadata=named))
        self.clock = WorldClock(self)
        self.begun = self.clock.monotonic()
        self.reported: list[tuple[float, Event]] = []
        self.writes: list[tuple[str, str]] = []
        self.placeholders = PlaceholdersInMemory(self.cluster, self.writes)
        self.conditions = ConditionsInMemory(self)
        self.requests = RequestsInMemory(self)
        self.answers: defaultdict[str, list[EvictionOutcome]] = defaultdict(
            list
        )  # outcomes of evictions by pod; the last one is repeated
        self.endless: set[str] = set()  # pods that never terminate
        self.edit_errors: list[ReschedulerError | None] = []
        self.unseen: dict[str, float] = {}  # pods that the watch reports only after this time
        self.tries: dict[str, EvictionOutcome] = {}  # outcomes of dry runs of evictions by pod
        self.replacements: defaultdict[str, Replacement] = defaultdict(lambda: Replacement.READY)  # by controller name
        self.controllers: defaultdict[str, dict[str, Any]] = defaultdict(dict)  # fields of the state by controller name
        self.controller_errors: dict[str, ReschedulerError] = {}  # errors by controller name
        self.hidden: frozenset[str] = frozenset()  # nodes that are gone, which the watch has not reported
        self.unreported: dict[str, Node] = {}  # nodes that have changed, which the watch has not reported
        self.on_evicted: Callable[[], object] = lambda: None  # called after each eviction
        #: Leases of Nodes, and preempted pods of which Events tell.
        self.leases, self.preempted_pods = dict[str, NodeLease](), list[PreemptedPod]()
        self.page_is_read, self.missing_rights = False, ""  # whether somebody looks at the status page; a message
        self.stores_settings, self.own_node = False, ""  # its flags are stored; its node
        self.templates: list[Manifest] = []  # controllers with pod templates that the API server would return
        self.ended: dict[str, str] = {}  # by owner name: why it does not replace its pods
        #: Names of the controllers that were read, and what is above controllers, according to debts.
        self.reads, self.recalled = list[str](), dict[Controller, tuple[Controller, ...]]()
        self.siblings: list[frozenset[str]] = []  # names of the ReplicaSets given to each read of controllers
        self.asked: list[frozenset[str]] = []  # nodes of each consistent read of nodes and their pods
        self.asked_for_steps: list[frozenset[str]] = []  # nodes of each consistent read before a step
        self.intents: list[tuple[float, Intent]] = []  # written intents with their times
        self.appointments: list[tuple[float, Callable[[], object]]] = []
        self.config_map = InMemoryConfigMap()
        self.savings_map = InMemoryConfigMap("spot-rescheduler-savings")
        self.on_taint: Callable[[], object] = lambda: None
        self.on_read: Callable[[], object] = lambda: None  # called before a consistent read
        self.on_release: Callable[[], object] = lambda: None  # called before the marks are removed
        # Interfaces State and Standing
        self.synced = True
        self.missing: tuple[str, ...] = ()
        self.departed: list[Node] = []
        self.errors: dict[str, ReschedulerError] = {}
        self.watch_ages: dict[str, float] = {}
        self.leading = True
        self.stopping = False
        self.paused = ""
        self.lease = InvolvedLease("default", "lease", "uid-lease")
        self.rival = ""

    # Time

    @property
    def now(self) -> float:
        return self.clock.monotonic() - self.begun

    def pass_time(self, seconds: float) -> None:
        """Let time pass. Scheduled actions happen at their time."""
        end = self.now + seconds
        while due := [appointment for appointment in self.appointments if appointment[0] <= end]:
            soonest = min(due, key=lambda appointment: appointment[0])
            self.appointments.remove(soonest)
            self.frozen.tick(timedelta(seconds=max(0.0, soonest[0] - self.now)))
            soonest[1]()
        self.frozen.tick(timedelta(seconds=max(0.0, end - self.now)))

    def at(self, seconds: float, act: Callable[[], object]) -> None:
        self.appointments.append((seconds, act))

    def stop_at(self, seconds: float) -> None:
        self.at(seconds, lambda: setattr(self, "stopping", True))

    def pause(self, seconds: float) -> None:
        self.pass_time(seconds)

    def beat(self) -> None:
        pass

    # The watched state

    def ages(self) -> Mapping[str, float]:
        return self.watch_ages

    def snapshot(self) -> Snapshot:
        return self.cluster

    def became_ready(self, pod: Pod) -> float | None:
        return self.seen_ready(pod)

    def take_departed(self) -> tuple[Node, ...]:
        departed, self.departed = tuple(self.departed), []
        return departed

    # What is written

    def edit_node(self, name: str, uid: str, edit: NodeEdit) -> None:
        if self.edit_errors and (error := self.edit_errors.pop(0)) is not None:
            raise error
        node = self.node(name, uid)
        if edit.only_if is not None and (why := edit.only_if(node)):
            raise MarkLost(why)
        if edit.untaint:
            self.on_release()
        gone = set(edit.untaint) | {taint.key for taint in edit.taint}
        taints = (*(taint for taint in node.spec.taints if taint.key not in gone), *edit.taint)
        annotations = {**node.metadata.annotations, **edit.annotate}
        left = {key: text for key, text in annotations.items() if text is not None}
        cordoned = node.spec.unschedulable if edit.cordon is None else edit.cordon
        changed = msgspec.structs.replace(
            node,
            metadata=msgspec.structs.replace(node.metadata, annotations=left),
            spec=msgspec.structs.replace(node.spec, taints=taints, unschedulable=cordoned),
        )
        self.unreported.pop(name, None)
        self.cluster.upsert("Node", changed)
        cordons = {None: "taint" if edit.taint else "untaint", True: "cordon", False: "uncordon"}
        self.writes.append((cordons[edit.cordon], name))
        if (text := edit.annotate.get(ANNOTATION)) and (written := parse(text)):
            self.intents.append((self.now, written))
        if edit.taint:
            self.on_taint()

    def delete_node(self, name: str, uid: str) -> None:
        self.node(name, uid)
        self.cluster.delete("Node", name)
        self.writes.append(("delete", name))

    def nodes(self) -> list[Node]:
        return [self.unreported.get(node.name, node) for node in self.cluster.nodes]

    def pods(self, node: str, owners: Collection[tuple[str, str]]) -> list[Pod]:
        return [
            pod
            for pod in self.cluster.pods.values()
            if pod.node_name == node or (pod.owner and (pod.namespace, pod.owner.uid) in owners)
        ]

    def node_leases(self, names: Collection[str]) -> dict[str, NodeLease]:
        return {name: self.leases[name] for name in names if name in self.leases}

    def preempted(self) -> list[PreemptedPod]:
        return self.preempted_pods

    def read_fresh(
        self, node: str, targets: Collection[str], namespaces: Collection[str], *, target_pods: bool = True
    ) -> Fresh:
        asked = frozenset({node, *targets})
        (self.asked if target_pods else self.asked_for_steps).append(asked)
        self.on_read()
        pods = {
            pod.uid: FreshPod(pod.namespace, pod.name, pod.node_name, terminating=pod.deletion_timestamp is not None)
            for pod in self.cluster.pods.values()
            if not pod.node_name or pod.node_name in (asked if target_pods else {node})
        }
        late = {uid: FreshPod("default", uid, node) for uid, at in self.unseen.items() if self.now < at}
        nodes = {known.name: known for known in self.cluster.nodes if known.name in asked - self.hidden}
        return Fresh(node, asked, nodes, pods | late, {})

    def read(
        self,
        owners: Collection[tuple[str, OwnerReference]],
        controllers: Collection[Controller] = (),
        siblings: Collection[tuple[str, OwnerReference]] = (),
        *,
        read_refusals: bool = False,
    ) -> ControllerReading:
        """Implement :class:`rescheduler.execution.context.Controllers`: each pod's owner is the topmost controller."""
        self.siblings.append(frozenset(owner.name for _, owner in siblings))
        topmost = {
            (namespace, owner.uid): Controller(
                namespace, owner.kind, owner.name, owner.uid, "" if is_built_in(owner) else owner.api_version
            )
            for namespace, owner in owners
        }
        return ControllerReading(
            {controller: self._state(controller) for controller in sorted({*controllers, *topmost.values()})}, topmost
        )

    def recall(self, debts: Iterable[Debt]) -> None:
        self.recalled |= {debt.controller: debt.above for debt in debts}

    def ending(self, owners: Collection[tuple[str, OwnerReference]]) -> Mapping[tuple[str, str], str]:
        return {
            (namespace, owner.uid): self.ended[owner.name] for namespace, owner in owners if owner.name in self.ended
        }

    def _state(self, controller: Controller) -> ControllerState:
        self.reads.append(controller.name)
        if (error := self.controller_errors.get(controller.name)) is not None:
            if isinstance(error, InputError):
                return ControllerState(controller, frozenset({controller.uid}), unreadable=str(error))
            raise error
        refused = self.replacements.get(controller.name) is Replacement.REFUSED
        fields: dict[str, Any] = {"refusal": "exceeded quota"} if refused else {}
        fields |= self.controllers[controller.name]
        return ControllerState(controller, frozenset({controller.uid}), **fields)

    def evict(
        self, namespace: str, name: str, uid: str, grace_seconds: int | None = None, *, dry_run: bool = False
    ) -> EvictionOutcome:
        key = f"{namespace}/{name}"
        if dry_run:
            return replace(self.tries.get(key, EvictionAccepted("")), uid=uid)
        self.writes.append(("evict", name))
        scripted = self.answers[key]
        response = (scripted.pop(0) if len(scripted) > 1 else scripted[0]) if scripted else EvictionAccepted("")
        if isinstance(response, EvictionAccepted | PodGone) and key not in self.endless:
            self._moves(self.cluster.pods[key])
        self.on_evicted()
        return replace(response, uid=uid)

    def _templates(self, owners: Collection[tuple[str, OwnerReference]]) -> list[tuple[str, Object]]:
        named = {(namespace, owner.name) for namespace, owner in owners}
        keys = [(each["kind"], each["metadata"]["namespace"], each["metadata"]["name"]) for each in self.templates]
        known = snapshot(self.templates)
        return [(kind, known.of(kind)[f"{space}/{name}"]) for kind, space, name in keys if (space, name) in named]

    def _why_refused(self, pod: PodRef) -> str:
        outcome = self.evict(pod.namespace, pod.name, pod.uid, dry_run=True)
        return outcome.why if isinstance(outcome, EvictionRefused | EvictionFailed) else ""

    def moves(self, key: str) -> None:
        """Evict the pod *key* as another client does."""
        self._moves(self.cluster.pods[key])

    def _moves(self, pod: Pod) -> None:
        self.cluster.delete("Pod", pod.key)
        replacement = self.replacements[pod.owner.name] if pod.owner is not None else Replacement.REFUSED
        if replacement in (Replacement.REFUSED, Replacement.LATE):
            return
        unbound = replacement in (Replacement.UNBOUND, Replacement.UNSCHEDULABLE)
        again = msgspec.structs.replace(
            pod,
            name=f"{pod.name}-again",
            uid=f"{pod.uid}-again",
            creation_timestamp=self.time(),
            node_name="" if unbound else self._other(pod) if replacement is Replacement.RETURNING else self.spot,
            phase="Pending" if unbound else pod.phase,
            ready=replacement in (Replacement.READY, Replacement.RETURNING),
            unschedulable_since=self.time() if replacement is Replacement.UNSCHEDULABLE else None,
        )
        self.cluster.upsert("Pod", again)
        if replacement is Replacement.NOT_ADMITTED:
            self.refuse(again.key)

    def refuse(self, key: str, why: str = "SysctlForbidden: forbidden sysctl") -> None:
        """Let the kubelet of its node refuse the pod *key*. Its controller creates another one, which waits."""
        pod = self.cluster.pods[key]
        self.cluster.upsert("Pod", msgspec.structs.replace(pod, phase="Failed", ready=False, refused=why))
        self.cluster.delete("Pod", key)
        following = {"uid": f"{pod.uid}-next", "node_name": "", "phase": "Pending", "creation_timestamp": self.time()}
        self.cluster.upsert("Pod", msgspec.structs.replace(pod, **following))

    def _other(self, pod: Pod) -> str:
        """Return another on-demand node than that of *pod*."""
        return next(
            node.name for node in self.cluster.nodes if node.name.startswith("od") and node.name != pod.node_name
        )

    def recover(self, controller: str) -> None:
        """Make all its pods Ready, also future replacement pods. Pods of lost nodes run on another one."""
        del self.replacements[controller]
        usable = {node.name for node in self.cluster.nodes if is_ready(node)}
        for pod in list(self.cluster.pods.values()):
            if pod.owner is not None and pod.owner.name == controller and (not pod.node_name or not pod.ready):
                node = pod.node_name if pod.node_name in usable else self.spot
                running = {"node_name": node, "phase": "Running", "ready": True}
                self.cluster.upsert("Pod", msgspec.structs.replace(pod, **running, unschedulable_since=None))

    # Helpers for tests

    @property
    def spot(self) -> str:
        """Return the spot node for replacement pods: the first one that is Ready, if any is."""
        nodes = [node for node in self.cluster.nodes if node.name.startswith("spot")]
        return next((node for node in nodes if is_ready(node)), nodes[0]).name

    def time(self, seconds: float = 0.0) -> str:
        """Return the time after a delay as an API timestamp."""
        return f"{self.clock.now() + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"

    def node(self, name: str, uid: str | None = None) -> Node:
        row = self.cluster.nodes.row.get(name)
        node = self.cluster.nodes.nodes[row] if row is not None else None
        if node is None or uid not in (None, node.metadata.uid):
            raise NotFound(f"node {name} is not there")
        return self.unreported.get(name, node)

    def hide_change(self, name: str, before: Node) -> None:
        """Let the watch show *before* until the next write to the node *name*."""
        self.unreported[name] = self.node(name)
        self.cluster.upsert("Node", before)

    def mark(self, name: str, annotation: str, *taints: Taint) -> None:
        """Put the marks of an earlier daemon on a node."""
        self.edit_node(name, f"uid-{name}", NodeEdit(taint=taints, annotate={ANNOTATION: annotation}))
        self.writes.clear()
        self.intents.clear()

    def add(self, *objects: Manifest) -> None:
        for kind, collection in (("Node", "nodes"), ("Pod", "pods")):
            built = snapshot([manifest for manifest in objects if manifest["kind"] == kind])
            items: Any = list(built.nodes) if collection == "nodes" else list(built.pods.values())
            for item in items:
                self.cluster.upsert(kind, item)

    @property
    def drained(self) -> list[str]:
        """Return the nodes whose drains were started."""
        return [event.node.name for event in self.of(DrainStarted)]

    @property
    def failures(self) -> list[Why | None]:
        """Return why each drain failed; None for one that succeeded."""
        return [event.failure.why if event.failure else None for event in self.of(DrainEnded)]

    @property
    def waits(self) -> list[Waiting]:
        """Return why no drain was started, without repetitions."""
        return [waiting for waiting, _ in itertools.groupby(event.waiting for event in self.of(Held))]

    @property
    def memory(self) -> Memory:
        """Return the stored memory."""
        assert self.config_map.stored is not None
        return load(self.config_map.stored.content)

    @property
    def marked(self) -> list[str]:
        return [node.name for node in self.cluster.nodes if node.spec.taints or node.metadata.annotations]

    def report(self, event: Event) -> None:
        self.reported.append((self.now, event))

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for _, event in self.reported if isinstance(event, kind)]

    def times(self, kind: type[Any], node: str = "") -> list[float]:
        return [at for at, event in self.reported if isinstance(event, kind) and node in ("", event.node.name)]

    def loop(
        self,
        timing: Timing | None = None,
        *,
        provider: CloudProvider | None = None,
        dry_run: bool = False,
        holder: str = "me",
        soft_taint: bool = False,
        limits: Limits = LIMITS,
        windows: tuple[DrainWindow, ...] = (),
        prices: PriceList | None = None,
        drain_order: DrainOrder = DrainOrder.LEAST_REQUESTED,
        min_worth: float = 0.0,
        room: RoomSettings | None = None,
        report_conditions: bool = False,
        minimum: int = 0,
    ) -> Loop:
        """Return a daemon. It keeps a ledger of savings, and has the prices of nodes, if *prices* is given."""
        timing = timing or Timing()
        settings = StoredSettings(
            timing.node_drain_delay.total_seconds(),
            timing.landing_timeout.total_seconds(),
            tuple(window.text for window in windows),
            timing.max_moves_per_pod_per_day,
        )
        history = DrainHistory(
            self.config_map,
            timing,
            self.clock,
            self.report,
            lambda: self.leading,
            dry_run=dry_run,
            settings=settings if self.page_is_read or self.stores_settings else None,
        )
        policy = Policy(
            budgets_in_steps=True,
            drain_order=drain_order,
            min_worth=min_worth,
            min_on_demand_nodes=minimum,
            allow_returning_plans=self.allow_returning_plans,
            leftovers=self.leftovers,
        )
        view = ClusterView(
            self,
            policy,
            self.clock,
            Known(holder=holder, identity=IDENTITY, leader=LeaderFacts(own=self.own_node)),
            ViewSources(memory=lambda: history.memory),
        )
        self.view, self.history = view, history
        access = DrainContext(
            self,
            provider or NoProvider(),
            self.clock,
            holder,
            self,
            IDENTITY,
            leads=lambda: self.leading,
            placeholders=self.placeholders,
            requests=self.requests,
            conditions=self.conditions,
            report_conditions=report_conditions,
        )
        records = DrainRecords(history, view, self.clock, self.report)
        threads = Threads(Inline(), Inline())
        drainer = Drainer(access, view, self, threads, limits, self.report, records)
        soft = SoftTaint(self, self.report, partial(is_on_demand, policy=policy), wanted=soft_taint)
        savings = NoBookkeeping()
        pricing = Pricing(prices or PriceList(), lambda nodes: provider_prices(access.provider, nodes, self.clock))
        if prices is not None:
            savings = Bookkeeping(self.savings_map, view, pricing, self.clock, self.report, lambda: self.leading)
        known_prices = KnownPrices(pricing, self.clock)
        refresh_prices = OrderPrices(view, known_prices).refresh if policy.needs_prices else lambda: None
        candidates = Candidates(
            view, self, history, policy, self.clock, drainer.refusal, self._why_refused, self._templates
        )
        namespace, _, lease = IDENTITY.partition("/")
        running = Running(namespace=namespace, lease_name=lease, dry_run=dry_run, room=room or RoomSettings())
        rooms = new_room(access, view, history, candidates, running, known_prices, self.report)
        knowledge = Knowledge(
            history,
            candidates,
            Landings(view, self, history, self.report, self.clock, timing.landing_timeout, self.node_leases),
            SpotWatch(timing.spot_settle),
            savings=savings,
            refresh_prices=refresh_prices,
            prices=lambda: pricing.prices,
            missing_rights=lambda: self.missing_rights,
            page_is_read=lambda: self.page_is_read,
        )
        actors = Actors(drainer, soft, NewNodes(access, self.report), records, rooms)
        mode = Mode(timing, dry_run, windows=windows, minimum=minimum)
        return Loop(view, actors, knowledge, self, mode, self.clock, self.report)


class RequestsInMemory:
    """Has the interface of :class:`rescheduler.kube.eviction_requests.EvictionRequests`, with a controller."""

    def __init__(self, world: LoopWorld) -> None:
        self._world = world
        self.open: dict[str, PodRef] = {}  # by UID of the pod
        self.served = True
        self.taken = True  # by the controller
        self.evicts = True  # the controller evicts the pod at once

    def create(self, pod: PodRef, *, dry_run: bool = False) -> RequestOutcome:
        if not self.served:
            return RequestsUnserved(pod.uid, "404")
        if not dry_run:
            self._world.writes.append(("request", pod.name))
            self.open[pod.uid] = pod
            if self.evicts and self.taken:
                self._world.moves(str(pod))
        return EvictionRequested(pod.uid)

    def follow(self, pod: PodRef) -> RequestSeen:
        return RequestSeen(pod.uid, self.taken, gone=pod.uid not in self.open)

    def withdraw(self, pod: PodRef) -> None:
        self._world.writes.append(("withdraw", pod.name))
        self.open.pop(pod.uid, None)

    def withdraw_all(self) -> None:
        self._world.writes.append(("withdraw", "all"))
        self.open.clear()


class ConditionsInMemory:
    """Has the interface of :class:`rescheduler.kube.cluster.NodeConditions`."""

    def __init__(self, world: LoopWorld) -> None:
        self._world = world
        self.error: ReschedulerError | None = None  # of each write

    def set(self, name: str, uid: str, now: dt.datetime) -> None:
        self._write(name, uid, Condition(DRAIN_CONDITION, "True", OUR_REASON))

    def remove(self, name: str, uid: str) -> None:
        with contextlib.suppress(NotFound):
            self._write(name, uid)

    def _write(self, name: str, uid: str, *ours: Condition) -> None:
        if self.error is not None:
            raise self.error
        node = self._world.node(name, uid)
        others = [each for each in node.status.conditions if each.type != DRAIN_CONDITION]
        status = msgspec.structs.replace(node.status, conditions=(*others, *ours))
        self._world.cluster.upsert("Node", msgspec.structs.replace(node, status=status))
        self._world.writes.append(("report" if ours else "report no more", name))

    @property
    def reported(self) -> list[str]:
        """Return the nodes with the condition."""
        return [node.name for node in self._world.cluster.nodes if is_reported(node)]


class WorldClock(SystemClock):
    """The frozen clock. Waiting lets time pass."""

    def __init__(self, world: LoopWorld) -> None:
        self._world = world

    def now(self) -> dt.datetime:
        """Return a plain datetime, because freezegun's type cannot be encoded."""
        return api.real_datetime.fromtimestamp(super().now().timestamp(), dt.UTC)

    def wait(self, seconds: float, until: threading.Event) -> bool:
        if not until.is_set():
            self._world.pass_time(seconds)
        return until.is_set()


class Inline(Executor):
    """An executor that runs tasks at once on the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


def blockers(here: LoopWorld, node: str) -> list[Blocker]:
    """Return the blockers of *node* in the last reported plan."""
    verdicts = {verdict.node: verdict for verdict in here.of(Planned)[-1].planning.verdicts}
    assert isinstance(verdicts[node], Rejected)
    return list(verdicts[node].blockers)


@contextlib.contextmanager
def world(*objects: Manifest) -> Iterator[LoopWorld]:
    # freezegun scans all modules for clocks, which would make the client import all its models.
    with freeze_time(START, ignore=["kubernetes"]) as frozen:
        assert isinstance(frozen, FrozenDateTimeFactory)
        yield LoopWorld(frozen, objects)


@dataclass
class ScriptedProvider(NoProvider):
    """A provider that owns every node, with scripted responses; the last one is repeated."""

    answers: list[DeleteOutcome | ReschedulerError]
    refusal: Refused | None = None
    gone: Collection[str] = ()  #: nodes whose machines terminate immediately, regardless of the responses
    pending: Collection[str] = ()  #: nodes for whose machines an earlier order may still take effect
    refused: Mapping[str, Refused] = field(default_factory=dict)  #: rejections by node
    trouble: ReschedulerError | None = None  #: error of every query
    on_notices: Callable[[], object] = lambda: None  #: called by `notices`
    on_order: Callable[[], object] = lambda: None  #: called after each order
    before_order: Callable[[], object] = lambda: None  #: called before each order
    orders: list[NodeRef] = ()  # type: ignore[assignment]

    name = "pool"

    def __post_init__(self) -> None:
        self.orders = []

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:
        if self.trouble is not None:
            raise self.trouble
        return NodeGroup("workers", 0, 10)

    def refusals(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:
        known = {node.name: self.refused.get(node.name, self.refusal) for node in nodes}
        return {name: refusal for name, refusal in known.items() if refusal is not None}

    def notices(self, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, dt.datetime]:
        self.on_notices()
        return {}

    def delete_nodes(
        self, group: str, nodes: Sequence[NodeRef], *, deadline: float, may_end: MayEnd = any_may_end
    ) -> Mapping[str, DeleteOutcome]:
        if self.pending:
            return {node.name: Accepted("an earlier order may still take effect") for node in nodes}
        for node in nodes:
            if node.name not in self.gone:
                self.before_order()
                try:
                    may_end(node)
                except Withheld as error:
                    return {node.name: Refused(Refusal.WITHHELD, str(error)) for node in nodes}
        self.orders += [replace(node, labels={}) for node in nodes]
        self.on_order()
        if all(node.name in self.gone for node in nodes):
            return {node.name: Deleted() for node in nodes}
        response = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(response, ReschedulerError):
            raise response
        return {node.name: response for node in nodes}
