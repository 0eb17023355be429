"""The Nodes of Cherry Servers machines, as the kubelet and the cloud controller manager create them."""

from collections.abc import Mapping
from typing import Any

from devcluster import manifests
from devcluster.cherry.cloud import CherryCloud, ServerState


def nodes(cloud: CherryCloud, labels: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the Nodes of running and terminating servers by name, each with *labels*."""
    now = cloud.now()
    servers = [server for server in cloud.servers() if server.runs(now) or server.state(now) == "terminating"]
    return {server.hostname: node_of(server, labels) for server in servers}


def node_of(server: ServerState, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the Node of *server*."""
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
