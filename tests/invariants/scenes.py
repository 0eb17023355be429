"""Scenes in which the safeguards of the daemon have an effect."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Final

from devcluster.cloudpool.server import CloudpoolServer
from devcluster.errors import PlaneError
from devcluster.manifests import ON_DEMAND, deployment, namespace, statefulset
from devcluster.plane import ControlPlane
from devcluster.stages import READY_ON, START_AFTER, TERMINATE_AFTER
from devcluster.standin.faults import Fault
from rescheduler.clock import SystemClock
from tests.cluster.bad_days import FLAGS, NAMESPACE, NODE_1, NODE_2
from tests.cluster.daemon import Daemon
from tests.cluster.machines import machines
from tests.cluster.observer import Observer
from tests.cluster.replicas import ReplicatedInstallation, installed
from tests.cluster.takeovers import rendered
from tests.cluster.test_bad_days_replacements import webhook
from tests.invariants.rules import Rules
from tests.soak.workloads import PRIORITY

#: Replacement pods have been Ready for 10 s when a machine is ordered. Conditions have whole seconds.
STAYING: Final = 9.0

#: The landing timeout, and tolerances for a machine that is not busy.
TIMEOUT: Final = 5.0
QUICK: Final = Rules(
    landing_timeout=TIMEOUT,
    namespace=NAMESPACE,
    lag=3.0,
    slack=8.0,
    leftover=4.0,
    abandoned=20.0,
    look=3.0,
    staying=STAYING,
    first_runs=True,
)
PATIENT: Final = replace(QUICK, landing_timeout=20.0)
SLOW: Final = {START_AFTER: "1s"}
SAFE: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"

OTHER: Final = "shop"  #: another namespace
NODE_3: Final = "on-demand-3"
PATIENCE: Final = 45.0  #: longer than the landing timeout and the tolerances together, also on a busy machine

INTERRUPTED: Final = "aws-node-termination-handler/spot-itn"


@dataclass(frozen=True, slots=True)
class Stage:
    """The environment of a scene."""

    plane: ControlPlane
    observer: Observer
    folder: Path
    program: tuple[str, ...]  #: the Python arguments that start the daemon


@dataclass(slots=True)
class RunningScene:
    """A prepared scene."""

    rules: Rules
    done: Callable[[], object]  #: whether the intact daemon has completed the scene
    pool: CloudpoolServer | None = None
    flags: tuple[str, ...] = ()
    disturb: Callable[[], None] = field(default=lambda: None)  #: called after the daemons are started
    daemons: Callable[[], Daemon] | None = None  #: creates the last of several daemons


def slow_pods(stage: Stage) -> Iterator[RunningScene]:
    """Prepare pods that become Ready after a second, so that the steps of a drain are visible."""
    observer = stage.observer
    observer.nodes(1, 2)
    stage.plane.apply([deployment("web", 5, annotations=SLOW)])
    observer.running(5)
    observer.open_spot()
    yield RunningScene(QUICK, lambda: observer.kinds() == {"spot": 5} and not observer.marks())


def rejected_pods(stage: Stage) -> Iterator[RunningScene]:
    """Prepare two nodes, and a webhook that rejects replacement pods long before the landing timeout."""
    observer = stage.observer
    observer.nodes(2, 2)
    observer.start_on(NODE_1, deployment("web", 2), pods=2)
    observer.start_on(NODE_2, deployment("next", 2, cpu="1"), pods=2)
    observer.running(4)
    stage.plane.apply([webhook(NAMESPACE)])
    observer.open_all()
    flags = ("--node-cooldown=1h", "--node-cooldown-max=1h")
    yield RunningScene(replace(QUICK, landing_timeout=90.0), lambda: _is_aborted(observer), flags=flags)


def _is_aborted(observer: Observer) -> bool:
    observer.eventually(observer.evictions, "an eviction")
    observer.wait_unmarked()
    observer.stays(lambda: set(observer.evicted()), {"default/web"}, seconds=3)
    return True


def empty_machines(stage: Stage) -> Iterator[RunningScene]:
    """Prepare a pool that terminates the machines of drained nodes."""
    with machines(stage.observer, stage.folder, 2, 2) as pool:
        stage.observer.start_on("od-1", deployment("web", 1, annotations={START_AFTER: "8s"}), pods=1)
        stage.observer.start_on("od-2", deployment("keep", 2, annotations={SAFE: "false"}), pods=2)
        stage.observer.running(3)
        stage.observer.open_all()
        yield RunningScene(
            PATIENT, lambda: stage.observer.node_names() == ["od-2", "spot-1", "spot-2"], pool.server, pool.flags
        )


def late_pod(stage: Stage) -> Iterator[RunningScene]:
    """Bind a pod that must not be evicted but tolerates the taint to the node during the drain."""
    with machines(stage.observer, stage.folder, 1, 2) as pool:
        stage.observer.start_on("od-1", deployment("web", 1, annotations={START_AFTER: "5s"}), pods=1)
        stage.observer.running(1)
        stage.observer.open_all()
        late = deployment("late", 1, annotations={SAFE: "false"}, nodeName="od-1", tolerations=[{"operator": "Exists"}])

        def disturb() -> None:
            stage.observer.eventually(stage.observer.evictions, "an eviction")
            stage.plane.apply([late])

        done = _drain_ended(stage.observer)
        yield RunningScene(PATIENT, done, pool.server, pool.flags, disturb)


def _drain_ended(observer: Observer) -> Callable[[], bool]:
    return lambda: bool(observer.evictions()) and not observer.marks()


def lost_again(stage: Stage) -> Iterator[RunningScene]:
    """Delete the moved pods while the pool answers 503, and reject new ones; then the pool answers again."""
    observer = stage.observer
    with machines(observer, stage.folder, 1, 2) as pool:
        observer.start_on("od-1", deployment("web", 2), pods=2)
        observer.running(2)
        observer.open_all()
        pool.faulty_app.inject(Fault(path="/pool/terminate", status=503, times=10_000))

        def disturb() -> None:
            observer.eventually(pool.orders, "an order")
            stage.plane.apply([webhook("default")])
            for pod in observer.pods("web"):
                path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
                stage.plane.api.delete(path, gracePeriodSeconds=0)
            SystemClock().wait(PATIENT.look + 1, Event())
            pool.faulty_app.forget()

        flags = (*pool.flags, "--node-cooldown=1h", "--node-cooldown-max=1h")
        yield RunningScene(PATIENT, _drain_ended(observer), pool.server, flags, disturb)


def never_runs(stage: Stage) -> Iterator[RunningScene]:
    """Prepare a pod that never becomes Ready on spot nodes; the node is looked at again a second after the drain."""
    observer = stage.observer
    with machines(observer, stage.folder, 1, 2) as pool:
        observer.start_on("od-1", deployment("web", 1, annotations={READY_ON: "od"}), pods=1)
        observer.running(1)
        observer.open_all()
        flags = (*pool.flags, "--failure-pause=1h", "--failure-pause-max=1h")
        yield RunningScene(QUICK, lambda: _keeps_machines(observer), pool.server, flags)


def _keeps_machines(observer: Observer) -> bool:
    """Wait until a drain has failed, and return whether its machine stays after that."""
    observer.eventually(observer.evictions, "an eviction")
    observer.wait_unmarked()
    observer.stays(lambda: "od-1" in observer.node_names(), True, seconds=10)
    return True


def noticed_target(stage: Stage) -> Iterator[RunningScene]:
    """Announce the end of the only spot node while the pool answers 503; then the pool answers again."""
    observer = stage.observer
    with machines(observer, stage.folder, 1, 1) as pool:
        observer.start_on("od-1", deployment("web", 2), pods=2)
        observer.running(2)
        observer.open_all()
        pool.faulty_app.inject(Fault(path="/pool/terminate", status=503, times=10_000))

        def disturb() -> None:
            observer.eventually(pool.orders, "an order")
            taint = {"key": INTERRUPTED, "effect": "NoSchedule"}
            stage.plane.api.patch("/api/v1/nodes/spot-1", {"spec": {"taints": [taint]}})
            SystemClock().wait(PATIENT.look + 1, Event())
            pool.faulty_app.forget()

        yield RunningScene(PATIENT, lambda: _keeps_machines(observer), pool.server, pool.flags, disturb)


def preempted_pods(stage: Stage) -> Iterator[RunningScene]:
    """Fill the spot node with pods of a lower priority while a pod moves there."""
    observer, important = stage.observer, {**PRIORITY, "metadata": {"name": "important"}}
    stage.plane.apply([important])
    with machines(observer, stage.folder, 1, 1) as pool:
        work = statefulset("work", 1, cpu="1", annotations={TERMINATE_AFTER: "3s"}, priorityClassName="important")
        observer.start_on("od-1", work, pods=1)
        observer.running(1)
        observer.open_all()

        def disturb() -> None:
            observer.eventually(observer.evictions, "an eviction")
            stage.plane.apply([deployment("low", 4, cpu="1")])

        flags = (*pool.flags, "--node-cooldown=1h", "--node-cooldown-max=1h")
        yield RunningScene(PATIENT, _drain_ended(observer), pool.server, flags, disturb)
    stage.plane.api.delete(stage.plane.api.path(important))


def two_nodes(stage: Stage) -> Iterator[RunningScene]:
    """Prepare two on-demand nodes with a minimum of two."""
    observer = stage.observer
    observer.nodes(2, 2)
    for node, app in ((NODE_1, "web"), (NODE_2, "next")):
        observer.start_on(node, deployment(app, 2), pods=2)
    observer.running(4)
    observer.open_all()
    rules = Rules(minimum=2, namespace=NAMESPACE, lag=3.0, slack=8.0)
    yield RunningScene(rules, lambda: _stays_idle(observer), flags=("--min-on-demand-nodes=2",))


def _stays_idle(observer: Observer) -> bool:
    observer.eventually(lambda: observer.messages(NODE_1, "DrainBlocked"), "the blocker")
    observer.stays(lambda: dict(observer.evicted()), {}, seconds=2)
    return True


def protected(stage: Stage) -> Iterator[RunningScene]:
    """Prepare a node with a pod that must not be evicted."""
    observer = stage.observer
    observer.nodes(1, 2)
    stage.plane.apply([deployment("web", 1), deployment("keep", 1, annotations={SAFE: "false"})])
    observer.running(2)
    observer.open_spot()
    yield RunningScene(QUICK, lambda: _stays_idle(observer))


def few_moves(stage: Stage) -> Iterator[RunningScene]:
    """Prepare an owner with two pods, of which one may be moved per day."""
    observer = stage.observer
    observer.nodes(1, 2)
    stage.plane.apply([deployment("web", 2)])
    observer.running(2)
    observer.open_spot()
    rules = Rules(moves_per_pod_and_day=0.5, namespace=NAMESPACE, lag=3.0, slack=8.0)
    yield RunningScene(rules, lambda: _stays_idle(observer), flags=("--max-moves-per-pod-per-day=0.5",))


def lost_target(stage: Stage) -> Iterator[RunningScene]:
    """Add an interruption taint, which the pods tolerate, to the only spot node during a drain."""
    observer = stage.observer
    observer.nodes(1, 1)
    tolerant = [{"key": INTERRUPTED, "operator": "Exists"}]
    stage.plane.apply([deployment("web", 8, annotations={START_AFTER: "3s"}, tolerations=tolerant)])
    observer.running(8)
    observer.open_spot()

    def disturb() -> None:
        observer.eventually(lambda: len(observer.evictions()) >= 2, "the second eviction")
        taint = {"key": INTERRUPTED, "effect": "NoSchedule"}
        stage.plane.api.patch("/api/v1/nodes/spot-1", {"spec": {"taints": [taint]}})

    yield RunningScene(PATIENT, _drain_ended(observer), disturb=disturb)


def two_replicas(stage: Stage) -> Iterator[RunningScene]:
    """Prepare two replicas with separate tokens, of which only one leads."""
    observer = stage.observer
    observer.nodes(3, 2)
    for number, app in enumerate(("web", "next", "last"), start=1):
        observer.start_on(f"on-demand-{number}", deployment(app, 3, annotations=SLOW), pods=3)
    observer.running(9)
    objects = rendered(fenced=False)
    with installed(ReplicatedInstallation(stage.plane), objects) as installation:
        observer.open_all()
        own = Rules(namespace=installation.namespace, lag=3.0, slack=8.0, leftover=30.0)
        flags = (*FLAGS, "--max-moves-per-pod-per-day=0")
        second = installation.daemon("b", *flags, program=stage.program)
        with second:
            yield RunningScene(
                own,
                lambda: observer.kinds().get("spot") == 9 and not observer.marks(),
                daemons=lambda: installation.daemon("a", *flags, program=stage.program),
            )


def missing_pods(stage: Stage) -> Iterator[RunningScene]:
    """Prepare two nodes with pods of two namespaces, and a webhook that rejects replacement pods of the first one."""
    observer = stage.observer
    observer.nodes(2, 2)
    stage.plane.apply([namespace(OTHER)])
    observer.start_on(NODE_1, deployment("web", 2), pods=2)
    observer.start_on(NODE_2, deployment("next", 2, namespace=OTHER, cpu="1"), pods=2)
    observer.running(4)
    stage.plane.apply([webhook(NAMESPACE)])
    observer.open_all()

    def disturb() -> None:
        """Let the pods be created long after their landing timeout, unless the other node is drained before."""
        observer.eventually(observer.evictions, "an eviction")
        with contextlib.suppress(PlaneError):
            observer.eventually(lambda: _is_moved(observer), "the other node drained", seconds=PATIENCE)
        stage.plane.api.delete(stage.plane.api.path(webhook(NAMESPACE)))
        observer.eventually(lambda: _created_again(stage), "the pods created")

    flags = ("--node-cooldown=1h", "--node-cooldown-max=1h")
    yield RunningScene(QUICK, lambda: _is_moved(observer) and not observer.marks(), flags=flags, disturb=disturb)


def _created_again(stage: Stage) -> bool:
    """Let the controller try again now, and return whether it has its pods: its waits have grown to a minute."""
    sets = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"
    for each in stage.plane.api.items(sets):
        tried = {"metadata": {"annotations": {"tried": str(SystemClock().monotonic())}}}
        stage.plane.api.patch(f"{sets}/{each['metadata']['name']}", tried)
    return len(stage.observer.pods("web")) == 2


def _is_moved(observer: Observer) -> bool:
    return observer.kinds("next") == {"spot": 2}


def leftovers(stage: Stage) -> Iterator[RunningScene]:
    """Prepare two nodes with a pod each that only on-demand nodes accept. After a drain, one other accepts both."""
    observer, pinned = stage.observer, {"nodeSelector": {ON_DEMAND: "true"}}
    observer.nodes(3, 1)
    observer.start_on(NODE_1, deployment("web", 1), deployment("left", 1, **pinned), pods=2)
    observer.start_on(NODE_2, deployment("other", 1, **pinned), pods=1)
    observer.start_on(NODE_3, deployment("keep", 1, annotations={SAFE: "false"}), pods=1)
    observer.running(4)
    observer.open_all()
    observer.cordon(NODE_3)

    def disturb() -> None:
        observer.eventually(observer.evictions, "an eviction")
        observer.wait_unmarked()
        observer.cordon(NODE_2)  # nobody removes it, and a leftover that could land on it would reject the next plan
        observer.cordon(NODE_3, off=True)

    flags = ("--leftovers=move", "--return-wait=0")
    yield RunningScene(QUICK, lambda: _moves_once(observer), flags=flags, disturb=disturb)


def _moves_once(observer: Observer) -> bool:
    observer.stays(lambda: len(observer.markings()), 1, seconds=10)
    return True


SCENES: Final[dict[str, Callable[[Stage], Iterator[RunningScene]]]] = {
    scene.__name__.replace("_", " "): scene
    for scene in (
        slow_pods,
        rejected_pods,
        empty_machines,
        late_pod,
        lost_again,
        preempted_pods,
        two_nodes,
        protected,
        few_moves,
        lost_target,
        two_replicas,
        missing_pods,
        never_runs,
        noticed_target,
        leftovers,
    )
}


#: By safeguard: the invariant that is violated without it, and the scene in which that happens.
BROKEN: Final = {
    "waves": (2, "slow pods"),
    "dry runs": (2, "slow pods"),
    "taint": (3, "slow pods"),
    "evictions": (3, "slow pods"),
    "release": (5, "slow pods"),
    "debts": (1, "rejected pods"),
    "landing": (6, "empty machines"),
    "decrement": (8, "empty machines"),
    "last look": (6, "late pod"),
    "second look": (6, "lost again"),
    "preemption": (6, "preempted pods"),
    "minimum": (7, "two nodes"),
    "opt-outs": (3, "protected"),
    "move limit": (9, "few moves"),
    "targets": (3, "lost target"),
    "leadership": (4, "two replicas"),
    "patience": (10, "missing pods"),
    "ledger": (11, "never runs"),
    "staying": (11, "empty machines"),
    "notices": (12, "noticed target"),
    "rest": (13, "leftovers"),
}


@contextmanager
def played(name: str, stage: Stage) -> Iterator[RunningScene]:
    """Prepare the scene *name* for the duration of the block."""
    with ExitStack() as opened:
        scene = opened.enter_context(contextmanager(SCENES[name])(stage))
        yield scene


def daemon_of(scene: RunningScene, stage: Stage) -> Daemon:
    if scene.daemons is not None:
        return scene.daemons()
    timeout = f"--landing-timeout={scene.rules.landing_timeout:g}s"
    return Daemon(stage.plane, *FLAGS, timeout, *scene.flags, program=stage.program)
