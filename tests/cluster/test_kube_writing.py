"""rescheduler.kube writes to a real API server: taints, evictions, a Lease, Events."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from devcluster.api import Json
from devcluster.manifests import deployment, node, pdb, pod
from devcluster.plane import ControlPlane
from predicates.objects import Taint
from rescheduler.clock import SystemClock
from rescheduler.draining.events import EvictionAccepted, EvictionFailed, EvictionRefused, PodGone
from rescheduler.errors import NotFound
from rescheduler.kube.client import Client
from rescheduler.kube.cluster import KubeCluster, NodeEdit
from rescheduler.kube.recorder import Recorder, Subject
from tests.cluster.waiting import eventually

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def kube(client: Client) -> KubeCluster:
    return KubeCluster(client)


def uid(stored: Json) -> str:
    value: str = stored["metadata"]["uid"]
    return value


def own(node: Json) -> list[Json]:
    """Return the taints except those of the node lifecycle controller."""
    return [item for item in node["spec"]["taints"] if not item["key"].startswith("node.kubernetes.io/")]


def test_taint_and_annotation_are_set_and_removed_in_one_write_each(cluster: ControlPlane, kube: KubeCluster) -> None:
    foreign = {"key": "theirs", "effect": "NoExecute", "value": "1"}
    [stored] = cluster.apply([node("n1", ready=False, taints=[foreign])])
    version = int(cluster.api.get("/api/v1/nodes/n1")["metadata"]["resourceVersion"])
    kube.edit_node(
        "n1", uid(stored), NodeEdit(taint=(Taint(key="ours", effect="NoSchedule"),), annotate={"intent": "x"})
    )
    marked = cluster.api.get("/api/v1/nodes/n1")
    assert own(marked) == [foreign, {"key": "ours", "effect": "NoSchedule"}]
    assert marked["metadata"]["annotations"]["intent"] == "x"
    assert int(marked["metadata"]["resourceVersion"]) > version
    kube.edit_node("n1", uid(stored), NodeEdit(untaint=("ours",), annotate={"intent": None}))
    released = cluster.api.get("/api/v1/nodes/n1")
    assert own(released) == [foreign]
    assert "intent" not in released["metadata"].get("annotations", {})


def test_parallel_writers_keep_all_taints(cluster: ControlPlane, kube: KubeCluster) -> None:
    [stored] = cluster.apply([node("n1", ready=False)])
    keys = {f"key-{number}" for number in range(4)}

    def mark(key: str) -> None:
        kube.edit_node("n1", uid(stored), NodeEdit(taint=(Taint(key=key, effect="NoSchedule"),)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(mark, keys))
    assert {item["key"] for item in own(cluster.api.get("/api/v1/nodes/n1"))} >= keys


def test_a_node_that_was_replaced_is_neither_marked_nor_deleted(cluster: ControlPlane, kube: KubeCluster) -> None:
    [old] = cluster.apply([node("n1", ready=False)])
    cluster.api.delete("/api/v1/nodes/n1")
    [new] = cluster.apply([node("n1", ready=False)])
    with pytest.raises(NotFound, match="replaced"):
        kube.edit_node("n1", uid(old), NodeEdit(taint=(Taint(key="ours", effect="NoSchedule"),)))
    kube.delete_node("n1", uid(old))
    assert uid(cluster.api.get("/api/v1/nodes/n1")) == uid(new)
    kube.delete_node("n1", uid(new))
    kube.delete_node("n1", uid(new))
    assert cluster.api.items("/api/v1/nodes") == []


def running(cluster: ControlPlane, app: str, count: int) -> list[Json]:
    def all_running() -> list[Json]:
        items = cluster.api.items(PODS, labelSelector=f"app={app}")
        return items if [item["status"]["phase"] for item in items] == ["Running"] * count else []

    return cluster.wait_for(all_running, f"{count} running pods of {app}")


def test_an_eviction_requires_the_uid(cluster: ControlPlane, kube: KubeCluster) -> None:
    cluster.apply([node("n1"), pod("p")])
    [seen] = running(cluster, "p", 1)
    assert kube.evict("default", "p", uid(seen), dry_run=True) == EvictionAccepted(uid(seen))
    assert kube.evict("default", "p", "of-another-pod") == PodGone("of-another-pod")
    [unharmed] = running(cluster, "p", 1)
    assert uid(unharmed) == uid(seen)
    assert kube.evict("default", "p", uid(seen), 0) == EvictionAccepted(uid(seen))
    eventually(lambda: cluster.api.items(PODS) == [])
    assert kube.evict("default", "p", uid(seen)) == PodGone(uid(seen))


DRY_RUNS_ONLY: list[Json] = [
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "dry-runs-only"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/eviction"], "operations": ["CREATE"]}
                ]
            },
            "validations": [{"expression": "request.dryRun", "message": "only dry runs are allowed"}],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "dry-runs-only"},
        "spec": {"policyName": "dry-runs-only", "validationActions": ["Deny"]},
    },
]


@pytest.fixture
def dry_runs_only(cluster: ControlPlane, kube: KubeCluster) -> Iterator[None]:
    """An admission policy that denies every eviction except dry runs."""
    stored = cluster.apply(DRY_RUNS_ONLY)
    yield
    for item in stored:
        cluster.api.delete(cluster.api.path(item))
    # The API server uses a deleted policy for up to a second.
    eventually(lambda: kube.evict("default", "p", "of-another-pod") == PodGone("of-another-pod"))


@pytest.mark.usefixtures("dry_runs_only")
def test_admission_sees_that_an_eviction_is_a_dry_run(cluster: ControlPlane, kube: KubeCluster) -> None:
    cluster.apply([node("n1"), pod("p")])
    [seen] = running(cluster, "p", 1)

    def denied() -> bool:  # a new policy takes effect with a delay; no pod has this UID
        outcome = kube.evict("default", "p", "of-another-pod")
        return (
            isinstance(outcome, EvictionFailed) and not outcome.retryable and "only dry runs are allowed" in outcome.why
        )

    eventually(denied)
    before = cluster.api.get(f"{PODS}/p")["metadata"]["resourceVersion"]
    assert kube.evict("default", "p", uid(seen), dry_run=True) == EvictionAccepted(uid(seen))
    assert cluster.api.get(f"{PODS}/p")["metadata"]["resourceVersion"] == before
    assert isinstance(kube.evict("default", "p", uid(seen)), EvictionFailed)
    assert uid(running(cluster, "p", 1)[0]) == uid(seen)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_rejected_eviction_names_the_budget(cluster: ControlPlane, kube: KubeCluster, *, dry_run: bool) -> None:
    cluster.apply([node("n1"), deployment("web", 2), pdb("web", min_available=2)])
    first, _ = running(cluster, "web", 2)
    eventually(lambda: healthy(cluster) == 2)
    outcome = kube.evict("default", first["metadata"]["name"], uid(first), dry_run=dry_run)
    assert isinstance(outcome, EvictionRefused)
    assert outcome.why == "The disruption budget web needs 2 healthy pods and has 2 currently"


def healthy(cluster: ControlPlane) -> int:
    """Return the number of healthy pods of the only budget."""
    [budget] = cluster.api.items("/apis/policy/v1/poddisruptionbudgets")
    return int(budget["status"].get("currentHealthy", 0))


def test_a_pod_with_two_budgets_can_never_be_evicted(cluster: ControlPlane, kube: KubeCluster) -> None:
    cluster.apply([node("n1"), deployment("web", 1), pdb("web", max_unavailable=1)])
    cluster.apply([pdb("web-too", app="web", max_unavailable=1)])
    [only] = running(cluster, "web", 1)
    outcome = kube.evict("default", only["metadata"]["name"], uid(only))
    assert isinstance(outcome, EvictionFailed)
    assert not outcome.retryable
    assert "more than one PodDisruptionBudget" in outcome.why
    assert uid(running(cluster, "web", 1)[0]) == uid(only)


class ForwardClock(SystemClock):
    """A clock that tests can advance."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def test_events_are_recorded_for_nodes_and_pods_and_repeats_are_counted(cluster: ControlPlane, client: Client) -> None:
    stored, bare = cluster.apply([node("n1"), pod("p", nodeName="n1")])
    clock = ForwardClock()
    recorder = Recorder(client, clock)
    recorder.start()
    subject = Subject("Node", "n1", uid(stored))

    def events(**fields: str) -> list[Json]:
        selector = ",".join(f"{name}={value}" for name, value in fields.items())
        return cluster.api.items("/api/v1/events", fieldSelector=selector)

    recorder.record(subject, "DrainBlocked", "first")
    recorder.record(Subject("Pod", "p", uid(bare), "default"), "Rescheduler", "evicted", "Warning")
    eventually(lambda: events(reason="DrainBlocked"))
    clock.ahead = 600.0
    recorder.record(subject, "DrainBlocked", "first")
    recorder.record(subject, "DrainBlocked", "second")
    recorder.close(60.0)
    both = events(reason="DrainBlocked", **{"involvedObject.uid": uid(stored)})
    blocked, other = sorted(both, key=lambda event: event["message"])
    assert (blocked["count"], blocked["message"], blocked["type"]) == (2, "first", "Normal")
    assert (other["count"], other["message"]) == (1, "second")
    assert (blocked["source"]["component"], blocked["metadata"]["namespace"]) == ("rescheduler", "default")
    assert blocked["firstTimestamp"] <= blocked["lastTimestamp"]
    [evicted] = events(reason="Rescheduler", **{"involvedObject.name": "p"})
    assert (evicted["type"], evicted["message"]) == ("Warning", "evicted")
