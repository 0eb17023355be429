"""The Nodes of Cherry's servers, as the kubelet and the cloud controller make them."""

from collections.abc import Mapping
from typing import Any

from deploy.local import manifests
from deploy.local.cherry.cloud import Cloud, ServerState


def nodes(cloud: Cloud, labels: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """By name, of the servers that run or are ending; all with *labels*."""
    now = cloud.now()
    there = [one for one in cloud.servers() if one.runs(now) or one.state(now) == "terminating"]
    return {one.hostname: node_of(one, labels) for one in there}


def node_of(server: ServerState, labels: Mapping[str, str]) -> dict[str, Any]:
    """The Node as the kubelet and the cloud controller make it."""
    node = manifests.node(
        server.hostname,
        labels={
            "pool": server.tags.get("k8s-nodepool", ""),
            "node.kubernetes.io/instance-type": server.plan,
            "topology.kubernetes.io/region": server.region,
            **labels,
        },
        providerID=f"cherryservers://{server.id}",
    )
    node["status"]["addresses"] = [
        {"type": "InternalIP", "address": server.private_ip},
        {"type": "Hostname", "address": server.hostname},
    ]
    return node
