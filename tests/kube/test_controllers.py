"""Reading the controllers of pods, including from a faulty API server."""

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest
from msgspec import Raw

from predicates.objects import OwnerReference
from rescheduler.errors import Forbidden, InputError, ReschedulerError, Retryable
from rescheduler.kube import controllers
from rescheduler.kube.client import Client
from rescheduler.kube.controllers import ControllerReader
from rescheduler.kube.workloads import digest
from rescheduler.planning.controllers import Controller, ControllerState, JobFacts
from tests.kube.conftest import HastyClock
from tests.kube.edge import Reply, ResetReply, ScriptedApiServer, Step, status
from tests.planning.builders import NOW

APPS = "/apis/apps/v1/namespaces/ns"
PODS = "/api/v1/namespaces/ns/pods"
EVENTS = "/api/v1/namespaces/ns/events"
WEB = Controller("ns", "Deployment", "web", "uid-web")


@pytest.fixture
def reader(client: Client, clock: HastyClock) -> ControllerReader:
    return ControllerReader(client, clock)


def reference(kind: str, name: str, api_version: str = "apps/v1", uid: str = "") -> OwnerReference:
    return OwnerReference(kind=kind, name=name, uid=uid or f"uid-{name}", api_version=api_version, controller=True)


def obj(name: str, *owners: OwnerReference, uid: str = "", **fields: Any) -> Reply:
    references = [
        {"kind": owner.kind, "name": owner.name, "uid": owner.uid, "apiVersion": owner.api_version, "controller": True}
        for owner in owners
    ]
    meta = {"namespace": "ns", "name": name, "uid": uid or f"uid-{name}", "ownerReferences": references}
    meta |= fields.pop("metadata", {})
    return Reply({"metadata": meta, **fields})


def listed(*items: dict[str, Any]) -> Reply:
    return Reply({"metadata": {"resourceVersion": "1"}, "items": items})


def failing(message: str) -> dict[str, Any]:
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    return {"conditions": [condition]}


OWNERS: dict[str, tuple[OwnerReference, dict[str, Step], str]] = {
    "a ReplicaSet of a Deployment": (
        reference("ReplicaSet", "web-1"),
        {f"{APPS}/replicasets/web-1": obj("web-1", reference("Deployment", "web"))},
        "ns/Deployment/web",
    ),
    "a ReplicaSet of the former API group": (
        reference("ReplicaSet", "web-1", "extensions/v1beta1"),
        {f"{APPS}/replicasets/web-1": obj("web-1", reference("Deployment", "web"))},
        "ns/Deployment/web",
    ),
    "a ReplicaSet without a controller": (
        reference("ReplicaSet", "web-1"),
        {f"{APPS}/replicasets/web-1": obj("web-1")},
        "ns/ReplicaSet/web-1",
    ),
    "a ReplicaSet that is gone": (
        reference("ReplicaSet", "web-1"),
        {f"{APPS}/replicasets/web-1": status(404)},
        "ns/ReplicaSet/web-1",
    ),
    "a ReplicaSet that was replaced": (
        reference("ReplicaSet", "web-1"),
        {f"{APPS}/replicasets/web-1": obj("web-1", reference("Deployment", "web"), uid="another")},
        "ns/ReplicaSet/web-1",
    ),
    "a ReplicaSet of an Argo Rollout": (
        reference("ReplicaSet", "web-1"),
        {f"{APPS}/replicasets/web-1": obj("web-1", reference("Rollout", "web", "argoproj.io/v1alpha1"))},
        "ns/Rollout/web",
    ),
    "a ReplicationController of a DeploymentConfig": (
        reference("ReplicationController", "web-1", "v1"),
        {
            "/api/v1/namespaces/ns/replicationcontrollers/web-1": obj(
                "web-1", reference("DeploymentConfig", "web", "apps.openshift.io/v1")
            )
        },
        "ns/DeploymentConfig/web",
    ),
    "a StatefulSet is topmost": (reference("StatefulSet", "db"), {}, "ns/StatefulSet/db"),
    "a Job is topmost": (reference("Job", "backup", "batch/v1"), {}, "ns/Job/backup"),
    "a Job of another owner": (
        reference("Job", "train", "batch.volcano.sh/v1alpha1"),
        {},
        "ns/Job.batch.volcano.sh/train",
    ),
    "an unknown kind": (reference("Workflow", "w", "argoproj.io/v1alpha1"), {}, "ns/Workflow/w"),
}


