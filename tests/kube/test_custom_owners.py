"""Reading owners that are not built in: where they are served, what they want, and whether they have finished."""

from typing import Any

import pytest

from predicates.objects import OwnerReference
from rescheduler.errors import InputError
from rescheduler.kube.client import Client
from rescheduler.kube.controllers import ControllerReader
from rescheduler.planning.controllers import ControllerState
from rescheduler.planning.debts import Debt, OpenDebt, Replicas, incur
from rescheduler.planning.memory import Memory, dump, load
from tests.kube.conftest import HastyClock
from tests.kube.edge import Reply, ScriptedApiServer, Step, status
from tests.planning.builders import NOW

PODS = "/api/v1/namespaces/ns/pods"
RUNNING = {"wanted": None, "exists": True, "finished": False, "suspended": False, "unreadable": ""}
DONE = RUNNING | {"finished": True, "wanted": 0}


@pytest.fixture
def reader(client: Client, clock: HastyClock) -> ControllerReader:
    return ControllerReader(client, clock)


def condition(kind: str, value: str) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": value}]}


#: An owner (apiVersion/kind), its spec and status, the replicas in its scale subresource, and its state.
OBJECTS: dict[str, tuple[str, dict[str, Any], dict[str, Any], int | None, dict[str, Any]]] = {
    "a workflow that runs": ("argoproj.io/v1alpha1/Workflow", {}, {"phase": "Running"}, None, RUNNING),
    "a workflow that has ended": ("argoproj.io/v1alpha1/Workflow", {}, {"phase": "Failed"}, None, DONE),
    "a batch that counts replicas and has ended": (
        "example.com/v1/Batch", {"replicas": 3}, {"phase": "Completed"}, None, DONE,
    ),
    "a workflow that is suspended": (
        "argoproj.io/v1alpha1/Workflow", {"suspend": True}, {"phase": "Running"}, None,
        RUNNING | {"suspended": True, "wanted": 0},
    ),
    "a TaskRun that runs": ("tekton.dev/v1/TaskRun", {}, condition("Succeeded", "Unknown"), None, RUNNING),
    "a TaskRun that has failed": (
        "tekton.dev/v1/TaskRun", {}, condition("Succeeded", "False") | {"completionTime": "2026-01-01T00:00:00Z"},
        None, DONE,
    ),
    "a CI runner": ("actions.github.com/v1alpha1/EphemeralRunner", {}, {"phase": "Running"}, None, RUNNING),
    "a CI runner that has ended": (
        "actions.github.com/v1alpha1/EphemeralRunner", {}, {"phase": "Succeeded"}, None, DONE,
    ),
    "a Spark application": (
        "sparkoperator.k8s.io/v1beta2/SparkApplication", {}, {"applicationState": {"state": "RUNNING"}}, None, RUNNING,
    ),
    "a Spark application that has ended": (
        "sparkoperator.k8s.io/v1beta2/SparkApplication", {}, {"applicationState": {"state": "COMPLETED"}}, None, DONE,
    ),
    "a Volcano Job that has ended": (
        "batch.volcano.sh/v1alpha1/Job", {"minAvailable": 3}, {"state": {"phase": "Completed"}}, None, DONE,
    ),
    "a virtual machine": ("kubevirt.io/v1/VirtualMachineInstance", {}, {"phase": "Running"}, None, RUNNING),
    "a CloneSet": ("apps.kruise.io/v1alpha1/CloneSet", {"replicas": 5}, {}, 2, RUNNING | {"wanted": 2}),
    "a custom StatefulSet": ("apps.kruise.io/v1beta1/StatefulSet", {"replicas": 3}, {}, 3, RUNNING | {"wanted": 3}),
    "a Rollout that has been completed": (
        "argoproj.io/v1alpha1/Rollout", {}, condition("Completed", "True"), 4, RUNNING | {"wanted": 4},
    ),
    "a StrimziPodSet": (
        "core.strimzi.io/v1beta2/StrimziPodSet", {"pods": [{}, {}, {}]}, {}, None, RUNNING | {"wanted": 3},
    ),
    "a database cluster": ("postgresql.cnpg.io/v1/Cluster", {"instances": 3}, {}, None, RUNNING | {"wanted": 3}),
    "a RayCluster that is suspended": (
        "ray.io/v1/RayCluster", {"suspend": True}, {"state": "suspended"}, None,
        RUNNING | {"suspended": True, "wanted": 0},
    ),
    "a game server": ("agones.dev/v1/GameServer", {"container": "x"}, {"state": "Allocated"}, None, RUNNING),
    "an object of an unexpected form": ("example.com/v1/Thing", {"replicas": "many"}, {"phase": 7}, None, RUNNING),
    "an object without spec and status": ("example.com/v1/Thing", {}, {}, None, RUNNING),
}  # fmt: skip


