"""The API server is stopped while the daemon starts, or drains a node."""

from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from tests.cluster.daemon import NO_DELAY, ClusterQueries, Daemon, create_stuck_pod, delete_stuck_pods, terminating

NODE = "on-demand-1"


def test_the_daemon_waits_for_the_api_server_at_start(cluster: ControlPlane) -> None:
    queries = ClusterQueries(cluster)
    queries.nodes(1, 1)
    cluster.apply([deployment("web", 1)])
    queries.running(1)
    queries.open_spot()
    cluster.stop_component("kube-apiserver")
    # A drain fails if it starts before the controllers run again, because its replacement pod is not created.
    with Daemon(cluster, "--node-cooldown=1s", "--failure-pause=1s", NO_DELAY) as daemon:
        try:
            queries.eventually(lambda: daemon.logged("cannot read"), "the logged error")
        finally:
            cluster.start_component("kube-apiserver")
        queries.eventually(lambda: queries.kinds() == {"spot": 1} and queries.marks() == {}, "the pod on spot")
        assert daemon.running
    queries.running(1)


def test_a_stopped_api_server_does_not_end_the_daemon(cluster: ControlPlane) -> None:
    queries = ClusterQueries(cluster)
    create_stuck_pod(cluster, queries)
    with Daemon(cluster) as daemon:
        queries.eventually(lambda: terminating(cluster), "the drain under way")
        cluster.stop_component("kube-apiserver")
        queries.eventually(lambda: daemon.logged("cannot read"), "the logged error")
        cluster.start_component("kube-apiserver")
        delete_stuck_pods(cluster)
        queries.eventually(
            lambda: daemon.logged("drained after", node=NODE) or daemon.logged("drain failed"), "the end of the drain"
        )
        queries.eventually(lambda: queries.marks() == {}, "the removal of the taint")
        assert daemon.running
    queries.running(3)
