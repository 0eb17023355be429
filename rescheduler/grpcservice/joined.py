"""Nodes that Cluster Autoscaler cannot tell from strangers: their provider ID is not the one of their instance.

It takes an instance for registered where a Node has the very same ``spec.providerID``, and orders one that is not away
after ``--max-node-provision-time`` (clusterstate.go), whatever runs on it. A kubelet may spell the ID in another way
than the cloud, or have none to tell. In each of its rounds Cluster Autoscaler asks for the group of every Node, so the
Nodes of machines are known here.
"""

import threading
from dataclasses import dataclass
from typing import Final

from rescheduler.backends.base import NodeRef
from rescheduler.clock import Clock

#: Seconds for which a Node counts as there. Rounds are shorter, and the wait for a machine to register is longer.
MEMORY: Final = 600.0


@dataclass(frozen=True, slots=True)
class _Seen:
    node: NodeRef
    at: float


class Joined:
    """By the id under which the provider lists a machine; for several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}

    def saw(self, instance: str, node: NodeRef) -> None:
        """*node* is there, and its machine is listed as *instance*."""
        now = self._clock.monotonic()
        with self._lock:
            if node.provider_id == instance:
                self._seen.pop(instance, None)
            else:
                self._seen[instance] = _Seen(node, now)
            for old in [key for key, seen in self._seen.items() if now - seen.at > MEMORY]:
                del self._seen[old]

    def node(self, instance: str) -> NodeRef | None:
        """The Node of the machine that is listed as *instance*, where one was seen lately that says otherwise."""
        with self._lock:
            seen = self._seen.get(instance)
        return seen.node if seen and self._clock.monotonic() - seen.at <= MEMORY else None