@pytest.mark.parametrize(("owner", "served", "expected"), OWNERS.values(), ids=OWNERS)
def test_the_topmost_controller_of_an_owner_is_found(
    edge: ScriptedApiServer, reader: ControllerReader, owner: OwnerReference, served: dict[str, Step], expected: str
) -> None:
    for path, step in served.items():
        edge.on("GET", path, step)
    assert str(reader.topmost("ns", owner)) == expected
    assert len(edge.requests) == len(served)


def test_the_controller_of_a_replica_set_is_read_once(edge: ScriptedApiServer, reader: ControllerReader) -> None:
    edge.on("GET", f"{APPS}/replicasets/web-1", obj("web-1", reference("Deployment", "web")))
    owners = [("ns", reference("ReplicaSet", "web-1"))] * 8
    assert reader.topmost_of(owners) == {("ns", "uid-web-1"): WEB}
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda owner: reader.topmost(*owner), owners)) == {WEB}
    assert len(edge.requests) == 1


def test_a_pod_that_names_a_replica_set_of_another_namespace_has_no_part_in_its_deployment(
    edge: ScriptedApiServer, reader: ControllerReader
) -> None:
    edge.on("GET", f"{APPS}/replicasets/web-1", obj("web-1", reference("Deployment", "web")))
    edge.on("GET", f"{APPS.replace('/ns', '/tenant')}/replicasets/web-1", status(404))
    assert reader.topmost("ns", reference("ReplicaSet", "web-1")) == WEB
    forged = Controller("tenant", "ReplicaSet", "web-1", "uid-web-1")
    assert reader.topmost("tenant", reference("ReplicaSet", "web-1")) == forged
    assert reader.ending([("tenant", reference("ReplicaSet", "web-1"))])
    assert reader.topmost("ns", reference("ReplicaSet", "web-1")) == WEB
    assert len(edge.requests) == 3


#: The path of an owner of each built-in kind.
OWNED_BY: Final = {
    "ReplicaSet": ("apps/v1", f"{APPS}/replicasets/web"),
    "StatefulSet": ("apps/v1", f"{APPS}/statefulsets/web"),
    "Job": ("batch/v1", "/apis/batch/v1/namespaces/ns/jobs/web"),
    "ReplicationController": ("v1", "/api/v1/namespaces/ns/replicationcontrollers/web"),
}
#: What is served instead of an owner, and why its pods do not come back.
ENDING: Final[dict[str, tuple[Step, str]]] = {
    "there": (obj("web"), ""),
    "gone": (status(404), "is gone"),
    "replaced": (obj("web", uid="another"), "is gone"),
    "being deleted": (obj("web", metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"}), "is being deleted"),
    "kept by a finalizer": (
        obj("web", metadata={"deletionTimestamp": "2026-01-01T12:00:00Z", "finalizers": ["example.com/keep"]}),
        "is being deleted",
    ),
}


@pytest.mark.parametrize("kind", OWNED_BY)
@pytest.mark.parametrize(("served", "why"), ENDING.values(), ids=ENDING)
def test_an_owner_that_ends_is_found_before_a_step(
    edge: ScriptedApiServer, reader: ControllerReader, kind: str, served: Step, why: str
) -> None:
    version, path = OWNED_BY[kind]
    edge.on("GET", path, served)
    owner = reference(kind, "web", version)
    assert reader.ending([("ns", owner)]) == ({("ns", owner.uid): f"{kind} ns/web {why}"} if why else {})


def test_the_cache_of_replica_sets_is_limited(
    edge: ScriptedApiServer, reader: ControllerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controllers, "CACHED_REPLICA_SETS", 2)
    for name in ("web-1", "web-2", "web-3"):
        edge.on("GET", f"{APPS}/replicasets/{name}", obj(name, reference("Deployment", "web")))
        assert reader.topmost("ns", reference("ReplicaSet", name)) == WEB
    reader.topmost("ns", reference("ReplicaSet", "web-3"))
    assert len(edge.requests) == 3
    reader.topmost("ns", reference("ReplicaSet", "web-1"))
    assert len(edge.requests) == 4


DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": []}}
RESTARTING = {"spec": {"restartPolicy": "OnFailure"}}
JOB = {"parallelism": 2, "completions": 5, "backoffLimit": 3, "template": TEMPLATE}

DB = Controller("ns", "StatefulSet", "db", "uid-db")
RC = Controller("ns", "ReplicationController", "rc", "uid-rc")
BACKUP = Controller("ns", "Job", "backup", "uid-backup")
PATHS = {
    WEB: f"{APPS}/deployments/web",
    DB: f"{APPS}/statefulsets/db",
    RC: "/api/v1/namespaces/ns/replicationcontrollers/rc",
    BACKUP: "/apis/batch/v1/namespaces/ns/jobs/backup",
}


ORPHANING = {"finalizers": ["orphan"]}
UPDATE = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1, "maxUnavailable": 3}}}
ON_DELETE = {"updateStrategy": {"type": "OnDelete"}}
REVISIONS = {"currentRevision": "db-1", "updateRevision": "db-2", "replicas": 5, "updatedReplicas": 2}