def owner(kind: str, name: str = "x", uid: str = "uid-x") -> OwnerReference:
    version, _, short = kind.rpartition("/")
    return OwnerReference(kind=short, name=name, uid=uid, api_version=version, controller=True)


def serve(edge: ScriptedApiServer, kind: str, *, scale: bool = False) -> str:
    """Let *edge* serve the resources of *kind*. Return the path of the object."""
    version, _, short = kind.rpartition("/")
    plural = f"{short.lower()}s"
    resources = [{"name": plural, "kind": short, "namespaced": True}]
    resources += [{"name": f"{plural}/scale", "kind": "Scale", "namespaced": True}] if scale else []
    edge.on("GET", f"/apis/{version}", Reply({"resources": resources}))
    return f"/apis/{version}/namespaces/ns/{plural}/x"


def stored(**fields: Any) -> Reply:
    metadata = {"name": "x", "namespace": "ns", "uid": "uid-x"} | fields.pop("metadata", {})
    return Reply({"metadata": metadata, **fields})


def state_of(edge: ScriptedApiServer, reader: ControllerReader, reference: OwnerReference) -> ControllerState:
    edge.on("GET", PODS, Reply({"metadata": {"resourceVersion": "1"}, "items": []}))
    controller = reader.topmost("ns", reference)
    return reader.states([controller])[controller]


def fields(state: ControllerState) -> dict[str, Any]:
    return {name: getattr(state, name) for name in RUNNING}


@pytest.mark.parametrize(("kind", "spec", "state", "scale", "expected"), OBJECTS.values(), ids=OBJECTS)
def test_the_state_of_an_owner_is_what_it_says(
    edge: ScriptedApiServer,
    reader: ControllerReader,
    kind: str,
    spec: dict[str, Any],
    state: dict[str, Any],
    scale: int | None,
    expected: dict[str, Any],
) -> None:
    path = serve(edge, kind, scale=scale is not None)
    edge.on("GET", path, stored(spec=spec, status=state))
    edge.on("GET", f"{path}/scale", Reply({"spec": {"replicas": scale}}))
    assert fields(state_of(edge, reader, owner(kind))) == expected


CLONE_SET = "apps.kruise.io/v1alpha1/CloneSet"


@pytest.mark.parametrize(("finalizers", "wanted"), [(["example.com/keep"], 0), (["orphan"], 3)])
def test_an_owner_that_is_being_deleted_says_so(
    edge: ScriptedApiServer, reader: ControllerReader, finalizers: list[str], wanted: int
) -> None:
    """A finalizer keeps the object, and its operator creates no pods any more."""
    metadata = {"deletionTimestamp": "2026-01-01T12:00:00Z", "finalizers": finalizers}
    edge.on("GET", serve(edge, CLONE_SET), stored(spec={"replicas": 3}, metadata=metadata))
    state = state_of(edge, reader, owner(CLONE_SET))
    assert (state.deleting, state.exists, state.wanted) == (True, True, wanted)


def test_without_the_permission_for_scale_the_spec_counts(edge: ScriptedApiServer, reader: ControllerReader) -> None:
    path = serve(edge, CLONE_SET, scale=True)
    edge.on("GET", path, stored(spec={"replicas": 3}))
    edge.on("GET", f"{path}/scale", status(403, "no"))
    assert state_of(edge, reader, owner(CLONE_SET)).wanted == 3


