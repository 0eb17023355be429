"""The cloud provider for cloudpools (elastisys' REST API, version 5): each pool is a group. It is imported by
name when it is selected.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rescheduler import errors
from rescheduler.clock import Clock
from rescheduler.cloudpool.client import read_pools
from rescheduler.cloudpool.matching import provider_id
from rescheduler.cloudpool.pool import CloudPool, Ending
from rescheduler.cloudpool.removal import PoolRemoval
from rescheduler.net.config_files import keys_as
from rescheduler.providers.base import (
    CloudProvider,
    DeleteOutcome,
    Instance,
    MayEnd,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    Refused,
    Turns,
    UnknownGroup,
    any_may_end,
)

# The cloud provider for cloudpools: each pool is a group.


def load(config: Path, clock: Clock) -> CloudProvider:
    """Load the provider from the `--cloud-config` file. Raises ConfigError, or AuthError for an unreadable secret."""
    return CloudpoolProvider(list(_pools(config, clock)))


def _pools(config: Path, clock: Clock) -> Iterator[CloudPool]:
    for index, section in enumerate(read_pools(config)):
        with keys_as(f"pools[{index}].backend.{{}}".format, f"cloud configuration {config}"):
            yield CloudPool(section, config.parent, clock)


class CloudpoolProvider(CloudProvider):
    """A provider in which a node belongs to the only pool that lists its machine as active, if the match is certain.

    A machine that is to be disposed of need not be active. Group IDs have the suffix *ending*, so the group in an
    intent also states how the machine is to be removed.
    """

    name = "cloudpool"

    def __init__(self, pools: Sequence[CloudPool], ending: Ending = Ending.SHRINK, *, prompt: bool = False) -> None:
        """Create the provider. *prompt*: see `removal.PoolRemoval`."""
        self._ending = ending
        self._pools = {pool.group.id + ending: pool for pool in pools}
        self._removals = {name: PoolRemoval(pool, ending, prompt=prompt) for name, pool in self._pools.items()}

    def refresh(self, *, deadline: float) -> None:
        troubles = []
        for pool in self._pools.values():
            try:
                pool.view(deadline=deadline)
            except errors.ReschedulerError as error:
                troubles.append(error)
        if troubles:
            raise troubles[0]

    def groups(self, *, deadline: float) -> Sequence[NodeGroup]:  # noqa: ARG002 -- configured, not requested
        return [self._group(pool) for pool in self._pools.values()]

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:
        if node.on_control_plane:
            return None
        owners = [self._group(pool) for pool in self._pools.values() if self._owns(pool, node, deadline)]
        return owners[0] if len(owners) == 1 else None

    def target_size(self, group: str, *, deadline: float) -> int:
        return self._pool(group).desired_size(deadline=deadline)

    def instances(self, group: str, *, deadline: float) -> Sequence[Instance]:
        return self._pool(group).instances(deadline=deadline)

    def delete_nodes(
        self, group: str, nodes: Sequence[NodeRef], *, deadline: float, may_end: MayEnd = any_may_end
    ) -> Mapping[str, DeleteOutcome]:
        self._pool(group)
        return self._removals[group].delete(nodes, deadline=deadline, may_end=may_end)

    def refusals(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:
        self._pool(group)
        return self._removals[group].refusals(nodes, deadline=deadline)

    def increase_size(self, group: str, delta: int, *, deadline: float) -> None:
        self._pool(group).increase(_positive(delta), deadline=deadline)

    def decrease_target_size(self, group: str, delta: int, *, deadline: float) -> None:
        self._pool(group).decrease_unfulfilled(_positive(-delta), deadline=deadline)

    def template(self, group: str, *, deadline: float) -> NodeTemplate:  # noqa: ARG002 -- configured, not requested
        return self._pool(group).template()

    def has_instance(self, node: NodeRef, *, deadline: float) -> bool | None:
        for name, pool in self._pools.items():
            matching = pool.view(deadline=deadline).index.match([node])
            if machine := matching.machines.get(node.name):
                return machine.allocated
            if not matching.ambiguous and self._removals[name].ordered(node):
                return False
        return None

    def instance_for(self, node: NodeRef, *, deadline: float) -> str | None:
        for pool in self._pools.values():
            if machine := pool.view(deadline=deadline).index.match([node]).machines.get(node.name):
                return provider_id(machine)
        return None

    def take_turns(self, turns: Turns) -> None:
        for pool in self._pools.values():
            pool.turns = turns

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    def _group(self, pool: CloudPool) -> NodeGroup:
        return replace(pool.group, id=pool.group.id + self._ending)

    def _owns(self, pool: CloudPool, node: NodeRef, deadline: float) -> bool:
        machine = pool.view(deadline=deadline).index.match([node]).machines.get(node.name)
        return machine is not None and (machine.allocated if self._ending.takes_protected else machine.active)

    def _pool(self, group: str) -> CloudPool:
        if group not in self._pools:
            raise UnknownGroup(f"cloudpool: no group {group!r}; the groups are {', '.join(self._pools)}")
        return self._pools[group]


def _positive(delta: int) -> int:
    if delta <= 0:
        raise errors.UsageError(f"cloudpool: a change of size by {delta} has the wrong sign")
    return delta
