"""A client of StackPointCloud's API for one cluster, for both generations."""

from collections.abc import Sequence
from pathlib import Path

from rescheduler import decoding
from rescheduler.clock import Clock
from rescheduler.net.http import JsonClient
from rescheduler.net.http_errors import UNREADABLE, Missing
from rescheduler.providers.stackpoint.config import StackpointSettings
from rescheduler.providers.stackpoint.messages import ClusterNode, Eligible, NodeAdd, NodePool, error_text


class StackpointClient:
    """A client of the API. Deadlines are on the clock's `monotonic`; errors are those of `net.http_errors`."""

    def __init__(self, config: StackpointSettings, clock: Clock) -> None:
        self._root = f"/orgs/{config.organization}/clusters/{config.cluster}"
        self._http = JsonClient("StackPointCloud", config.endpoint, Path(), clock, error_text, config.token)

    def close(self) -> None:
        self._http.close()

    def nodes(self, *, deadline: float) -> Sequence[ClusterNode]:
        return self._http.get(f"{self._root}/nodes", list[ClusterNode], deadline=deadline, strict=False)[0]

    def pools(self, *, deadline: float) -> Sequence[NodePool]:
        return self._http.get(f"{self._root}/nodepools", list[NodePool], deadline=deadline, strict=False)[0]

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
