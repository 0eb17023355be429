"""A scale-down of which a part fails: what was done counts, the rest is as before, and the next call goes on."""

from pathlib import Path
from typing import Final

import pytest

from deploy.local.plane import ControlPlane
from deploy.local.stages import NEVER, TERMINATE_AFTER
from tests.acceptance.faults import Fault
from tests.acceptance.proxies import ALL, PODS, TOTAL, Proxy, pool_of_four

pytestmark = pytest.mark.cluster

DONE: Final = 200


def test_of_two_victims_the_second_one_fails(cluster: ControlPlane, tmp_path: Path) -> None:
    with pool_of_four(cluster, tmp_path) as site, Proxy(site) as proxy:
        site.edge.inject(Fault("removing od-4", 500, acted=True, times=100))
        answer = proxy.ask("/pool/size", {"desiredSize": 2})
        assert answer.status_code == DONE
        assert answer.json()["detail"].startswith("1 of 2 machines were removed: node od-4: ")
        site.comes_to("od-1", "od-2", "od-4", pods=TOTAL)
        site.edge.forget()
        answer = proxy.ask("/pool/size", {"desiredSize": 2})
        assert (answer.status_code, answer.text) == (DONE, "")
        site.comes_to("od-1", "od-2", pods=TOTAL)
        site.nothing_twice()


def test_a_pool_that_terminates_nothing_keeps_its_machines_and_they_their_nodes(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    """Its failure is the pool's, so no other node is emptied in place of the one that is given back."""
    with pool_of_four(cluster, tmp_path) as site, Proxy(site) as proxy:
        site.edge.inject(Fault("terminate", 502, times=1000))
        answer = proxy.ask("/pool/size", {"desiredSize": 3})
        assert (answer.status_code, answer.json()["detail"].partition(": ")[0]) == (502, "node od-3")
        assert "injected" in answer.json()["detail"]
        tries = site.edge.names().count("terminate")
        assert tries > 1
        assert site.edge.names()[-tries - 2 :] == ["removing od-3", *["terminate"] * tries, "release od-3"]
        assert not [name for name in site.edge.names() if name.endswith("od-4")]
        site.comes_to(*ALL, pods=TOTAL)
        site.edge.forget()
        answer = proxy.ask("/pool/size", {"desiredSize": 3})  # tries at once
        assert (answer.status_code, answer.text) == (DONE, "")
        site.comes_to("od-1", "od-2", "od-4", pods=TOTAL)
        site.nothing_twice()


def test_a_pool_that_cannot_be_told_a_size_loses_no_machine(cluster: ControlPlane, tmp_path: Path) -> None:
    """It wants more than it has, so it must be told to stop growing before anything is drained."""
    with pool_of_four(cluster, tmp_path, wanted=5) as site, Proxy(site) as proxy:
        site.edge.inject(Fault("size 4", 500, times=4))
        assert proxy.ask("/pool/size", {"desiredSize": 3}).status_code == 502
        assert site.edge.names() == ["size 4"] * 4
        answer = proxy.ask("/pool/size", {"desiredSize": 3})
        assert (answer.status_code, answer.text) == (DONE, "")
        site.comes_to("od-1", "od-2", "od-4", pods=TOTAL)


def test_a_pod_that_never_leaves_keeps_its_node_and_wedges_nothing(cluster: ControlPlane, tmp_path: Path) -> None:
    drain = {"maxGracefulTermination": "1s", "terminationHeadroom": "2s"}
    slow = {TERMINATE_AFTER: NEVER}
    with pool_of_four(cluster, tmp_path, annotations=slow) as site, Proxy(site, drain=drain) as proxy:
        answer = proxy.ask("/pool/terminate", {"machineId": site.machine("od-3"), "decrementDesiredSize": True})
        assert answer.status_code == 504
        assert "did not terminate within the grace period and 2 s" in answer.json()["detail"]
        assert site.state() == (list(ALL), list(ALL), 4, [])
        stuck = [one["metadata"] for one in site.look.pods() if "deletionTimestamp" in one["metadata"]]
        assert len(stuck) == PODS["od-3"]
        for pod in stuck:
            cluster.api.delete(f"/api/v1/namespaces/default/pods/{pod['name']}", gracePeriodSeconds=0)
        site.comes_to(*ALL, pods=TOTAL)
        assert proxy.ask("/pool/size", {"desiredSize": 4}).status_code == DONE
