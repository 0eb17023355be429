"""Random courses: a cluster, the flags of the daemon, and what happens to both, all from a seed."""

import datetime as dt
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from rescheduler.planning.pauses import PAUSED, parse_window
from rescheduler.planning.policy import Policy, Surging, Survive
from rescheduler.settings import LEASE, Provider, Running, Timing
from rescheduler.simulation.daemon import DaemonSettings
from rescheduler.simulation.engine import Process
from rescheduler.simulation.happenings import Happening
from rescheduler.simulation.kubelet import PodTimes
from rescheduler.simulation.machines import PoolFaults
from rescheduler.simulation.requests import ApiRequest
from rescheduler.simulation.store import Json, key_of
from rescheduler.simulation.transport import Fault
from rescheduler.simulation.world import World, WorldSettings
from tests.invariants.replay import SeenDrain
from tests.invariants.rules import Rules
from tests.invariants.scenes import STAYING
from tests.simulation.claims import ClaimedWorld
from tests.simulation.observing import SimulatedWatchdog
from tests.simulation.worlds import START, budget, node, workload

#: Seconds without events and faults at the end of a course.
_CALM: Final = 900.0
_SETTLE: Final = 60.0


#: The observer's tolerances: of courses in which replicas are stopped and requests fail, and of the others.
_PATIENT: Final = Rules(staying=STAYING, lag=30.0, look=25.0, slack=60.0, leftover=60.0, abandoned=120.0)
_EXACT: Final = Rules(staying=STAYING, lag=6.0, look=6.0, slack=30.0, leftover=30.0, abandoned=120.0)


#: When drains may start in some courses, which begin at noon.
_WINDOW: Final = dt.time(12, 20), dt.time(13, 10)


@dataclass(frozen=True, slots=True)
class RandomEvent:
    """An event at a time: a line of an events file, or something that happens to the daemon."""

    at: float
    entry: Json

    def __str__(self) -> str:
        return f"{self.at:8.1f} s  {self.entry}"


@dataclass(frozen=True, slots=True)
class RandomCourse:
    """A course of *hours*, which *seed* determines."""

    seed: int
    hours: float
    items: tuple[Json, ...]
    daemon: DaemonSettings
    settings: WorldSettings
    rules: Rules
    events: tuple[RandomEvent, ...]
    faults: float = 0.0  #: the share of requests that fail


@dataclass(frozen=True, slots=True)
class CourseResult:
    violations: tuple[str, ...]
    drains: int
    removals: int
    evictions: int
    faults: int = 0  #: requests that failed, and events of the course


@dataclass(slots=True)
class _Choice:
    """Random choices."""

    source: random.Random
    names: list[str] = field(default_factory=list)

    def one(self, *options: Any) -> Any:
        return self.source.choice(options)

    def chance(self, share: float) -> bool:
        return self.source.random() < share


