"""The cloud provider for Auto Scaling groups of AWS, also those of EKS managed node groups, whose desired size follows.

An order ends one instance and lowers the desired capacity of its group by one. AWS would carry out a second order, too,
so none is sent while an earlier one may still take effect, nor for an instance that is leaving. A removal is confirmed
when the group no longer lists the instance and EC2 has terminated it: lifecycle hooks may take hours before.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from rescheduler import errors
from rescheduler.clock import Clock
from rescheduler.errors import AuthError
from rescheduler.net.http_errors import Missing, Unsent
from rescheduler.providers.aws.client import AwsClient
from rescheduler.providers.aws.config import AwsSettings, settings
from rescheduler.providers.aws.groups import AutoScalingGroup, instance_id, region_of, view_of
from rescheduler.providers.base import (
    BelowMinimum,
    CloudProvider,
    DeleteOutcome,
    MayEnd,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    NotSupported,
    Refusal,
    Refused,
    any_may_end,
)
from rescheduler.providers.fleet import PollIntervals, SystemMachine, SystemView
from rescheduler.providers.fleet.provider import FleetProvider

_MOST_LISTED: Final = 10_000  #: instances that are remembered

#: AWS limits the rate of all requests of an account, and lists what was ordered with a delay.
_PACE: Final = PollIntervals(refresh=15.0, poll=5.0, settle=120.0, idempotent=False)


def load(config: Path | None, clock: Clock) -> CloudProvider:
    """Load the provider with the optional file *config*. Raises ConfigError."""
    chosen = settings(config)
    return AwsProvider(chosen, AwsClient(chosen, clock), clock)


class AwsSystem:
    """EC2 Auto Scaling as a fleet. A machine's key is its instance ID."""

    name = "aws"
    deletion_is_certain = False  #: a lifecycle hook can keep the instance

    def __init__(self, client: AwsClient) -> None:
        self._client = client
        self._groups: Mapping[str, AutoScalingGroup] = {}
        self._listed: frozenset[str] = frozenset()  #: instances that have been in one of the groups

    def read(self, *, deadline: float) -> SystemView:
        groups = self._client.groups(deadline=deadline)
        self._groups = {group.auto_scaling_group_name: group for group in groups}
        now = frozenset(each.instance_id for group in groups for each in group.instances)
        self._listed = now | self._listed if len(self._listed) < _MOST_LISTED else now
        return view_of(groups)

    def key_of(self, node: NodeRef) -> str | None:
        return instance_id(node.provider_id)

    def is_control_plane(self, node: NodeRef) -> bool:  # noqa: ARG002 -- only the labels tell
        return False

    def contradiction(self, node: NodeRef, machine: SystemMachine) -> str:  # noqa: ARG002
        return ""

    def exists(self, key: str, *, deadline: float) -> bool | None:
        """Return whether EC2 runs the instance, in whatever group. Raises BackendUnavailable while it shuts down."""
        state = self._client.instance_state(key, deadline=deadline)
        if state == "shutting-down":
            raise errors.BackendUnavailable(f"aws: instance {key} is shutting down")
        return state not in {"", "terminated"}

    def stays(self, key: str, *, deadline: float) -> bool | None:
        """Return whether an instance that no group lists runs on. None: it was in none of the groups, or EC2 must not
        be asked. Each round asks that for all nodes, so others cost no request.
        """
        if key not in self._listed:
            return None
        try:
            return self._client.instance_state(key, deadline=deadline) not in {"", "terminated", "shutting-down"}
        except AuthError:
            return None

    def deletion_refusal(self, machine: SystemMachine, *, deadline: float) -> Refused | None:  # noqa: ARG002
        group = self._groups.get(machine.group)
        text = group.imbalance(machine.key) if group else ""
        return Refused(Refusal.PROTECTED, text) if text else None

    def surplus(self, name: str) -> str:
        """Return why AWS itself is about to end an instance of the group, as last read; "" if it is not."""
        group = self._groups.get(name)
        return group.surplus if group else ""

    def delete(self, machine: SystemMachine, *, deadline: float) -> None:
        """Order the deletion, unless AWS would end an instance by itself according to the last read."""
        group = self._group(machine.group)
        if text := group.surplus or group.imbalance(machine.key):
            raise Unsent(f"aws: {text}")
        try:
            self._client.terminate(machine.key, deadline=deadline)
        except Missing:
            if self._runs_elsewhere(machine.key, deadline):
                raise errors.Permanent(f"aws: instance {machine.key} left Auto Scaling group {machine.group}") from None
            raise

    def _runs_elsewhere(self, key: str, deadline: float) -> bool | None:
        try:
            return self.exists(key, deadline=deadline)
        except AuthError as error:
            raise errors.BackendUnavailable(str(error)) from error  # it may have ended

    def _group(self, name: str) -> AutoScalingGroup:
        """Return the group as last read, perhaps by another thread."""
        if (group := self._groups.get(name)) is None:
            raise Unsent(f"aws: Auto Scaling group {name} is not listed any more")
        return group

    def create(self, group: NodeGroup, count: int, created: Callable[[str], None], *, deadline: float) -> None:  # noqa: ARG002
        """Raise the desired capacity as last read. AWS chooses the instances."""
        current = self._group(group.id)
        text = current.obstacle()
        if not text and current.suspends("Launch"):
            text = f"Auto Scaling group {group.id} has suspended the process Launch"
        if text:
            raise errors.Permanent(f"aws: {text}")
        self._client.set_desired(group.id, current.desired_capacity + count, deadline=deadline)

    def cancel(self, group: NodeGroup, count: int, *, deadline: float) -> int:
        """Lower the desired capacity as last read by at most *count* instances that are not launched, and tell by how
        many. Lowering it further would let AWS choose a running instance.
        """
        current = self._group(group.id)
        canceled = min(count, current.unlaunched, max(0, current.desired_capacity - current.min_size))
        canceled = 0 if current.obstacle() else canceled
        if canceled:
            self._client.set_desired(group.id, current.desired_capacity - canceled, deadline=deadline)
        return canceled

    def close(self) -> None:
        self._client.close()


