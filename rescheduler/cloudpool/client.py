"""A complete client of the cloudpool REST API, version 5, and of the multipool's variant, with its configuration."""

import datetime as dt
import email.utils
import http
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from predicates import quantity
from rescheduler import decoding
from rescheduler.clock import Clock
from rescheduler.cloudpool.matching import (
    ErrorMessage,
    Machine,
    MachineIndex,
    MachinePool,
    Membership,
    PoolSize,
    moment,
)
from rescheduler.errors import ConfigError
from rescheduler.net.config_files import INT32, Duration, Endpoint, Section, check_endpoint, read
from rescheduler.net.http import JsonClient
from rescheduler.net.http_errors import UNREADABLE, HttpResponse, ServerFault

# The ``--cloud-config`` file for cloudpools.


class TaintSection(Section, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class TemplateSection(Section, frozen=True, kw_only=True):
    """The expected Node of a new machine, which the API does not provide. Amounts are Kubernetes quantities."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    taints: list[TaintSection] = msgspec.field(default_factory=list)
    capacity: dict[str, str]
    allocatable: dict[str, str] | None = None  #: default: the capacity


class PoolSection(Section, frozen=True, kw_only=True):
    """A cloudpool, which is a group."""

    id: str
    backend: Endpoint
    api: Literal["v5", "multipool"] = "v5"  #: a multipool serves machines next to `pool`, not below it
    min_size: int = 0  #: machines are not removed below it
    max_size: int = 1000
    refresh_interval: Duration = Duration(10)  #: how long an observation is cached
    cache_age: Duration = Duration(30)  #: the maximum age of responses without a timestamp
    poll_interval: Duration = Duration(2)  #: between two polls while a machine is being terminated
    order_timeout: Duration = Duration(300)  #: for the response to a termination; some clouds take minutes
    settle_time: Duration = Duration(300)  #: how long a termination without a response may still take effect
    template: TemplateSection | None = None


class CloudpoolFile(Section, frozen=True, kw_only=True):
    pools: list[PoolSection]


def read_pools(path: Path) -> list[PoolSection]:
    """Return the validated pools of the file. Raises ConfigError that names the file, the pool and the key."""
    pools = read(path, CloudpoolFile).pools
    where = f"cloud configuration {path}"
    if not pools:
        raise ConfigError(f"{where}: pools: expected at least one")
    for index, pool in enumerate(pools):
        check_pool(pool, where, f"pools[{index}]")
        if pool.id in {other.id for other in pools[:index]}:
            raise ConfigError(f"{where}: pools[{index}].id: {pool.id!r} occurs twice")
    return pools


def check_pool(pool: PoolSection, where: str, key: str) -> None:
    """Check the rules about a pool that types cannot express."""
    rules = {
        "id": (bool(pool.id.strip()), "a name"),
        "minSize": (pool.min_size >= 0, "0 or more"),
        "maxSize": (pool.min_size <= pool.max_size <= INT32, f"minSize to {INT32}"),
        "refreshInterval": (pool.refresh_interval >= 0, "0 or more"),
        "pollInterval": (pool.poll_interval > 0, "more than 0s"),
        "settleTime": (pool.settle_time >= 0, "0 or more"),
        "orderTimeout": (pool.order_timeout > 0, "more than 0s"),
    }
    for name, (holds, expected) in rules.items():
        if not holds:
            raise ConfigError(f"{where}: {key}.{name}: expected {expected}")
    check_endpoint(pool.backend, where, f"{key}.backend")
    if pool.template is not None:
        for name in ("capacity", "allocatable"):
            _check_amounts(getattr(pool.template, name) or {}, f"{where}: {key}.template.{name}")


def _check_amounts(amounts: Mapping[str, str], where: str) -> None:
    for resource, amount in amounts.items():
        try:
            quantity.parse(amount)
        except ValueError as error:
            raise ConfigError(
                f"{where}.{resource}: expected a quantity such as 4, 500m or 16Gi, got {amount!r}"
            ) from error


#: The assumed clock difference if the pool does not report its time.
_UNKNOWN_SKEW = dt.timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class PoolObservation:
    """The machines that the pool observed at `observed_at` (on our clock) or later."""

    machines: Sequence[Machine]
    observed_at: dt.datetime
    index: MachineIndex

    @property
    def active(self) -> int:
        """The number of machines that count towards the pool's size."""
        return sum(machine.active for machine in self.machines)


class CloudPoolClient:
    """A client of one pool. Deadlines are on the clock's `monotonic`; errors are those of `net.http_errors`."""

    def __init__(self, config: PoolSection, folder: Path, clock: Clock, password: str | None = None) -> None:
        """Create a client. *password* is the password of the backend's user if it is not in a file."""
        self._clock = clock
        self._cache_age = dt.timedelta(seconds=config.cache_age)
        self._machine = "/pool" if config.api == "v5" else ""
        name = f"cloudpool {config.id}"
        self._http = JsonClient(name, config.backend, folder, clock, error_text, password=password)
        # Orders wait for the cloud's API, which may take minutes.
        orders = msgspec.structs.replace(config.backend, timeout=config.order_timeout)
        self._orders = JsonClient(name, orders, folder, clock, error_text, password=password)

    def close(self) -> None:
        self._http.close()
        self._orders.close()

    def pool(self, *, deadline: float) -> PoolObservation:
        asked_at = self._clock.now()
        pool, response = self._http.get("/pool", MachinePool, deadline=deadline)
        observed_at = _observed_at(pool, response, asked_at, self._cache_age)
        return PoolObservation(pool.machines, observed_at, MachineIndex(pool.machines))

    def size(self, *, deadline: float) -> PoolSize:
        return self._http.get("/pool/size", PoolSize, deadline=deadline)[0]

    def set_size(self, desired: int, *, deadline: float) -> None:
        """Set the desired size. The pool resizes later, and chooses the victims itself if it has too many machines."""
        self._post("/pool/size", {"desiredSize": desired}, deadline=deadline)

    def terminate(self, machine: str, *, decrement: bool, deadline: float) -> None:
        """Terminate a machine with a single request. After an error or a lost response, it may still be terminated."""
        body = {"machineId": machine, "decrementDesiredSize": decrement}
        self._orders.send("POST", f"{self._machine}/terminate", body, deadline=deadline)

    def detach(self, machine: str, *, decrement: bool, deadline: float) -> None:
        """Remove a machine from the pool without terminating it, with a single request."""
        body = {"machineId": machine, "decrementDesiredSize": decrement}
        self._orders.send("POST", f"{self._machine}/detach", body, deadline=deadline)

    def set_membership(self, machine: str, status: Membership, *, deadline: float) -> None:
        """Set the membership status. A disposable machine, inactive and evictable, is terminated at the next resize."""
        membership = {"active": status.active, "evictable": status.evictable}
        body = {"machineId": machine, "membershipStatus": membership}
        self._post(f"{self._machine}/membershipStatus", body, deadline=deadline)

    def _post(self, path: str, body: object, *, deadline: float) -> None:
        """Send a POST that sets a state and is therefore idempotent."""
        self._http.send("POST", path, body, deadline=deadline, repeatable=True)


def error_text(body: bytes) -> str:
    """Return an error's message and the first line of its detail (the rest is a stack trace), or the raw body."""
    try:
        error = decoding.decode(body, ErrorMessage)
    except UNREADABLE:
        return body.decode("utf-8", "replace")
    first_line = (error.detail or "").strip().partition("\n")[0]
    return f"{error.message}: {first_line}" if first_line and first_line != error.message else error.message


def from_pool(fault: ServerFault) -> bool:
    """Return whether the pool itself reported the failure, not a gateway. The pool has then finished the request."""
    try:
        decoding.decode(fault.response.body, ErrorMessage)
    except UNREADABLE:
        return False
    return fault.response.status != http.HTTPStatus.GATEWAY_TIMEOUT


def _observed_at(
    pool: MachinePool, response: HttpResponse, asked_at: dt.datetime, cache_age: dt.timedelta
) -> dt.datetime:
    """Return the earliest time, on our clock, at which the pool may have listed its machines.

    The response's Date header, in whole seconds, gives the difference between the clocks.
    """
    timestamp = moment(pool.timestamp)
    if timestamp is None:
        return asked_at - cache_age
    try:
        pool_time = email.utils.parsedate_to_datetime(response.headers.get("date", ""))
    except ValueError:
        return min(timestamp - _UNKNOWN_SKEW, asked_at)
    ahead = pool_time.replace(tzinfo=pool_time.tzinfo or dt.UTC) + dt.timedelta(seconds=1) - asked_at
    return min(timestamp - ahead, asked_at)
