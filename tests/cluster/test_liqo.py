"""Lifecycle of virtual nodes: backend, node manager and discovery with mutual TLS, and Liqo's resources."""

from collections.abc import Callable
from pathlib import Path

from devcluster.api import Json
from devcluster.manifests import deployment, pdb
from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock
from rescheduler.liqo.provider import LiqoProvider
from rescheduler.providers.base import Accepted, AlreadyGone, Deleted, InstanceState, NodeRef
from tests.cluster.daemon import ClusterQueries
from tests.cluster.virtual import TOLERATION, WAIT_SECONDS, VirtualSite, site

GROUP = "STANDARD"
ON_VIRTUAL = {"nodeSelector": {"liqo.io/type": "virtual-node"}, "tolerations": [TOLERATION]}


def within(seconds: float = WAIT_SECONDS) -> float:
    return SystemClock().monotonic() + seconds


def running(provider: LiqoProvider) -> Callable[[], list[str]]:
    def result() -> list[str]:
        instances = provider.instances(GROUP, deadline=within())
        return sorted(item.id for item in instances if item.state is InstanceState.RUNNING)

    return result


def ref(node: Json) -> NodeRef:
    return NodeRef(node["metadata"]["name"], node["spec"].get("providerID", ""), node["metadata"]["labels"])


def restart(here: VirtualSite) -> None:
    """Kill the node manager and start it again."""
    here.manager.kill()
    here.start()


def test_virtual_nodes_are_created_used_and_deleted_despite_kills_of_the_node_manager(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    queries = ClusterQueries(cluster)
    with site(cluster, tmp_path, {"rome": 2, "milan": 1}) as here:
        with here.provider() as provider:
            provider.increase_size(GROUP, 2, deadline=within())
        restart(here)
        with here.provider() as provider:
            assert provider.target_size(GROUP, deadline=within()) == 2
            here.eventually(lambda: len(running(provider)()) == 2, "two virtual nodes")
            nodes = here.nodes()
            for node in nodes.values():
                labels, name = node["metadata"]["labels"], node["metadata"]["name"]
                assert node["spec"]["providerID"] == f"liqo://{name}"
                assert labels["spot-rescheduler/node-group"] == GROUP
                assert labels["node-role.kubernetes.io/worker"] == "true"
            template = provider.template(GROUP, deadline=within())
            shown = nodes[min(nodes)]
            assert template.labels.items() <= shown["metadata"]["labels"].items()
            assert [(item.key, item.value, item.effect) for item in template.taints] == [
                (item["key"], item["value"], item["effect"]) for item in shown["spec"]["taints"]
            ]
            assert template.allocatable == shown["status"]["allocatable"]
            cluster.apply([deployment("web", 2, **ON_VIRTUAL)])
            queries.running(2, "web")
        restart(here)
        with here.provider() as provider:
            first, second = (ref(node) for node in here.nodes().values())
            group = provider.group_for(first, deadline=within())
            assert group is not None
            assert (group.id, group.max_size) == (GROUP, 4)
            assert provider.group_for(NodeRef("n", "aws:///i-1"), deadline=within()) is None
            assert provider.delete_nodes(GROUP, [first], deadline=within()) == {first.name: Deleted("no longer there")}
            assert list(here.nodes()) == [second.name]
            queries.running(2, "web")
            cluster.apply([pdb("web", min_available=2)])
            # The budget blocks Liqo's drain: the order stays pending, even if the node manager is killed.
            queries.eventually(lambda: _allowed(cluster) == 0, "the budget to count")
            [outcome] = provider.delete_nodes(GROUP, [second], deadline=within(5)).values()
            assert isinstance(outcome, Accepted)
        restart(here)
        with here.provider() as provider:
            [outcome] = provider.delete_nodes(GROUP, [second], deadline=within(5)).values()
            assert isinstance(outcome, Accepted)
            assert list(here.nodes()) == [second.name]
            cluster.api.delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/web")
            [outcome] = provider.delete_nodes(GROUP, [second], deadline=within()).values()
            assert isinstance(outcome, Deleted | AlreadyGone)
            assert (here.nodes(), here.slices(), provider.target_size(GROUP, deadline=within())) == ({}, [], 0)


def _allowed(cluster: ControlPlane) -> int | None:
    result = cluster.api.get("/apis/policy/v1/namespaces/default/poddisruptionbudgets/web")
    status = result.get("status", {})
    return status.get("disruptionsAllowed") if status.get("currentHealthy") == 2 else None
