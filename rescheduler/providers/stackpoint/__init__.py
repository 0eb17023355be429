"""The cloud provider for a StackPointCloud cluster (later NetApp Kubernetes Service), for both generations of
its API.
"""

import logging
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rescheduler import decoding
from rescheduler.clock import Clock
from rescheduler.net import files
from rescheduler.net.http_errors import UNREADABLE, Missing, RequestRejected
from rescheduler.providers.base import (
    CloudProvider,
    GroupFlags,
    Instance,
    InstanceState,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    NotSupported,
    Refusal,
    Refused,
    UnknownGroup,
)
from rescheduler.providers.fleet import PollIntervals, SystemMachine, SystemView
from rescheduler.providers.fleet.provider import FleetProvider
from rescheduler.providers.stackpoint.client import SCHEME, ClusterNode, NodeAdd, StackpointClient, StackPool, machines
from rescheduler.providers.stackpoint.config import PREFIX, Spec, StackpointSettings, group_specs, settings

# The CPUs and memory of StackPointCloud's sizes, for pools that do not report them.

_GCE = re.compile(r"n1-(standard|highmem|highcpu)-([0-9]+)")
_GCE_MEMORY = {"standard": 3750, "highmem": 6500, "highcpu": 900}
_GCE_CPUS = {
    "standard": {1, 2, 4, 8, 16, 32, 64},
    "highmem": {2, 4, 8, 16, 32, 64},
    "highcpu": {2, 4, 8, 16, 32, 64},
}


def _table(text: str) -> dict[str, tuple[int, int]]:
    """Parse rows of ``name cpus memory``, in thousands of MB, separated by semicolons."""
    rows = (row.split() for row in text.split(";"))
    return {name: (int(cpus), round(float(memory) * 1000)) for name, cpus, memory in rows}


_SIZES = (
    # AWS
    _table("t2.medium 2 4; t2.large 2 8; t2.xlarge 4 16; t2.2xlarge 8 32")
    | _table("c4.large 2 3.75; c4.xlarge 4 7.5; c4.2xlarge 8 15; c4.4xlarge 16 30; c4.8xlarge 36 60")
    | _table("m3.large 2 7.5; m3.xlarge 4 15; m3.2xlarge 8 30; m4.large 2 8; m4.xlarge 4 16; m4.2xlarge 8 32")
    | _table("m4.4xlarge 16 64; m4.10xlarge 40 160; m4.16xlarge 64 256")
    # DigitalOcean
    | _table("2gb 2 2; 4gb 2 4; 8gb 4 8; 16gb 8 16; 32gb 12 32; 48gb 16 32; 64gb 20 64")
    | _table("c-2 2 3; c-4 4 6; c-8 8 12; c-16 16 32; c-32 32 64")
    | _table("m-16gb 2 16; m-32gb 4 32; m-64gb 8 64; m-128gb 16 128; m-224gb 32 224")
    # others
    | _table("m 1 2; l 2 2; xl 2 4; xxl 4 8; 3xl 8 16; 4xl 12 32; 2,intel_xeon,4096,50,ssd 2 4")
)
_AZURE = (
    _table("a2 2 3.5; a3 4 7; a4 8 14; a5 2 14; a6 4 28; a7 8 56; a8 8 56; a9 16 112; a10 8 56; a11 16 112")
    | _table("a2_v2 2 4; a4_v2 4 8; a8_v2 8 16; a2m_v2 2 16; a4m_v2 4 32; a8m_v2 8 64")
    | _table("d1 1 3.5; d2 2 7; d3 4 14; d4 8 28; d5 16 56; d11 2 14; d12 4 28; d13 8 56; d14 16 112; d15 20 140")
    | _table("f1 1 2; f2 2 4; f4 4 8; f8 8 16; f16 16 32; g1 2 28; g2 4 56; g3 8 112; g4 16 224; g5 32 448")
)
_AZURE_NAME = re.compile(r"(?:standard|basic)_(d|f|g)(s?)([0-9]+)(s?)(_v2)?")


