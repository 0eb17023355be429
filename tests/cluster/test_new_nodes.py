"""A StackPointCloud node that joins before its network is set up is cordoned until its machine runs."""

from pathlib import Path

import pytest

from devcluster.api import Json
from devcluster.manifests import ON_DEMAND
from devcluster.plane import ControlPlane
from devcluster.stackpoint import nodes as stackpoint_nodes
from devcluster.standin.nodes import Nodes
from rescheduler.clock import SystemClock
from rescheduler.planning.rules.candidates import UNFINISHED
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer
from tests.cluster.real_autoscaler import joined
from tests.providers import stackpoints

CLOCK = SystemClock()
STEP = 5.0  #: seconds in each of the states draft, building and provisioned


def test_a_new_node_is_cordoned_until_its_machine_runs(
    cluster: ControlPlane, observer: Observer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "spc.yaml"
    config.write_text("refreshInterval: 100ms\n")
    with stackpoints.serving(CLOCK) as server:
        machine = server.cloud.add(group_name=stackpoints.FIRST, building=STEP)
        name = stackpoint_nodes.name_of(machine)
        for variable, value in stackpoints.environment(server.url).items():
            monkeypatch.setenv(variable, value)

        def seen() -> tuple[bool, bool]:
            node: Json = cluster.api.get(f"/api/v1/nodes/{name}")
            return node["spec"].get("unschedulable", False), UNFINISHED in node["metadata"].get("annotations", {})

        flags = ("--cloud-provider=spc", f"--cloud-config={config}", "--nodes=1:5:t2.medium:od")
        nodes = Nodes(str(cluster.kubeconfig), lambda: stackpoint_nodes.nodes(server.cloud, {ON_DEMAND: ""}), CLOCK)
        with joined(nodes), Daemon(cluster, *FLAGS, *flags):
            observer.eventually(lambda: name in observer.node_names() and seen() == (True, True), "the cordon")
            assert machine.state(CLOCK.now()) == "provisioned"
            observer.eventually(lambda: seen() == (False, False), "the end of the cordon")
            assert machine.state(CLOCK.now()) == "running"
            observer.stays(seen, (False, False), seconds=2)