def test_without_a_permission_the_owner_is_unreadable(edge: ScriptedApiServer, reader: ControllerReader) -> None:
    edge.on("GET", serve(edge, CLONE_SET), status(403, "not allowed"))
    state = state_of(edge, reader, owner(CLONE_SET))
    assert fields(state) == RUNNING | {"unreadable": "get clonesets ns/x: not allowed (403)"}


def test_a_kind_that_is_served_in_another_version_is_read(edge: ScriptedApiServer, reader: ControllerReader) -> None:
    edge.on("GET", "/apis/example.com/v1beta1", status(404, "gone"))
    edge.on("GET", "/apis/example.com", Reply({"preferredVersion": {"version": "v2"}}))
    edge.on("GET", serve(edge, "example.com/v2/Thing"), stored(spec={"replicas": 2}))
    assert state_of(edge, reader, owner("example.com/v1beta1/Thing")).wanted == 2


#: Responses because of which an owner is gone.
GONE: dict[str, dict[str, Step]] = {
    "deleted": {"/apis/example.com/v1": Reply({"resources": [{"name": "things", "kind": "Thing"}]})},
    "a definition that is gone": {"/apis/example.com": Reply({"preferredVersion": {"version": "v1"}})},
    "a group that is gone": {},
}


@pytest.mark.parametrize("served", GONE.values(), ids=GONE)
def test_an_owner_is_gone(edge: ScriptedApiServer, reader: ControllerReader, served: dict[str, Step]) -> None:
    for path in ("/apis/example.com", "/apis/example.com/v1", "/apis/example.com/v1/namespaces/ns/things/x"):
        edge.on("GET", path, served.get(path, status(404, "not found")))
    state = state_of(edge, reader, owner("example.com/v1/Thing"))
    assert (state.exists, state.wanted, state.recreates, state.returning) == (False, 0, False, False)


def test_another_owner_with_the_same_name_inherits(edge: ScriptedApiServer, reader: ControllerReader) -> None:
    edge.on("GET", serve(edge, "example.com/v1/Thing"), stored(metadata={"uid": "new"}))
    state = state_of(edge, reader, owner("example.com/v1/Thing"))
    assert (state.exists, state.returning, state.wanted, state.owner_uids) == (
        False,
        True,
        None,
        frozenset({"uid-x", "new"}),
    )


@pytest.mark.parametrize(("phase", "finished"), [("Running", False), ("Succeeded", True), ("Failed", True)])
def test_a_pod_that_owns_pods_is_read(
    edge: ScriptedApiServer, reader: ControllerReader, phase: str, finished: bool
) -> None:
    edge.on("GET", f"{PODS}/x", stored(status={"phase": phase}))
    assert state_of(edge, reader, owner("v1/Pod")).finished is finished


#: References that a tenant may write: kind with its apiVersion, and name.
HOSTILE = {
    "a dot": ("example.com/v1/Thing", "."),
    "a path": ("example.com/v1/Thing", "../../secrets/x"),
    "a query": ("example.com/v1/Thing", "x?watch=1"),
    "an encoded path": ("example.com/v1/Thing", "%2e%2e"),
    "a long name": ("example.com/v1/Thing", "x" * 254),
    "no name": ("example.com/v1/Thing", ""),
    "a path in the group": ("example.com/../v1/Thing", "x"),
    "a path in the version": ("example.com/../Thing", "x"),
    "no version": ("/Thing", "x"),
    "a Deployment with a path": ("apps/v1/StatefulSet", ".."),
    "a Job with control characters": ("batch/v1/Job", "a\x1b[31m"),
}


