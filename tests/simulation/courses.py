"""Random courses: a cluster, the flags of the daemon, and what happens to both, all from a seed."""

import datetime as dt
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Final

from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.pauses import parse_window
from rescheduler.planning.policy import DrainOrder, Leftovers, Policy, Surging, Survive
from rescheduler.settings import Provider, Running, Timing
from rescheduler.simulation.daemon import DaemonSettings
from rescheduler.simulation.engine import Process
from rescheduler.simulation.kubelet import PodTimes
from rescheduler.simulation.machines import PoolFaults
from rescheduler.simulation.requests import ApiRequest
from rescheduler.simulation.store import Json
from rescheduler.simulation.transport import Fault
from rescheduler.simulation.world import World, WorldSettings
from tests.invariants.replay import SeenDrain
from tests.invariants.rules import Rules
from tests.invariants.scenes import STAYING
from tests.simulation.acts import Acts
from tests.simulation.claims import ClaimedWorld
from tests.simulation.drain_acts import DrainActs
from tests.simulation.move_promises import PINNED, PRICES, not_worth_it
from tests.simulation.observing import SimulatedWatchdog
from tests.simulation.random_events import CALM, Choice, RandomEvent, Weather, random_events, random_weather
from tests.simulation.worlds import LARGE, START, budget, node, workload

#: Seconds until the daemon starts.
_SETTLE: Final = 60.0


#: For how long an order may take effect, in seconds. Until then the taint stays, also if another client removes the
#: annotation.
_UNCERTAIN: Final = 200.0

#: The observer's tolerances: of courses in which replicas are stopped and requests fail, and of the others.
_NEW: Final = Rules(staying=STAYING, first_runs=True, paced=True, leftover=_UNCERTAIN, abandoned=120.0)
_PATIENT: Final = replace(_NEW, lag=30.0, look=25.0, slack=60.0)
_EXACT: Final = replace(_NEW, lag=3.0, look=2.0, slack=30.0)

#: Seconds of a burst of events.
_BURST: Final = 600.0

#: The namespaces of the workloads.
NAMESPACES: Final = ("default", "shop", "search")

#: When drains may start in some courses, which begin at noon.
_WINDOW: Final = dt.time(12, 10), dt.time(12, 40)


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


def new_course(seed: int, hours: float, acts: Collection[str] = ()) -> RandomCourse:
    """Return the random course of *seed*, in which something happens about every minute.

    With *acts*, nothing but these happens, in drains; by default, all that may happen, or a few kinds of it.
    """
    choice = Choice(random.Random(seed))
    exact = choice.chance(0.5)  # no request fails and nothing stops the daemon, so it is judged more strictly
    landing = float(choice.one(90, 90, 180, 300))
    least = choice.one(0, 0, 1, 2, 3)
    policy = Policy(
        min_on_demand_nodes=least,
        survive=Survive.POOL if choice.chance(0.15) else Survive.OFF,
        allow_returning_plans=choice.chance(0.5),
        allow_fragile_plans=choice.chance(0.3),
        surge=choice.one(Surging.OPT_IN, Surging.BLOCKED),
        skip_nodes_with_local_storage=choice.chance(0.9),
        drain_windows=(parse_window("{:%H:%M}-{:%H:%M}".format(*_WINDOW)),) if choice.chance(0.07) else (),
    )
    running = Running(
        provider=Provider("simulated"),
        manage_soft_taint=choice.chance(0.8),
        report_node_conditions=choice.chance(0.3),
        timing=Timing(
            node_drain_delay=dt.timedelta(seconds=choice.one(0, 0, 10, 60)),
            landing_timeout=dt.timedelta(seconds=landing),
            pod_eviction_timeout=dt.timedelta(seconds=choice.one(30, 120)),
            failure_pause=dt.timedelta(seconds=30),
            node_cooldown=dt.timedelta(seconds=30),
            return_wait=dt.timedelta(seconds=choice.one(10, 60)),
            spot_settle=dt.timedelta(seconds=choice.one(0, 30)),
            spot_pool_cooldown=dt.timedelta(seconds=choice.one(0, 30)),
            max_moves_per_pod_per_day=choice.one(0.0, 0.0, 0.0, 0.0, 3.0),
        ),
    )
    items = tuple(_items(choice))
    moves = Choice(random.Random(f"moves of {seed}"))
    items, policy = (items, policy) if moves.chance(0.4) else (_pinned(moves, items), _moving(moves, policy))
    pool = PoolFaults(choice.one(0.0, 0.1), choice.one(0.0, 0.3), choice.one(0.0, 0.5))
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
        drain_delay=running.timing.node_drain_delay.total_seconds(),
        moves_per_pod_and_day=running.timing.max_moves_per_pod_per_day,
        leftover_rest=policy.leftover_rest,
        namespace=running.namespace,
        skip_local_storage=policy.skip_nodes_with_local_storage,
    )
    weather = Weather().only(acts) if acts else random_weather(Choice(random.Random(f"weather of {seed}")))
    happening = random_events(choice, hours * 3600, weather)
    events = tuple(each for each in happening if not (exact and each.delays))
    faults = 0.0 if exact else choice.one(0.0, 0.01, 0.05)
    daemon = DaemonSettings(policy, running, prices=PRICES if moves.chance(0.7) else PriceList())
    return RandomCourse(seed, hours, items, daemon, settings, rules, events, faults)


