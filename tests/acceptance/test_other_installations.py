"""The proxy does not touch a node that a daemon drains, even if the daemon's marks appear at the last moment."""

import json
from pathlib import Path
from typing import Final

import pytest

from devcluster.plane import ControlPlane
from rescheduler.draining.actions import ANNOTATION
from tests.acceptance.proxies import ProxyProgram, pool_of_four

pytestmark = pytest.mark.cluster

NODE: Final = "od-3"
MARK: Final = json.dumps(
    {"holder": "daemon", "step": "draining", "since": "2026-01-01T00:00:00Z", "identity": "team/spot-rescheduler"}
)


def test_the_marks_of_a_daemon_are_not_changed(cluster: ControlPlane, tmp_path: Path) -> None:
    with pool_of_four(cluster, tmp_path) as site, ProxyProgram(site) as proxy:
        terminate = {"machineId": site.machine(NODE), "decrementDesiredSize": True}
        site.edge.hold(0, "before")
        call = proxy.send("/pool/terminate", terminate)
        site.queries.eventually(site.edge.reached.is_set, "the mark of the proxy")
        cluster.api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"annotations": {ANNOTATION: MARK}}})
        site.edge.release()
        response = call.result()
        assert (response.status_code, "mark-lost" in response.json()["detail"]) == (500, True)
        site.queries.eventually(
            lambda: proxy.post("/pool/size", {"desiredSize": 3}).status_code == 200, "another victim"
        )
        assert (site.queries.marks(), site.machines()) == ({NODE: MARK}, ["od-1", "od-2", "od-3"])
        response = proxy.post("/pool/terminate", terminate)
        assert response.status_code == 500
        assert "installation team/spot-rescheduler drains it" in response.json()["detail"]
        assert site.queries.marks() == {NODE: MARK}
