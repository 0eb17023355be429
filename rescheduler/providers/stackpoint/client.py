"""A client of StackPointCloud's API for one cluster, for both generations, and the parts of its messages that
are used. Separate from the provider, because it knows only the API.
"""

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from rescheduler import decoding
from rescheduler.clock import Clock
from rescheduler.net.http import JsonClient
from rescheduler.net.http_errors import UNREADABLE, Missing
from rescheduler.providers.base import InstanceError, InstanceState, Refusal, Refused
from rescheduler.providers.fleet import SystemMachine
from rescheduler.providers.stackpoint.config import StackpointSettings

# The parts of StackPointCloud's API messages that are used.

SCHEME = "spc://"
_STATES = {
    "draft": InstanceState.CREATING,
    "building": InstanceState.CREATING,
    "provisioned": InstanceState.CREATING,
    "failed": InstanceState.CREATING,
    "running": InstanceState.RUNNING,
    "deleting": InstanceState.DELETING,
    "deleted": InstanceState.DELETING,
}


class ClusterNode(msgspec.Struct):
    pk: int
    instance_id: str | None = None
    role: str | None = None
    group_name: str | None = None
    private_ip: str | None = None
    name: str | None = None
    size: str | None = None
    state: str | None = None
    created: str | None = None
    pool: int | None = None
    provider_node_id: str | None = None
    etcd_state: str | None = None
    is_failed: bool | None = None

    @property
    def key(self) -> str:
        return self.instance_id or f"pk-{self.pk}"


class StackPool(msgspec.Struct):
    pk: int
    instance_id: str
    instance_size: str | None = None
    cpu: str | int | None = None
    memory: str | int | None = None  #: MB
    autoscaled: bool | None = None
    min_count: int | None = None
    max_count: int | None = None
    state: str | None = None
    name: str | None = None


class NodeAdd(msgspec.Struct, omit_defaults=True):
    size: str
    node_count: int
    group: str = ""
    node_pool: int = 0


class Eligible(msgspec.Struct):
    eligible: bool


class Detail(msgspec.Struct):
    detail: str | None = None


def machines(
    nodes: Sequence[ClusterNode], groups: Sequence[str], now: dt.datetime, patience: float
) -> Sequence[SystemMachine]:
    """Convert *nodes*, whose groups are *groups* in the same order; a build of *patience* seconds counts as failed.

    Control-plane nodes and etcd members get no group, so that they do not count towards a minimum, although the API may
    return a group for them.
    """
    keys = Counter(node.key for node in nodes)
    return [
        SystemMachine(
            key=node.key,
            id=f"{SCHEME}{node.key}",
            group="" if _protection(node) else group,
            state=_STATES.get(node.state or "", InstanceState.UNKNOWN),
            handle=node.pk,
            gone=node.state == "deleted",
            names=frozenset(name.lower() for name in (node.name, node.private_ip) if name),
            addresses=frozenset(address for address in (node.private_ip,) if address),
            error=_error(node, now, patience),
            protected=_protection(node) or _duplicate_refusal(node, keys),
        )
        for node, group in zip(nodes, groups, strict=True)
    ]


def error_text(body: bytes) -> str:
    try:
        return decoding.decode(body, Detail).detail or ""
    except UNREADABLE:
        return body.decode("utf-8", "replace")


def _protection(node: ClusterNode) -> Refused | None:
    """Return why the node is protected by its role or etcd state, which are unknown to Kubernetes."""
    if node.role != "worker":
        return Refused(Refusal.CONTROL_PLANE, f"StackPointCloud's role of the node is {node.role or 'unknown'}")
    if node.etcd_state not in {None, "", "none"}:
        return Refused(Refusal.CONTROL_PLANE, f"the node is a member of etcd: {node.etcd_state}")
    return None


def _duplicate_refusal(node: ClusterNode, keys: Mapping[str, int]) -> Refused | None:
    if keys[node.key] > 1:
        return Refused(Refusal.AMBIGUOUS, f"several nodes have the instance id {node.key}")
    return None


def _error(node: ClusterNode, now: dt.datetime, patience: float) -> InstanceError | None:
    if node.state == "failed" or node.is_failed:
        return InstanceError("BUILD_FAILED", "StackPointCloud could not build the node")
    if _STATES.get(node.state or "") is not InstanceState.CREATING:
        return None
    try:
        created = dt.datetime.fromisoformat(node.created or "")
    except ValueError:
        return None
    age = (now - created.replace(tzinfo=created.tzinfo or dt.UTC)).total_seconds()
    if age < patience:
        return None
    return InstanceError("BUILD_TIMEOUT", f"the node has been {node.state} for more than {patience:.0f} seconds")


class StackpointClient:
    """A client of the API. Deadlines are on the clock's `monotonic`; errors are those of `net.http_errors`."""

    def __init__(self, config: StackpointSettings, clock: Clock) -> None:
        self._root = f"/orgs/{config.organization}/clusters/{config.cluster}"
        self._http = JsonClient("stackpoint", config.endpoint, Path(), clock, error_text, config.token)

    def close(self) -> None:
        self._http.close()

    def nodes(self, *, deadline: float) -> Sequence[ClusterNode]:
        return self._http.get(f"{self._root}/nodes", list[ClusterNode], deadline=deadline, strict=False)[0]

    def pools(self, *, deadline: float) -> Sequence[StackPool]:
        return self._http.get(f"{self._root}/nodepools", list[StackPool], deadline=deadline, strict=False)[0]

    def node(self, pk: int, *, deadline: float) -> ClusterNode | None:
        try:
            return self._http.get(f"{self._root}/nodes/{pk}", ClusterNode, deadline=deadline, strict=False)[0]
        except Missing:
            return None

    def can_delete(self, pk: int, *, deadline: float) -> bool:
        """Return whether the node may be deleted. Raises Rejected, with the reason, or Missing (node or route)."""
        return self._http.get(f"{self._root}/nodes/{pk}/can_delete", Eligible, deadline=deadline)[0].eligible

    def delete(self, pk: int, *, deadline: float) -> None:
        """Delete a node. Primary keys are not reused, so repeating the request is safe."""
        self._http.send("DELETE", f"{self._root}/nodes/{pk}", deadline=deadline, repeatable=True)

    def add(self, order: NodeAdd, *, deadline: float) -> Sequence[ClusterNode]:
        """Order nodes with one request. The response may contain the new nodes, all nodes of the cluster, or none."""
        path = f"/nodepools/{order.node_pool}/add" if order.node_pool else "/add_node"
        response = self._http.send("POST", f"{self._root}{path}", order, deadline=deadline)
        try:
            return decoding.decode(response.body, list[ClusterNode], strict=False)
        except UNREADABLE:
            return ()
