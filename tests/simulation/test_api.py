"""The simulated API server answers as the real one does."""

from typing import Any

import msgspec
import pytest

from rescheduler.simulation.store import KINDS, Json
from tests.simulation.worlds import Scene, budget, node, template, workload

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
POD = "/api/v1/namespaces/default/pods"


def code_and_reason(answer: tuple[int, bytes]) -> tuple[int, str]:
    return answer[0], msgspec.json.decode(answer[1]).get("reason", "")


def body(answer: tuple[int, bytes]) -> Json:
    found: Json = msgspec.json.decode(answer[1])
    return found


@pytest.fixture
def scene() -> Scene:
    here = Scene([node("od-1"), node("spot-1", spot=True)])
    here.world.store.create("deployments", workload("Deployment", "web", 2))
    return here.run(60)


def evicting(pod: Json, **options: Any) -> Json:
    meta = {"name": pod["metadata"]["name"], "namespace": "default"}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}


def evict(here: Scene, pod: Json, **options: Any) -> tuple[int, str]:
    path = f"{POD}/{pod['metadata']['name']}/eviction"
    return code_and_reason(here.ask("POST", path, evicting(pod, **options)))


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, (200, "")),
        ({"uid": "other"}, (409, "Conflict")),
        ({"resourceVersion": "1"}, (409, "Conflict")),
    ],
    ids=["no precondition", "another UID", "an old resource version"],
)
def test_a_patch_has_preconditions(scene: Scene, metadata: Json, expected: tuple[int, str]) -> None:
    change = {"metadata": {"annotations": {"a": "b"}, **metadata}}
    assert code_and_reason(scene.ask("PATCH", "/api/v1/nodes/od-1", change, MERGE)) == expected


def test_a_patch_without_effect_keeps_the_resource_version(scene: Scene) -> None:
    first = body(scene.ask("PATCH", "/api/v1/nodes/od-1", {"spec": {"unschedulable": True}}, MERGE))
    second = body(scene.ask("PATCH", "/api/v1/nodes/od-1", {"spec": {"unschedulable": True}}, MERGE))
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]


def test_the_status_is_a_subresource_whose_conditions_are_merged_by_type(scene: Scene) -> None:
    scene.ask("PATCH", "/api/v1/nodes/od-1", {"status": {"conditions": []}}, MERGE)
    condition = {"type": "DrainInProgress", "status": "True"}
    scene.ask("PATCH", "/api/v1/nodes/od-1/status", {"status": {"conditions": [condition]}}, STRATEGIC)
    types = [each["type"] for each in body(scene.ask("GET", "/api/v1/nodes/od-1"))["status"]["conditions"]]
    assert types == ["Ready", "DrainInProgress"]
    removed = {"type": "DrainInProgress", "$patch": "delete"}
    scene.ask("PATCH", "/api/v1/nodes/od-1/status", {"status": {"conditions": [removed]}}, STRATEGIC)
    types = [each["type"] for each in body(scene.ask("GET", "/api/v1/nodes/od-1"))["status"]["conditions"]]
    assert types == ["Ready"]


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [
        ([], (201, "")),
        ([{"minAvailable": 1}], (201, "")),
        ([{"minAvailable": 2}], (429, "TooManyRequests")),
        ([{"maxUnavailable": "0%"}], (429, "TooManyRequests")),
        ([{"minAvailable": 1}, {"minAvailable": 1}], (500, "InternalError")),
    ],
    ids=["no budget", "one to spare", "none to spare", "a share", "two budgets"],
)
def test_evictions_respect_budgets(scene: Scene, budgets: list[Json], expected: tuple[int, str]) -> None:
    for number, spec in enumerate(budgets):
        item = budget("web", **spec)
        item["metadata"]["name"] = f"budget-{number}"
        scene.world.store.create("poddisruptionbudgets", item)
    scene.run(5)
    first, second = scene.pods(app="web")
    assert evict(scene, first, dryRun=["All"]) == expected
    assert not first["metadata"].get("deletionTimestamp")
    assert evict(scene, first) == expected
    if expected[0] == 201 and budgets:
        assert evict(scene, second) == (429, "TooManyRequests")


def test_a_budget_that_was_not_processed_yet_allows_nothing(scene: Scene) -> None:
    scene.world.store.create("poddisruptionbudgets", budget("web", minAvailable=0))
    answer = scene.ask("POST", f"{POD}/{scene.pods()[0]['metadata']['name']}/eviction", evicting(scene.pods()[0]))
    assert answer[0] == 429
    assert "still being processed by the server" in body(answer)["message"]


