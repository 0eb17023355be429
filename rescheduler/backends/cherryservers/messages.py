"""The documents of Cherry Servers' API, as far as they are read; what may be missing, null or of another form, may."""

import base64
import datetime as dt
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from rescheduler import shapes
from rescheduler.backends.base import InstanceError, InstanceState
from rescheduler.backends.fleet.machine import Machine
from rescheduler.backends.http import UNREADABLE

SCHEME = "cherryservers://"
CLUSTER_TAG, POOL_TAG = "k8s-cluster", "k8s-nodepool"
_UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_MOST = 1 << 62  #: an amount that Kubernetes can still count
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
    tags: dict[str, Any] | list[Any] | None = None  #: an empty map comes as a list from some servers
    spot_instance: bool | None = None
    plan: PlanOf | None = None
    ip_addresses: list[Address] | None = None
    termination_date: str | None = None

    def tag(self, name: str) -> str:
        found = self.tags.get(name) if isinstance(self.tags, dict) else None
        return found if isinstance(found, str) else ""


class Cpus(msgspec.Struct):
    cores: int | None = None


class Memory(msgspec.Struct):
    total: float | None = None
    unit: str | None = None


class Specs(msgspec.Struct):
    cpus: Cpus | None = None
    memory: Memory | None = None


class Price(msgspec.Struct):
    unit: str | None = None
    price: float | None = None


class Plan(msgspec.Struct):
    slug: str | None = None
    specs: Specs | None = None
    pricing: list[Price] | None = None

    @property
    def cores(self) -> int:
        """0 where the plan does not tell, or nothing that can be."""
        cores = (self.specs and self.specs.cpus and self.specs.cpus.cores) or 0
        return cores if 0 < cores < _MOST else 0

    @property
    def memory(self) -> int:
        """In bytes, and 0 as with cores; a unit that is not known counts as bytes."""
        memory = self.specs.memory if self.specs else None
        amount = (memory.total or 0) * _UNITS.get((memory.unit or "").upper(), 1) if memory else 0
        return int(amount) if 0 < amount < _MOST else 0

    def hourly(self, *, spot: bool) -> float | None:
        unit = "spot hourly" if spot else "hourly"
        found = [one.price for one in self.pricing or () if (one.unit or "").lower() == unit]
        return found[0] if found else None


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
    """Errors of the old form and of the new one."""

    errors: list[str] | None = None
    error: str | None = None
    message: str | None = None


def machine(server: Server, group: str) -> Machine:
    failed = server.status == "failed deployment"
    return Machine(
        key=str(server.id),
        id=f"{SCHEME}{server.id}",
        group=group,
        state=_state(server),
        gone=(server.state or "") in _ENDED,
        names=frozenset(name.lower() for name in (server.hostname,) if name),
        addresses=frozenset(
            one.address for one in server.ip_addresses or () if one.address and one.type == "private-ip"
        ),
        error=InstanceError("FAILED_DEPLOYMENT", "the deployment of the server failed") if failed else None,
        spot=server.spot_instance,
        terminates_at=notice(server.termination_date),
    )


def notice(text: str | None) -> dt.datetime | None:
    """The moment of a spot server's announced end; the API writes "None" where there is none."""
    try:
        moment = dt.datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or dt.UTC)


def words(body: bytes) -> str:
    """An error's text. Whatever looks encoded is left out: it might be our user data, which holds a secret."""
    try:
        found = shapes.decode(body, Errors)
        text = "; ".join(part for part in (*(found.errors or ()), found.error, found.message) if part)
    except UNREADABLE:
        text = body.decode("utf-8", "replace")
    return _ENCODED.sub("***", text)


def user_data(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")


def _state(server: Server) -> InstanceState:
    state = _STATES.get(server.state or "", InstanceState.UNKNOWN)
    deploying = server.status in {"deploying", "failed deployment"}
    return InstanceState.CREATING if deploying and state is InstanceState.RUNNING else state
