"""Auto Scaling groups as groups of machines, and what forbids ending an instance of one. No I/O.

Sources: the API reference of Amazon EC2 Auto Scaling (DescribeAutoScalingGroups, TerminateInstanceInAutoScalingGroup),
and of its user guide the pages on lifecycle states, suspended processes, scale-in protection, standby, rebalancing, and
groups with several purchase options.
"""

import enum
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from rescheduler.providers.base import InstanceState, NodeGroup, Refusal, Refused
from rescheduler.providers.fleet import SystemMachine, SystemView

_PROVIDER_ID: Final = re.compile(r"aws:///(?:(?P<zone>[a-z0-9-]+)/)?(?P<id>i-[0-9a-f]{8,32})")
#: The region of an availability zone, a local zone (us-west-2-lax-1a) or a wavelength zone.
_REGION: Final = re.compile(r"[a-z]{2,}(?:-[a-z]+)+-[0-9]+")

_ALL_ON_DEMAND: Final = 100  #: percent; AWS' default


class AwsShape(msgspec.Struct, rename="pascal", frozen=True, kw_only=True):
    """The parts of AWS' answers that are used."""


class GroupInstance(AwsShape, frozen=True, kw_only=True):
    instance_id: str
    lifecycle_state: str
    availability_zone: str = ""
    protected_from_scale_in: bool = False
    weighted_capacity: str = "1"

    @property
    def leaving(self) -> bool:
        return self.lifecycle_state.startswith("Terminat")

    @property
    def counted(self) -> bool:
        """Whether it counts towards the desired capacity. Unlike an instance in Standby, one that is launched does."""
        return self.lifecycle_state == "InService" or self.lifecycle_state.startswith("Pending")


class InstancesDistribution(AwsShape, frozen=True, kw_only=True):
    on_demand_base_capacity: int | None = None
    on_demand_percentage_above_base_capacity: int | None = None


class MixedInstancesPolicy(AwsShape, frozen=True, kw_only=True):
    instances_distribution: InstancesDistribution | None = None


class SuspendedProcess(AwsShape, frozen=True, kw_only=True):
    process_name: str


class InstanceReusePolicy(AwsShape, frozen=True, kw_only=True):
    reuse_on_scale_in: bool = False


class WarmPoolConfiguration(AwsShape, frozen=True, kw_only=True):
    instance_reuse_policy: InstanceReusePolicy = InstanceReusePolicy()


class GroupOperator(AwsShape, frozen=True, kw_only=True):
    principal: str = ""


class Purchase(enum.Enum):
    """How the instances of a group are bought."""

    ON_DEMAND = enum.auto()
    SPOT = enum.auto()
    BOTH = enum.auto()
    TEMPLATE = enum.auto()  #: all in the same way, which the launch template says


