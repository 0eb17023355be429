"""The groups and their instances. Their states are functions of time, so tests control them with a fake clock."""

import datetime as dt
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rescheduler.clock import Clock

REGION: Final = "eu-west-1"
ENABLED: Final = "k8s.io/cluster-autoscaler/enabled"
_PAGE: Final = 50
#: EC2 forgets terminated instances an hour later.
_FORGOTTEN: Final = 3600.0

Params = Mapping[str, Any]


class AwsError(Exception):
    """An error response."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


@dataclass(kw_only=True)
class Ec2Instance:
    id: str
    group: str
    zone: str
    spot: bool
    running_at: dt.datetime
    state: str = "InService"  #: its lifecycle state while it is neither launched nor ended; "Detached": in no group
    protected: bool = False
    weight: str = ""
    left_at: dt.datetime | None = None
    by_aws: bool = True  #: whether AWS itself ended it
    retained: bool = False  #: whether a lifecycle policy keeps it instead of ending it


@dataclass(kw_only=True)
class ScalingGroup:
    name: str
    min_size: int = 0
    max_size: int = 10
    desired: int = 0
    zones: tuple[str, ...] = (f"{REGION}a",)
    tags: dict[str, str] = field(default_factory=lambda: {ENABLED: "true"})
    suspended: set[str] = field(default_factory=set)
    distribution: dict[str, int] | None = None  #: of a MixedInstancesPolicy
    spot: bool = False  #: what is launched
    more: dict[str, Any] = field(default_factory=dict)  #: further fields that the list has
    stock: int = 1000  #: how many instances EC2 can launch


@dataclass(frozen=True, kw_only=True)
class AwsCloudSettings:
    """Durations in seconds."""

    launching: float = 0.0
    lag: float = 0.0  #: until an ordered termination is listed
    hook: float = 0.0  #: of a lifecycle hook
    terminating: float = 10.0
    unlisted: bool = False  #: whether a group no longer lists an instance that EC2 is still shutting down
    keeps_minimum: bool = False


class AwsCloud:
    """The account in one region; thread-safe. *ended* has each ended instance, and whether AWS itself chose it."""

    def __init__(self, settings: AwsCloudSettings, clock: Clock) -> None:
        self.settings, self._clock = settings, clock
        self.groups: dict[str, ScalingGroup] = {}
        self.instances: dict[str, Ec2Instance] = {}
        self.ended: list[tuple[str, bool]] = []
        self.calls: list[str] = []
        self._lowered: list[tuple[Ec2Instance, dt.datetime]] = []
        self._lock = threading.RLock()

    def close(self) -> None:
        """Do nothing: the protocol of stand-ins."""

    def add_group(self, name: str, size: int, **changes: Any) -> ScalingGroup:
        """Add a group with *size* running instances."""
        group = self.groups[name] = ScalingGroup(name=name, desired=size, **changes)
        for _ in range(size):
            self._launch(group, 0.0)
        return group

    def alive(self, group: str) -> list[Ec2Instance]:
        """Return the instances that count towards the desired capacity: launched or being launched, not leaving."""
        return [
            each
            for each in self.instances.values()
            if each.group == group and each.left_at is None and each.state == "InService"
        ]

    def runs(self, instance: Ec2Instance) -> bool:
        return self.ec2_state(instance) == "running" and instance.left_at is None

    def answer(self, action: str, params: Params) -> dict[str, Any]:
        """Return the result of a request. Raises AwsError."""
        actions = {
            "DescribeAutoScalingGroups": self._describe_groups,
            "TerminateInstanceInAutoScalingGroup": self._terminate,
            "SetDesiredCapacity": self._set_desired,
            "DescribeInstances": self._describe_instances,
        }
        with self._lock:
            self.calls.append(action)
            if action not in actions:
                raise AwsError("InvalidAction", f"The action {action} is not valid for this web service")
            self._run_processes()
            result = actions[action](params)
            self._run_processes()
            return result

    def _describe_groups(self, params: Params) -> dict[str, Any]:
        names, first = params.get("AutoScalingGroupNames", ()), int(params.get("NextToken", 0))
        size = int(params.get("MaxRecords", _PAGE))
        if not 0 < size <= 100 or len(names) > _PAGE:  # noqa: PLR2004 - AWS' limit
            raise AwsError("ValidationError", "MaxRecords or AutoScalingGroupNames: too many")
        found = [
            group
            for group in self.groups.values()
            if (not names or group.name in names) and all(_matches(group, each) for each in params.get("Filters", ()))
        ]
        page = {"AutoScalingGroups": [self._group(group) for group in found[first : first + size]]}
        return page | ({"NextToken": str(first + size)} if len(found) > first + size else {})

    def _terminate(self, params: Params) -> dict[str, Any]:
        name = params["InstanceId"]
        instance = self.instances.get(name)
        if instance is None or not self._state(instance):
            raise AwsError(
                "ValidationError", f"Instance Id not found - No managed instance found for instance ID {name}"
            )
        group = self.groups[instance.group]
        if params["ShouldDecrementDesiredCapacity"] in ("true", True):
            if self.settings.keeps_minimum and group.desired <= group.min_size:
                text = f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without "
                raise AwsError("ValidationError", f"{text}replacement will violate group's min size constraint.")
            group.desired -= 1
            self._lowered.append((instance, self._clock.now()))
        self.end(instance, by_aws=False)
        return {"Activity": {"ActivityId": f"activity-{len(self.ended)}", "StatusCode": "InProgress"}}

    def _set_desired(self, params: Params) -> dict[str, Any]:
        group, size = self.groups[params["AutoScalingGroupName"]], int(params["DesiredCapacity"])
        if not group.min_size <= size <= group.max_size:
            raise AwsError("ValidationError", f"New SetDesiredCapacity value {size} is outside of the group's limits")
        group.desired = size
        return {}

    def _describe_instances(self, params: Params) -> dict[str, Any]:
        found = []
        for name in params["InstanceIds"]:
            instance = self.instances.get(name)
            if instance is None or (instance.left_at and self._since(instance.left_at) > _FORGOTTEN):
                raise AwsError("InvalidInstanceID.NotFound", f"The instance ID '{name}' does not exist")
            found.append({"instanceId": name, "instanceState": {"name": self.ec2_state(instance)}})
        return {"reservationSet": [{"instancesSet": found}]}

    def _run_processes(self) -> None:
        """Launch, end and rebalance instances as AWS does by itself."""
        for group in self.groups.values():
            while len(self.alive(group.name)) < group.desired and group.stock and "Launch" not in group.suspended:
                group.stock -= 1
                self._launch(group, self.settings.launching)
            if "Terminate" in group.suspended:
                continue
            while len(self.alive(group.name)) > group.desired and self._unprotected(group):
                self._end_in_fullest_zone(group)
            if group.suspended & {"AZRebalance", "Launch"}:
                continue
            while (zones := self._zones(group).values()) and max(zones) - min(zones) > 1 and self._unprotected(group):
                self._end_in_fullest_zone(group)
                self._launch(group, self.settings.launching)

    def _unprotected(self, group: ScalingGroup) -> list[Ec2Instance]:
        return [each for each in self.alive(group.name) if not each.protected]

    def _end_in_fullest_zone(self, group: ScalingGroup) -> None:
        zones = self._zones(group)
        self.end(max(self._unprotected(group), key=lambda each: zones[each.zone]), by_aws=True)

    def _zones(self, group: ScalingGroup) -> Counter[str]:
        zones = Counter(dict.fromkeys(group.zones, 0))
        zones.update(each.zone for each in self.alive(group.name))
        return zones

    def _launch(self, group: ScalingGroup, seconds: float) -> None:
        zones, number = self._zones(group), len(self.instances)
        zone = min(group.zones, key=lambda each: zones[each])
        self.instances[f"i-{number:017x}"] = Ec2Instance(
            id=f"i-{number:017x}",
            group=group.name,
            zone=zone,
            spot=group.spot,
            running_at=self._clock.now() + dt.timedelta(seconds=seconds),
        )

    def end(self, instance: Ec2Instance, *, by_aws: bool) -> None:
        if instance.left_at is None:
            instance.left_at, instance.by_aws = self._clock.now(), by_aws
            self.ended.append((instance.id, by_aws))

    def _state(self, instance: Ec2Instance) -> str:
        """Return the lifecycle state that the group lists; "" if the group no longer has the instance."""
        if instance.state == "Detached":
            return ""
        now, settings = self._clock.now(), self.settings
        if instance.left_at is None:
            return "Pending" if now < instance.running_at else instance.state
        since = self._since(instance.left_at)
        if since < settings.lag and not instance.by_aws:
            return "InService"
        if since < settings.hook:
            return "Terminating:Wait"
        if instance.retained:
            return "Terminating:Retained"
        listed = settings.hook + (0.0 if settings.unlisted else settings.terminating)
        return "Terminating:Proceed" if since < listed else ""

    def _not_listed(self, group: ScalingGroup) -> int:
        """Return by how much the desired capacity was lowered so recently that it is not listed yet."""
        return sum(each.group == group.name and self._since(at) < self.settings.lag for each, at in self._lowered)

    def ec2_state(self, instance: Ec2Instance) -> str:
        if instance.left_at is None:
            return "running" if self._clock.now() >= instance.running_at else "pending"
        if instance.retained:
            return "running"
        since = self._since(instance.left_at) - self.settings.hook
        return "running" if since < 0 else "shutting-down" if since < self.settings.terminating else "terminated"

    def _since(self, moment: dt.datetime) -> float:
        return (self._clock.now() - moment).total_seconds()

    def _group(self, group: ScalingGroup) -> dict[str, Any]:
        document: dict[str, Any] = {
            "AutoScalingGroupName": group.name,
            "MinSize": group.min_size,
            "MaxSize": group.max_size,
            "DesiredCapacity": group.desired + self._not_listed(group),
            "DefaultCooldown": 300,
            "HealthCheckType": "EC2",
            "CreatedTime": "2024-05-01T12:00:00Z",
            "AvailabilityZones": [*group.zones],
            "SuspendedProcesses": [{"ProcessName": name} for name in sorted(group.suspended)],
            "Tags": [{"Key": key, "Value": value} for key, value in group.tags.items()],
            "Instances": [
                self._member(each, state)
                for each in self.instances.values()
                if each.group == group.name and (state := self._state(each))
            ],
        }
        document |= group.more
        if group.distribution is not None:
            document["MixedInstancesPolicy"] = {"InstancesDistribution": group.distribution}
        return document

    def _member(self, instance: Ec2Instance, state: str) -> dict[str, Any]:
        document = {
            "InstanceId": instance.id,
            "AvailabilityZone": instance.zone,
            "LifecycleState": state,
            "HealthStatus": "Healthy",
            "ProtectedFromScaleIn": instance.protected,
        }
        return document | ({"WeightedCapacity": instance.weight} if instance.weight else {})


def _matches(group: ScalingGroup, wanted: Mapping[str, Any]) -> bool:
    """Return whether the tags of *group* match a filter: ``tag-key``, or ``tag:KEY`` with its values."""
    name, values = wanted["Name"], wanted["Values"]
    if name == "tag-key":
        return any(value in group.tags for value in values)
    return group.tags.get(name.removeprefix("tag:")) in values


def provider_id(instance: Ec2Instance) -> str:
    return f"aws:///{instance.zone}/{instance.id}"


def members(cloud: AwsCloud, group: str) -> Sequence[Ec2Instance]:
    """Return the instances of a group that are Nodes: those that EC2 has launched, until it has terminated them."""
    states = {"pending", "terminated"}
    return [each for each in cloud.instances.values() if each.group == group and cloud.ec2_state(each) not in states]