@pytest.mark.parametrize(("kind", "name"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_not_a_name_is_never_part_of_a_request(
    edge: ScriptedApiServer, reader: ControllerReader, kind: str, name: str
) -> None:
    try:
        why = state_of(edge, reader, owner(kind, name)).unreadable
    except InputError as error:
        why = str(error)
    assert why.startswith("owner of pods in ns: ")
    assert {request.path for request in edge.requests} <= {PODS}


LWS = "ns/LeaderWorkerSet/lws"


def restored(debt: Debt) -> Debt:
    """Return *debt* as the next process reads it from the memory."""
    [owed] = load(dump(Memory(debts=(OpenDebt("od-1", NOW, debt),)))).debts
    return owed.debt


@pytest.mark.parametrize("restarted", [False, True])
def test_a_set_whose_operator_creates_it_again_still_owes(
    edge: ScriptedApiServer, reader: ControllerReader, client: Client, clock: HastyClock, *, restarted: bool
) -> None:
    """A LeaderWorkerSet deletes the StatefulSet of the workers with the leader, and creates both again."""
    apps = "/apis/apps/v1/namespaces/ns/statefulsets"
    leader, group = owner("v1/Pod", "lws-0", "uid-leader"), owner("apps/v1/StatefulSet", "lws", "uid-lws")
    top = owner("leaderworkerset.x-k8s.io/v1/LeaderWorkerSet", "lws", "uid-top")

    def named(name: str, uid: str, above: OwnerReference | None, **more: Any) -> Reply:
        references = (
            []
            if above is None
            else [
                {
                    "kind": above.kind,
                    "name": above.name,
                    "uid": above.uid,
                    "apiVersion": above.api_version,
                    "controller": True,
                }
            ]
        )
        return Reply({"metadata": {"name": name, "namespace": "ns", "uid": uid, "ownerReferences": references}, **more})

    edge.on(
        "GET",
        f"{apps}/lws-0",
        named("lws-0", "uid-x", leader),
        status(404, "gone"),
        named("lws-0", "new", leader, spec={"replicas": 2}),
    )
    edge.on("GET", f"{PODS}/lws-0", named("lws-0", "uid-leader", group), status(404, "gone"))
    edge.on("GET", f"{apps}/lws", named("lws", "uid-lws", top))
    edge.on("GET", "/apis/leaderworkerset.x-k8s.io/v1", status(404, "gone"))
    edge.on("GET", "/apis/leaderworkerset.x-k8s.io", status(404, "gone"))
    controller = reader.topmost("ns", owner("apps/v1/StatefulSet", "lws-0"))
    before = reader.states([controller])[controller]
    assert [str(each) for each in before.above] == ["ns/Pod/lws-0", "ns/StatefulSet/lws", LWS]
    if restarted:
        reader = ControllerReader(client, clock)
        reader.recall([restored(incur(before, Replicas(live=2, bound=2, ready=2)))])
    between, after = (reader.states([controller])[controller] for _ in range(2))
    assert (before.exists, between.exists, between.returning, between.wanted) == (True, False, True, None)
    assert (after.wanted, after.owner_uids) == (2, frozenset({"uid-x", "new"}))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_custom_owner_whose_own_owner_is_still_there_still_owes(
    edge: ScriptedApiServer, reader: ControllerReader, client: Client, clock: HastyClock, *, restarted: bool
) -> None:
    above = {
        "kind": "Kafka",
        "name": "k",
        "uid": "uid-k",
        "apiVersion": "kafka.strimzi.io/v1beta2",
        "controller": True,
    }
    kafkas = serve(edge, "kafka.strimzi.io/v1beta2/Kafka")
    edge.on("GET", f"{kafkas.removesuffix('/x')}/k", stored(metadata={"name": "k", "uid": "uid-k"}))
    path = serve(edge, "core.strimzi.io/v1beta2/StrimziPodSet")
    there = stored(metadata={"ownerReferences": [above]}, spec={"pods": [{}, {}, {}]})
    edge.on("GET", path, there, status(404, "gone"))
    edge.on("GET", PODS, Reply({"metadata": {"resourceVersion": "1"}, "items": []}))
    controller = reader.topmost("ns", owner("core.strimzi.io/v1beta2/StrimziPodSet"))
    before = reader.states([controller])[controller]
    if restarted:
        reader = ControllerReader(client, clock)
        reader.recall([restored(incur(before, Replicas(live=3, bound=3, ready=3)))])
    gone = reader.states([controller])[controller]
    assert (before.wanted, before.returning) == (3, False)
    assert (gone.wanted, gone.returning) == (None, True)
