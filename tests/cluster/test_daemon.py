"""The daemon empties nodes of a real cluster. Pods start on on-demand nodes, then spot nodes open."""

import httpx
import pytest

from deploy.local.api import Json
from deploy.local.manifests import daemonset, deployment, job, pdb, pod, statefulset
from deploy.local.plane import ControlPlane
from deploy.local.stages import COMPLETE_AFTER, NEVER, START_AFTER, TERMINATE_AFTER
from rescheduler.draining import intent
from rescheduler.draining.intent import ANNOTATION
from tests.cluster.daemon import NO_DELAY, Daemon, Look, prefers

ONE, TWO = "on-demand-1", "on-demand-2"


@pytest.fixture
def look(cluster: ControlPlane) -> Look:
    return Look(cluster)


def uids(pods: list[Json]) -> set[str]:
    return {one["metadata"]["uid"] for one in pods}


def drained_once(cluster: ControlPlane, *flags: str) -> Daemon:
    with Daemon(cluster, "--once", *flags) as daemon:
        assert daemon.end() == 0
    return daemon


def test_a_node_is_emptied_and_its_pods_run_on_spot(cluster: ControlPlane, look: Look) -> None:
    look.nodes(1, 2)
    cluster.apply([deployment("web", 3)])
    look.running(3)
    assert look.kinds() == {"on-demand": 3}
    look.open_spot()
    drained_once(cluster)
    look.running(3)
    assert look.kinds() == {"spot": 3}
    assert look.marks() == {}
    assert look.events(ONE) == {"DrainPlanned", "Rescheduler", "NodeDrained"}


def test_nodes_are_emptied_one_by_one_the_emptiest_first(cluster: ControlPlane, look: Look) -> None:
    look.nodes(2, 2)
    cluster.apply([deployment("few", 1, affinity=prefers(TWO)), deployment("many", 3, affinity=prefers(ONE))])
    look.running(4)
    assert look.places() == {ONE: 3, TWO: 1}
    look.open_spot()
    with Daemon(cluster, NO_DELAY) as daemon:
        look.eventually(lambda: len(daemon.told("drained after")) == 2, "two drains")
        assert [line["node"] for line in daemon.told("drained after")] == [TWO, ONE]
    look.running(4)
    assert look.kinds() == {"spot": 4}


def test_the_drain_delay_keeps_the_next_node_waiting(cluster: ControlPlane, look: Look) -> None:
    look.nodes(2, 2)
    cluster.apply([deployment("few", 1, affinity=prefers(TWO)), deployment("many", 3, affinity=prefers(ONE))])
    look.running(4)
    look.open_spot()
    with Daemon(cluster) as daemon:
        look.eventually(lambda: daemon.told("nothing is drained", reason="drain-delay"), "the delay")
        assert [line["node"] for line in daemon.told("drained after")] == [TWO]
    assert look.kinds("many") == {"on-demand": 3}


def test_a_budget_that_never_allows_keeps_the_node(cluster: ControlPlane, look: Look) -> None:
    look.nodes(1, 2)
    cluster.apply([deployment("web", 2), pdb("web", max_unavailable=0)])
    look.running(2)
    before = uids(look.pods())
    look.open_spot()
    with Daemon(cluster) as daemon:
        stays = look.eventually(lambda: daemon.told("not drained", reason="pod-disruption-budget"), "the node judged")
        assert {(line["node"], line["pod"].partition("-")[0]) for line in stays} == {(ONE, "default/web")}
        rounds = len(daemon.told("planned 1 of 1"))
        look.eventually(lambda: len(daemon.told("planned 1 of 1")) > rounds + 2, "more rounds")
        assert not daemon.told("eviction evicted") + daemon.told("eviction refused")
    assert uids(look.pods()) == before
    assert look.marks() == {}
    assert look.events(ONE) == {"DrainBlocked"}


def test_a_budget_that_allows_one_at_a_time_is_drained_in_steps(cluster: ControlPlane, look: Look) -> None:
    look.nodes(1, 2)
    slow = {START_AFTER: "1s"}
    cluster.apply([deployment("web", 3, annotations=slow), pdb("web", max_unavailable=1)])
    look.running(3)
    look.eventually(lambda: _allowed(cluster) == 1, "the budget's status")
    look.open_spot()
    daemon = drained_once(cluster)
    look.running(3)
    assert look.kinds() == {"spot": 3}
    assert len(daemon.told("eviction evicted")) == 3


def _allowed(cluster: ControlPlane) -> int:
    budget = cluster.api.get("/apis/policy/v1/namespaces/default/poddisruptionbudgets/web")
    return int(budget.get("status", {}).get("disruptionsAllowed", -1))


