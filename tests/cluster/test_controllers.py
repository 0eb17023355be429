"""Reading of the controllers of pods, with a real controller manager."""

from collections.abc import Iterable

import pytest

from devcluster.api import Json
from devcluster.manifests import deployment, job, node, statefulset
from devcluster.plane import ControlPlane
from devcluster.stages import COMPLETE_AFTER, NEVER, START_AFTER
from predicates.objects import OwnerReference
from rescheduler.clock import SystemClock
from rescheduler.errors import Forbidden
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from rescheduler.kube.controllers import ControllerReader
from rescheduler.planning.controllers import Controller, ControllerState, Disruption
from tests.cluster.waiting import eventually

PODS = "/api/v1/namespaces/default/pods"
FULL: Json = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "full", "namespace": "default"},
    "spec": {"hard": {"pods": "0"}},
}


@pytest.fixture
def reader(cluster: ControlPlane) -> ControllerReader:
    cluster.apply([node("n1")])
    return ControllerReader(Client(Kubeconfig(str(cluster.kubeconfig)), SystemClock()), SystemClock())


def pods(cluster: ControlPlane, app: str, count: int, phase: str = "Running") -> list[Json]:
    """Wait until *app* has *count* pods, all in *phase*, and return them."""

    def in_phase() -> list[Json]:
        items = cluster.api.items(PODS, labelSelector=f"app={app}")
        return items if [item["status"]["phase"] for item in items] == [phase] * count else []

    return cluster.wait_for(in_phase, f"{count} {phase} pods of {app}")


def owners(pods: Iterable[Json]) -> list[tuple[str, OwnerReference]]:
    return [
        (
            pod["metadata"]["namespace"],
            OwnerReference(kind=item["kind"], name=item["name"], uid=item["uid"], api_version=item["apiVersion"]),
        )
        for pod in pods
        for item in pod["metadata"]["ownerReferences"]
    ]


def topmost(reader: ControllerReader, pods: Iterable[Json]) -> Controller:
    """Return the only topmost controller of *pods*."""
    [controller] = set(reader.topmost_of(owners(pods)).values())
    return controller


def only_state(reader: ControllerReader, controller: Controller, *, read_refusals: bool = False) -> ControllerState:
    return reader.states([controller], read_refusals=read_refusals)[controller]


def uids(pods: Iterable[Json]) -> frozenset[str]:
    """Return the UIDs of the controllers in the owner references of *pods*."""
    return frozenset(reference.uid for _, reference in owners(pods))


def delete(cluster: ControlPlane, pod: Json) -> None:
    cluster.api.delete(f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds=0)


def use_up_quota(cluster: ControlPlane) -> None:
    cluster.apply([FULL])
    quota = "/api/v1/namespaces/default/resourcequotas/full"
    eventually(lambda: cluster.api.get(quota)["status"].get("hard") == {"pods": "0"})


def test_a_deployment_reports_that_a_quota_rejects_its_replacement_pods(
    cluster: ControlPlane, reader: ControllerReader
) -> None:
    cluster.apply([deployment("web", 2)])
    running = pods(cluster, "web", 2)
    web = topmost(reader, running)
    assert str(web) == "default/Deployment/web"
    before = only_state(reader, web)
    assert (before.wanted, before.owner_uids, before.exists, before.refusal) == (2, uids(running), True, "")
    use_up_quota(cluster)
    delete(cluster, running[0])
    eventually(lambda: only_state(reader, web).refusal)
    after = only_state(reader, web)
    assert "exceeded quota: full" in after.refusal
    assert (after.wanted, after.template) == (2, before.template)
    cluster.api.delete("/api/v1/namespaces/default/resourcequotas/full")
    eventually(lambda: not only_state(reader, web).refusal)


def test_the_failure_of_a_paused_deployment_is_read_from_its_replica_set(
    cluster: ControlPlane, reader: ControllerReader
) -> None:
    cluster.apply([deployment("web", 2)])
    running = pods(cluster, "web", 2)
    web = topmost(reader, running)
    cluster.api.patch("/apis/apps/v1/namespaces/default/deployments/web", {"spec": {"paused": True}})
    use_up_quota(cluster)
    delete(cluster, running[0])
    eventually(lambda: "exceeded quota: full" in only_state(reader, web, read_refusals=True).refusal)
    assert not only_state(reader, web).suspended


def test_the_failure_of_a_stateful_set_is_read_from_events(cluster: ControlPlane, reader: ControllerReader) -> None:
    cluster.apply([statefulset("db", 2)])
    running = pods(cluster, "db", 2)
    db = topmost(reader, running)
    before = only_state(reader, db, read_refusals=True)
    assert (str(db), before.wanted, before.owner_uids, before.refusal) == (
        "default/StatefulSet/db",
        2,
        uids(running),
        "",
    )
    assert before.ordered
    use_up_quota(cluster)
    delete(cluster, running[0])
    eventually(lambda: "exceeded quota: full" in only_state(reader, db, read_refusals=True).refusal)
    assert only_state(reader, db).refusal == ""


def test_during_a_rollout_both_replica_sets_belong_to_the_deployment(
    cluster: ControlPlane, reader: ControllerReader
) -> None:
    cluster.apply([deployment("web", 2)])
    old = pods(cluster, "web", 2)
    web = topmost(reader, old)
    before = only_state(reader, web)
    cluster.apply([deployment("web", 2, annotations={START_AFTER: NEVER})])
    both = cluster.wait_for(
        lambda: items if len(uids(items := cluster.api.items(PODS, labelSelector="app=web"))) == 2 else [], "both"
    )
    assert topmost(reader, both) == web
    during = only_state(reader, web)
    assert (during.wanted, during.owner_uids) == (2, uids(both))
    assert during.template != before.template