def read(controller: Controller, template: dict[str, Any] = TEMPLATE, **fields: Any) -> ControllerState:
    """Return the expected state of a controller that owns its pods directly."""
    fields = {
        "owner_uids": frozenset({controller.uid}),
        "template": digest(Raw(msgspec.json.encode(template))),
    } | fields
    return ControllerState(controller, **fields)


def gone(controller: Controller) -> ControllerState:
    return ControllerState(controller, frozenset({controller.uid}), wanted=0, exists=False)


STATES: dict[str, tuple[Step, ControllerState]] = {
    "a StatefulSet": (obj("db", spec={"replicas": 3, "template": TEMPLATE}), read(DB, wanted=3)),
    "one replica is the default": (obj("rc", spec={"template": TEMPLATE}), read(RC, wanted=1)),
    "it cannot create pods": (
        obj("rc", spec={"template": TEMPLATE}, status=failing("exceeded\nquota")),
        read(RC, wanted=1, refusal="exceeded quota"),
    ),
    "it is gone": (status(404), gone(DB)),
    "it was created again": (
        obj("db", uid="another", spec={"replicas": 2, "template": TEMPLATE}),
        read(DB, wanted=2, exists=False, owner_uids=frozenset({"uid-db", "another"})),
    ),
    "it is being deleted with its pods": (
        obj("db", metadata=DELETED, spec={"replicas": 2, "template": TEMPLATE}),
        read(DB, wanted=0, deleting=True),
    ),
    "it is being deleted, pods are orphaned": (
        obj("db", metadata=DELETED | ORPHANING, spec={"replicas": 2, "template": TEMPLATE}),
        read(DB, wanted=2, deleting=True),
    ),
    "its template rolls out": (
        obj("db", spec={"replicas": 5, "template": TEMPLATE, **UPDATE}, status=REVISIONS | {"currentReplicas": 3}),
        read(DB, wanted=5, least_available=2),
    ),
    "its template has rolled out down to the partition": (
        obj("db", spec={"replicas": 5, "template": TEMPLATE, **UPDATE}, status=REVISIONS | {"currentReplicas": 1}),
        read(DB, wanted=5),
    ),
    "its template does not roll out by itself": (
        obj("db", spec={"replicas": 5, "template": TEMPLATE, **ON_DELETE}, status=REVISIONS | {"currentReplicas": 5}),
        read(DB, wanted=5),
    ),
    "a Job": (
        obj("backup", spec=JOB, status={"succeeded": 4, "failed": 1}),
        read(BACKUP, wanted=1, job=JobFacts(backoff_limit=3, failures=1)),
    ),
    "a suspended Job": (
        obj("backup", spec=JOB | {"suspend": True}),
        read(BACKUP, wanted=0, suspended=True, job=JobFacts(backoff_limit=3)),
    ),
    "a Job that is gone": (status(404), gone(BACKUP)),
    "a Job that is being deleted with its pods": (
        obj("backup", metadata=DELETED, spec=JOB),
        read(BACKUP, wanted=0, deleting=True, job=JobFacts(backoff_limit=3)),
    ),
    "a Job that is being deleted, pods are orphaned": (
        obj("backup", metadata=DELETED | ORPHANING, spec=JOB),
        read(BACKUP, wanted=2, deleting=True, job=JobFacts(backoff_limit=3)),
    ),
    "a Job that was created again": (
        obj("backup", uid="another", spec=JOB),
        read(
            BACKUP,
            wanted=2,
            exists=False,
            owner_uids=frozenset({"uid-backup", "another"}),
            job=JobFacts(backoff_limit=3),
        ),
    ),
}


