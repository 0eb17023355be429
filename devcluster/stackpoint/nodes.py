"""The Nodes of StackPointCloud machines, with the labels that StackPointCloud sets."""

from collections.abc import Mapping
from typing import Any

from devcluster import manifests
from devcluster.stackpoint.cloud import StackpointCloud, StackpointNode


def nodes(cloud: StackpointCloud, labels: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the Nodes by name, workers with *labels*. A machine joins while `provisioned`, before it is `running`."""
    now = cloud.now()
    nodes_present = [node for node in cloud.nodes() if node.state(now) in {"provisioned", "running", "deleting"}]
    return {name_of(node): node_of(node, labels if node.role == "worker" else {}) for node in nodes_present}


def name_of(node: StackpointNode) -> str:
    """Return the name of the Node, which is derived from its address."""
    return f"ip-{node.private_ip.replace('.', '-')}"


def node_of(node: StackpointNode, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the Node, with a provider ID if the underlying cloud reports one."""
    own = {"stackpoint.io/instance_id": node.instance_id, "stackpoint.io/role": node.role}
    if node.group_name:
        own["stackpoint.io/node_group"] = node.group_name
    below: dict[str, Any] = {}
    if node.provider_node_id:
        below["providerID"] = f"aws:///us-east-1a/{node.provider_node_id}"
    manifest = manifests.node(name_of(node), labels={**own, **labels}, **below)
    manifest["status"]["addresses"] = [{"type": "InternalIP", "address": node.private_ip}]
    return manifest