class AwsProvider(FleetProvider):
    """The provider of Auto Scaling groups. Prices are those of a price file: `rescheduler prices aws`."""

    def __init__(self, chosen: AwsSettings, client: AwsClient, clock: Clock) -> None:
        self._chosen, self._client, self._aws = chosen, client, AwsSystem(client)
        super().__init__(self._aws, clock, _PACE)

    def refresh(self, *, deadline: float) -> None:
        if self._client.region:  # otherwise it is that of the first node that is asked about
            super().refresh(deadline=deadline)

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:
        return super().group_for(node, deadline=deadline) if self._in_region(node) else None

    def has_instance(self, node: NodeRef, *, deadline: float) -> bool | None:
        """Return whether the instance runs and stays: one that its group ends counts as gone."""
        if not self._in_region(node):
            return None
        machine, key = self.machine(node, deadline=deadline), instance_id(node.provider_id)
        if machine is not None:
            return machine.alive
        return self._aws.stays(key, deadline=deadline) if key else None

    def delete_nodes(
        self, group: str, nodes: Sequence[NodeRef], *, deadline: float, may_end: MayEnd = any_may_end
    ) -> Mapping[str, DeleteOutcome]:
        for node in nodes:
            self._in_region(node)
        return super().delete_nodes(group, nodes, deadline=deadline, may_end=may_end)

    def refusals(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:
        refused = dict(super().refusals(group, nodes, deadline=deadline))
        if surplus := self._aws.surplus(group):
            for node in nodes:
                refused.setdefault(node.name, Refused(Refusal.PROTECTED, surplus))
        return refused

    def refusal_without_group(self, node: NodeRef, *, deadline: float) -> Refused | None:
        """Return why the node is not drained: nothing would end its machine."""
        if node.on_control_plane:
            return None
        key, region = instance_id(node.provider_id), region_of(node.provider_id)
        if not key:
            text = f"its provider ID {node.provider_id!r} is not that of an EC2 instance"
        elif not self._in_region(node):
            text = f"its instance {key} is in region {region}, and this daemon manages region {self._client.region}"
        else:
            machine = self.machine(node, deadline=deadline)
            if machine is not None and machine.protected:
                return machine.protected
            text = f"no Auto Scaling group {self._chosen} of region {self._client.region} has its instance {key}"
            text += f"; the region has no group {self._client.absent}" if self._client.absent else ""
        return Refused(Refusal.NOT_IN_GROUP, text)

    def decrease_target_size(self, group: str, delta: int, *, deadline: float) -> None:
        """Lower the desired capacity by instances that are not launched yet; others are running, or about to run."""
        wanted = self._positive(-delta)
        with self._fleet.changing(deadline=deadline):
            found = self._fleet.group(self._fleet.read(deadline=deadline), group)
            canceled = self._aws.cancel(found, wanted, deadline=deadline)
        if canceled < wanted:
            raise BelowMinimum(f"aws: group {group}: {canceled} of {wanted} were not launched yet, and were canceled")

    def template(self, group: str, *, deadline: float) -> NodeTemplate:
        name = self.group(group, deadline=deadline).id
        raise NotSupported(f"aws: Auto Scaling group {name} has no template")

    def _in_region(self, node: NodeRef) -> bool:
        """Return whether the node's instance may be in our region. The first node sets it if nothing else does."""
        region = region_of(node.provider_id)
        self._client.region = self._client.region or region
        return region in {"", self._client.region}