def test_scaling_down_and_deletion_are_read(cluster: ControlPlane, reader: ControllerReader) -> None:
    cluster.apply([deployment("web", 2)])
    web = topmost(reader, pods(cluster, "web", 2))
    before = only_state(reader, web)
    cluster.apply([deployment("web", 1)])
    scaled = only_state(reader, web)
    assert (scaled.wanted, scaled.template) == (1, before.template)
    cluster.api.delete("/apis/apps/v1/namespaces/default/deployments/web", propagationPolicy="Foreground")
    assert not only_state(reader, web).recreates
    eventually(lambda: not cluster.api.items("/apis/apps/v1/deployments"))
    gone = only_state(reader, web)
    assert (gone.exists, gone.wanted) == (False, 0)
    cluster.apply([deployment("web", 2)])
    again = only_state(reader, web)
    assert (again.exists, again.wanted) == (False, 2)


def test_failures_and_restarts_of_a_job_are_counted(cluster: ControlPlane, reader: ControllerReader) -> None:
    workload = job("backup", 2, annotations={COMPLETE_AFTER: NEVER}, restartPolicy="OnFailure")
    workload["spec"]["backoffLimit"] = 4
    cluster.apply([workload])
    running = pods(cluster, "backup", 2)
    backup = topmost(reader, running)
    assert (str(backup), only_state(reader, backup).wanted) == ("default/Job/backup", 2)
    statuses = [item | {"restartCount": 2} for item in running[0]["status"]["containerStatuses"]]
    path = f"{PODS}/{running[0]['metadata']['name']}"
    cluster.api.patch(f"{path}/status", {"status": {"containerStatuses": statuses}})
    facts = only_state(reader, backup).job
    assert facts is not None
    assert (facts.backoff_limit, facts.failures, facts.disruption) == (4, 2, Disruption.COUNTS)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": running[1]["metadata"]["name"]}}
    cluster.api.post(f"{PODS}/{running[1]['metadata']['name']}/eviction", eviction)
    eventually(lambda: (now := only_state(reader, backup).job) is not None and now.failures == 3)


def test_suspension_and_failure_policy_of_a_job_are_read(cluster: ControlPlane, reader: ControllerReader) -> None:
    workload = job("backup", 2, annotations={COMPLETE_AFTER: NEVER})
    workload["spec"]["podFailurePolicy"] = {
        "rules": [
            {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        ]
    }
    cluster.apply([workload])
    backup = topmost(reader, pods(cluster, "backup", 2))
    facts = only_state(reader, backup).job
    assert facts is not None
    assert (facts.backoff_limit, facts.failures, facts.disruption) == (6, 0, Disruption.IGNORED)
    cluster.api.patch("/apis/batch/v1/namespaces/default/jobs/backup", {"spec": {"suspend": True}})
    suspended = only_state(reader, backup)
    assert (suspended.suspended, suspended.wanted, suspended.exists) == (True, 0, True)


def test_completed_pods_of_a_job_are_no_longer_desired(cluster: ControlPlane, reader: ControllerReader) -> None:
    workload = job("work", 2, annotations={COMPLETE_AFTER: NEVER})
    workload["spec"]["parallelism"] = 1
    cluster.apply([workload])
    [first] = pods(cluster, "work", 1)
    work = topmost(reader, [first])
    succeed(cluster, first)
    eventually(lambda: cluster.api.get("/apis/batch/v1/namespaces/default/jobs/work")["status"].get("succeeded") == 1)
    assert only_state(reader, work).wanted == 1
    for item in cluster.wait_for(lambda: running(cluster, "work"), "the second pod"):
        succeed(cluster, item)
    eventually(lambda: only_state(reader, work).wanted == 0)


def running(cluster: ControlPlane, app: str) -> list[Json]:
    return cluster.api.items(PODS, labelSelector=f"app={app}", fieldSelector="status.phase=Running")


def succeed(cluster: ControlPlane, pod: Json) -> None:
    cluster.api.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": {"phase": "Succeeded"}})


def test_pods_of_an_unknown_kind_of_controller_are_counted(cluster: ControlPlane, reader: ControllerReader) -> None:
    rollout = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web", "uid": "11", "controller": True}
    workload = deployment("web", 2) | {"kind": "ReplicaSet"}
    workload["metadata"]["ownerReferences"] = [rollout]
    cluster.apply([workload])
    first, _ = pods(cluster, "web", 2)
    web = topmost(reader, [first])
    assert web == Controller("default", "Rollout", "web", "11", "argoproj.io/v1alpha1")
    expected = ControllerState(web, uids([first]) | {"11"}, wanted=2)
    assert only_state(reader, web) == expected
    succeed(cluster, first)
    assert only_state(reader, web).succeeded == 1


def test_a_missing_right_is_named(cluster: ControlPlane, reader: ControllerReader) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": "default"}}
    cluster.apply([account, deployment("web", 1)])
    running = pods(cluster, "web", 1)
    web = topmost(reader, running)
    kubeconfig = cluster.service_account_kubeconfig("default", "nobody")
    without_rights = ControllerReader(Client(Kubeconfig(str(kubeconfig)), SystemClock()), SystemClock())
    with pytest.raises(Forbidden, match=r'get replicasets default/web-.* cannot get resource "replicasets"'):
        without_rights.topmost_of(owners(running))
    with pytest.raises(Forbidden, match=r'get deployments default/web: .* cannot get resource "deployments"'):
        without_rights.states([web])
