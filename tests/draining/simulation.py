"""A simulated cluster for drains, with controllers that replace pods or fail to.

Times are in seconds. All random values come from one generator, so that a run is reproducible.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final

from predicates.objects import OwnerReference
from rescheduler.draining.actions import WrittenMark
from rescheduler.draining.events import Cause
from rescheduler.draining.state import Drain, Limits
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import Replicas
from rescheduler.planning.outcome import Blocker, Placement, Plan, PodRef, Reason, Rejected, Verdict

NODE: Final = "od"
LIMITS: Final = Limits(
    eviction=12, grace=4, headroom=4, removal=20, release=6, landing=25, creation=8, binding=12, exposure=5
)


@dataclass(frozen=True)
class Owner:
    """A controller, and how its replacement pods behave."""

    namespace: str
    kind: str
    name: str
    here: int  #: pods on the drained node
    elsewhere: int
    creates: bool = True  #: False: a quota or a webhook rejects all pods
    schedulable: bool = True
    binds_after: float = 1  #: seconds
    ready_after: float | None = 2  #: seconds after it is bound; None means never
    ready_before: bool = True  #: whether its pods are Ready at the start
    change: str = ""  #: change during the drain: "down", "up", "deleted", "suspended", "template"
    change_at: float = 0

    @property
    def controller(self) -> Controller:
        return Controller(self.namespace, self.kind, self.name, f"{self.namespace}/{self.kind}/{self.name}")


@dataclass(frozen=True)
class Scenario:
    """The initial state of the cluster, and the faults."""

    owners: tuple[Owner, ...]
    bare: int = 0
    group: str | None = None
    failing: float = 0.0  #: share of requests that fail
    refused: float = 0.0  #: share of evictions that budgets reject
    slow: float = 0.0  #: maximum duration of requests in seconds
    kills: tuple[float, ...] = ()  #: when the process dies and the next one continues
    targets_lost_at: float | None = None
    taint_removed_at: float | None = None
    stop_at: float | None = None
    stop: Cause = Cause.TERMINATED
    room: bool = False  #: whether the pods on the node have placeholders
    late_pod_at: float | None = None  #: time at which a pod of the first owner is bound despite the taint


@dataclass
class SimulatedPod:
    ref: PodRef
    owner: Owner | None
    template: str
    node: str = ""
    ready: bool = False
    binds_at: float = 0.0
    ready_at: float | None = None
    ends_at: float | None = None  #: set once it is being deleted


@dataclass
class SimulatedCluster:
    """The actual pods and controllers."""

    scenario: Scenario
    random: Random
    now: float = 0.0
    pods: dict[str, SimulatedPod] = field(default_factory=dict)
    wanted: dict[Controller, int] = field(default_factory=dict)
    templates: dict[Controller, str] = field(default_factory=dict)
    gone: set[Controller] = field(default_factory=set)
    suspended: set[Controller] = field(default_factory=set)
    evicted: Counter[Owner] = field(default_factory=Counter)
    recovered: dict[Owner, tuple[int, int]] = field(
        default_factory=dict
    )  #: maximum of bound and of Ready pods since the last eviction
    tainted: bool = False
    mark: WrittenMark | None = None
    placeholders: dict[str, float | None] = field(default_factory=dict)  #: end of each placeholder by pod UID
    taken: bool = False  #: machine termination was requested
    _numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        for owner in self.scenario.owners:
            self.wanted[owner.controller] = owner.here + owner.elsewhere
            self.templates[owner.controller] = "1"
            for number in range(owner.here + owner.elsewhere):
                self._place(owner, NODE if number < owner.here else "s0", ready=owner.ready_before)
        for _ in range(self.scenario.bare):
            self._place(None, NODE, ready=True)
        if self.scenario.room:
            self.placeholders = {pod.ref.uid: None for pod in self.here()}

    def _place(self, owner: Owner | None, node: str, *, ready: bool) -> None:
        pod = self._new(owner)
        pod.node, pod.ready = node, ready

    def _new(self, owner: Owner | None) -> SimulatedPod:
        name = f"p{next(self._numbers)}"
        namespace = owner.namespace if owner else "bare"
        template = self.templates[owner.controller] if owner else ""
        pod = self.pods[name] = SimulatedPod(PodRef(namespace, name, name), owner, template)
        return pod

    @property
    def targets_lost(self) -> bool:
        lost_at = self.scenario.targets_lost_at
        return lost_at is not None and self.now >= lost_at

    def pass_second(self) -> None:
        self.now += 1
        if self.scenario.taint_removed_at == self.now:
            self.tainted = False
        if self.scenario.late_pod_at == self.now and self.scenario.owners:
            owner = self.scenario.owners[0]
            self.wanted[owner.controller] += 1
            self._place(owner, NODE, ready=True)
        self.pods = {uid: pod for uid, pod in self.pods.items() if pod.ends_at is None or pod.ends_at > self.now}
        ends = self.placeholders.items()
        self.placeholders = {uid: end for uid, end in ends if end is None or end > self.now}
        for owner in self.scenario.owners:
            if owner.change and owner.change_at == self.now:
                self._change(owner)
            self._reconcile(owner)
        for pod in self.pods.values():
            self._progress(pod)
        for owner in self.scenario.owners:
            self._note_recovery(owner)

    def _change(self, owner: Owner) -> None:
        controller = owner.controller
        match owner.change:
            case "down":
                self.wanted[controller] //= 2
            case "up":
                self.wanted[controller] += 2
            case "deleted":
                self.gone.add(controller)
            case "suspended":
                self.suspended.add(controller)
            case "template":
                self.templates[controller] = "2"

    def _reconcile(self, owner: Owner) -> None:
        controller = owner.controller
        mine = [pod for pod in self.pods.values() if pod.owner is owner]
        live = [pod for pod in mine if pod.ends_at is None]
        wanted = 0 if controller in self.gone | self.suspended else self.wanted[controller]
        if len(live) > wanted:
            for pod in live[wanted:]:
                self.delete(pod)
        waits = owner.kind in ("StatefulSet", "Job") and len(mine) > len(live)
        if len(live) < wanted and owner.creates and not waits:
            for _ in range(wanted - len(live)):
                pod = self._new(owner)
                pod.binds_at = self.now + owner.binds_after
        old = [pod for pod in live if pod.template != self.templates[controller]]
        if old and len(live) >= wanted and all(pod.ready for pod in live):
            self.delete(old[0])

    def _progress(self, pod: SimulatedPod) -> None:
        owner = pod.owner
        if owner is None or pod.ends_at is not None:
            return
        if not pod.node and owner.schedulable and not self.targets_lost and self.now >= pod.binds_at:
            pod.node = "s1"
            pod.ready_at = None if owner.ready_after is None else self.now + owner.ready_after
        if pod.ready_at is not None and self.now >= pod.ready_at:
            pod.ready = True

    def _note_recovery(self, owner: Owner) -> None:
        live = [pod for pod in self.pods.values() if pod.owner is owner and pod.ends_at is None and pod.node]
        bound, ready = self.recovered.get(owner, (0, 0))
        self.recovered[owner] = max(bound, len(live)), max(ready, sum(pod.ready for pod in live))

    def evict(self, pod: SimulatedPod) -> None:
        if pod.ends_at is None and pod.owner is not None:
            self.evicted[pod.owner] += 1
            self.recovered.pop(pod.owner, None)
        self.delete(pod)

    def delete(self, pod: SimulatedPod) -> None:
        if pod.ends_at is None:
            pod.ends_at = self.now + self.random.randint(1, int(LIMITS.grace))

    def delete_placeholder(self, uid: str) -> None:
        if uid in self.placeholders:
            self.placeholders[uid] = self.now + self.random.randint(0, 2)

    def here(self) -> list[SimulatedPod]:
        return [pod for pod in self.pods.values() if pod.node == NODE]

    def plan(self) -> Verdict:
        movers = [pod for pod in self.here() if pod.ends_at is None]
        if movers and self.targets_lost:
            return Rejected(NODE, (Blocker(Reason.NO_ROOM, "no target", str(movers[0].ref)),))
        placements = tuple(Placement(pod.ref, "s1", 2, _reference(pod)) for pod in movers)
        return Plan(NODE, placements, tuple(pod.ref for pod in self.here() if pod.ends_at is not None))

    def state(self, controller: Controller) -> ControllerState:
        owner = next((owner for owner in self.scenario.owners if owner.controller == controller), None)
        refused = owner is not None and not owner.creates
        return ControllerState(
            controller,
            frozenset([controller.uid]),
            0 if controller in self.gone else self.wanted[controller],
            self.templates[controller],
            exists=controller not in self.gone,
            suspended=controller in self.suspended,
            refusal="exceeded quota" if refused else "",
        )

    def replicas(self, drain: Drain) -> Mapping[Controller, Replicas]:
        asked = (victim for victim in drain.victims.values() if not victim.accepted)
        staying = {victim.pod.uid for victim in (*drain.waiting, *asked)}
        evicted = {pod.uid for pod in drain.evicted}
        return {owner.controller: self._count(owner, staying, evicted) for owner in self.scenario.owners}

    def _count(self, owner: Owner, staying: set[str], evicted: set[str]) -> Replicas:
        pods = [
            pod for uid, pod in self.pods.items() if pod.owner is owner and pod.ends_at is None and uid not in evicted
        ]
        returned = [pod for pod in pods if pod.node == NODE and pod.ref.uid not in staying]
        bound = [pod for pod in pods if pod.node and pod not in returned]
        ready = [pod for pod in bound if pod.ready]
        unschedulable = () if owner.schedulable else tuple(str(pod.ref) for pod in pods if not pod.node)
        unready = tuple(pod.ref.uid for pod in pods if pod not in ready)
        return Replicas(len(pods), len(bound), len(ready), unschedulable, unready, len(returned))


def _reference(pod: SimulatedPod) -> OwnerReference | None:
    if pod.owner is None:
        return None
    known = pod.owner.controller
    return OwnerReference(kind=known.kind, name=known.name, uid=known.uid, controller=True)
