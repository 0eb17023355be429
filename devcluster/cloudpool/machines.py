"""The lifecycle of a machine as points in time, from which its state at any time is derived."""

import datetime as dt
import hashlib
import uuid
from typing import Any

import msgspec

from devcluster.cloudpool.settings import PoolDocument

_PROJECT = "demo"
_GCE = "https://www.googleapis.com/compute/v1/projects"
_PLACEHOLDERS = {"AWS-AUTO-SCALING-GROUP": "i-requested{number}", "GCE": "requested-{pool}-{number}"}
_ARM = "/subscriptions/{0}/resourceGroups/demo/providers/Microsoft.Compute/virtualMachines"


class PoolMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine. The time `None` means that the transition is not scheduled."""

    number: int
    pool: PoolDocument  #: the configuration at the time of the request
    requested_at: dt.datetime
    rejected: bool = False
    ending_at: dt.datetime | None = None
    member: bool = True  #: not detached
    active: bool = True
    evictable: bool = True
    service_state: str = "UNKNOWN"
    joined: bool = False  #: its Node was created
    left: bool = False  #: its Node was deleted

    @property
    def pending_at(self) -> dt.datetime:
        return self.requested_at + dt.timedelta(seconds=self.pool.request_delay)

    @property
    def running_at(self) -> dt.datetime:
        return self.pending_at + dt.timedelta(seconds=self.pool.launch_delay)

    @property
    def joins_at(self) -> dt.datetime:
        return self.running_at + dt.timedelta(seconds=self.pool.boot_delay)

    @property
    def ended_at(self) -> dt.datetime | None:
        return self.ending_at and self.ending_at + dt.timedelta(seconds=self.pool.termination_delay)

    def state(self, now: dt.datetime) -> str:
        if self.rejected:
            return "REJECTED" if now >= self.pending_at else "REQUESTED"
        if self.ending_at is not None and now >= self.ending_at:
            return "TERMINATED" if self.ended_at is not None and now >= self.ended_at else "TERMINATING"
        if now >= self.running_at:
            return "RUNNING"
        return "PENDING" if now >= self.pending_at else "REQUESTED"

    def allocated(self, now: dt.datetime) -> bool:
        return self.state(now) in {"REQUESTED", "PENDING", "RUNNING"}

    def listed(self, now: dt.datetime) -> bool:
        end = self.pending_at if self.rejected else self.ended_at
        return end is None or now < end + dt.timedelta(seconds=self.pool.forget_delay)

    def id(self, now: dt.datetime) -> str:
        """Return the id in the format of the cloud's driver; in some clouds a requested machine has a placeholder."""
        if self.state(now) == "REQUESTED" and self.pool.cloud_provider in _PLACEHOLDERS:
            return _PLACEHOLDERS[self.pool.cloud_provider].format(pool=self.pool.name, number=self.number)
        formats = {
            "AWS-SPOT": f"sir-{self._digest[:8]}",
            "GCE": f"{_GCE}/{_PROJECT}/zones/{self.pool.region}/instances/{self.name}",
            "Azure": f"{_ARM.format(uuid.UUID(self._digest[:32]))}/{self.name}",
            "OpenStack": str(uuid.UUID(self._digest[:32])),
            "CityCloud": str(uuid.UUID(self._digest[:32])),
            "Kubernetes": f"{self.name}-{self._digest[:5]}",
        }
        return formats.get(self.pool.cloud_provider, self._instance)

    @property
    def name(self) -> str:
        """The name of the Node."""
        return f"{self.pool.name}-{self.number}"

    @property
    def becomes_node(self) -> bool:
        """Whether the machine runs a kubelet; the machines of some pools are pods."""
        return self.pool.cloud_provider != "Kubernetes"

    @property
    def provider_id(self) -> str:
        """The Node's provider ID as its kubelet reports it; "" if it reports none."""
        match self.pool.provider_ids:
            case "lower-case":
                return self._provider_id.lower()
            case "with-region":
                return self._provider_id.replace(":///", f"://{self.pool.region}/", 1)
            case "none":
                return ""
        return self._provider_id

    @property
    def _provider_id(self) -> str:
        """The provider ID in the format of the cloud controller manager."""
        match self.pool.cloud_provider:
            case "GCE":
                return f"gce://{_PROJECT}/{self.pool.region}/{self.name}"
            case "Azure":
                return f"azure://{_ARM.format(uuid.UUID(self._digest[:32]))}/{self.name}"
            case "OpenStack" | "CityCloud":
                return f"openstack:///{uuid.UUID(self._digest[:32])}"
        return f"aws:///{self.pool.region}/{self._instance}"

    @property
    def private_ip(self) -> str:
        return f"{self.pool.network}.{self.number // 250 % 250}.{self.number % 250 + 1}"

    def metadata(self, now: dt.datetime) -> dict[str, Any] | None:
        """Return the part of the cloud's raw data that the driver reports."""
        launched = self.state(now) != "REQUESTED"
        match self.pool.cloud_provider:
            case "AWS-SPOT":
                instance = {"instanceId": self._instance, "privateIpAddress": self.private_ip}
                return {"request": {"spotInstanceRequestId": self.id(now)}} | (
                    {"instance": instance} if launched else {}
                )
            case "AWS-EC2" | "AWS-AUTO-SCALING-GROUP" if launched:
                return {"instanceId": self._instance, "placement": {"availabilityZone": self.pool.region}}
            case "OpenStack" | "CityCloud" if launched:
                return {"name": self.name}
        return None

    def document(self, now: dt.datetime) -> dict[str, Any]:
        """Return the API representation, without unknown fields."""
        launched = self.state(now) not in {"REQUESTED", "REJECTED"}
        fields = {
            "id": self.id(now),
            "machineState": self.state(now),
            "membershipStatus": {"active": self.active, "evictable": self.evictable},
            "serviceState": self.service_state,
            "cloudProvider": self.pool.cloud_provider,
            "region": self.pool.region,
            "machineSize": self.pool.machine_size,
            "requestTime": timestamp(self.requested_at),
            "launchTime": timestamp(self.pending_at) if launched else None,
            "publicIps": [],
            "privateIps": [self.private_ip] if launched else [],
            "metadata": self.metadata(now),
        }
        return {key: value for key, value in fields.items() if value is not None}

    @property
    def _digest(self) -> str:
        return hashlib.sha256(f"{self.pool.name}/{self.number}".encode()).hexdigest()

    @property
    def _instance(self) -> str:
        return f"i-{self._digest[:17]}"


def timestamp(moment: dt.datetime) -> str:
    """Format *moment* as ISO 8601 in UTC with milliseconds."""
    return moment.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