@pytest.mark.parametrize(("step", "expected"), STATES.values(), ids=STATES)
def test_the_state_of_a_controller_is_one_get(
    edge: ScriptedApiServer, reader: ControllerReader, step: Step, expected: ControllerState
) -> None:
    edge.on("GET", PATHS[expected.controller], step)
    assert reader.states([expected.controller]) == {expected.controller: expected}
    assert len(edge.requests) == 1


def test_a_deployment_is_the_owner_of_all_replica_sets_that_were_read(
    edge: ScriptedApiServer, reader: ControllerReader
) -> None:
    edge.on("GET", PATHS[WEB], obj("web", spec={"replicas": 2, "paused": True, "template": TEMPLATE}))
    assert reader.states([WEB])[WEB].owner_uids == frozenset()
    for name, owner in {"web-1": "web", "web-2": "web", "api-1": "api"}.items():
        edge.on("GET", f"{APPS}/replicasets/{name}", obj(name, reference("Deployment", owner)))
        reader.topmost("ns", reference("ReplicaSet", name))
    expected = read(WEB, wanted=2)
    assert reader.states([WEB]) == {WEB: replace(expected, owner_uids=frozenset({"uid-web-1", "uid-web-2"}))}


def test_the_orphaned_replica_sets_of_a_deployment_want_its_pods(
    edge: ScriptedApiServer, reader: ControllerReader
) -> None:
    """One ReplicaSet is not orphaned yet or will be deleted with the Deployment, and one is being deleted."""
    owner, spec = reference("Deployment", "web"), {"replicas": 3, "template": TEMPLATE}
    for number, now in {1: obj("web-1", spec=spec), 2: obj("web-2", owner, spec=spec), 3: status(404)}.items():
        path = f"{APPS}/replicasets/web-{number}"
        edge.on("GET", path, obj(f"web-{number}", owner, spec=spec), now, now)
        assert reader.topmost("ns", reference("ReplicaSet", f"web-{number}")) == WEB
    edge.on("GET", PATHS[WEB], status(404), status(404))
    for _ in range(2):
        state = reader.states([WEB])[WEB]
        assert (state.exists, state.wanted) == (False, 3)
        assert "uid-web-1" in state.owner_uids


ADOPTER: Final = f"{APPS}/deployments/renamed"
#: The Deployment that adopted the ReplicaSet of a deleted one, and (desired pods, least available).
ADOPTERS: Final[dict[str, tuple[Step, tuple[int | None, int | None]]]] = {
    "keeps the pods": (obj("renamed", spec={"replicas": 3, "template": TEMPLATE}), (3, None)),
    "wants less": (obj("renamed", spec={"replicas": 1, "template": TEMPLATE}), (1, None)),
    "rolls out": (
        obj(
            "renamed",
            spec={"replicas": 4, "template": TEMPLATE, "strategy": {"type": "RollingUpdate"}},
            status={"replicas": 4, "updatedReplicas": 1},
        ),
        (4, 3),
    ),
    "is gone, too": (status(404), (0, None)),
}


@pytest.mark.parametrize("being_deleted", [False, True])
@pytest.mark.parametrize(("step", "expected"), ADOPTERS.values(), ids=ADOPTERS)
def test_an_adopted_replica_set_is_wanted_by_its_adopter(
    edge: ScriptedApiServer,
    reader: ControllerReader,
    step: Step,
    expected: tuple[int | None, int | None],
    being_deleted: bool,
) -> None:
    """Somebody renames a Deployment: it is deleted without its pods, and a new one adopts them.

    The former one may be kept for a while by a finalizer of somebody else.
    """
    former, now = reference("Deployment", "web"), reference("Deployment", "renamed")
    edge.on("GET", f"{APPS}/replicasets/web-1", obj("web-1", former), obj("web-1", now))
    reader.topmost("ns", reference("ReplicaSet", "web-1"))
    edge.on("GET", PATHS[WEB], obj("web", metadata=DELETED) if being_deleted else status(404))
    edge.on("GET", ADOPTER, step)
    state = reader.states([WEB])[WEB]
    assert (state.wanted, state.least_available) == expected
    assert "uid-web-1" in state.owner_uids or not state.wanted


