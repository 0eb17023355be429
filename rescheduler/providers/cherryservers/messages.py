"""The parts of Cherry Servers' API messages that are used. Fields may be missing, null or of another type."""

import base64
import datetime as dt
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from rescheduler import decoding
from rescheduler.net.http_errors import UNREADABLE
from rescheduler.providers.base import InstanceError, InstanceState
from rescheduler.providers.fleet.machine import SystemMachine

SCHEME = "cherryservers://"
CLUSTER_TAG, POOL_TAG = "k8s-cluster", "k8s-nodepool"
_UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_MOST = 1 << 62  #: amounts that Kubernetes can represent are smaller
_STATES = {
    "pending": InstanceState.CREATING,
    "provisioning": InstanceState.CREATING,
    "active": InstanceState.RUNNING,
    "terminating": InstanceState.DELETING,
}
_ENDED = frozenset({"terminated", "deleted"})
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{64,}={0,2}")


class Address(msgspec.Struct):
    address: str | None = None
    type: str | None = None


class PlanOf(msgspec.Struct):
    slug: str | None = None


class Server(msgspec.Struct):
    id: int
    hostname: str | None = None
    name: str | None = None
    state: str | None = None
    status: str | None = None
    tags: dict[str, Any] | list[Any] | None = None  #: an empty map may arrive as an empty list
    spot_instance: bool | None = None
    plan: PlanOf | None = None
    ip_addresses: list[Address] | None = None
    termination_date: str | None = None

    def tag(self, name: str) -> str:
        value = self.tags.get(name) if isinstance(self.tags, dict) else None
        return value if isinstance(value, str) else ""


class Cpus(msgspec.Struct):
    cores: int | None = None


class ServerMemory(msgspec.Struct):
    total: float | None = None
    unit: str | None = None


class Specs(msgspec.Struct):
    cpus: Cpus | None = None
    memory: ServerMemory | None = None


class PlanPrice(msgspec.Struct):
    unit: str | None = None
    price: float | None = None


class ServerPlan(msgspec.Struct):
    slug: str | None = None
    specs: Specs | None = None
    pricing: list[PlanPrice] | None = None

    @property
    def cores(self) -> int:
        """The number of cores; 0 if it is missing or implausible."""
        cores = (self.specs and self.specs.cpus and self.specs.cpus.cores) or 0
        return cores if 0 < cores < _MOST else 0

    @property
    def memory(self) -> int:
        """The memory in bytes; 0 if it is missing or implausible. Unknown units count as bytes."""
        memory = self.specs.memory if self.specs else None
        amount = (memory.total or 0) * _UNITS.get((memory.unit or "").upper(), 1) if memory else 0
        return int(amount) if 0 < amount < _MOST else 0

    def hourly(self, *, spot: bool) -> float | None:
        unit = "spot hourly" if spot else "hourly"
        prices = [price.price for price in self.pricing or () if (price.unit or "").lower() == unit]
        return prices[0] if prices else None


class CreateServer(msgspec.Struct, omit_defaults=True):
    project_id: int
    plan: str
    hostname: str
    image: str
    region: str
    tags: Mapping[str, str]
    user_data: str = ""  #: base64
    ssh_keys: list[int] = []
    os_partition_size: int = 0
    spot_market: bool = False


class Errors(msgspec.Struct):
    """The body of an error, in the old and the new format."""

    errors: list[str] | None = None
    error: str | None = None
    message: str | None = None


def machine(server: Server, group: str) -> SystemMachine:
    failed = server.status == "failed deployment"
    return SystemMachine(
        key=str(server.id),
        id=f"{SCHEME}{server.id}",
        group=group,
        state=_state(server),
        gone=(server.state or "") in _ENDED,
        names=frozenset(name.lower() for name in (server.hostname,) if name),
        addresses=frozenset(
            address.address for address in server.ip_addresses or () if address.address and address.type == "private-ip"
        ),
        error=InstanceError("FAILED_DEPLOYMENT", "the deployment of the server failed") if failed else None,
        spot=server.spot_instance,
        terminates_at=notice(server.termination_date),
    )


def notice(text: str | None) -> dt.datetime | None:
    """Parse the announced termination time of a spot server; the API writes "None" if there is none."""
    try:
        moment = dt.datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or dt.UTC)


def error_text(body: bytes) -> str:
    """Return the message of an error without encoded parts, which might be our user data with its secret."""
    try:
        document = decoding.decode(body, Errors)
        text = "; ".join(part for part in (*(document.errors or ()), document.error, document.message) if part)
    except UNREADABLE:
        text = body.decode("utf-8", "replace")
    return _ENCODED.sub("***", text)


def user_data(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")


def _state(server: Server) -> InstanceState:
    state = _STATES.get(server.state or "", InstanceState.UNKNOWN)
    deploying = server.status in {"deploying", "failed deployment"}
    return InstanceState.CREATING if deploying and state is InstanceState.RUNNING else state
