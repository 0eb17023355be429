"""The Nodes of StackPointCloud's machines, as its builder labels them."""

from collections.abc import Mapping
from typing import Any

from deploy.local import manifests
from deploy.local.stackpoint.cloud import Cloud, NodeState


def nodes(cloud: Cloud, labels: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """By name; all workers with *labels*. A machine joins before its network is set up, while it is `provisioned`."""
    now = cloud.now()
    there = [one for one in cloud.nodes() if one.state(now) in {"provisioned", "running", "deleting"}]
    return {name_of(one): node_of(one, labels if one.role == "worker" else {}) for one in there}


def name_of(node: NodeState) -> str:
    """A Node's name: the address, as the cloud's DNS has it."""
    return f"ip-{node.private_ip.replace('.', '-')}"


def node_of(node: NodeState, labels: Mapping[str, str]) -> dict[str, Any]:
    """The Node as StackPointCloud's builder labels it, with a provider ID where the cloud below has told it one."""
    own = {"stackpoint.io/instance_id": node.instance_id, "stackpoint.io/role": node.role}
    if node.group_name:
        own["stackpoint.io/node_group"] = node.group_name
    below: dict[str, Any] = {}
    if node.provider_node_id:
        below["providerID"] = f"aws:///us-east-1a/{node.provider_node_id}"
    manifest = manifests.node(name_of(node), labels={**own, **labels}, **below)
    manifest["status"]["addresses"] = [{"type": "InternalIP", "address": node.private_ip}]
    return manifest
