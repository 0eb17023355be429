"""Nodes that Cluster Autoscaler cannot match to their instance because their provider ID differs from its ID.

It considers an instance registered if the ``spec.providerID`` of a Node equals its ID, and deletes one that is not
registered after ``--max-node-provision-time`` (clusterstate.go), regardless of the pods that run on it. A kubelet may
spell the ID differently from the cloud, or have none. Cluster Autoscaler requests the group of every Node in each of
its rounds, and this module records the machines' Nodes from these calls.
"""

import threading
from dataclasses import dataclass
from typing import Final

from rescheduler.clock import Clock
from rescheduler.providers.base import NodeRef

#: Seconds for which a Node is stored: longer than a round, and shorter than the wait for a machine to register.
MEMORY: Final = 600.0


@dataclass(frozen=True, slots=True)
class _JoinedNode:
    node: NodeRef
    at: float


class Joined:
    """The Nodes of machines, by the provider's ID of the machine. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, _JoinedNode] = {}

    def record(self, instance: str, node: NodeRef) -> None:
        """Record that *node* exists and that its machine is listed as *instance*."""
        now = self._clock.monotonic()
        with self._lock:
            if node.provider_id == instance:
                self._seen.pop(instance, None)
            else:
                self._seen[instance] = _JoinedNode(node, now)
            for old in [key for key, seen in self._seen.items() if now - seen.at > MEMORY]:
                del self._seen[old]

    def node(self, instance: str) -> NodeRef | None:
        """Return the Node of the machine listed as *instance*, if a recent one has another provider ID."""
        with self._lock:
            seen = self._seen.get(instance)
        return seen.node if seen and self._clock.monotonic() - seen.at <= MEMORY else None
