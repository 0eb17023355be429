"""The nodes and pools of a cluster, and their actual state."""

import datetime as dt
import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from devcluster.standin.table import Table
from rescheduler.clock import Clock

FIRST_PK = 41


class StackpointPool(msgspec.Struct, frozen=True, kw_only=True):
    pk: int
    instance_id: str
    instance_size: str = "t2.medium"
    cpu: str = "2"
    memory: str = "4000"
    autoscaled: bool = True
    min_count: int = 0
    max_count: int = 10
    state: str = "active"
    name: str = ""


class StackpointCloudSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Token, database, API generation, and delays in seconds."""

    token: str = "token"  # noqa: S105 -- of the stand-in
    database: str = ":memory:"
    organization: int = 6
    cluster: int = 810
    pools: tuple[StackpointPool, ...] = ()
    building: float = 0.0  #: duration of each of the states draft, building and provisioned
    deleting: float = 0.0
    forgetting: float = 30.0  #: time from deleted to no longer listed
    answers_all: bool = True  #: the response to adding nodes lists all nodes of the cluster
    asks: bool = True  #: can_delete exists


class StackpointNode(msgspec.Struct, frozen=True, kw_only=True):
    """The points in time from which a node's state is derived; `None` means not scheduled."""

    pk: int
    role: str = "worker"
    etcd_state: str = "none"
    group_name: str = ""
    pool: int | None = None
    size: str = "t2.medium"
    created: dt.datetime
    building: float = 0.0
    deleting: float = 0.0
    stuck: bool = False  #: never leaves draft
    failed: bool = False
    sticky: bool = False  #: its deletion never completes
    eligible: bool = True
    deleted_at: dt.datetime | None = None
    provider_node_id: str | None = None

    @property
    def instance_id(self) -> str:
        return f"spcstand-{self.role}-{self.pk}"

    @property
    def private_ip(self) -> str:
        return f"172.23.{self.pk // 250 % 250}.{self.pk % 250 + 1}"

    def state(self, now: dt.datetime) -> str:
        if self.deleted_at is not None and now >= self.deleted_at:
            done = not self.sticky and now >= self.deleted_at + dt.timedelta(seconds=self.deleting)
            return "deleted" if done else "deleting"
        if self.failed:
            return "failed"
        steps = ("draft", "building", "provisioned")
        age = (now - self.created).total_seconds()
        if self.stuck or age < self.building * len(steps):
            return steps[0 if self.stuck else int(age // self.building)]
        return "running"

    def document(self, cluster: int, now: dt.datetime) -> dict[str, Any]:
        return {
            "pk": self.pk,
            "name": "",
            "cluster": cluster,
            "instance_id": self.instance_id,
            "role": self.role,
            "group_name": self.group_name,
            "private_ip": self.private_ip,
            "public_ip": "",
            "platform": "coreos",
            "image": "ami-06af7f66",
            "location": "us-west-2:us-west-2a",
            "size": self.size,
            "state": self.state(now),
            "created": self.created.isoformat(),
            "updated": self.created.isoformat(),
            "etcd_state": self.etcd_state,
            "pool": self.pool,
            "provider_node_id": self.provider_node_id,
            "is_failed": self.failed,
        }


class StackpointCloud:
    """The nodes of a cluster; thread-safe."""

    def __init__(self, settings: StackpointCloudSettings, clock: Clock) -> None:
        self.settings, self._clock = settings, clock
        self._nodes = Table(settings.database, StackpointNode)
        self._lock = threading.RLock()

    def close(self) -> None:
        self._nodes.close()

    def now(self) -> dt.datetime:
        return self._clock.now()

    def nodes(self) -> Sequence[StackpointNode]:
        """Return the nodes that the API lists."""
        with self._lock:
            return [node for node in self._nodes.all() if self._listed(node)]

    def node(self, pk: int) -> StackpointNode | None:
        with self._lock:
            node = self._nodes.get(pk)
            return node if node is not None and self._listed(node) else None

    def documents(self) -> Sequence[dict[str, Any]]:
        now = self.now()
        return [node.document(self.settings.cluster, now) for node in self.nodes()]

    def pool(self, pk: int) -> StackpointPool | None:
        return next((pool for pool in self.settings.pools if pool.pk == pk), None)

    def add(self, **fields: Any) -> StackpointNode:
        with self._lock:
            values = {"building": self.settings.building, "deleting": self.settings.deleting} | fields
            node = StackpointNode(pk=self._nodes.next_number(FIRST_PK), created=self.now(), **values)
            self._nodes.save(node.pk, node)
            return node

    def end(self, pk: int) -> bool:
        """Delete a node and return whether it exists; do nothing if it is already being deleted."""
        with self._lock:
            node = self.node(pk)
            if node is not None and node.deleted_at is None:
                self.change(pk, deleted_at=self.now())
            return node is not None

    def change(self, pk: int, **fields: Any) -> None:
        with self._lock:
            node = self._nodes.get(pk)
            assert node is not None
            self._nodes.save(pk, msgspec.structs.replace(node, **fields))

    def _listed(self, node: StackpointNode) -> bool:
        now = self.now()
        if node.deleted_at is None or node.state(now) != "deleted":
            return True
        end = node.deleted_at + dt.timedelta(seconds=node.deleting + self.settings.forgetting)
        return now < end