def of(size: str) -> tuple[int, int] | None:
    """Return the CPUs and MB (here 2^20 bytes, that is, Mi) of a size; `None` if the size is unknown."""
    name = size.lower()
    readers: tuple[Callable[[str], tuple[int, int] | None], ...] = (_SIZES.get, _gce, _azure)
    return next((amounts for reader in readers if (amounts := reader(name))), None)


def _gce(name: str) -> tuple[int, int] | None:
    match = _GCE.fullmatch(name)
    if match is None or int(match[2]) not in _GCE_CPUS[match[1]]:
        return None
    return int(match[2]), int(match[2]) * _GCE_MEMORY[match[1]]


def _azure(name: str) -> tuple[int, int] | None:
    match = _AZURE_NAME.fullmatch(name)
    if match:
        return _AZURE.get(match[1] + match[3])
    family, _, bare = name.partition("_")
    return _AZURE.get(bare) if family in {"standard", "basic"} else None


# The groups, and the group of each node of the API. No I/O except for the mounted ConfigMap.

GROUP_LABEL = "stackpoint.io/node_group"


@dataclass(frozen=True, slots=True)
class StackpointGroup:
    """A group of either generation; `pk` is 0 in the first, which has no pools."""

    group: NodeGroup
    size: str
    pk: int = 0
    cpu: str = ""
    memory: str = ""  #: MB

    def order(self, count: int) -> NodeAdd:
        if self.pk:
            return NodeAdd(self.size, count, node_pool=self.pk)
        return NodeAdd(self.size, count, group=self.group.id)

    def template(self) -> NodeTemplate:
        """Return the template with the CPU and memory of the pool, or of its size if the pool reports none."""
        if self.cpu.isdigit() and self.memory.isdigit():
            amounts: tuple[int, int] | None = (int(self.cpu), int(self.memory))
        else:
            amounts = of(self.size)
        if amounts is None:
            raise NotSupported(f"stackpoint: group {self.group.id}: the size {self.size!r} is unknown")
        capacity = {"cpu": str(amounts[0]), "memory": f"{amounts[1]}Mi", "pods": "110"}
        labels = {
            GROUP_LABEL: self.group.id,
            "stackpoint.io/role": "worker",
            "node.kubernetes.io/instance-type": self.size,
            "kubernetes.io/os": "linux",
        }
        return NodeTemplate(labels, (), capacity, capacity)


def of_specs(specs: Sequence[Spec]) -> Mapping[str, StackpointGroup]:
    return {spec.group.id: StackpointGroup(spec.group, spec.size) for spec in specs}


def of_pools(pools: Sequence[StackPool]) -> Mapping[str, StackpointGroup]:
    """Return the groups of autoscaled pools; without a maximum, a pool cannot grow beyond its minimum."""
    groups = {}
    for pool in pools:
        if not pool.autoscaled or pool.state in {"deleting", "deleted"}:
            continue
        low = max(pool.min_count or 0, 0)
        group = NodeGroup(
            PREFIX + pool.instance_id, low, max(pool.max_count or 0, low), f"StackPointCloud pool {pool.instance_id}"
        )
        groups[group.id] = StackpointGroup(
            group, pool.instance_size or "", pool.pk, str(pool.cpu or "").strip(), str(pool.memory or "").strip()
        )
    return groups


def mounted_pools(path: Path) -> Sequence[StackPool] | None:
    """Return the pools of the mounted ConfigMap; `None` if it is missing or invalid."""
    try:
        return decoding.decode(files.read_bytes(path), list[StackPool], strict=False)
    except (OSError, *UNREADABLE):
        return None


def group_of(node: ClusterNode, groups: Mapping[str, StackpointGroup]) -> str:
    """Return the group of *node* by group name (with or without the prefix) and by pool; "" if they disagree."""
    name = node.group_name or ""
    named = name if name in groups else PREFIX + name if PREFIX + name in groups else ""
    if node.pool is None or not any(group.pk for group in groups.values()):
        return named
    pooled = next((key for key, group in groups.items() if group.pk == node.pool), "")
    return pooled if not name or pooled == named else ""


# The cloud provider for a StackPointCloud cluster.

log = logging.getLogger(__name__)

INSTANCE_LABEL, ROLE_LABEL = "stackpoint.io/instance_id", "stackpoint.io/role"