def new_course(seed: int, hours: float) -> RandomCourse:
    """Return the random course of *seed*."""
    choice = _Choice(random.Random(seed))
    exact = choice.chance(0.5)  # no request fails and nothing stops the daemon, so it is judged more strictly
    landing = float(choice.one(90, 180, 300, 600))
    least = choice.one(0, 0, 0, 1, 2)
    policy = Policy(
        min_on_demand_nodes=least,
        survive=choice.one(Survive.OFF, Survive.OFF, Survive.POOL),
        allow_returning_plans=choice.chance(0.5),
        allow_fragile_plans=choice.chance(0.3),
        surge=choice.one(Surging.OPT_IN, Surging.BLOCKED),
        skip_nodes_with_local_storage=choice.chance(0.9),
        drain_windows=(parse_window("{:%H:%M}-{:%H:%M}".format(*_WINDOW)),) if choice.chance(0.15) else (),
    )
    running = Running(
        provider=Provider("simulated"),
        manage_soft_taint=choice.chance(0.8),
        report_node_conditions=choice.chance(0.3),
        timing=Timing(
            node_drain_delay=dt.timedelta(seconds=choice.one(0, 20, 60, 300)),
            landing_timeout=dt.timedelta(seconds=landing),
            pod_eviction_timeout=dt.timedelta(seconds=choice.one(30, 120)),
            failure_pause=dt.timedelta(seconds=choice.one(30, 120)),
            node_cooldown=dt.timedelta(seconds=choice.one(30, 120)),
            return_wait=dt.timedelta(seconds=choice.one(30, 300)),
            spot_settle=dt.timedelta(seconds=choice.one(0, 120)),
            spot_pool_cooldown=dt.timedelta(seconds=choice.one(0, 120)),
            max_moves_per_pod_per_day=choice.one(0.0, 3.0, 20.0),
        ),
    )
    items = tuple(_items(choice))
    pool = PoolFaults(choice.one(0.0, 0.1), 0.0 if exact else choice.one(0.0, 0.3), choice.one(0.0, 0.1))
    times = PodTimes(flaps_per_pod_day=choice.one(0.0, 4.0, 40.0), refused=choice.one(0.0, 0.0, 0.01, 0.1))
    settings = WorldSettings(
        START,
        seed,
        choice.one(0.0, 6.0, 24.0),
        replicas=choice.one(1, 1, 2),
        times=times,
        pool=pool,
        autoscaler=choice.one("", "cluster-autoscaler", "karpenter"),
        most_nodes=len(items),
    )
    rules = replace(
        _EXACT if exact else _PATIENT,
        landing_timeout=landing,
        minimum=least,
        moves_per_pod_and_day=running.timing.max_moves_per_pod_per_day,
        namespace=running.namespace,
        skip_local_storage=policy.skip_nodes_with_local_storage,
    )
    events = tuple(each for each in _events(choice, hours * 3600) if not (exact and _delays(each)))
    faults = 0.0 if exact else choice.one(0.0, 0.01, 0.05)
    return RandomCourse(seed, hours, items, DaemonSettings(policy, running), settings, rules, events, faults)


def _delays(event: RandomEvent) -> bool:
    """Return whether the daemon acts late because of *event*."""
    return not event.entry.keys().isdisjoint({"freeze", "watches silent", "forbidden"})


