"""Liqo and discovery in memory: slices become VirtualNodes and Nodes as a controllable clock advances."""

import datetime as dt
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from rescheduler.clock import Clock
from rescheduler.errors import BackendUnavailable, Conflict, NotFound, Retryable
from rescheduler.liqo.node_manager.catalog import RemoteCluster
from rescheduler.liqo.node_manager.resources import (
    GROUP_LABEL,
    LiqoNode,
    LiqoNodeSpec,
    LiqoNodeStatus,
    LiqoObjects,
    ResourceCondition,
    ResourceMeta,
    ResourceSlice,
    SliceSpec,
    SliceStatus,
    Tenancy,
    VirtualNode,
    VirtualNodeStatus,
    index_objects,
    slice_manifest,
)


@dataclass(frozen=True)
class LiqoPace:
    """Seconds from slice to VirtualNode, from VirtualNode to Ready Node, and from deletion to the end."""

    accepting: float = 0
    starting: float = 0
    draining: float = 4


@dataclass
class Piece:
    """A slice and its dependent objects."""

    manifest: Mapping[str, Any]
    namespace: str
    uid: str
    created: dt.datetime
    deleted: dt.datetime | None = None
    marked: tuple[str, dict[str, str]] = ("", {})  #: provider ID and labels set on its Node

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    @property
    def cluster(self) -> str:
        return str(self.manifest["spec"]["providerClusterID"])


class MemoryLiqo:
    """In-memory implementation of the node manager's port. Clusters in `denied` deny slices with that condition."""

    def __init__(self, clock: Clock, pace: LiqoPace, peers: Sequence[str] = ()) -> None:
        self.clock, self.pace = clock, pace
        self.peers = set(peers)
        self.pieces: dict[str, Piece] = {}
        self.denied: dict[str, str] = {}
        self.unreachable: set[str] = set()
        self.strangers: dict[str, str] = {}  #: virtual nodes of other owners: provider IDs by name
        self.unready: set[str] = set()  #: names of Nodes that are not Ready
        self.refusing: list[Exception] = []  #: errors for the next slice creations
        self.down = False
        self._uids = 0
        self._lock = threading.RLock()

    # -- implementation of the port

    def read(self) -> LiqoObjects:
        self._answer()
        with self._lock:
            pieces = [piece for piece in self.pieces.values() if not self._gone(piece)]
        others = [
            LiqoNode(metadata=ResourceMeta(name=name), spec=LiqoNodeSpec(provider_id=of))
            for name, of in self.strangers.items()
        ]
        return index_objects(
            [self._slice(piece) for piece in pieces],
            [self._virtual_node(piece) for piece in pieces if self._accepted(piece)],
            [self._node(piece) for piece in pieces if self._started(piece)] + others,
        )

    def peerings(self) -> Mapping[str, Tenancy]:
        self._answer()
        obstacles = dict.fromkeys(self.unreachable, "its API server is unreachable")
        return {peer: Tenancy(f"tenant-of-{peer}", obstacles.get(peer, "")) for peer in self.peers}

    def make_slice(self, namespace: str, manifest: Mapping[str, Any]) -> None:
        self._answer()
        if self.refusing:
            raise self.refusing.pop(0)
        with self._lock:
            self._uids += 1
            piece = Piece(manifest, namespace, f"uid-{self._uids}", self.clock.now())
            self.pieces.setdefault(piece.name, piece)

    def delete_slice(self, piece: ResourceSlice) -> None:
        self._answer()
        with self._lock:
            stored = self.pieces.get(piece.metadata.name)
            if stored is None or self._gone(stored) or stored.uid != piece.metadata.uid:
                raise NotFound("no such slice")
            stored.deleted = stored.deleted or self.clock.now()

    def mark_node(self, node: LiqoNode, provider_id: str, labels: Mapping[str, str]) -> None:
        self._answer()
        piece = self.pieces[node.metadata.name]
        if node.metadata.uid != piece.uid:
            raise Conflict("another node")
        piece.marked = (provider_id, dict(labels))

    # -- for tests

    def add(self, name: str, group: str, cluster: str, **resources: str) -> None:
        """Add a running machine."""
        asked = resources or {"cpu": "2", "memory": "2Gi", "pods": "110"}
        labels = {GROUP_LABEL: group} if group else {}
        self.make_slice(f"tenant-of-{cluster}", slice_manifest(name, cluster, asked, labels))
        piece = self.pieces[name]
        piece.created -= dt.timedelta(seconds=self.pace.accepting + self.pace.starting)
        piece.marked = (f"liqo://{name}", {GROUP_LABEL: group})

    def remaining(self) -> list[str]:
        """Return the slices that were not deleted."""
        return sorted(piece.name for piece in self.pieces.values() if piece.deleted is None)

    def names(self, cluster: str) -> list[str]:
        return [piece.name for piece in self.pieces.values() if piece.cluster == cluster]

    def _answer(self) -> None:
        if self.down:
            raise Retryable("no connection to the API server")

    def _gone(self, piece: Piece) -> bool:
        return piece.deleted is not None and self._passed(piece.deleted) >= self.pace.draining

    def _passed(self, moment: dt.datetime) -> float:
        return (self.clock.now() - moment).total_seconds()

    def _accepted(self, piece: Piece) -> bool:
        return piece.cluster not in self.denied and self._passed(piece.created) >= self.pace.accepting

    def _started(self, piece: Piece) -> bool:
        return self._accepted(piece) and self._passed(piece.created) >= self.pace.accepting + self.pace.starting

    def _meta(self, piece: Piece, **fields: Any) -> ResourceMeta:
        deleted = piece.deleted.isoformat() if piece.deleted else None
        meta = ResourceMeta(
            name=piece.name,
            namespace=piece.namespace,
            uid=piece.uid,
            resource_version="1",
            creation_timestamp=piece.created.isoformat(),
            deletion_timestamp=deleted,
        )
        return replace(meta, **fields)

    def _slice(self, piece: Piece) -> ResourceSlice:
        conditions = []
        if kind := self.denied.get(piece.cluster):
            conditions = [ResourceCondition(type=kind, status="Denied", reason="Full", message="no more today")]
        elif self._accepted(piece):
            conditions = [ResourceCondition(type=kind, status="Accepted") for kind in ("Authentication", "Resources")]
        return ResourceSlice(
            metadata=self._meta(piece, labels=piece.manifest["metadata"]["labels"]),
            spec=SliceSpec(resources=piece.manifest["spec"]["resources"], provider=piece.cluster),
            status=SliceStatus(conditions=conditions),
        )

    def _virtual_node(self, piece: Piece) -> VirtualNode:
        state = "Draining" if piece.deleted else "Running" if self._started(piece) else "Creating"
        return VirtualNode(
            metadata=self._meta(piece),
            status=VirtualNodeStatus(conditions=[ResourceCondition(type="LiqoNode", status=state)]),
        )

    def _node(self, piece: Piece) -> LiqoNode:
        provider_id, labels = piece.marked
        ready = ResourceCondition(type="Ready", status="Unknown" if piece.name in self.unready else "True")
        return LiqoNode(
            metadata=self._meta(piece, labels=labels, deletion_timestamp=None),
            spec=LiqoNodeSpec(provider_id=provider_id),
            status=LiqoNodeStatus(conditions=[ready]),
        )


@dataclass
class MemoryCatalog:
    """In-memory discovery."""

    listed: list[RemoteCluster] = field(default_factory=list)
    down: bool = False

    def clusters(self) -> Sequence[RemoteCluster]:
        if self.down:
            raise BackendUnavailable("discovery: GET /list: cannot connect")
        return list(self.listed)