def test_a_pod_that_does_not_end_fails_the_drain_and_the_next_node_has_its_turn(
    cluster: ControlPlane, look: Look
) -> None:
    look.nodes(2, 2)
    stuck = deployment("stuck", 1, annotations={TERMINATE_AFTER: NEVER}, affinity=prefers(ONE))
    cluster.apply([stuck, deployment("web", 2, affinity=prefers(TWO))])
    look.running(3)
    assert look.places() == {ONE: 1, TWO: 2}
    look.open_spot()
    with Daemon(cluster, NO_DELAY) as daemon:
        look.eventually(lambda: daemon.told("drain failed", node=ONE), "the failed drain")
        failed = daemon.told("drain failed", node=ONE)[0]
        assert failed["reason"] == "termination-timeout"
        assert failed["pod"].startswith("default/stuck-")
        assert "the taint was removed" in failed["message"]
        look.eventually(lambda: daemon.told("drained after", node=TWO), "the other node")
        assert daemon.told("no new attempt before", node=ONE)
        assert not daemon.told("draining", node=ONE)[1:]
    assert look.marks() == {}
    assert look.kinds("web") == {"spot": 2}
    assert look.events(ONE) >= {"DrainFailed", "ReschedulerFailed", "DrainCoolDown"}


def test_daemonset_mirror_and_ended_pods_are_left_alone(cluster: ControlPlane, look: Look) -> None:
    look.nodes(1, 1)
    kept = [daemonset("agent"), pod("static", mirror=True, nodeName=ONE), job("done", affinity=prefers(ONE))]
    cluster.apply([*kept, deployment("web", 2)])
    look.running(2, "web")
    look.eventually(lambda: not look.pods("done"), "the job's end")
    before = uids(look.pods("agent") + look.pods("static"))
    assert len(before) == 3
    look.open_spot()
    drained_once(cluster)
    look.running(2, "web")
    assert look.kinds("web") == {"spot": 2}
    assert uids(look.pods("agent") + look.pods("static")) == before
    assert len(cluster.api.items("/api/v1/pods", labelSelector="app=done")) == 1


def test_a_bare_pod_keeps_its_node(cluster: ControlPlane, look: Look) -> None:
    look.nodes(1, 1)
    cluster.apply([pod("bare"), deployment("web", 1)])
    look.running(2)
    before = uids(look.pods())
    look.open_spot()
    daemon = drained_once(cluster)
    assert daemon.told("not drained", node=ONE, pod="default/bare", reason="no-controller")
    assert uids(look.pods()) == before


def test_a_bare_pod_is_evicted_where_that_is_wanted(cluster: ControlPlane, look: Look) -> None:
    look.nodes(1, 1)
    cluster.apply([pod("bare"), deployment("web", 1)])
    look.running(2)
    look.open_spot()
    drained_once(cluster, "--delete-non-replicated-pods")
    look.running(1)
    assert look.places() == {"spot-1": 1}


def test_a_pod_that_comes_back_under_its_own_name_has_left(cluster: ControlPlane, look: Look) -> None:
    look.nodes(1, 1)
    cluster.apply([statefulset("db", 2, annotations={TERMINATE_AFTER: "500ms"})])
    look.running(2)
    before = uids(look.pods())
    look.open_spot()
    drained_once(cluster)
    look.running(2)
    assert look.places() == {"spot-1": 2}
    assert {one["metadata"]["name"] for one in look.pods()} == {"db-0", "db-1"}
    assert not uids(look.pods()) & before


def test_a_jobs_pod_moves_as_well(cluster: ControlPlane, look: Look) -> None:
    look.nodes(1, 1)
    cluster.apply([job("work", annotations={COMPLETE_AFTER: NEVER})])
    look.running(1)
    look.open_spot()
    drained_once(cluster)
    look.running(1)
    assert look.places() == {"spot-1": 1}


def test_dry_run_changes_nothing(cluster: ControlPlane, look: Look) -> None:
    look.nodes(1, 1)
    cluster.apply([deployment("web", 2)])
    look.running(2)
    look.open_spot()
    annotate(cluster, ONE, "left by somebody")
    before = versions(cluster)
    daemon = drained_once(cluster, "--dry-run")
    assert daemon.told("can be drained: 2 pods", node=ONE)
    assert versions(cluster) == before


def versions(cluster: ControlPlane) -> dict[str, str]:
    """What any write would change."""
    kinds = ("/api/v1/pods", "/api/v1/events", "/apis/coordination.k8s.io/v1/namespaces/default/leases")
    found = {
        one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for kind in kinds for one in items(cluster, kind)
    }
    nodes = {
        one["metadata"]["name"]: repr((one["spec"], one["metadata"]["annotations"]))
        for one in cluster.api.items("/api/v1/nodes")
    }
    return found | nodes