def test_replica_sets_that_name_each_others_former_deployments_are_read_once(
    edge: ScriptedApiServer, reader: ControllerReader
) -> None:
    api = Controller("ns", "Deployment", "api", "uid-api")
    for name, owner, other in (("web-1", "web", "api"), ("api-1", "api", "web")):
        first, then = (obj(name, reference("Deployment", each)) for each in (owner, other))
        edge.on("GET", f"{APPS}/replicasets/{name}", first, then, then)
        reader.topmost("ns", reference("ReplicaSet", name))
    for path in (PATHS[WEB], f"{APPS}/deployments/api"):
        edge.on("GET", path, *[status(404)] * 4)
    assert {state.wanted for state in reader.states([WEB, api]).values()} == {0}


def test_a_deployment_that_was_created_again_wants_the_pods_of_the_former_one(
    edge: ScriptedApiServer, reader: ControllerReader
) -> None:
    heir = reference("Deployment", "web", uid="another")
    for name, owner in {"web-1": reference("Deployment", "web"), "web-2": heir}.items():
        edge.on("GET", f"{APPS}/replicasets/{name}", obj(name, owner))
        reader.topmost("ns", reference("ReplicaSet", name))
    edge.on("GET", PATHS[WEB], obj("web", uid="another", spec={"replicas": 2, "template": TEMPLATE}))
    state = reader.states([WEB])[WEB]
    assert (state.exists, state.wanted, state.owner_uids) == (False, 2, frozenset({"uid-web-1", "uid-web-2"}))


def test_a_replica_set_adopted_by_another_deployment_has_a_new_controller(
    edge: ScriptedApiServer, reader: ControllerReader
) -> None:
    adopted = Controller("ns", "Deployment", "web", "uid-of-another")
    replica_set, before = reference("ReplicaSet", "web-1"), reference("Deployment", "web")
    after = reference("Deployment", "web", uid=adopted.uid)
    edge.on("GET", f"{APPS}/replicasets/web-1", obj("web-1", before), obj("web-1", after))
    edge.on("GET", PATHS[WEB], obj("web", uid=adopted.uid))
    assert reader.topmost("ns", replica_set) == WEB
    assert not reader.states([WEB])[WEB].exists
    assert reader.topmost("ns", replica_set) == adopted


def pod(name: str, phase: str, owner: OwnerReference, restarts: int = 0) -> dict[str, Any]:
    meta = obj(name, owner).body["metadata"]
    return {"metadata": meta, "status": {"phase": phase, "containerStatuses": [{"restartCount": restarts}]}}


def test_restarts_of_a_job_that_restarts_containers_count_as_failures(
    edge: ScriptedApiServer, reader: ControllerReader
) -> None:
    ours, other = reference("Job", "backup", "batch/v1"), reference("Job", "other", "batch/v1")
    spec = JOB | {"template": RESTARTING, "selector": {"matchLabels": {"b": "2", "a": "1"}}}
    edge.on("GET", PATHS[BACKUP], obj("backup", spec=spec, status={"failed": 1}))
    edge.on(
        "GET", PODS, listed(pod("a", "Running", ours, 2), pod("b", "Failed", ours, 4), pod("c", "Running", other, 8))
    )
    expected = read(BACKUP, RESTARTING, wanted=2, job=JobFacts(backoff_limit=3, failures=3))
    assert reader.states([BACKUP]) == {BACKUP: expected}
    assert [request.query for request in edge.seen(path=PODS)] == [{"limit": "500", "labelSelector": "a=1,b=2"}]


ARGO = Reply(
    {
        "resources": [
            {"name": "rollouts", "kind": "Rollout", "namespaced": True},
            {"name": "rollouts/scale", "kind": "Scale", "namespaced": True},
            {"name": "workflows", "kind": "Workflow", "namespaced": True},
        ]
    }
)


