"""A StackPointCloud cluster as a cloud provider."""

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rescheduler.backends.base import (
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
from rescheduler.backends.fleet.machine import Machine, Pace, View
from rescheduler.backends.fleet.provider import FleetProvider
from rescheduler.backends.http import Missing, Rejected
from rescheduler.backends.stackpoint import pools
from rescheduler.backends.stackpoint.client import StackpointClient
from rescheduler.backends.stackpoint.config import Settings, settings
from rescheduler.backends.stackpoint.messages import SCHEME, Node, machines
from rescheduler.clock import Clock

log = logging.getLogger(__name__)

INSTANCE_LABEL, ROLE_LABEL = "stackpoint.io/instance_id", "stackpoint.io/role"


def load(config: Path | None, clock: Clock, flags: GroupFlags = GroupFlags()) -> CloudProvider:  # noqa: B008 -- a value
    """The provider of the environment, of `--nodes` (first generation) and of the file, if any; ConfigError."""
    return StackpointProvider(settings(config, flags, os.environ), clock)


class StackpointSystem:
    """StackPointCloud's API in the verbs of a fleet. A machine's key is its node's `instance_id`."""

    name = "stackpoint"
    going_is_enough = False  #: a node that is being deleted may still fail to go

    def __init__(self, config: Settings, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._client = StackpointClient(config, clock)
        self._lock = threading.Lock()
        self._learned: dict[str, str] = {}  #: instance id → provider ID or name of its Node
        self._ordered: dict[str, int] = {}  #: instance id → primary key
        self._groups: Mapping[str, pools.Group] = pools.of_specs(config.specs)
        self._nodes: Mapping[str, Node] = {}

    def look(self, *, deadline: float) -> View:
        config = self._config
        log.debug(
            "stackpoint: updating cluster info, organizationID %d, clusterID %d", config.organization, config.cluster
        )
        groups = self._groups if config.specs else self._pools(deadline)
        nodes = self._client.nodes(deadline=deadline)
        before, self._groups, self._nodes = self._nodes, groups, {node.key: node for node in nodes}
        members = [pools.group_of(node, groups) for node in nodes]
        _tell_changes(before, self._nodes, {node.key: member for node, member in zip(nodes, members, strict=True)})
        patience = float(self._config.file.build_timeout)
        return View([group.group for group in groups.values()], machines(nodes, members, self._clock.now(), patience))

    def key_of(self, node: NodeRef) -> str | None:
        """By the system's label, which holds the instance id; else by the id at the cloud, if the API tells it."""
        if label := node.labels.get(INSTANCE_LABEL):
            return label
        if node.provider_id.startswith(SCHEME):
            return node.provider_id.removeprefix(SCHEME)
        if not node.provider_id:
            return ""
        with self._lock:
            learned = [key for key, known in self._learned.items() if known == node.provider_id]
        at_cloud = [key for key, one in self._nodes.items() if one.provider_node_id == _last(node.provider_id)]
        found = {*learned, *at_cloud}
        return found.pop() if len(found) == 1 else None

    def doubts(self, node: NodeRef, machine: Machine) -> str:
        group = node.labels.get(pools.GROUP_LABEL)
        if group is not None and group != machine.group:
            return f"its label {pools.GROUP_LABEL} is {group!r}, StackPointCloud's group is {machine.group!r}"
        known = self._nodes.get(machine.key)
        at_cloud = known.provider_node_id if known else None
        if at_cloud and node.provider_id and not node.placeholder and _last(node.provider_id) != at_cloud:
            return f"its provider ID is {node.provider_id}, StackPointCloud's node is {at_cloud}"
        return ""

    def controls(self, node: NodeRef) -> bool:
        return node.labels.get(ROLE_LABEL, "worker") != "worker"

    def exists(self, key: str, *, deadline: float) -> bool | None:
        known = self._nodes.get(key)
        pk = known.pk if known else self._ordered.get(key)
        if pk is None:
            return None
        node = self._client.node(pk, deadline=deadline)
        return node is not None and node.state != "deleted"

    def forbids(self, machine: Machine, *, deadline: float) -> Refused | None:
        """`can_delete`, where the API has it; the first generation may not, and role and etcd state decide alone."""
        try:
            if self._client.can_delete(machine.handle, deadline=deadline):
                return None
        except Missing:
            return None
        except Rejected as error:
            return Refused(Refusal.PROTECTED, str(error))
        return Refused(Refusal.PROTECTED, "StackPointCloud says that the node is not eligible for deletion")

    def end(self, machine: Machine, *, deadline: float) -> None:
        log.debug("stackpoint: deleting node, nodeID %s, pk %s", machine.key, machine.handle)
        self._ordered[machine.key] = machine.handle
        self._client.delete(machine.handle, deadline=deadline)

    def create(self, group: NodeGroup, count: int, made: Callable[[str], None], *, deadline: float) -> None:
        known = self._nodes
        log.debug("stackpoint: adding %d nodes to group %s", count, group.id)
        for node in self._client.add(self.group(group.id).order(count), deadline=deadline):
            if node.key in known:
                continue
            log.debug("stackpoint: AddNodes response {instance_id: %s, state: %s}", node.key, node.state)
            if (member := pools.group_of(node, self._groups)) == group.id:
                made(node.key)
            else:
                log.warning("stackpoint: added node %s is in group %s, not %s", node.key, member or "none", group.id)

    def close(self) -> None:
        self._client.close()

    def group(self, name: str) -> pools.Group:
        """As last seen; a pool may have gone since."""
        found = self._groups.get(name)
        if found is None:
            raise UnknownGroup(f"{self.name}: no group {name!r} any more")
        return found

    def learn(self, node: NodeRef) -> None:
        """Under which ID the cluster knows a machine: the API does not tell in its first years."""
        key = node.labels.get(INSTANCE_LABEL)
        if key and not node.placeholder:
            with self._lock:
                self._learned[key] = node.provider_id or node.name

    def known_as(self, instance: Instance) -> Instance:
        with self._lock:
            return replace(instance, id=self._learned.get(instance.id.removeprefix(SCHEME), instance.id))

    def _pools(self, deadline: float) -> Mapping[str, pools.Group]:
        found = pools.mounted(self._config.node_pools) if self._config.node_pools else None
        return pools.of_pools(self._client.pools(deadline=deadline) if found is None else found)


class StackpointProvider(FleetProvider):
    def __init__(self, config: Settings, clock: Clock) -> None:
        self._stackpoint = StackpointSystem(config, clock)
        file = config.file
        self._cordons = file.cordon_until_running
        pace = Pace(refresh=file.refresh_interval, poll=file.poll_interval, settle=file.settle_time)
        super().__init__(self._stackpoint, clock, pace)

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:
        group = super().group_for(node, deadline=deadline)
        if group is not None:
            self._stackpoint.learn(node)
        else:
            log.debug("stackpoint: node not manageable %s: it is of no group", node.name)
        return group

    def building(self, nodes: Sequence[NodeRef], *, deadline: float) -> frozenset[str]:
        """The builder registers a node before its network is set up. A build that has failed is awaited no longer."""
        machines = {node.name: self.machine(node, deadline=deadline) for node in nodes} if self._cordons else {}
        return frozenset(
            name
            for name, machine in machines.items()
            if machine is not None and machine.state is InstanceState.CREATING and machine.error is None
        )

    def instances(self, group: str, *, deadline: float) -> Sequence[Instance]:
        return [self._stackpoint.known_as(one) for one in super().instances(group, deadline=deadline)]

    def instance_for(self, node: NodeRef, *, deadline: float) -> str | None:
        machine = self.machine(node, deadline=deadline)
        return self._stackpoint.known_as(machine.instance).id if machine is not None else None

    def template(self, group: str, *, deadline: float) -> NodeTemplate:
        name = self.group(group, deadline=deadline).id  # looks, and so finds the groups
        return self._stackpoint.group(name).template()


def _tell_changes(before: Mapping[str, Node], after: Mapping[str, Node], groups: Mapping[str, str]) -> None:
    """At -v=4 and above, as the original at -v=6: nodes that have come, gone or changed their state."""
    for key, node in after.items():
        if key not in before:
            group = groups[key] or "none"
            log.debug("stackpoint: new node found, nodeID %s, newState %s, group %s", key, node.state, group)
        elif before[key].state != node.state:
            states = before[key].state, node.state
            log.debug("stackpoint: node state change, nodeID %s, oldState %s, newState %s", key, *states)
    for key in before.keys() - after.keys():
        log.debug("stackpoint: node is not listed any more, nodeID %s", key)


def _last(provider_id: str) -> str:
    return provider_id.rstrip("/").rsplit("/", 1)[-1]
