"""``--report-node-conditions`` under the shipped permissions and limits, on the control plane."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.api import Json
from devcluster.manifests import deployment
from devcluster.plane import INSTALLATION, ControlPlane
from devcluster.stages import NEVER, TERMINATE_AFTER
from rescheduler.planning.rules.interruptions import DRAIN_CONDITION, OUR_REASON
from tests.cluster.daemon import ClusterQueries, Daemon, delete_stuck_pods, terminating
from tests.cluster.rendering import chart, composed
from tests.cluster.rights import ACCESS

NODE = "/api/v1/nodes/on-demand-1"
COMPONENT: Json = {"resources": ["../base"], "components": ["../components/node-conditions"]}
FLAGS = (f"--namespace={INSTALLATION}", "--landing-timeout=60s")


@pytest.fixture
def account(cluster: ControlPlane, tmp_path: Path) -> Iterator[Path]:
    """Install the permissions and the limits. Return the kubeconfig of the ServiceAccount."""
    objects = [each for each in composed(tmp_path, ours=COMPONENT) if each["kind"] in ACCESS or "Adm" in each["kind"]]
    cluster.apply(objects)
    yield cluster.service_account_kubeconfig(INSTALLATION, "spot-rescheduler")
    for each in objects:
        cluster.api.delete(cluster.api.path(each))


def reported(cluster: ControlPlane) -> list[tuple[str, str, str]]:
    """Return status, reason and message of the condition on the on-demand node."""
    conditions = cluster.api.get(NODE)["status"]["conditions"]
    ours = [each for each in conditions if each["type"] == DRAIN_CONDITION]
    return [(each["status"], each["reason"], each["message"]) for each in ours]


def test_the_condition_is_there_during_a_drain_and_gone_after_it_also_if_another_process_ends_it(
    cluster: ControlPlane, account: Path
) -> None:
    queries = ClusterQueries(cluster)
    queries.nodes(1, 1)
    cluster.apply([deployment("stuck", 2, annotations={TERMINATE_AFTER: NEVER})])
    queries.running(2)
    queries.open_spot()
    message = f"spot-rescheduler drains this node (installation {INSTALLATION}/k8s-spot-rescheduler)"
    with Daemon(cluster, *FLAGS, "--report-node-conditions", kubeconfig=account) as daemon:
        queries.eventually(lambda: reported(cluster), "the condition")
        assert reported(cluster) == [("True", OUR_REASON, message)]
        queries.eventually(lambda: terminating(cluster), "an eviction")
        daemon.kill()
    assert reported(cluster) == [("True", OUR_REASON, message)]
    with Daemon(cluster, *FLAGS, kubeconfig=account) as daemon:
        queries.eventually(lambda: daemon.logged("resuming the drain"), "the drain goes on")

        def moved() -> bool:
            delete_stuck_pods(cluster)
            return queries.kinds() == {"spot": 2}

        queries.eventually(moved, "the pods on spot")
        queries.eventually(lambda: not queries.marks() and not reported(cluster), "the node released")


def test_the_chart_grants_what_the_component_grants(tmp_path: Path) -> None:
    name = "spot-rescheduler-node-conditions"
    ours = [each for each in composed(tmp_path, ours=COMPONENT) if each["metadata"]["name"] == name]
    [rule] = next(each for each in ours if each["kind"] == "ClusterRole")["rules"]
    objects = chart({"nodeConditions": {"enabled": True}})
    roles = [each for each in objects if each["kind"] == "ClusterRole"]
    assert any(rule in role["rules"] for role in roles)
    template = next(each for each in objects if each["kind"] == "Deployment")["spec"]["template"]
    [container] = template["spec"]["containers"]
    assert "--report-node-conditions=true" in container["args"]
    assert not any(rule in each["rules"] for each in chart({}) if each["kind"] == "ClusterRole")