def test_succeeded_pods_of_custom_controllers_are_counted(edge: ScriptedApiServer, reader: ControllerReader) -> None:
    rollout, workflow = (
        reference("Rollout", "web", "argoproj.io/v1alpha1"),
        reference("Workflow", "w", "argoproj.io/v1"),
    )
    edge.on("GET", f"{APPS}/replicasets/web-1", obj("web-1", rollout))
    replica_set = reference("ReplicaSet", "web-1")
    pods = [pod("a", "Succeeded", workflow), pod("b", "Succeeded", workflow), pod("c", "Succeeded", replica_set)]
    edge.on("GET", PODS, listed(*pods))
    for path in ("/apis/argoproj.io/v1alpha1", "/apis/argoproj.io/v1"):
        edge.on("GET", path, ARGO)
    edge.on("GET", "/apis/argoproj.io/v1alpha1/namespaces/ns/rollouts/web", status(403, "no"))
    edge.on("GET", "/apis/argoproj.io/v1/namespaces/ns/workflows/w", status(403, "no"))
    first, second = reader.topmost("ns", replica_set), reader.topmost("ns", workflow)
    assert reader.states([first, second]) == {
        first: ControllerState(first, frozenset({"uid-web", "uid-web-1"}), wanted=1, succeeded=1),
        second: ControllerState(second, frozenset({"uid-w"}), succeeded=2, unreadable="get workflows ns/w: no (403)"),
    }
    assert [request.query for request in edge.seen(path=PODS)] == [
        {"limit": "500", "fieldSelector": "status.phase=Succeeded"}
    ]


@pytest.mark.parametrize("order", [1, -1], ids=["forwards", "backwards"])
def test_replica_sets_are_read_in_one_order_whatever_set_names_them(
    edge: ScriptedApiServer, reader: ControllerReader, order: int
) -> None:
    names = [f"web-{number}" for number in range(4)]
    owners = [("ns", reference("ReplicaSet", name)) for name in names][::order]
    for name in names:
        edge.on("GET", f"{APPS}/replicasets/{name}", obj(name, reference("Deployment", "web")))
    edge.on("GET", PATHS[WEB], obj("web", spec={"template": TEMPLATE}))
    reader.read(owners[::2], [WEB], owners)
    read = [request.path for request in edge.requests if "/replicasets/" in request.path]
    first = sorted(f"{APPS}/replicasets/{owner.name}" for _, owner in owners[::2])
    assert read == [*first, *sorted({f"{APPS}/replicasets/{name}" for name in names} - {*first})]
    sent = len(edge.requests)
    assert reader.ending(owners) == {}
    assert [request.path for request in edge.requests[sent:]] == sorted(f"{APPS}/replicasets/{name}" for name in names)


#: ReplicaSets of a Rollout, which cannot be read → its desired number of pods, and whether it exists.
REPLICA_SETS: dict[str, tuple[list[dict[str, Any] | None], int, bool]] = {
    "scaled": ([{"replicas": 2}, {"replicas": 1}], 3, True),
    "scaled to zero": ([{"replicas": 0}, None], 0, True),
    "deleted": ([None, None], 0, False),
}


@pytest.mark.parametrize(("specs", "wanted", "exists"), REPLICA_SETS.values(), ids=REPLICA_SETS)
def test_the_state_of_a_custom_controller_is_derived_from_its_replica_sets(
    edge: ScriptedApiServer, reader: ControllerReader, specs: list[dict[str, Any] | None], wanted: int, exists: bool
) -> None:
    rollout, names = reference("Rollout", "web", "argoproj.io/v1alpha1"), [f"web-{number}" for number in range(2)]
    for name, spec in zip(names, specs, strict=True):
        later = status(404, "gone") if spec is None else obj(name, spec=spec)
        edge.on("GET", f"{APPS}/replicasets/{name}", obj(name, rollout), later)
    [web] = {reader.topmost("ns", reference("ReplicaSet", name)) for name in names}
    edge.on("GET", PODS, listed())
    edge.on("GET", "/apis/argoproj.io/v1alpha1", ARGO)
    edge.on("GET", "/apis/argoproj.io/v1alpha1/namespaces/ns/rollouts/web", status(403, "no"))
    state = reader.states([web])[web]
    assert (state.wanted, state.exists, state.owner_uids) == (
        wanted,
        exists,
        frozenset({"uid-web", "uid-web-0", "uid-web-1"}),
    )


