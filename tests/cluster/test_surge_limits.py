"""Rolling updates keep the limits of a Deployment: readiness gates, deadlines, its history and its percentages."""

from devcluster.manifests import deployment, pdb
from devcluster.plane import ControlPlane
from devcluster.stages import READY_ON, START_AFTER
from rescheduler.kube.deployments import RESTARTED_AT
from tests.cluster.bad_days import NODE_1
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer
from tests.cluster.ready_watch import never_down
from tests.cluster.surge_scenes import SURGE, WEB, gated, restarted, scene, set_gate, started, template, wait_drained


def test_the_old_pod_stays_until_the_readiness_gate_of_the_new_one_is_set(
    cluster: ControlPlane, observer: Observer
) -> None:
    old = gated(observer)
    with never_down(observer, "web"), Daemon(cluster, *SURGE):
        new = observer.eventually(lambda: started(observer), "the containers of the new pod")
        both = {old, new["metadata"]["name"]}
        observer.stays(lambda: {pod["metadata"]["name"] for pod in observer.pods("web")}, both, seconds=3)
        assert not any("deletionTimestamp" in pod["metadata"] for pod in observer.pods("web"))
        set_gate(observer, new)
        observer.eventually(lambda: observer.kinds("web") == {"spot": 1}, "the new pod alone")
        wait_drained(observer)


def test_limits_of_a_deployment_are_kept(cluster: ControlPlane, observer: Observer) -> None:
    """A roll-back returns to the old ReplicaSet, and restores the very value that the annotation had, or had not."""
    scene(observer, "web", annotations={READY_ON: "on-demand", RESTARTED_AT: "2026-01-01T00:00:00+01:00"})
    limits = {"revisionHistoryLimit": 0, "minReadySeconds": 3, "progressDeadlineSeconds": 5}
    generation = cluster.api.patch(WEB, {"spec": limits})["metadata"]["generation"]

    def settled() -> bool:
        status = cluster.api.get(WEB)["status"]
        return bool(status["observedGeneration"] == generation and status.get("availableReplicas") == 1)

    observer.eventually(settled, "the Deployment available by its new limits")
    before, pods, sets = template(observer, "web"), observer.uids("web"), replica_sets(cluster)
    with never_down(observer, "web"), Daemon(cluster, *SURGE):
        observer.eventually(lambda: "SurgeRolledBack" in observer.events(NODE_1), "the roll-back")
        observer.wait_unmarked()
        observer.eventually(lambda: len(observer.pods("web")) == 1, "one pod")
    assert observer.kinds() == {"on-demand": 1}
    observer.eventually(lambda: len(replica_sets(cluster)) == 1, "the history")
    assert (template(observer, "web"), observer.uids("web")) == (before, pods)
    assert {name: size for name, size in replica_sets(cluster).items() if size} == sets
    assert any("timed out progressing" in text for text in observer.messages(NODE_1, "DrainFailed"))


def replica_sets(cluster: ControlPlane) -> dict[str, int]:
    """Return the name, which ends in the hash of the template, and the number of wanted pods of each ReplicaSet."""
    found = cluster.api.items("/apis/apps/v1/namespaces/default/replicasets")
    return {each["metadata"]["name"]: each["spec"]["replicas"] for each in found}


def test_five_replicas_with_a_percentage_are_never_fewer(cluster: ControlPlane, observer: Observer) -> None:
    """25 % of five is two pods more at once; most of the pods are on the node, so that all may be restarted."""
    observer.nodes(1, 2)
    web = deployment("web", 5, cpu="100m", annotations={START_AFTER: "500ms"})
    web["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}
    observer.start_on(NODE_1, web, pods=5)
    cluster.apply([pdb("web", max_unavailable=0)])
    observer.running(5)
    observer.open_all()
    with never_down(observer, "web", replicas=5), Daemon(cluster, *SURGE):
        observer.eventually(lambda: observer.kinds("web") == {"spot": 5}, "all pods on spot nodes")
        wait_drained(observer)
    assert restarted(observer, "web")
