"""The API server is stopped. Each test has its own control plane, because other tests need a healthy one."""

from collections.abc import Iterator

import pytest

from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from tests.cluster.daemon import NO_DELAY, ClusterQueries, Daemon, create_stuck_pod, delete_stuck_pods, terminating

NODE = "on-demand-1"


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as control_plane:
        yield control_plane


def test_the_daemon_waits_for_the_api_server_at_start(plane: ControlPlane) -> None:
    queries = ClusterQueries(plane)
    queries.nodes(1, 1)
    plane.apply([deployment("web", 1)])
    queries.running(1)
    queries.open_spot()
    plane.stop_component("kube-apiserver")
    # A drain fails if it starts before the controllers run again, because its replacement pod is not created.
    with Daemon(plane, "--node-cooldown=1s", "--failure-pause=1s", NO_DELAY) as daemon:
        try:
            queries.eventually(lambda: daemon.logged("cannot read"), "the logged error")
        finally:
            plane.start_component("kube-apiserver")
        queries.eventually(lambda: queries.kinds() == {"spot": 1} and queries.marks() == {}, "the pod on spot")
        assert daemon.running
    queries.running(1)


def test_a_stopped_api_server_does_not_end_the_daemon(plane: ControlPlane) -> None:
    queries = ClusterQueries(plane)
    create_stuck_pod(plane, queries)
    with Daemon(plane) as daemon:
        queries.eventually(lambda: terminating(plane), "the drain under way")
        plane.stop_component("kube-apiserver")
        queries.eventually(lambda: daemon.logged("cannot read"), "the logged error")
        plane.start_component("kube-apiserver")
        delete_stuck_pods(plane)
        queries.eventually(
            lambda: daemon.logged("drained after", node=NODE) or daemon.logged("drain failed"), "the end of the drain"
        )
        queries.eventually(lambda: queries.marks() == {}, "the removal of the taint")
        assert daemon.running
    queries.running(3)