def failed_create(name: str, message: str, minutes: float, **times: str | None) -> dict[str, Any]:
    """Return a FailedCreate Event from *minutes* before NOW."""
    at = (NOW - dt.timedelta(minutes=minutes)).isoformat()
    return {"metadata": {"namespace": "ns", "name": name}, "message": message, "lastTimestamp": at, **times}


REFUSALS: dict[str, tuple[dict[str, Step], str]] = {
    "a condition of a ReplicaSet": (
        {f"{APPS}/replicasets/web-1": obj("web-1", reference("Deployment", "web"), status=failing("no quota"))},
        "no quota",
    ),
    "the newest event": (
        {EVENTS: listed(failed_create("b", "newer", 1), failed_create("a", "older", 2), failed_create("c", "", 0.5))},
        "newer",
    ),
    "an event in a series": (
        {
            EVENTS: listed(
                failed_create("a", "older", 2),
                failed_create("b", "newer", 9)
                | {"lastTimestamp": None, "series": {"lastObservedTime": failed_create("", "", 1)["lastTimestamp"]}},
            )
        },
        "newer",
    ),
    "an old event": ({EVENTS: listed(failed_create("a", "of an hour ago", 60))}, ""),
    "an event without a time": ({EVENTS: listed(failed_create("a", "undated", 0) | {"lastTimestamp": None})}, ""),
    "no right to list events": ({EVENTS: status(403, "events is forbidden")}, ""),
}


@pytest.mark.parametrize(("served", "expected"), REFUSALS.values(), ids=REFUSALS)
def test_the_reason_why_pods_cannot_be_created_is_found(
    edge: ScriptedApiServer, clock: HastyClock, reader: ControllerReader, served: dict[str, Step], expected: str
) -> None:
    replica_set = obj("web-1", reference("Deployment", "web"))
    for address, step in {f"{APPS}/replicasets/web-1": replica_set, EVENTS: listed(), **served}.items():
        edge.on("GET", address, step)
    edge.on("GET", PATHS[WEB], obj("web", spec={"template": TEMPLATE}))
    clock.fixed_time = NOW
    reader.topmost("ns", reference("ReplicaSet", "web-1"))
    assert reader.states([WEB])[WEB].refusal == ""
    assert reader.states([WEB], read_refusals=True)[WEB].refusal == expected


def test_events_are_those_of_the_replica_sets(edge: ScriptedApiServer, reader: ControllerReader) -> None:
    edge.on("GET", f"{APPS}/replicasets/web-1", obj("web-1", reference("Deployment", "web")))
    edge.on("GET", PATHS[WEB], obj("web"))
    edge.on("GET", EVENTS, listed())
    reader.topmost("ns", reference("ReplicaSet", "web-1"))
    reader.states([WEB], read_refusals=True)
    selector = "involvedObject.uid=uid-web-1,reason=FailedCreate"
    assert [request.query["fieldSelector"] for request in edge.seen(path=EVENTS)] == [selector]


