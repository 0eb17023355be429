"""What happened in a simulated cluster: the numbers of nodes, drains, and what workloads noticed of them."""

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

import msgspec

from predicates.objects import Node
from predicates.wire import Decoder, Interner
from rescheduler.observe.events import DrainEnded, DrainStarted, Event
from rescheduler.planning.money.prices import PriceList, template_facts
from rescheduler.simulation.engine import Engine, Process
from rescheduler.simulation.eviction import is_ready
from rescheduler.simulation.machines import Termination
from rescheduler.simulation.requests import ApiRequest, Target
from rescheduler.simulation.store import Json, StoredChange, controller_of
from rescheduler.simulation.world import World

_HOUR: Final = 3600.0

#: A pod that waits for a node longer than this counts as Pending.
PENDING_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class CourseLine:
    """Something that happened, for people."""

    at: float  #: seconds since the start of the measurement
    text: str


@dataclass(slots=True)
class Gap:
    """A time during which an owner had fewer Ready pods than it wanted."""

    owner: str
    began: float
    ended: float | None = None
    most: int = 0  #: missing pods at the worst moment


@dataclass(slots=True)
class Course:
    """The observations of one run. Times are seconds since the start of the measurement."""

    on_demand: list[tuple[float, int]] = field(default_factory=list)  #: numbers of nodes, at each change
    spot: list[tuple[float, int]] = field(default_factory=list)
    cost: list[tuple[float, Decimal]] = field(default_factory=list)  #: per hour, of all nodes whose price is known
    lines: list[CourseLine] = field(default_factory=list)
    drained: int = 0
    failed: Counter[str] = field(default_factory=Counter)  #: drains by reason
    evictions: int = 0
    gaps: list[Gap] = field(default_factory=list)
    missing: list[tuple[float, int]] = field(default_factory=lambda: [(0.0, 0)])  #: Ready pods that owners lack
    pending: list[tuple[str, float]] = field(default_factory=list)  #: pods that waited for a node, and how long
    longest_landing: float = 0.0
    lost: int = 0  #: spot nodes that the cloud took
    seconds: float = 0.0
    currency: str = ""

    def node_hours_saved(self) -> float:
        """Return the on-demand node-hours that were saved, compared with the nodes at the start."""
        return (
            _integral([(at, float(self.on_demand[0][1] - nodes)) for at, nodes in self.on_demand], self.seconds) / _HOUR
        )

    def money_saved(self) -> float | None:
        """Return what all nodes cost less than those at the start; None without prices."""
        if not self.cost or not self.cost[0][1]:
            return None
        return _integral([(at, float(self.cost[0][1] - cost)) for at, cost in self.cost], self.seconds) / _HOUR

    def on_demand_at(self, at: float) -> int:
        return next((nodes for since, nodes in reversed(self.on_demand) if since <= at), self.on_demand[0][1])

    def summary(self) -> Json:
        """Return the figures, for programs."""
        money = self.money_saved()
        lengths = [(gap.ended or self.seconds) - gap.began for gap in self.gaps]
        return {
            "hours": round(self.seconds / _HOUR, 3),
            "onDemandNodes": {"start": self.on_demand[0][1], "end": self.on_demand[-1][1]},
            "spotNodes": {"start": self.spot[0][1], "end": self.spot[-1][1], "lost": self.lost},
            "onDemandNodeHoursSaved": round(self.node_hours_saved(), 2),
            "moneySaved": None if money is None else round(money, 2),
            "currency": self.currency,
            "drains": {"done": self.drained, "failed": dict(sorted(self.failed.items()))},
            "evictions": self.evictions,
            "ownersBelowWanted": {
                "times": len(self.gaps),
                "seconds": round(sum(lengths), 1),
                "longestSeconds": round(max(lengths, default=0.0), 1),
            },
            "podsPending": {
                "pods": len(self.pending),
                "longestSeconds": round(max((seconds for _, seconds in self.pending), default=0.0), 1),
            },
            "longestLandingSeconds": round(self.longest_landing, 1),
        }

    def to_json(self) -> Json:
        """Return the figures and the course."""
        return {
            **self.summary(),
            "onDemandNodesOverTime": [[round(at, 1), nodes] for at, nodes in self.on_demand],
            "course": [{"seconds": round(line.at, 1), "text": line.text} for line in self.lines],
        }


