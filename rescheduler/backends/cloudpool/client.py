"""A complete client of the cloudpool REST API, version 5, and of the multipool's variant of it."""

import datetime as dt
import email.utils
import http
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from rescheduler import shapes
from rescheduler.backends.cloudpool.config import PoolSection
from rescheduler.backends.cloudpool.matching import Machines
from rescheduler.backends.cloudpool.messages import (
    ErrorMessage,
    Machine,
    MachinePool,
    Membership,
    PoolSize,
    PoolStatus,
    ServiceState,
    moment,
)
from rescheduler.backends.http import UNREADABLE, Answer, JsonClient, ServerFault
from rescheduler.clock import Clock

#: How far two clocks are taken to be apart where the pool does not tell its own.
_UNKNOWN_SKEW = dt.timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Observation:
    """The machines as the pool saw them, at `observed_at` of our clock or later."""

    machines: Sequence[Machine]
    observed_at: dt.datetime
    index: Machines

    @property
    def active(self) -> int:
        """How many machines count for the pool's size."""
        return sum(machine.active for machine in self.machines)


class CloudPoolClient:
    """One pool. Every call has a deadline on the clock's `monotonic`; errors are those of `backends.http`."""

    def __init__(self, config: PoolSection, folder: Path, clock: Clock, password: str | None = None) -> None:
        """*password* is that of the backend's user, where it is in no file."""
        self._clock = clock
        self._cache_age = dt.timedelta(seconds=config.cache_age)
        self._machine = "/pool" if config.api == "v5" else ""
        name = f"cloudpool {config.id}"
        self._http = JsonClient(name, config.backend, folder, clock, error_words, password=password)
        # Orders wait for the cloud's own API, which takes minutes in some clouds.
        orders = msgspec.structs.replace(config.backend, timeout=config.order_timeout)
        self._orders = JsonClient(name, orders, folder, clock, error_words, password=password)

    def close(self) -> None:
        self._http.close()
        self._orders.close()

    def pool(self, *, deadline: float) -> Observation:
        asked_at = self._clock.now()
        pool, answer = self._http.get("/pool", MachinePool, deadline=deadline)
        observed_at = _observed_at(pool, answer, asked_at, self._cache_age)
        return Observation(pool.machines, observed_at, Machines(pool.machines))

    def size(self, *, deadline: float) -> PoolSize:
        return self._http.get("/pool/size", PoolSize, deadline=deadline)[0]

    def set_size(self, desired: int, *, deadline: float) -> None:
        """The pool stores the number and acts on it later; below the active machines it picks victims itself."""
        self._post("/pool/size", {"desiredSize": desired}, deadline=deadline)

    def terminate(self, machine: str, *, decrement: bool, deadline: float) -> None:
        """Sent once: neither an error nor a missing answer proves that the machine still runs."""
        body = {"machineId": machine, "decrementDesiredSize": decrement}
        self._orders.send("POST", f"{self._machine}/terminate", body, deadline=deadline)

    def detach(self, machine: str, *, decrement: bool, deadline: float) -> None:
        """The machine leaves the pool and runs on; sent once."""
        body = {"machineId": machine, "decrementDesiredSize": decrement}
        self._orders.send("POST", f"{self._machine}/detach", body, deadline=deadline)

    def attach(self, machine: str, *, deadline: float) -> None:
        """A running machine joins the pool and its desired size grows by one; sent once."""
        self._orders.send("POST", f"{self._machine}/attach", {"machineId": machine}, deadline=deadline)

    def set_service_state(self, machine: str, state: ServiceState, *, deadline: float) -> None:
        body = {"machineId": machine, "serviceState": state.value}
        self._post(f"{self._machine}/serviceState", body, deadline=deadline)

    def set_membership(self, machine: str, status: Membership, *, deadline: float) -> None:
        """An inactive and evictable machine is disposable: the pool terminates it at its next resize."""
        membership = {"active": status.active, "evictable": status.evictable}
        body = {"machineId": machine, "membershipStatus": membership}
        self._post(f"{self._machine}/membershipStatus", body, deadline=deadline)

    def config(self, *, deadline: float) -> dict[str, Any]:
        """The configuration document, whose form is the pool's own; Missing where none is set."""
        return self._http.get("/config", dict[str, Any], deadline=deadline)[0]

    def set_config(self, document: dict[str, Any], *, deadline: float) -> None:
        self._post("/config", document, deadline=deadline)

    def start(self, *, deadline: float) -> None:
        self._post("/start", None, deadline=deadline)

    def stop(self, *, deadline: float) -> None:
        self._post("/stop", None, deadline=deadline)

    def status(self, *, deadline: float) -> PoolStatus:
        return self._http.get("/status", PoolStatus, deadline=deadline)[0]

    def _post(self, path: str, body: object, *, deadline: float) -> None:
        """POSTs that set a state: twice is as good as once."""
        self._http.send("POST", path, body, deadline=deadline, repeatable=True)


def error_words(body: bytes) -> str:
    """An error's message and the first line of its detail (the rest is a stack trace), or the bare text."""
    try:
        error = shapes.decode(body, ErrorMessage)
    except UNREADABLE:
        return body.decode("utf-8", "replace")
    first_line = (error.detail or "").strip().partition("\n")[0]
    return f"{error.message}: {first_line}" if first_line and first_line != error.message else error.message


def from_pool(fault: ServerFault) -> bool:
    """Whether the pool itself reports the failure, and so is done with the request; a gateway may be before it."""
    try:
        shapes.decode(fault.answer.body, ErrorMessage)
    except UNREADABLE:
        return False
    return fault.answer.status != http.HTTPStatus.GATEWAY_TIMEOUT


def _observed_at(pool: MachinePool, answer: Answer, asked_at: dt.datetime, cache_age: dt.timedelta) -> dt.datetime:
    """A lower bound, on our clock, for when the pool looked at its machines.

    The answer's Date header, cut to whole seconds, tells how far the pool's clock is from ours.
    """
    timestamp = moment(pool.timestamp)
    if timestamp is None:
        return asked_at - cache_age
    try:
        theirs = email.utils.parsedate_to_datetime(answer.headers.get("date", ""))
    except ValueError:
        return min(timestamp - _UNKNOWN_SKEW, asked_at)
    ahead = theirs.replace(tzinfo=theirs.tzinfo or dt.UTC) + dt.timedelta(seconds=1) - asked_at
    return min(timestamp - ahead, asked_at)