class AutoScalingGroup(AwsShape, frozen=True, kw_only=True):
    auto_scaling_group_name: str
    min_size: int
    max_size: int
    desired_capacity: int
    desired_capacity_type: str = "units"
    availability_zones: tuple[str, ...] = ()
    instances: tuple[GroupInstance, ...] = ()
    suspended_processes: tuple[SuspendedProcess, ...] = ()
    mixed_instances_policy: MixedInstancesPolicy | None = None
    status: str = ""  #: only while it is being deleted
    operator: GroupOperator | None = None  #: who alone may change the group
    warm_pool_configuration: WarmPoolConfiguration = WarmPoolConfiguration()

    @property
    def purchase(self) -> Purchase:
        if self.mixed_instances_policy is None:
            return Purchase.TEMPLATE
        shares = self.mixed_instances_policy.instances_distribution or InstancesDistribution()
        base, percent = shares.on_demand_base_capacity or 0, shares.on_demand_percentage_above_base_capacity
        if percent in (None, _ALL_ON_DEMAND) or base >= self.max_size > 0:
            return Purchase.ON_DEMAND
        return Purchase.BOTH if base or percent else Purchase.SPOT

    @property
    def unlaunched(self) -> int:
        """The part of the desired capacity for which AWS lists no instance yet, in whatever state."""
        return max(0, self.desired_capacity - sum(not instance.leaving for instance in self.instances))

    @property
    def surplus(self) -> str:
        """Why AWS itself is about to end an instance of the group, perhaps the same one; "" if it is not."""
        counted = sum(instance.counted for instance in self.instances)
        if counted <= self.desired_capacity:
            return ""
        name, desired = self.auto_scaling_group_name, self.desired_capacity
        return f"Auto Scaling group {name} has {counted} instances and a desired capacity of {desired}: AWS ends some"

    def suspends(self, process: str) -> bool:
        return any(suspended.process_name == process for suspended in self.suspended_processes)

    def obstacle(self) -> str:
        """Return why no instance of the group may be ended or added; "" if nothing forbids that."""
        name = f"Auto Scaling group {self.auto_scaling_group_name}"
        if self.status:
            return f"{name} has the status {self.status}"
        if self.desired_capacity_type != "units" or any(each.weighted_capacity != "1" for each in self.instances):
            return f"{name} counts its capacity in other units than instances"
        if self.operator is not None:
            return f"{name} is managed by {self.operator.principal}: nobody else may change it"
        if self.warm_pool_configuration.instance_reuse_policy.reuse_on_scale_in:
            return f"{name} has a warm pool that takes back its instances: they would not end"
        if self.purchase is Purchase.BOTH:
            return f"{name} buys on-demand and spot instances: it would buy an on-demand instance again"
        return ""

    def imbalance(self, leaving: str) -> str:
        """Return why AWS would end an instance of another zone if *leaving* ended; "" if it would not.

        AWS rebalances zones whose numbers of instances differ by more than one: it ends instances that still run pods.
        """
        zone = next((each.availability_zone for each in self.instances if each.instance_id == leaving), "")
        if self.suspends("AZRebalance") or len(self.availability_zones) < 2 or not zone:  # noqa: PLR2004
            return ""
        zones = Counter(dict.fromkeys(self.availability_zones, 0))
        zones.update(instance.availability_zone for instance in self.instances if instance.counted)
        before = max(zones.values()) - min(zones.values())
        zones[zone] -= 1
        after = max(zones.values()) + self.unlaunched - min(zones.values())  # those may be launched in any zone
        if after <= max(before, 1):
            return ""
        return (
            f"without it, zone {zone} of Auto Scaling group {self.auto_scaling_group_name} could have {after} "
            "instances less than another, and the process AZRebalance would end one there"
        )


def view_of(groups: Sequence[AutoScalingGroup]) -> SystemView:
    return SystemView(
        [_node_group(group) for group in groups],
        [_machine(instance, group) for group in groups for instance in group.instances],
        {group.auto_scaling_group_name: group.desired_capacity for group in groups},
    )


def _node_group(group: AutoScalingGroup) -> NodeGroup:
    name = group.auto_scaling_group_name
    return NodeGroup(name, group.min_size, group.max_size, f"Auto Scaling group {name}")


def _machine(instance: GroupInstance, group: AutoScalingGroup) -> SystemMachine:
    state, spot = InstanceState.UNKNOWN, {Purchase.ON_DEMAND: False, Purchase.SPOT: True}.get(group.purchase)
    if instance.leaving:
        state = InstanceState.DELETING
    elif instance.counted:
        state = InstanceState.RUNNING if instance.lifecycle_state == "InService" else InstanceState.CREATING
    return SystemMachine(
        instance.instance_id,
        f"aws:///{instance.availability_zone}/{instance.instance_id}",
        "" if state is InstanceState.UNKNOWN else group.auto_scaling_group_name,
        state,
        gone=instance.lifecycle_state == "Terminated",
        spot=spot,
        protected=_protection(instance, group),
    )


def _protection(instance: GroupInstance, group: AutoScalingGroup) -> Refused | None:
    """Return why the instance must not be ended, or None.

    AWS itself lets the order through for an instance with scale-in protection.
    """
    text = group.obstacle()
    if instance.lifecycle_state.endswith(":Retained"):
        text = (
            f"instance {instance.instance_id} is in the state {instance.lifecycle_state}: "
            "the lifecycle policy of its group keeps it until somebody ends it"
        )
    elif not (instance.counted or instance.leaving):
        text = f"instance {instance.instance_id} is in the state {instance.lifecycle_state}, not InService"
    elif instance.protected_from_scale_in:
        text = f"instance {instance.instance_id} is protected from scale-in"
    elif not text and group.suspends("Terminate"):
        text = f"Auto Scaling group {group.auto_scaling_group_name} has suspended the process Terminate"
    return Refused(Refusal.PROTECTED, text) if text else None


def instance_id(provider_id: str) -> str | None:
    """Return the instance of a ``spec.providerID``; "" if it is empty, None if it is of another system."""
    match = _PROVIDER_ID.fullmatch(provider_id)
    return match["id"] if match else None if provider_id else ""


def region_of(provider_id: str) -> str:
    """Return the region of a ``spec.providerID``, from its zone; "" if it has none."""
    match = _PROVIDER_ID.fullmatch(provider_id)
    region = _REGION.match(match["zone"] or "") if match else None
    return region[0] if region else ""