def test_a_budget_counts_the_pods_that_it_selects_now(scene: Scene) -> None:
    def healthy() -> int:
        scene.run(5)
        found = scene.world.store.get("poddisruptionbudgets", "default/web")
        assert found is not None
        return int(found["status"]["currentHealthy"])

    store, pods = scene.world.store, scene.pods(app="web")
    store.create("poddisruptionbudgets", budget("web", minAvailable=1))
    assert healthy() == 2
    store.patch("pods", f"default/{pods[0]['metadata']['name']}", {"metadata": {"labels": {"team": "a"}}})
    store.patch("poddisruptionbudgets", "default/web", {"spec": {"selector": {"matchLabels": {"team": "a"}}}})
    assert healthy() == 1
    other = {"matchLabels": None, "matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}
    store.patch("poddisruptionbudgets", "default/web", {"spec": {"selector": other}})
    assert healthy() == 1
    store.patch("pods", f"default/{pods[0]['metadata']['name']}", {"metadata": {"labels": {"team": None}}})
    assert healthy() == 2
    store.delete("pods", f"default/{pods[0]['metadata']['name']}")
    assert healthy() == 1


def test_an_eviction_has_a_precondition(scene: Scene) -> None:
    pod = scene.pods()[0]
    assert evict(scene, pod, preconditions={"uid": "other"}) == (409, "Conflict")
    assert evict(scene, {"metadata": {"name": "none"}}) == (404, "NotFound")


def test_a_pod_terminates_gracefully_and_is_replaced(scene: Scene) -> None:
    pod = scene.pods(app="web")[0]
    evict(scene, pod)
    current = scene.world.store.get("pods", f"default/{pod['metadata']['name']}")
    assert current is not None
    assert current["metadata"]["deletionGracePeriodSeconds"] == 30
    assert [each["type"] for each in current["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    scene.run(40)
    assert scene.world.store.get("pods", f"default/{pod['metadata']['name']}") is None
    assert len(scene.pods(app="web")) == 2


def test_a_quota_refuses_pods(scene: Scene) -> None:
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {"requests.cpu": "1500m"}}}
    scene.world.store.create("resourcequotas", quota)
    pod = {"metadata": {"name": "p"}, "spec": template("p", "600m")["spec"]}
    answer = scene.ask("POST", POD, pod)
    assert answer[0] == 403
    assert "exceeded quota: q, limited: requests.cpu=1500m" in body(answer)["message"]
    pod = {"metadata": {"name": "p"}, "spec": template("p", "500m")["spec"]}
    assert scene.ask("POST", POD, pod)[0] == 201


def test_a_list_has_pages_of_one_moment(scene: Scene) -> None:
    first = body(scene.ask("GET", POD, limit="1"))
    for pod in scene.pods():
        scene.world.store.delete("pods", f"default/{pod['metadata']['name']}")
    second = body(scene.ask("GET", POD, limit="1", **{"continue": first["metadata"]["continue"]}))
    assert [len(first["items"]), len(second["items"])] == [1, 1]
    assert scene.ask("GET", POD, **{"continue": first["metadata"]["continue"]})[0] == 410


def test_orphans_of_a_deleted_owner_stay_and_others_are_collected(scene: Scene) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments/web"
    scene.ask("DELETE", path, {"propagationPolicy": "Orphan"})
    scene.run(60)
    assert len(scene.pods(app="web")) == 2
    [replica_set] = scene.world.store.all("replicasets")
    scene.ask("DELETE", f"/apis/apps/v1/namespaces/default/replicasets/{replica_set['metadata']['name']}", {})
    scene.run(60)
    assert scene.pods(app="web") == []


def test_the_leases_of_kubelets_are_renewed_until_their_machines_end(scene: Scene) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    scene.world.kubelets.stop("spot-1")
    scene.run(35)
    listed = {item["metadata"]["name"]: item["spec"]["renewTime"] for item in body(scene.ask("GET", path))["items"]}
    assert listed == {"od-1": "2026-11-20T12:01:30.000000Z", "spot-1": "2026-11-20T12:01:00.000000Z"}
    assert body(scene.ask("GET", f"{path}/od-1"))["spec"]["renewTime"] == listed["od-1"]


@pytest.mark.parametrize(
    "path", ["/apis/none.example.com", "/apis/resource.k8s.io/v1/resourceclaims", "/api/v1/namespaces/default/pods/x"]
)
def test_what_is_not_there_is_not_found(scene: Scene, path: str) -> None:
    assert code_and_reason(scene.ask("GET", path)) == (404, "NotFound")


@pytest.mark.parametrize(("kind", "name"), [("Namespace", "default"), ("Node", "od-1"), ("PriorityClass", "high")])
def test_a_pod_with_a_cluster_scoped_owner_is_collected_only_with_it(kind: str, name: str) -> None:
    here = Scene([node("od-1"), {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 5}])
    plural = {"Namespace": "namespaces", "Node": "nodes", "PriorityClass": "priorityclasses"}[kind]
    found = here.world.store.get(plural, name)
    assert found is not None
    owner = {"apiVersion": "v1", "kind": kind, "name": name, "uid": found["metadata"]["uid"], "controller": True}
    pod = template("web") | {"metadata": {"name": "web", "namespace": "default", "ownerReferences": [owner]}}
    here.world.server.create(KINDS["pods"], pod)
    here.run(30)
    assert len(here.pods()) == 1
    here.world.store.delete(plural, name)
    here.run(60)
    assert here.pods() == []
    here.world.close()