def _moving(choice: Choice, policy: Policy) -> Policy:
    """Return *policy* with flags about leftovers, and about what a move is worth."""
    return replace(
        policy,
        leftovers=choice.one(Leftovers.MOVE, Leftovers.MOVE, Leftovers.PLAN),
        leftover_rest=choice.one(60.0, 600.0, 86_400.0),
        drain_order=choice.one(DrainOrder.LEAST_REQUESTED, DrainOrder.WORTH),
        min_worth=choice.one(0.0, 0.0, 10.0, 40.0, 100.0),
    )


def _pinned(choice: Choice, items: Sequence[Json]) -> tuple[Json, ...]:
    """Return *items* with further workloads, whose pods must not run on spot nodes."""
    more = []
    for number in range(choice.source.randint(1, 4)):
        name = f"{PINNED}-{number}"
        item = workload(
            choice.one("Deployment", "StatefulSet"), name, choice.source.randint(1, 3), choice.one("100m", "500m", "1")
        )
        item["spec"]["template"]["spec"]["nodeSelector"] = {"node-role.kubernetes.io/worker": ""}
        more.append(item)
        more += [budget(name, maxUnavailable=1)] if choice.chance(0.3) else []
    return *items, *more


def stretched(course: RandomCourse, hours: float) -> RandomCourse:
    """Return *course* in *hours*: its events happen in bursts of ten minutes, with hours between them."""
    bursts = max(round(course.hours * 3600 / _BURST), 2)
    pause, ratio = (hours - course.hours) * 3600 / (bursts - 1), course.hours / hours
    events = tuple(replace(each, at=each.at + each.at // _BURST * pause) for each in course.events)
    times = course.settings.times
    settings = replace(
        course.settings,
        spot_losses=course.settings.spot_losses * ratio,
        times=replace(times, flaps_per_pod_day=times.flaps_per_pod_day * ratio),
    )
    return replace(course, hours=hours, settings=settings, events=events)


def _items(choice: Choice) -> Sequence[Json]:
    items: list[Json] = []
    items += [_node(choice, f"od-{number}", spot=False) for number in range(choice.source.randint(3, 6))]
    items += [_node(choice, f"spot-{number}", spot=True) for number in range(choice.source.randint(5, 8))]
    for name, value in (("high", 1000), ("low", -10)):
        items.append({"kind": "PriorityClass", "metadata": {"name": name}, "value": value})
    for number in range(choice.source.randint(5, 9)):
        name, namespace = f"app-{number}", choice.one(*NAMESPACES)
        items.append(_workload(choice, name, namespace))
        if choice.chance(0.5):
            limits: list[Json] = [
                {"minAvailable": 1},
                {"maxUnavailable": 1},
                {"maxUnavailable": "50%"},
                {"minAvailable": "50%"},
            ]
            items.append(
                budget(
                    name,
                    namespace=namespace,
                    **choice.one(*limits, {"maxUnavailable": 0} if choice.chance(0.2) else {"maxUnavailable": 2}),
                )
            )
        choice.names.append(f"{namespace}/{name}")
    if choice.chance(0.1):
        hard = {"pods": str(choice.source.randint(15, 40))}
        items.append(
            {
                "kind": "ResourceQuota",
                "metadata": {"name": "q", "namespace": choice.one(*NAMESPACES)},
                "spec": {"hard": hard},
            }
        )
    return items


def _node(choice: Choice, name: str, *, spot: bool) -> Json:
    item = node(name, spot=spot, cpu=choice.one("4", "8") if not spot else choice.one("8", "8", "4"))
    item["metadata"]["labels"] |= {
        "topology.kubernetes.io/zone": choice.one("zone-a", "zone-b", "zone-c"),
        "node.kubernetes.io/instance-type": choice.one("small", "large"),
    }
    return item


def _workload(choice: Choice, name: str, namespace: str) -> Json:
    kind = choice.one("Deployment", "Deployment", "Deployment", "StatefulSet")
    large = choice.chance(0.3)  # many small pods, so that a node has several of them
    replicas = choice.source.randint(8, 16) if large else choice.source.randint(1, 8)
    item = workload(
        kind,
        name,
        replicas,
        choice.one("50m", "100m") if large else choice.one("100m", "200m", "200m", "500m", "1", "1500m"),
        namespace=namespace,
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
    if choice.chance(0.05):
        template["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    if kind == "Deployment" and choice.chance(0.2):
        item["spec"]["template"]["metadata"]["annotations"] = {"spot-rescheduler/surge": "true"}
    if kind == "Deployment" and choice.chance(0.3):
        spec["strategy"] = choice.one(
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        )
    return item


def run(course: RandomCourse, make: type[World] = World) -> CourseResult:
    """Run *course* in a world of the kind *make*, and judge it. Raises the error that ended a thread of the daemon."""
    world = make(course.items, course.settings, course.daemon)
    world.run(_SETTLE)
    watchdog = SimulatedWatchdog(world, course.rules)
    end = world.engine.now + course.hours * 3600
    acts = Acts(world)
    drain_acts = DrainActs(world, acts)
    world.market.back_after = 60.0, 300.0
    faults = _RandomFaults(course, world, acts.failing, end - CALM)
    world.network.fault = faults
    for event in course.events:
        world.engine.after(event.at, partial(drain_acts.happen, event.entry))
    world.engine.at(end - CALM, drain_acts.end)
    world.start_daemons()
    try:
        world.run(course.hours * 3600)
    finally:
        judged = watchdog.judgement()
        world.close()
    history = watchdog.history()
    evictions = sum(write.kind == "pods/eviction" and write.accepted and not write.dry_run for write in history.writes)
    drains = len(judged.scene.now.all_drains)
    begun = [each for each in judged.scene.now.all_drains if not each.restored]
    policy = course.daemon.policy
    promises = [*watchdog.in_pauses(begun), *watchdog.of_requests(), *_outside_window(course, begun)]
    if policy.min_worth and not course.daemon.prices.empty:
        promises += not_worth_it(begun, _cpus(course.items), Decimal(policy.min_worth))
    violations = (*map(str, judged.violations), *promises)
    if isinstance(world, ClaimedWorld):
        violations += tuple(world.broken)
    return CourseResult(violations, drains, len(history.terminations), evictions, faults.sent + len(course.events))


def _cpus(items: Iterable[Json]) -> dict[str, int]:
    """Return the vCPU of the nodes among *items* by name."""
    nodes = (each for each in (LARGE, *items) if each["kind"] == "Node")
    return {each["metadata"]["name"]: int(each["status"]["allocatable"]["cpu"]) for each in nodes}


def _outside_window(course: RandomCourse, drains: Iterable[SeenDrain]) -> list[str]:
    """Return the *drains* that began outside the drain window of *course*."""
    opens, closes = _WINDOW if course.daemon.policy.drain_windows else (dt.time.min, dt.time.max)
    lag = dt.timedelta(seconds=course.rules.lag)
    outside = (each for each in drains if not opens <= each.began.time() or not (each.began - lag).time() < closes)
    text = "promise (no drain begins outside the drain windows): a drain of node"
    return [f"{each.began:%H:%M:%S.%f} {text} {each.node} began" for each in outside]


class _RandomFaults:
    """Lets a share of the requests fail until the time *until*; of those for machines also as many as of the pool.

    The next ones have the codes *failing*, until they are used up.
    """

    def __init__(self, course: RandomCourse, world: World, failing: list[int], until: float) -> None:
        self.sent = 0
        self._world, self._until, self._failing = world, until, failing
        self._share, self._of_machines = course.faults, course.settings.pool.failed
        self._source = random.Random(f"faults of {course.seed}")

    def __call__(self, _: Process, request: ApiRequest) -> Fault | None:
        share = max(self._share, self._of_machines if "/nodeclaims" in request.path else 0.0)
        late = self._world.engine.now > self._until
        if not self._failing and (late or not share or self._source.random() >= share):
            return None
        self.sent += 1
        code = self._failing.pop() if self._failing else self._source.choice((0, 0, 500, 503, 429, 409, 504))
        carried_out = self._source.random() < 1 / 2
        return Fault(code, carried_out=carried_out, seconds=self._source.choice((0.0, 1.0, 12.0, 60.0)))


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