def _integral(steps: list[tuple[float, float]], end: float) -> float:
    """Return the area below a step function."""
    times = [at for at, _ in steps[1:]] + [end]
    return sum(value * (until - at) for (at, value), until in zip(steps, times, strict=True))


class CourseRecorder:
    """Watches a world, and writes its course. The measurement begins when it is created."""

    def __init__(self, world: World, prices: PriceList) -> None:
        self.course = Course(currency=prices.currency)
        self._world = world
        self._engine: Engine = world.engine
        self._began = world.engine.now
        self._prices = prices
        self._decoder = Decoder(Interner())
        self._nodes: dict[str, tuple[bool, Decimal]] = {}  # by name: whether it is spot, and its price
        self._ready: Counter[str] = Counter()  # pods by UID of their owner
        self._gaps: dict[str, Gap] = {}
        self._lacking: Counter[str] = Counter()  # pods by UID of their owner
        self._unbound: dict[str, float] = {}
        for node in world.store.all("nodes"):
            self._add(node)
        self._count()
        for pod in world.store.all("pods"):
            self._ready[_owner(pod)] += _counts(pod)
        world.store.listen("nodes", self._node_changed)
        world.store.listen("pods", self._pod_changed)
        for plural in ("deployments", "statefulsets", "replicasets"):
            world.store.listen(plural, self._workload_changed)
        world.network.audit.append(self._sent)
        world.machines.on_end.append(self._ended)

    def finish(self) -> Course:
        """End the measurement."""
        self.course.seconds = self.now
        self.course.gaps += self._gaps.values()
        self._gaps = {}
        for key, since in self._unbound.items():
            self._waited(key, since)
        return self.course

    @property
    def now(self) -> float:
        return self._engine.now - self._began

    def say(self, text: str) -> None:
        self.course.lines.append(CourseLine(self.now, text))

    def report(self, event: Event) -> None:
        """Receive the events of the daemon."""
        if isinstance(event, DrainStarted):
            pods = len(event.plan.placements) if event.plan is not None else 0
            self.say(f"node {event.node.name}: drain of {pods} pods")
        elif isinstance(event, DrainEnded):
            if event.failure is None:
                self.course.drained += 1
                self.course.longest_landing = max(self.course.longest_landing, event.landing_seconds or 0.0)
                self.say(f"node {event.node.name}: drained in {event.seconds:.0f} s, {event.pods_moved}")
            else:
                self.course.failed[event.failure.why.value] += 1
                failed = f"drain failed after {event.seconds:.0f} s, {event.pods_moved}"
                self.say(f"node {event.node.name}: {failed}: {event.failure.detail}")

    # Nodes

    def _add(self, node: Json) -> None:
        spot, on_demand = self._world.is_spot(node), self._world.is_on_demand(node)
        if spot or on_demand:
            self._nodes[node["metadata"]["name"]] = spot, self._price(node, spot=spot)

    def _price(self, node: Json, *, spot: bool) -> Decimal:
        if self._prices.empty:
            return Decimal(0)
        decoded = self._decoder.decode("Node", msgspec.json.encode(node))
        assert isinstance(decoded, Node)
        facts = dataclasses.replace(template_facts(decoded), spot=spot)
        return self._prices.per_hour(facts) or Decimal(0)

    def _count(self) -> None:
        spot = sum(is_spot for is_spot, _ in self._nodes.values())
        self.course.on_demand.append((self.now, len(self._nodes) - spot))
        self.course.spot.append((self.now, spot))
        self.course.cost.append((self.now, sum((price for _, price in self._nodes.values()), Decimal(0))))

    def _node_changed(self, change: StoredChange) -> None:
        if change.type == "ADDED":
            self._add(change.after.object)
            self._count()
        elif change.type == "DELETED" and self._nodes.pop(change.after.object["metadata"]["name"], None) is not None:
            self._count()

    def _ended(self, termination: Termination) -> None:
        if termination.by == "cloud":
            self.course.lost += 1
            self.say(f"node {termination.node}: the cloud takes the spot machine")
        elif termination.by == "autoscaler":
            self.say(f"node {termination.node}: the autoscaler removes it")

    # Pods

    def _pod_changed(self, change: StoredChange) -> None:
        before = change.before if change.type != "ADDED" else None
        after = change.after.object if change.type != "DELETED" else None
        pod = change.after.object
        key, owner = pod["metadata"]["uid"], _owner(pod)
        if after is not None and not after["spec"].get("nodeName"):
            self._unbound.setdefault(key, self.now)
        elif (since := self._unbound.pop(key, None)) is not None:
            self._waited(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", since)
        delta = _counts(after) - _counts(before)
        if delta:
            self._ready[owner] += delta
            self._look(pod["metadata"]["namespace"], controller_of(pod))

    def _waited(self, name: str, since: float) -> None:
        if self.now - since >= PENDING_SECONDS:
            self.course.pending.append((name, self.now - since))

    def _workload_changed(self, change: StoredChange) -> None:
        if change.before is None or change.before["spec"].get("replicas") != change.after.object["spec"].get(
            "replicas"
        ):
            self._judge(change.after.object, gone=change.type == "DELETED")

    def _look(self, namespace: str, owner: Json | None) -> None:
        if owner is None:
            return
        found = self._find(owner["kind"], f"{namespace}/{owner['name']}")
        if found is None:
            return
        above = controller_of(found)
        upper = None if above is None else self._find(above["kind"], f"{namespace}/{above['name']}")
        self._judge(upper or found)

    def _find(self, kind: str, key: str) -> Json | None:
        return self._world.store.get(_PLURALS[kind], key) if kind in _PLURALS else None

    def _judge(self, owner: Json, *, gone: bool = False) -> None:
        """Compare how many pods an owner has and wants."""
        if controller_of(owner) is not None:
            return
        meta = owner["metadata"]
        uids = [
            meta["uid"],
            *(each["metadata"]["uid"] for each in self._world.store.owned_by(meta["uid"], "replicasets")),
        ]
        missing = 0 if gone else owner["spec"].get("replicas", 1) - sum(self._ready[uid] for uid in uids)
        self._lacks(meta["uid"], max(missing, 0))
        gap = self._gaps.get(meta["uid"])
        if missing > 0:
            if gap is None:
                gap = self._gaps[meta["uid"]] = Gap(f"{meta['namespace']}/{meta['name']}", self.now)
            gap.most = max(gap.most, missing)
        elif gap is not None:
            gap.ended = self.now
            self.course.gaps.append(self._gaps.pop(meta["uid"]))

    def _lacks(self, uid: str, pods: int) -> None:
        """Note how many Ready pods the owner *uid* lacks."""
        if pods != self._lacking[uid]:
            self._lacking[uid] = pods
            self.course.missing.append((self.now, self._lacking.total()))

    # Requests

    def _sent(self, _: Process, request: ApiRequest, target: Target | None, __: float, code: int, ___: bytes) -> None:
        if target is not None and target.subresource == "eviction" and not request.dry_run and code == _CREATED:
            self.course.evictions += 1


_CREATED: Final = 201
_PLURALS: Final = {
    "ReplicaSet": "replicasets",
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
}


def _owner(pod: Json) -> str:
    owner = controller_of(pod)
    return "" if owner is None else str(owner["uid"])


def _counts(pod: Json | None) -> int:
    """Return 1 if *pod* counts as one of its owner's Ready pods."""
    return int(pod is not None and not pod["metadata"].get("deletionTimestamp") and is_ready(pod))
