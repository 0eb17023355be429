"""StackPointCloud's API of one cluster, in both generations."""

from collections.abc import Sequence
from pathlib import Path

from rescheduler import shapes
from rescheduler.backends.http import UNREADABLE, JsonClient, Missing
from rescheduler.backends.stackpoint.config import Settings
from rescheduler.backends.stackpoint.messages import Eligible, Node, NodeAdd, NodePool, words
from rescheduler.clock import Clock


class StackpointClient:
    """Every call has a deadline on the clock's `monotonic`; errors are those of `backends.http`."""

    def __init__(self, config: Settings, clock: Clock) -> None:
        self._root = f"/orgs/{config.organization}/clusters/{config.cluster}"
        self._http = JsonClient("StackPointCloud", config.endpoint, Path(), clock, words, config.token)

    def close(self) -> None:
        self._http.close()

    def nodes(self, *, deadline: float) -> Sequence[Node]:
        return self._http.get(f"{self._root}/nodes", list[Node], deadline=deadline, strict=False)[0]

    def pools(self, *, deadline: float) -> Sequence[NodePool]:
        return self._http.get(f"{self._root}/nodepools", list[NodePool], deadline=deadline, strict=False)[0]

    def node(self, pk: int, *, deadline: float) -> Node | None:
        try:
            return self._http.get(f"{self._root}/nodes/{pk}", Node, deadline=deadline, strict=False)[0]
        except Missing:
            return None

    def can_delete(self, pk: int, *, deadline: float) -> bool:
        """Rejected with the API's reason, or Missing where the node or the question is unknown."""
        return self._http.get(f"{self._root}/nodes/{pk}/can_delete", Eligible, deadline=deadline)[0].eligible

    def delete(self, pk: int, *, deadline: float) -> None:
        """Primary keys are never used again, so asking twice ends nothing else."""
        self._http.send("DELETE", f"{self._root}/nodes/{pk}", deadline=deadline, repeatable=True)

    def add(self, order: NodeAdd, *, deadline: float) -> Sequence[Node]:
        """Sent once. The answer may hold the new nodes, or all nodes of the cluster; empty if it does not tell."""
        path = f"/nodepools/{order.node_pool}/add" if order.node_pool else "/add_node"
        answer = self._http.send("POST", f"{self._root}{path}", order, deadline=deadline)
        try:
            return shapes.decode(answer.body, list[Node], strict=False)
        except UNREADABLE:
            return ()