def load(config: Path | None, clock: Clock, flags: GroupFlags = GroupFlags()) -> CloudProvider:  # noqa: B008 -- a value
    """Load the provider from the environment, `--nodes` (first generation) and an optional file. Raises ConfigError."""
    return StackpointProvider(settings(config, flags, os.environ), clock)


def check_nodes(nodes: Sequence[str]) -> None:
    """Raise ConfigError if a value of `--nodes` does not name a group and its limits."""
    group_specs(nodes)


class StackpointSystem:
    """StackPointCloud's API as a fleet. A machine's key is its node's `instance_id`."""

    name = "stackpoint"
    deletion_is_certain = False  #: a deletion in progress may still fail

    def __init__(self, config: StackpointSettings, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._client = StackpointClient(config, clock)
        self._lock = threading.Lock()
        self._recorded: dict[str, str] = {}  #: instance id → provider ID or name of its Node
        self._ordered: dict[str, int] = {}  #: instance id → primary key
        self._groups: Mapping[str, StackpointGroup] = of_specs(config.specs)
        self._nodes: Mapping[str, ClusterNode] = {}

    def read(self, *, deadline: float) -> SystemView:
        config = self._config
        log.debug(
            "stackpoint: updating cluster info, organizationID %d, clusterID %d", config.organization, config.cluster
        )
        groups = self._groups if config.specs else self._pools(deadline)
        nodes = self._client.nodes(deadline=deadline)
        before, self._groups, self._nodes = self._nodes, groups, {node.key: node for node in nodes}
        members = [group_of(node, groups) for node in nodes]
        _log_changes(before, self._nodes, {node.key: member for node, member in zip(nodes, members, strict=True)})
        patience = float(self._config.file.build_timeout)
        return SystemView(
            [group.group for group in groups.values()], machines(nodes, members, self._clock.now(), patience)
        )

    def key_of(self, node: NodeRef) -> str | None:
        """Return the instance ID from the system's label, or else from the cloud's ID if the API returns that."""
        if label := node.labels.get(INSTANCE_LABEL):
            return label
        if node.provider_id.startswith(SCHEME):
            return node.provider_id.removeprefix(SCHEME)
        if not node.provider_id:
            return ""
        with self._lock:
            recorded = [key for key, known in self._recorded.items() if known == node.provider_id]
        last = _last(node.provider_id)
        at_cloud = [key for key, listed in self._nodes.items() if listed.provider_node_id == last]
        keys = {*recorded, *at_cloud}
        return keys.pop() if len(keys) == 1 else None

    def contradiction(self, node: NodeRef, machine: SystemMachine) -> str:
        group = node.labels.get(GROUP_LABEL)
        if group is not None and group != machine.group:
            return f"its label {GROUP_LABEL} is {group!r}, StackPointCloud's group is {machine.group!r}"
        known = self._nodes.get(machine.key)
        at_cloud = known.provider_node_id if known else None
        if at_cloud and node.provider_id and not node.placeholder and _last(node.provider_id) != at_cloud:
            return f"its provider ID is {node.provider_id}, StackPointCloud's node is {at_cloud}"
        return ""

    def is_control_plane(self, node: NodeRef) -> bool:
        return node.labels.get(ROLE_LABEL, "worker") != "worker"

    def exists(self, key: str, *, deadline: float) -> bool | None:
        known = self._nodes.get(key)
        pk = known.pk if known else self._ordered.get(key)
        if pk is None:
            return None
        node = self._client.node(pk, deadline=deadline)
        return node is not None and node.state != "deleted"

    def deletion_refusal(self, machine: SystemMachine, *, deadline: float) -> Refused | None:
        """Request permission from the API. If the API has no route for that, only the role and the etcd state count."""
        try:
            if self._client.can_delete(machine.handle, deadline=deadline):
                return None
        except Missing:
            return None
        except RequestRejected as error:
            return Refused(Refusal.PROTECTED, str(error))
        return Refused(Refusal.PROTECTED, "according to StackPointCloud, the node is not eligible for deletion")

    def delete(self, machine: SystemMachine, *, deadline: float) -> None:
        log.debug("stackpoint: deleting node, nodeID %s, pk %s", machine.key, machine.handle)
        self._ordered[machine.key] = machine.handle
        self._client.delete(machine.handle, deadline=deadline)

    def create(self, group: NodeGroup, count: int, created: Callable[[str], None], *, deadline: float) -> None:
        known = self._nodes
        log.debug("stackpoint: adding %d nodes to group %s", count, group.id)
        for node in self._client.add(self.group(group.id).order(count), deadline=deadline):
            if node.key in known:
                continue
            log.debug("stackpoint: AddNodes response {instance_id: %s, state: %s}", node.key, node.state)
            if (member := group_of(node, self._groups)) == group.id:
                created(node.key)
            else:
                log.warning("stackpoint: added node %s is in group %s, not %s", node.key, member or "none", group.id)

    def close(self) -> None:
        self._client.close()

    def group(self, name: str) -> StackpointGroup:
        """Return the group as last listed. Raises UnknownGroup if its pool is gone."""
        group = self._groups.get(name)
        if group is None:
            raise UnknownGroup(f"{self.name}: the group {name!r} no longer exists")
        return group

    def record_node(self, node: NodeRef) -> None:
        """Store the provider ID or name of the machine's Node: the first generation of the API does not return it."""
        key = node.labels.get(INSTANCE_LABEL)
        if key and not node.placeholder:
            with self._lock:
                self._recorded[key] = node.provider_id or node.name

    def known_as(self, instance: Instance) -> Instance:
        with self._lock:
            return replace(instance, id=self._recorded.get(instance.id.removeprefix(SCHEME), instance.id))

    def _pools(self, deadline: float) -> Mapping[str, StackpointGroup]:
        mounted = mounted_pools(self._config.node_pools) if self._config.node_pools else None
        return of_pools(self._client.pools(deadline=deadline) if mounted is None else mounted)


class StackpointProvider(FleetProvider):
    def __init__(self, config: StackpointSettings, clock: Clock) -> None:
        self._stackpoint = StackpointSystem(config, clock)
        file = config.file
        self._cordons = file.cordon_until_running
        pace = PollIntervals(refresh=file.refresh_interval, poll=file.poll_interval, settle=file.settle_time)
        super().__init__(self._stackpoint, clock, pace)

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:
        group = super().group_for(node, deadline=deadline)
        if group is not None:
            self._stackpoint.record_node(node)
        else:
            log.debug("stackpoint: node not manageable %s: it belongs to no group", node.name)
        return group

    def building(self, nodes: Sequence[NodeRef], *, deadline: float) -> frozenset[str]:
        """Return nodes that registered before their network is set up. Failed builds are not included."""
        machines = {node.name: self.machine(node, deadline=deadline) for node in nodes} if self._cordons else {}
        return frozenset(
            name
            for name, machine in machines.items()
            if machine is not None and machine.state is InstanceState.CREATING and machine.error is None
        )

    def instances(self, group: str, *, deadline: float) -> Sequence[Instance]:
        listed = super().instances(group, deadline=deadline)
        return [self._stackpoint.known_as(instance) for instance in listed]

    def instance_for(self, node: NodeRef, *, deadline: float) -> str | None:
        machine = self.machine(node, deadline=deadline)
        return self._stackpoint.known_as(machine.instance).id if machine is not None else None

    def template(self, group: str, *, deadline: float) -> NodeTemplate:
        name = self.group(group, deadline=deadline).id  # also updates the groups
        return self._stackpoint.group(name).template()


def _log_changes(
    before: Mapping[str, ClusterNode], after: Mapping[str, ClusterNode], groups: Mapping[str, str]
) -> None:
    """Log which nodes appeared, disappeared or changed their state, at -v=4 and above (the original: at -v=6)."""
    for key, node in after.items():
        if key not in before:
            group = groups[key] or "none"
            log.debug("stackpoint: new node found, nodeID %s, newState %s, group %s", key, node.state, group)
        elif before[key].state != node.state:
            states = before[key].state, node.state
            log.debug("stackpoint: node state change, nodeID %s, oldState %s, newState %s", key, *states)
    for key in before.keys() - after.keys():
        log.debug("stackpoint: node is no longer listed, nodeID %s", key)


def _last(provider_id: str) -> str:
    return provider_id.rstrip("/").rsplit("/", 1)[-1]