def items(cluster: ControlPlane, kind: str) -> list[Json]:
    """All but what the control plane itself tells of."""
    found = cluster.api.items(kind)
    return [one for one in found if _component(one) == "rescheduler"]


def _component(event: Json) -> str:
    """Who wrote an Event, in its old or its new form; any other object may be ours."""
    return str(event.get("source", {}).get("component") or event.get("reportingComponent") or "rescheduler")


def annotate(cluster: ControlPlane, node: str, text: str) -> None:
    taint = intent.taint("somebody")
    spec = {"taints": [{"key": taint.key, "value": taint.value, "effect": taint.effect}]}
    cluster.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {ANNOTATION: text}}, "spec": spec})


def test_marks_that_nobody_can_read_are_taken_off_at_start(cluster: ControlPlane, look: Look) -> None:
    look.nodes(2, 1)
    annotate(cluster, ONE, "{broken")
    assert look.marks() == {ONE: "{broken"}
    daemon = drained_once(cluster)
    assert daemon.told("found marks", node=ONE, reason="rolled-back")
    assert look.marks() == {}


@pytest.mark.parametrize(
    ("cpu", "held"),
    [
        pytest.param("3500m", True, id="a pod that fits an empty spot node holds drains back"),
        pytest.param("64", False, id="a pod that fits no spot node ever does not"),
    ],
)
def test_pending_pods(cluster: ControlPlane, look: Look, cpu: str, *, held: bool) -> None:
    look.nodes(1, 1)
    cluster.apply([deployment("web", 2, cpu="1")])
    look.running(2)
    cluster.apply(
        [deployment("big", 1, cpu=cpu, memory="64Mi", nodeSelector={"node-role.kubernetes.io/spot-worker": "true"})]
    )
    look.eventually(lambda: any(_unschedulable(one) for one in look.pods("big")), "the pod refused")
    cluster.apply([deployment("filler", 1, cpu="1", nodeName="spot-1")])
    look.running(1, "filler")
    look.open_spot()
    with Daemon(cluster) as daemon:
        words = "nothing is drained" if held else "drained after"
        look.eventually(lambda: daemon.told(words), words)
        assert bool(daemon.told("draining")) is not held
    assert look.kinds("web") == ({"on-demand": 2} if held else {"spot": 2})


def _unschedulable(item: Json) -> bool:
    return any(one.get("reason") == "Unschedulable" for one in item["status"].get("conditions", ()))


def test_the_last_on_demand_nodes_are_kept(cluster: ControlPlane, look: Look) -> None:
    look.nodes(1, 1)
    cluster.apply([deployment("web", 1)])
    look.running(1)
    look.open_spot()
    daemon = drained_once(cluster, "--min-on-demand-nodes=1")
    assert daemon.told("not drained", node=ONE, reason="min-on-demand-nodes")
    assert look.kinds() == {"on-demand": 1}


def page(daemon: Daemon, name: str) -> httpx.Response:
    return httpx.get(f"{daemon.address}/{name}", timeout=60, trust_env=False)


def test_what_it_serves(cluster: ControlPlane, look: Look) -> None:
    look.nodes(1, 2)
    cluster.apply([deployment("web", 2)])
    look.running(2)
    look.open_spot()
    with Daemon(cluster) as daemon:
        look.eventually(lambda: daemon.told("nothing is drained", reason="drain-delay"), "the drain")
        expected = {
            'spot_rescheduler_nodes_count{node_type="node-role.kubernetes.io/worker"} 1.0',
            'spot_rescheduler_nodes_count{node_type="node-role.kubernetes.io/spot-worker"} 2.0',
            'spot_rescheduler_node_drain_total{drain_state="Success",node="on-demand-1"} 1.0',
            "spot_rescheduler_evicted_pods_total 2.0",
            'spot_rescheduler_node_pods_count{node="on-demand-1",node_type="node-role.kubernetes.io/worker"} 0.0',
            'spot_rescheduler_cooldown_active{kind="drain-delay"} 1.0',
        }
        look.eventually(lambda: expected <= set(page(daemon, "metrics").text.splitlines()), "the metrics")
        assert [page(daemon, one).status_code for one in ("healthz", "readyz", "statusz")] == [200] * 3
        status = page(daemon, "statusz").json()
        assert [(one["node"], one["succeeded"]) for one in status["drains"]] == [(ONE, True)]
        assert status["waiting"]["reason"] == "drain-delay"
