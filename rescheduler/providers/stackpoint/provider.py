"""The cloud provider for a StackPointCloud cluster."""

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rescheduler.clock import Clock
from rescheduler.net.http_errors import Missing, RequestRejected
from rescheduler.providers.base import (
    CloudProvider,
    GroupFlags,
    Instance,
    InstanceState,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    Refusal,
    Refused,
    UnknownGroup,
)
from rescheduler.providers.fleet.machine import PollIntervals, SystemMachine, SystemView
from rescheduler.providers.fleet.provider import FleetProvider
from rescheduler.providers.stackpoint import pools
from rescheduler.providers.stackpoint.client import StackpointClient
from rescheduler.providers.stackpoint.config import StackpointSettings, settings
from rescheduler.providers.stackpoint.messages import SCHEME, ClusterNode, machines

log = logging.getLogger(__name__)

INSTANCE_LABEL, ROLE_LABEL = "stackpoint.io/instance_id", "stackpoint.io/role"


def load(config: Path | None, clock: Clock, flags: GroupFlags = GroupFlags()) -> CloudProvider:  # noqa: B008 -- a value
    """Load the provider from the environment, `--nodes` (first generation) and an optional file. Raises ConfigError."""
    return StackpointProvider(settings(config, flags, os.environ), clock)


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
        self._groups: Mapping[str, pools.StackpointGroup] = pools.of_specs(config.specs)
        self._nodes: Mapping[str, ClusterNode] = {}

    def read(self, *, deadline: float) -> SystemView:
        config = self._config
        log.debug(
            "stackpoint: updating cluster info, organizationID %d, clusterID %d", config.organization, config.cluster
        )
        groups = self._groups if config.specs else self._pools(deadline)
        nodes = self._client.nodes(deadline=deadline)
        before, self._groups, self._nodes = self._nodes, groups, {node.key: node for node in nodes}
        members = [pools.group_of(node, groups) for node in nodes]
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
        group = node.labels.get(pools.GROUP_LABEL)
        if group is not None and group != machine.group:
            return f"its label {pools.GROUP_LABEL} is {group!r}, StackPointCloud's group is {machine.group!r}"
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
            if (member := pools.group_of(node, self._groups)) == group.id:
                created(node.key)
            else:
                log.warning("stackpoint: added node %s is in group %s, not %s", node.key, member or "none", group.id)

    def close(self) -> None:
        self._client.close()

    def group(self, name: str) -> pools.StackpointGroup:
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

    def _pools(self, deadline: float) -> Mapping[str, pools.StackpointGroup]:
        mounted = pools.mounted(self._config.node_pools) if self._config.node_pools else None
        return pools.of_pools(self._client.pools(deadline=deadline) if mounted is None else mounted)


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