def starting(name: str, *containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a pod of the ReplicaSet web-1 with the states of its containers."""
    meta = obj(name, reference("ReplicaSet", "web-1"), **fields).body["metadata"]
    statuses = [{"name": f"c{number}", "state": each} for number, each in enumerate(containers)]
    return {"metadata": meta, "status": {"phase": "Pending", "containerStatuses": statuses}}


RUNS: Final[dict[str, Any]] = {"running": {}}
PULLING: Final = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image\n"web:2"'}}
UNPLACED: Final = {
    "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}],
}
#: A pod of the controller, and why it does not run.
HINDRANCES: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "an image that cannot be pulled": (
        starting("web-1-a", RUNS, PULLING),
        'pod ns/web-1-a: container c1 waits: ImagePullBackOff: Back-off pulling image "web:2"',
    ),
    "a container that crashes": (
        starting("web-1-a", {"waiting": {"reason": "CrashLoopBackOff"}}),
        "pod ns/web-1-a: container c0 waits: CrashLoopBackOff",
    ),
    "an init container that crashes": (
        {**starting("web-1-a"), "status": {"initContainerStatuses": [{"name": "init", "state": PULLING}]}},
        'pod ns/web-1-a: container init waits: ImagePullBackOff: Back-off pulling image "web:2"',
    ),
    "no node": ({**starting("web-1-a"), "status": UNPLACED}, "pod ns/web-1-a: 0/2 nodes are available"),
    "a container that is being created": (starting("web-1-a", {"waiting": {"reason": "ContainerCreating"}}), ""),
    "a pod that runs": (starting("web-1-a", RUNS), ""),
    "a pod that is being deleted": (starting("web-1-a", PULLING, metadata=DELETED), ""),
}


@pytest.mark.parametrize(("found", "expected"), HINDRANCES.values(), ids=HINDRANCES)
def test_the_reason_why_pods_do_not_run_is_found(
    edge: ScriptedApiServer, reader: ControllerReader, found: dict[str, Any], expected: str
) -> None:
    edge.on("GET", f"{APPS}/replicasets/web-1", obj("web-1", reference("Deployment", "web")))
    edge.on("GET", PATHS[WEB], obj("web"))
    edge.on("GET", EVENTS, listed())
    edge.on("GET", PODS, listed(found))
    reader.topmost("ns", reference("ReplicaSet", "web-1"))
    assert reader.states([WEB], read_refusals=True)[WEB].hindrance == expected


def test_events_are_not_read_if_a_condition_has_the_message(edge: ScriptedApiServer, reader: ControllerReader) -> None:
    edge.on("GET", PATHS[RC], obj("rc", status=failing("exceeded quota")))
    assert reader.states([RC], read_refusals=True)[RC].refusal == "exceeded quota"
    assert len(edge.requests) == 1


FORBIDDEN = 'deployments.apps "web" is forbidden: User "eve" cannot get resource "deployments"'
MALFORMED = "unexpected response: Expected `int | null`, got `str` - at `$.spec.replicas`"
ERRORS: dict[str, tuple[Step, type[ReschedulerError], str]] = {
    "a missing permission": (status(403, FORBIDDEN), Forbidden, f"get deployments ns/web: {FORBIDDEN} (403)"),
    "a busy server": (status(429, "slow down"), Retryable, "get deployments ns/web: slow down (429)"),
}


@pytest.mark.parametrize(("step", "kind", "message"), ERRORS.values(), ids=ERRORS)
def test_a_controller_that_cannot_be_read_is_an_error_and_not_a_deletion(
    edge: ScriptedApiServer, reader: ControllerReader, step: Step, kind: type[ReschedulerError], message: str
) -> None:
    edge.on("GET", PATHS[WEB], step)
    with pytest.raises(ReschedulerError) as caught:
        reader.states([WEB])
    assert (type(caught.value), str(caught.value)) == (kind, message)


def test_a_controller_that_cannot_be_decoded_concerns_only_itself(
    edge: ScriptedApiServer, reader: ControllerReader
) -> None:
    edge.on("GET", PATHS[WEB], obj("web", spec={"replicas": "two"}))
    edge.on("GET", PATHS[RC], obj("rc"))
    states = reader.states([WEB, RC])
    assert states[WEB].unreadable == f"get deployments ns/web: {MALFORMED}"
    assert (states[WEB].exists, states[WEB].wanted, states[RC].wanted) == (True, None, 1)


def test_a_reference_that_is_not_a_name_concerns_only_its_own_pod(
    edge: ScriptedApiServer, reader: ControllerReader
) -> None:
    """A tenant may write one that looks like a ReplicaSet of a Deployment that is owed pods."""
    edge.on("GET", PATHS[WEB], obj("web"))
    forged = ("ns", reference("ReplicaSet", "web-.")), ("ns", reference("ReplicaSet", "web-/../x"))
    assert reader.read((), [WEB], forged).states[WEB].wanted == 1
    assert [request.path for request in edge.requests] == [PATHS[WEB]]
    with pytest.raises(InputError, match="owner of pods in ns: name"):
        reader.topmost(*forged[0])


def test_a_replica_set_that_cannot_be_read_is_an_error(edge: ScriptedApiServer, reader: ControllerReader) -> None:
    edge.on("GET", f"{APPS}/replicasets/web-1", ResetReply(), obj("web-1", reference("Deployment", "web")))
    with pytest.raises(Retryable):
        reader.topmost("ns", reference("ReplicaSet", "web-1"))
    assert reader.topmost("ns", reference("ReplicaSet", "web-1")) == WEB
