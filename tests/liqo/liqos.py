"""Liqo and discovery at the network's edge: slices become VirtualNodes and Nodes as a clock in hand goes on."""

import datetime as dt
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from rescheduler.backends.base import BackendUnavailable
from rescheduler.clock import Clock
from rescheduler.errors import Conflict, NotFound, Retryable
from rescheduler.liqo.nodemanager.clusters import RemoteCluster
from rescheduler.liqo.nodemanager.foreign_clusters import Tenancy
from rescheduler.liqo.nodemanager.resources import (
    GROUP_LABEL,
    Condition,
    Meta,
    Node,
    NodeSpec,
    NodeStatus,
    ResourceSlice,
    Seen,
    SliceSpec,
    SliceStatus,
    VirtualNode,
    VirtualNodeStatus,
    seen,
    slice_manifest,
)


@dataclass(frozen=True)
class Pace:
    """Seconds from a slice to its VirtualNode, from that to a Ready Node, and from a deletion to the end."""

    accepting: float = 0
    starting: float = 0
    draining: float = 4


@dataclass
class Piece:
    """A slice and what came of it."""

    manifest: Mapping[str, Any]
    namespace: str
    uid: str
    made: dt.datetime
    deleted: dt.datetime | None = None
    marked: tuple[str, dict[str, str]] = ("", {})  #: provider ID and labels of its Node

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    @property
    def cluster(self) -> str:
        return str(self.manifest["spec"]["providerClusterID"])


class MemoryLiqo:
    """The port of the node manager. What a cluster in `denied` is asked for, it denies with that condition."""

    def __init__(self, clock: Clock, pace: Pace, peers: Sequence[str] = ()) -> None:
        self.clock, self.pace = clock, pace
        self.peers = set(peers)
        self.pieces: dict[str, Piece] = {}
        self.denied: dict[str, str] = {}
        self.unreachable: set[str] = set()
        self.strangers: dict[str, str] = {}  #: virtual nodes that others made, and their provider IDs
        self.unready: set[str] = set()  #: Nodes that are not Ready
        self.refusing: list[Exception] = []  #: for the next slices that are asked for
        self.down = False
        self._uids = 0
        self._lock = threading.RLock()

    # -- the port

    def look(self) -> Seen:
        self._answer()
        with self._lock:
            pieces = [one for one in self.pieces.values() if not self._gone(one)]
        others = [Node(metadata=Meta(name=name), spec=NodeSpec(provider_id=of)) for name, of in self.strangers.items()]
        return seen(
            [self._slice(one) for one in pieces],
            [self._virtual_node(one) for one in pieces if self._accepted(one)],
            [self._node(one) for one in pieces if self._started(one)] + others,
        )

    def peerings(self) -> Mapping[str, Tenancy]:
        self._answer()
        obstacles = dict.fromkeys(self.unreachable, "its API server cannot be reached")
        return {one: Tenancy(f"tenant-of-{one}", obstacles.get(one, "")) for one in self.peers}

    def make_slice(self, namespace: str, manifest: Mapping[str, Any]) -> None:
        self._answer()
        if self.refusing:
            raise self.refusing.pop(0)
        with self._lock:
            self._uids += 1
            made = Piece(manifest, namespace, f"uid-{self._uids}", self.clock.now())
            self.pieces.setdefault(made.name, made)

    def delete_slice(self, piece: ResourceSlice) -> None:
        self._answer()
        with self._lock:
            found = self.pieces.get(piece.metadata.name)
            if found is None or self._gone(found) or found.uid != piece.metadata.uid:
                raise NotFound("no such slice")
            found.deleted = found.deleted or self.clock.now()

    def mark_node(self, node: Node, provider_id: str, labels: Mapping[str, str]) -> None:
        self._answer()
        found = self.pieces[node.metadata.name]
        if node.metadata.uid != found.uid:
            raise Conflict("another node")
        found.marked = (provider_id, dict(labels))

    # -- for tests

    def add(self, name: str, group: str, cluster: str, **resources: str) -> None:
        """A machine that runs."""
        asked = resources or {"cpu": "2", "memory": "2Gi", "pods": "110"}
        labels = {GROUP_LABEL: group} if group else {}
        self.make_slice(f"tenant-of-{cluster}", slice_manifest(name, cluster, asked, labels))
        found = self.pieces[name]
        found.made -= dt.timedelta(seconds=self.pace.accepting + self.pace.starting)
        found.marked = (f"liqo://{name}", {GROUP_LABEL: group})

    def remaining(self) -> list[str]:
        """Slices that nobody deleted."""
        return sorted(one.name for one in self.pieces.values() if one.deleted is None)

    def names(self, cluster: str) -> list[str]:
        return [one.name for one in self.pieces.values() if one.cluster == cluster]

    def _answer(self) -> None:
        if self.down:
            raise Retryable("no connection to the API server")

    def _gone(self, one: Piece) -> bool:
        return one.deleted is not None and self._passed(one.deleted) >= self.pace.draining

    def _passed(self, moment: dt.datetime) -> float:
        return (self.clock.now() - moment).total_seconds()

    def _accepted(self, one: Piece) -> bool:
        return one.cluster not in self.denied and self._passed(one.made) >= self.pace.accepting

    def _started(self, one: Piece) -> bool:
        return self._accepted(one) and self._passed(one.made) >= self.pace.accepting + self.pace.starting

    def _meta(self, one: Piece, **more: Any) -> Meta:
        deleted = one.deleted.isoformat() if one.deleted else None
        made = Meta(
            name=one.name,
            namespace=one.namespace,
            uid=one.uid,
            resource_version="1",
            creation_timestamp=one.made.isoformat(),
            deletion_timestamp=deleted,
        )
        return replace(made, **more)

    def _slice(self, one: Piece) -> ResourceSlice:
        conditions = []
        if kind := self.denied.get(one.cluster):
            conditions = [Condition(type=kind, status="Denied", reason="Full", message="no more today")]
        elif self._accepted(one):
            conditions = [Condition(type=kind, status="Accepted") for kind in ("Authentication", "Resources")]
        return ResourceSlice(
            metadata=self._meta(one, labels=one.manifest["metadata"]["labels"]),
            spec=SliceSpec(resources=one.manifest["spec"]["resources"], provider=one.cluster),
            status=SliceStatus(conditions=conditions),
        )

    def _virtual_node(self, one: Piece) -> VirtualNode:
        state = "Draining" if one.deleted else "Running" if self._started(one) else "Creating"
        return VirtualNode(
            metadata=self._meta(one), status=VirtualNodeStatus(conditions=[Condition(type="Node", status=state)])
        )

    def _node(self, one: Piece) -> Node:
        provider_id, labels = one.marked
        ready = Condition(type="Ready", status="Unknown" if one.name in self.unready else "True")
        return Node(
            metadata=self._meta(one, labels=labels, deletion_timestamp=None),
            spec=NodeSpec(provider_id=provider_id),
            status=NodeStatus(conditions=[ready]),
        )


@dataclass
class MemoryCatalog:
    """Discovery."""

    listed: list[RemoteCluster] = field(default_factory=list)
    down: bool = False

    def clusters(self) -> Sequence[RemoteCluster]:
        if self.down:
            raise BackendUnavailable("discovery: GET /list: cannot connect")
        return list(self.listed)
