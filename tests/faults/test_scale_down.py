"""Scale-downs that fail in part: finished removals count, the rest is rolled back, and a retry continues."""

from pathlib import Path
from typing import Final

import pytest

from devcluster.plane import ControlPlane
from devcluster.stages import NEVER, TERMINATE_AFTER
from tests.acceptance.proxies import ALL, PODS, TOTAL, ProxyProgram, patient, pool_of_four

pytestmark = pytest.mark.cluster

OK: Final = 200


def test_a_failure_of_the_second_victim_keeps_the_removal_of_the_first(cluster: ControlPlane, tmp_path: Path) -> None:
    with pool_of_four(cluster, tmp_path) as site, ProxyProgram(site) as proxy:
        site.edge.inject("removing od-4", "500-after", times=100)
        response = proxy.post("/pool/size", {"desiredSize": 2})
        assert response.status_code == OK
        assert response.json()["detail"].startswith("1 of 2 machines were removed: node od-4: ")
        site.wait_for_state("od-1", "od-2", "od-4", pods=TOTAL)
        site.edge.forget()
        response = proxy.post("/pool/size", {"desiredSize": 2})
        assert (response.status_code, response.text) == (OK, "")
        site.wait_for_state("od-1", "od-2", pods=TOTAL)
        site.assert_no_repeated_eviction()


def test_machines_and_nodes_are_kept_if_terminations_fail(cluster: ControlPlane, tmp_path: Path) -> None:
    """The failure is the pool's, so no other node is drained instead of the one that is rolled back."""
    with pool_of_four(cluster, tmp_path) as site, patient(site) as proxy:
        site.edge.inject("terminate", "502", times=1000)
        response = proxy.post("/pool/size", {"desiredSize": 3})
        assert (response.status_code, response.json()["detail"].partition(": ")[0]) == (502, "node od-3")
        assert "injected" in response.json()["detail"]
        tries = site.edge.names().count("terminate")
        assert tries > 1
        assert site.edge.names()[-tries - 2 :] == ["removing od-3", *["terminate"] * tries, "release od-3"]
        assert not [name for name in site.edge.names() if name.endswith("od-4")]
        site.wait_for_state(*ALL, pods=TOTAL)
        site.edge.forget()
        response = proxy.post("/pool/size", {"desiredSize": 3})  # retries immediately
        assert (response.status_code, response.text) == (OK, "")
        site.wait_for_state("od-1", "od-2", "od-4", pods=TOTAL)
        site.assert_no_repeated_eviction()


def test_no_machine_is_lost_if_setting_the_size_fails(cluster: ControlPlane, tmp_path: Path) -> None:
    """The desired size exceeds the actual size, so it must be lowered before any drain."""
    with pool_of_four(cluster, tmp_path, wanted=5) as site, ProxyProgram(site) as proxy:
        site.edge.inject("size 4", "500", times=4)
        assert proxy.post("/pool/size", {"desiredSize": 3}).status_code == 502
        assert site.edge.names() == ["size 4"] * 4
        response = proxy.post("/pool/size", {"desiredSize": 3})
        assert (response.status_code, response.text) == (OK, "")
        site.wait_for_state("od-1", "od-2", "od-4", pods=TOTAL)


def test_a_pod_that_never_terminates_blocks_only_its_node(cluster: ControlPlane, tmp_path: Path) -> None:
    drain = {"maxGracefulTermination": "1s", "terminationHeadroom": "2s"}
    slow = {TERMINATE_AFTER: NEVER}
    with pool_of_four(cluster, tmp_path, annotations=slow) as site, ProxyProgram(site, drain=drain) as proxy:
        response = proxy.post("/pool/terminate", {"machineId": site.machine("od-3"), "decrementDesiredSize": True})
        assert response.status_code == 504
        assert "did not terminate within the grace period and 2 s" in response.json()["detail"]
        assert site.state() == (list(ALL), list(ALL), 4, [])
        stuck = [pod["metadata"] for pod in site.queries.pods() if "deletionTimestamp" in pod["metadata"]]
        assert len(stuck) == PODS["od-3"]
        for pod in stuck:
            cluster.api.delete(f"/api/v1/namespaces/default/pods/{pod['name']}", gracePeriodSeconds=0)
        site.wait_for_state(*ALL, pods=TOTAL)
        assert proxy.post("/pool/size", {"desiredSize": 4}).status_code == OK
