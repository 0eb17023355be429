"""The API server goes away. Each test has a control plane of its own: the others need one that is well."""

from collections.abc import Iterator

import pytest

from deploy.local.manifests import deployment
from deploy.local.plane import ControlPlane
from tests.cluster.daemon import NO_DELAY, Daemon, Look, let_go, put_stuck, terminating

ONE = "on-demand-1"


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as made:
        yield made


def test_the_api_server_away_at_the_start_is_waited_for(plane: ControlPlane) -> None:
    look = Look(plane)
    look.nodes(1, 1)
    plane.apply([deployment("web", 1)])
    look.running(1)
    look.open_spot()
    plane.stop_component("kube-apiserver")
    # A drain that begins before the controllers are back fails: its replacement pod is not created.
    with Daemon(plane, "--node-cooldown=1s", "--failure-pause=1s", NO_DELAY) as daemon:
        try:
            look.eventually(lambda: daemon.told("cannot read"), "the refusal told")
        finally:
            plane.start_component("kube-apiserver")
        look.eventually(lambda: look.kinds() == {"spot": 1} and look.marks() == {}, "the pod on spot")
        assert daemon.running
    look.running(1)


def test_an_api_server_that_goes_away_in_the_middle_of_a_drain(plane: ControlPlane) -> None:
    look = Look(plane)
    put_stuck(plane, look)
    with Daemon(plane) as daemon:
        look.eventually(lambda: terminating(plane), "the drain under way")
        plane.stop_component("kube-apiserver")
        look.eventually(lambda: daemon.told("cannot read"), "the loss noticed")
        plane.start_component("kube-apiserver")
        let_go(plane)
        look.eventually(lambda: daemon.told("drained after", node=ONE) or daemon.told("drain failed"), "its end")
        look.eventually(lambda: look.marks() == {}, "the taint taken off")
        assert daemon.running
    look.running(3)