def _items(choice: _Choice) -> Sequence[Json]:
    items: list[Json] = []
    items += [_node(choice, f"od-{number}", spot=False) for number in range(choice.source.randint(3, 6))]
    items += [_node(choice, f"spot-{number}", spot=True) for number in range(choice.source.randint(3, 7))]
    for name, value in (("high", 1000), ("low", -10)):
        items.append({"kind": "PriorityClass", "metadata": {"name": name}, "value": value})
    for number in range(choice.source.randint(3, 8)):
        name = f"app-{number}"
        items.append(_workload(choice, name))
        if choice.chance(0.5):
            limits: list[Json] = [
                {"minAvailable": 1},
                {"maxUnavailable": 1},
                {"maxUnavailable": "50%"},
                {"minAvailable": "50%"},
            ]
            items.append(
                budget(
                    name, **choice.one(*limits, {"maxUnavailable": 0} if choice.chance(0.2) else {"maxUnavailable": 2})
                )
            )
        choice.names.append(name)
    if choice.chance(0.3):
        hard = {"pods": str(choice.source.randint(15, 40))}
        items.append(
            {"kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}}
        )
    return items


def _node(choice: _Choice, name: str, *, spot: bool) -> Json:
    item = node(name, spot=spot, cpu=choice.one("4", "8"))
    item["metadata"]["labels"] |= {
        "topology.kubernetes.io/zone": choice.one("zone-a", "zone-b", "zone-c"),
        "node.kubernetes.io/instance-type": choice.one("small", "large"),
    }
    return item


def _workload(choice: _Choice, name: str) -> Json:
    kind = choice.one("Deployment", "Deployment", "Deployment", "StatefulSet")
    large = choice.chance(0.3)  # many small pods, so that a node has several of them
    replicas = choice.source.randint(8, 16) if large else choice.source.randint(1, 6)
    item = workload(
        kind, name, replicas, choice.one("100m", "200m") if large else choice.one("200m", "500m", "1", "1500m")
    )
    spec, template = item["spec"], item["spec"]["template"]["spec"]
    if choice.chance(0.2):
        spec["minReadySeconds"] = choice.one(5, 30)
    if choice.chance(0.3):
        template["priorityClassName"] = choice.one("high", "low")
    if choice.chance(0.3):
        template["terminationGracePeriodSeconds"] = choice.one(1, 60, 100)
    if choice.chance(0.25):
        template["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": choice.one("topology.kubernetes.io/zone", "kubernetes.io/hostname"),
                "whenUnsatisfiable": choice.one("DoNotSchedule", "ScheduleAnyway"),
                "labelSelector": {"matchLabels": {"app": name}},
            }
        ]
    if choice.chance(0.15):
        term = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": "kubernetes.io/hostname"}
        template["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if choice.chance(0.15):
        template["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    if kind == "Deployment" and choice.chance(0.2):
        item["spec"]["template"]["metadata"]["annotations"] = {"spot-rescheduler/surge": "true"}
    if kind == "Deployment" and choice.chance(0.3):
        spec["strategy"] = choice.one(
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        )
    return item


def _events(choice: _Choice, seconds: float) -> Sequence[RandomEvent]:
    """Return the events, in order: about one in two minutes, in bursts."""
    at, events = 60.0, list[RandomEvent]()
    while at < seconds - _CALM:
        events.append(RandomEvent(at, choice.one(*_ACTIONS)(choice)))
        at += choice.source.expovariate(1 / choice.one(5.0, 120.0, 240.0))
    return events


def _app(choice: _Choice) -> str:
    return f"default/{choice.one(*choice.names)}"


#: Annotations of a Node that forbid its drain.
_OPT_OUTS: Final = (
    "spot-rescheduler/do-not-drain",
    "karpenter.sh/do-not-disrupt",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
)

_ACTIONS: Final[tuple[Callable[[_Choice], Json], ...]] = (
    lambda choice: {"scale": _app(choice), "replicas": choice.source.randint(0, 7)},
    lambda choice: {"scale": _app(choice), "replicas": choice.source.randint(1, 5)},
    lambda choice: {"roll-out": _app(choice)},
    lambda choice: {"stuck": _app(choice), "for": f"{choice.one(30, 200, 900)}s"},
    lambda choice: {"lose": 1, "notice": choice.chance(0.7)},
    lambda choice: {"silent": choice.one("od-0", "od-1", "spot-0", "spot-1"), "for": f"{choice.one(20, 90, 400)}s"},
    lambda choice: {"delete": f"Deployment {_app(choice)}"},
    lambda choice: {"kill": choice.source.randint(0, 1)},
    lambda choice: {"kill": choice.source.randint(0, 1)},
    lambda choice: {"freeze": choice.source.randint(0, 1), "seconds": choice.one(3, 9, 18)},
    lambda choice: {"join": choice.one("od-0", "od-1", "spot-0")},
    lambda choice: {"back": choice.source.randint(2, 14)},
    lambda choice: {"back": choice.source.randint(2, 14)},
    lambda choice: {"back": choice.source.randint(2, 14)},
    lambda choice: {"back": choice.source.randint(2, 14)},
    lambda choice: {"lose pods": choice.source.randint(1, 3)},
    lambda choice: {"scheduler away": choice.one(10, 60, 200)},
    lambda choice: {"opt out": choice.one(*_OPT_OUTS), "for": choice.one(300, 1200, 3600)},
    lambda choice: {"keep pods": choice.source.randint(1, 4), "for": choice.one(60, 300, 1200)},
    lambda choice: {"same name": choice.source.randint(0, 5)},
    lambda choice: {"watches silent": choice.one(20, 60, 140)},
    lambda choice: {"forbidden": choice.one("nodes", "pods", "poddisruptionbudgets"), "for": choice.one(20, 100)},
    lambda choice: {"pause": choice.one(60, 300, 900)},
)


def _move_back(world: World, number: int, like: Json) -> None:
    """Add an on-demand node like *like*, and let *number* pods be created again while no spot node takes pods."""
    world.machines.join(like, 5.0)

    def cordon(*, closed: bool) -> None:
        for item in world.store.all("nodes"):
            if world.is_spot(item):
                world.store.patch("nodes", item["metadata"]["name"], {"spec": {"unschedulable": closed or None}})

    def begin() -> None:
        cordon(closed=True)
        pods = [pod for pod in world.store.all("pods") if not pod["metadata"].get("deletionTimestamp")]
        for pod in pods[:: max(len(pods) // number, 1)][:number]:
            world.server.deletion.delete_pod(pod)
        world.engine.after(30.0, lambda: cordon(closed=False))

    world.engine.after(8.0, begin)


def _annotate(world: World, plural: str, item: Json, key: str, seconds: float) -> None:
    """Let *item* have the annotation *key* for *seconds*."""

    def put(value: str | None) -> None:
        current = world.store.get(plural, key_of(item))
        if current is not None and current["metadata"]["uid"] == item["metadata"]["uid"]:
            world.store.patch(plural, key_of(item), {"metadata": {"annotations": {key: value}}})

    put("true")
    world.engine.after(seconds, lambda: put(None))


def _replace_node(world: World, number: int) -> None:
    """Delete an on-demand node. A minute later, another machine has a Node of the same name."""
    nodes = [item for item in world.store.all("nodes") if world.is_on_demand(item)]
    if not nodes:
        return
    old = nodes[number % len(nodes)]
    meta = {name: old["metadata"][name] for name in ("name", "labels")}
    new = {**old, "metadata": meta, "spec": {"providerID": f"{old['spec']['providerID']}-again"}}
    world.machines.end(old, "cloud")
    world.store.delete("nodes", meta["name"])
    world.engine.after(60.0, lambda: world.store.create("nodes", new))


def run(course: RandomCourse, make: type[World] = World) -> CourseResult:
    """Run *course* in a world of the kind *make*, and judge it. Raises the error that ended a thread of the daemon."""
    world = make(course.items, course.settings, course.daemon)
    world.run(_SETTLE)
    watchdog = SimulatedWatchdog(world, course.rules)
    end = world.engine.now + course.hours * 3600
    faults = _RandomFaults(course, world, end - _CALM)
    world.network.fault = faults
    for event in course.events:
        world.engine.after(event.at, partial(_happen, event.entry, world))
    world.start_daemons()
    try:
        world.run(course.hours * 3600)
    finally:
        judged = watchdog.judgement()
        world.close()
    history = watchdog.history()
    evictions = sum(write.kind == "pods/eviction" and write.accepted and not write.dry_run for write in history.writes)
    drains = len(judged.scene.now.all_drains)
    begun = judged.scene.now.all_drains
    violations = (*map(str, judged.violations), *watchdog.in_pauses(begun), *_outside_window(course, begun))
    if isinstance(world, ClaimedWorld):
        violations += tuple(world.broken)
    return CourseResult(violations, drains, len(history.terminations), evictions, faults.sent + len(course.events))


def _outside_window(course: RandomCourse, drains: Iterable[SeenDrain]) -> list[str]:
    """Return the *drains* that began outside the drain window of *course*."""
    opens, closes = _WINDOW if course.daemon.policy.drain_windows else (dt.time.min, dt.time.max)
    lag = dt.timedelta(seconds=course.rules.lag)
    outside = (each for each in drains if not opens <= each.began.time() or not (each.began - lag).time() < closes)
    text = "promise (no drain begins outside the drain windows): a drain of node"
    return [f"{each.began:%H:%M:%S.%f} {text} {each.node} began" for each in outside]


class _RandomFaults:
    """Lets a share of the requests fail until the time *until*; of those for machines also as many as of the pool."""

    def __init__(self, course: RandomCourse, world: World, until: float) -> None:
        self.sent = 0
        self._world, self._until = world, until
        self._share, self._of_machines = course.faults, course.settings.pool.failed
        self._source = random.Random(f"faults of {course.seed}")

    def __call__(self, _: Process, request: ApiRequest) -> Fault | None:
        share = max(self._share, self._of_machines if "/nodeclaims" in request.path else 0.0)
        if not share or self._world.engine.now > self._until or self._source.random() >= share:
            return None
        self.sent += 1
        code = self._source.choice((0, 0, 500, 503, 429, 409, 504))
        carried_out = self._source.random() < 1 / 2
        return Fault(code, carried_out=carried_out, seconds=self._source.choice((0.0, 1.0, 12.0, 60.0)))


def _happen(entry: Json, world: World) -> None:
    """Do what an entry says."""
    match entry:
        case {"kill": number}:
            world.daemons[number % len(world.daemons)].kill()
        case {"freeze": number, "seconds": seconds}:
            world.daemons[number % len(world.daemons)].freeze(seconds)
        case {"join": name}:
            like = next((item for item in world.store.all("nodes") if item["metadata"]["name"] == name), None)
            if like is not None:
                clean = {**like, "metadata": {**like["metadata"], "annotations": {}}}
                world.machines.join(clean)
        case {"back": number}:
            _move_back(world, number, node("od-0"))
        case {"lose pods": number}:
            pods = [pod for pod in world.store.all("pods") if not pod["metadata"].get("deletionTimestamp")]
            for pod in pods[:: max(len(pods) // number, 1)][:number]:
                world.server.deletion.delete_pod(pod)
        case {"opt out": key, "for": seconds}:
            nodes = [item for item in world.store.all("nodes") if world.is_on_demand(item)]
            for item in nodes[::2]:
                _annotate(world, "nodes", item, key, seconds)
        case {"keep pods": number, "for": seconds}:
            for pod in list(world.store.all("pods"))[:: max(len(world.store.tables["pods"]) // number, 1)]:
                _annotate(world, "pods", pod, "spot-rescheduler/do-not-evict", seconds)
        case {"same name": number}:
            _replace_node(world, number)
        case {"watches silent": seconds}:
            world.network.silent_until = world.engine.now + seconds
        case {"forbidden": plural, "for": seconds}:
            world.network.forbidden[plural] = world.engine.now + seconds
        case {"pause": seconds}:
            named = (each for each in world.store.all("leases") if each["metadata"]["name"] == LEASE)
            if (lease := next(named, None)) is not None:
                _annotate(world, "leases", lease, PAUSED, seconds)
        case {"scheduler away": seconds}:
            world.scheduling.pause(paused=True)
            world.engine.after(seconds, lambda: world.scheduling.pause(paused=False))
        case _:
            Happening(0, {"at": "0s", **entry}, "course").happen(world)


def shrunk(course: RandomCourse, fails: Callable[[RandomCourse], bool], tries: int = 60) -> RandomCourse:
    """Return *course* with as few events as can be found in *tries* runs, so that it still *fails*."""
    size = max(len(course.events) // 2, 1)
    while tries and course.events:
        for start in range(0, len(course.events), size):
            fewer = replace(course, events=course.events[:start] + course.events[start + size :])
            tries -= 1
            if fails(fewer):
                course = fewer
                break
            if not tries:
                break
        else:
            if size == 1:
                break
            size //= 2
    return course
