"""A cloudpool as a group: its observed machines, its size, and when the termination of a machine may be ordered."""

import datetime as dt
import enum
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from rescheduler.clock import Clock
from rescheduler.cloudpool import matching
from rescheduler.cloudpool.client import CloudPoolClient, PoolObservation, PoolSection
from rescheduler.cloudpool.matching import Machine, MachineState
from rescheduler.durations import Backoff
from rescheduler.errors import BackendUnavailable, DeadlineExceeded
from rescheduler.providers.base import (
    AboveMaximum,
    Accepted,
    AlreadyGone,
    BelowMinimum,
    Deleted,
    DeleteOutcome,
    Failed,
    Instance,
    InstanceError,
    InstanceState,
    NodeGroup,
    NodeTaint,
    NodeTemplate,
    NotSupported,
    Refusal,
    Refused,
)
from rescheduler.providers.deleting import Ledger, PolledSystem
from rescheduler.providers.order_life import OrderResult, OrderTimeouts

# Decide when to order a machine's termination, when to wait, and when the termination is confirmed. No I/O, no clock.
#
# The pool responds from a cache, and its responses do not prove what happened to the machine: a termination may succeed
# although the response is an error or was lost. So an order is given only while no other can take effect, and the
# desired size is lowered once per machine.

NO_MACHINE = "the pool has no machine for this node"


class Ending(enum.StrEnum):
    """How a machine is removed. The values are suffixes of group IDs, and so part of the intents on Nodes."""

    SHRINK = ""  #: terminated, and the desired size is lowered by one
    REPLACE = "+replace"  #: terminated, and the pool launches a replacement
    #: Made disposable even if protected: the pool terminates it at its next resize, and replaces it if it was active.
    DISPOSE = "+dispose"

    @property
    def takes_protected(self) -> bool:
        return self is Ending.DISPOSE


@dataclass(frozen=True, slots=True)
class TerminationOrder:
    """The last order for a machine. An order of an earlier process has `result` NONE and the intent's time."""

    at: dt.datetime  #: when it ended, or when it began while pending
    result: OrderResult
    error_text: str = ""  #: the error
    attempts: int = 1  #: including this one
    desired: int | None = None  #: the pool's desired size before the first order
    lowering: bool = False  #: an order requested a lower desired size
    lowered: bool = False  #: the desired size was lower after such an order
    ours: bool = True  #: given by this process

    @property
    def decrement_lost(self) -> bool:
        """Whether the pool probably terminated the machine without lowering its desired size."""
        return self.ours and self.lowering and not self.lowered


@dataclass(frozen=True, slots=True)
class Send:
    """Send the order, for the first time or again."""


@dataclass(frozen=True, slots=True)
class KeepWaiting:
    """Wait, and read the pool again later."""


OrderVerdict: TypeAlias = Send | KeepWaiting | DeleteOutcome


def judge(
    machine: Machine | None,
    order: TerminationOrder | None,
    *,
    observed_at: dt.datetime,
    not_before: dt.datetime,
    now: dt.datetime,
    limits: OrderTimeouts,
    ending: Ending = Ending.SHRINK,
) -> OrderVerdict:
    """Decide what to do about a machine of the pool as observed at *observed_at* or later.

    *machine* is `None` if the pool does not list it. For a machine without an order, an observation older than
    *not_before* is not sufficient: an earlier process may have ordered its termination.
    """
    if machine is None or machine.gone:
        return _gone_outcome(machine, order)
    if order is None:
        verdict: OrderVerdict = KeepWaiting() if observed_at < not_before else Send()
    elif order.result is not OrderResult.UNSENT and observed_at < order.at:
        verdict = KeepWaiting()
    else:
        verdict = _decide_repeat(machine, order, now, limits)
    return (protection(machine, ending) or verdict) if isinstance(verdict, Send) else verdict


def give_up(machine: Machine | None, order: TerminationOrder | None, *, observed_at: dt.datetime) -> DeleteOutcome:
    """Return the outcome for a machine whose termination was not confirmed in time."""
    if order is None:
        return Accepted("an earlier process may have ordered it; the pool's responses predate this process")
    known = machine is not None and observed_at >= order.at
    unheard = order.result is OrderResult.UNSENT and order.ours
    doomed = machine is not None and machine.disposable
    if (unheard or (order.result is OrderResult.FAULT and known)) and not doomed:
        return Failed(order.error_text, retryable=True)
    state = f"the pool lists it as {machine.machine_state}" if machine else "the pool still listed it"
    return Accepted(f"{_RESULT_TEXTS[order.result]}; {state}{': ' if order.error_text else ''}{order.error_text}")


def lowers(machine: Machine, order: TerminationOrder | None, desired: int) -> bool:
    """Return whether the next order should lower the desired size, which is now *desired*.

    An inactive machine does not count towards the size. If the size has fallen since the first order, that order may
    have lowered it. Then it is not lowered again: a surplus machine costs money, but a missing one terminates a node
    with its pods.
    """
    if not machine.active:
        return False
    if order is None:
        return True
    fell = order.desired is not None and desired < order.desired and order.result is not OrderResult.UNSENT
    return not (order.lowered or fell)


def unshrunk(order: TerminationOrder | None, desired: int) -> str:
    """Return why the desired size, now *desired*, was not lowered for a terminated machine; "" if it was.

    The pool lowers it after the cloud has terminated the machine. If that fails, or another client sets a size in
    between, the size stays and the pool launches a replacement.
    """
    if order is None or not order.decrement_lost:
        return ""
    unknown = order.result in {OrderResult.NONE, OrderResult.MISSING}  # the size was not read right after such an order
    if unknown and order.desired is not None and desired < order.desired:
        return ""
    reason = f": {order.error_text}" if order.error_text else ""
    return f"{_RESULT_TEXTS[order.result]}{reason}; its desired size is still {desired}, so it launches a replacement"


def protection(machine: Machine, ending: Ending) -> Refused | None:
    """Return why an existing machine must not be terminated; `None` if it may be."""
    if not machine.allocated:
        return Refused(Refusal.PROTECTED, f"its state {machine.machine_state!r} is not known")
    if not machine.membership.evictable and not ending.takes_protected:
        return Refused(Refusal.PROTECTED, "its membership status is not evictable")
    return None


_RESULT_TEXTS = {
    OrderResult.PENDING: "the order has no response yet",
    OrderResult.DONE: "the pool accepted the order",
    OrderResult.MISSING: "the machine is no longer a member of the pool",
    OrderResult.FAULT: "the pool reported a failure",
    OrderResult.NONE: "the order got no response",
    OrderResult.UNSENT: "the order was not sent",
}


def _gone_outcome(machine: Machine | None, order: TerminationOrder | None) -> DeleteOutcome:
    how = "no longer in the pool" if machine is None else machine.machine_state
    if order is None and machine is None:
        return Refused(Refusal.NOT_IN_GROUP, NO_MACHINE)
    if order is None or not order.ours or order.result in {OrderResult.MISSING, OrderResult.UNSENT}:
        return AlreadyGone(how)
    return Deleted(how)


def _decide_repeat(machine: Machine, order: TerminationOrder, now: dt.datetime, limits: OrderTimeouts) -> OrderVerdict:
    """Return the verdict on a machine that exists after an order: repeat the order once it can have no more effect."""
    if order.result is OrderResult.MISSING:
        return _decide_unlisted(machine)
    waiting = order.result is OrderResult.PENDING or now < order.at + limits.pause(order.result, order.attempts)
    return KeepWaiting() if waiting else Send()


def _decide_unlisted(machine: Machine) -> Failed:
    return Failed(
        f"the pool returns 404 for its termination but lists it as {machine.machine_state}: "
        "check the URL and the API (v5 or multipool)",
        retryable=True,
    )


# A cloudpool as a group: its observed machines and its size.

_STATES = {
    MachineState.REQUESTED: InstanceState.CREATING,
    MachineState.PENDING: InstanceState.CREATING,
    MachineState.REJECTED: InstanceState.CREATING,
    MachineState.RUNNING: InstanceState.RUNNING,
    MachineState.TERMINATING: InstanceState.DELETING,
}
_SPOT = {"AWS-SPOT": True, "AWS-EC2": False, "AWS_EC2": False}


@dataclass(frozen=True, slots=True)
class _Lacking:
    """A period during which the pool has fewer active machines than its desired size. Times are monotonic seconds."""

    size: int
    since: float
    last: float  #: when that was last observed


class CloudPool(PolledSystem):
    """A cloudpool with a cached view. Views are immutable: another thread may replace the view while one is in use."""

    def __init__(self, config: PoolSection, folder: Path, clock: Clock, password: str | None = None) -> None:
        """Create the group. *password*: see `CloudPoolClient`."""
        super().__init__(f"cloudpool {config.id}", clock, config.poll_interval, config.settle_time)
        self.config = config
        poll = dt.timedelta(seconds=config.poll_interval)
        self._pauses = Backoff(poll / 8, poll, factor=1.5)  # while waiting for a newer response
        self.group = NodeGroup(config.id, config.min_size, config.max_size, f"cloudpool {config.backend.url}")
        self.client = CloudPoolClient(config, folder, clock, password)
        self.ledger: Ledger[TerminationOrder] = Ledger()
        self._view: tuple[float, PoolObservation] | None = None
        self._lacking: _Lacking | None = None

    def close(self) -> None:
        self.closed.set()
        self.client.close()

    def in_doubt(self) -> bool:
        """Return whether a listed machine has an order without a response that may still lower the desired size."""
        return self._view is not None and self.unsettled(self._view[1]) > 0

    def unsettled(self, view: PoolObservation, without: str = "") -> int:
        """Count the orders, except for machine *without*, that may still lower the desired size."""
        settled = self.clock.now() - dt.timedelta(seconds=self.config.settle_time)
        open_ = {
            machine
            for machine, order in self.ledger.orders().items()
            if order.result is OrderResult.PENDING or (order.result is OrderResult.NONE and order.at > settled)
        }
        return sum(machine.active and machine.id in open_ and machine.id != without for machine in view.machines)

    def view(self, *, deadline: float) -> PoolObservation:
        """Return the machines as observed no longer than one refresh interval ago."""
        known = self._view
        if known is not None and self.clock.monotonic() - known[0] < self.config.refresh_interval:
            return known[1]
        return self.read(deadline=deadline)

    def read(self, *, deadline: float) -> PoolObservation:
        """Return the machines as the pool reports them now; the pool's own cache may be older."""
        observation = self.client.pool(deadline=deadline)
        self._view = (self.clock.monotonic(), observation)
        if self._lacking is not None and observation.active >= self._lacking.size:
            self._lacking = None
        return observation

    def read_since(
        self, moment: dt.datetime, *, deadline: float, stop: threading.Event | None = None
    ) -> PoolObservation:
        """Return the machines as the pool observed them at *moment* or later.

        Polls often at first: the pool's timestamps are whole seconds, so a response from now may only count a second
        later. Raises DeadlineExceeded if the pool does not list them again, or if *stop* is set before it does.
        """
        looks = 1
        observation = self.read(deadline=deadline)
        while observation.observed_at < moment:
            why = f"the pool's responses are older than {moment.isoformat(timespec='seconds')}"
            self.pause(why, deadline, stop, seconds=self._pauses.seconds_after(looks))
            looks += 1
            try:
                observation = self.read(deadline=deadline)
            except (BackendUnavailable, DeadlineExceeded) as error:
                if self.clock.monotonic() < deadline:
                    raise
                # The last read had too little time left, so its timeout does not mean that the pool is unavailable.
                raise DeadlineExceeded(f"{self._name}: {why}") from error
        return observation

    def caught_up(
        self, began: dt.datetime, *, deadline: float, stop: threading.Event | None = None
    ) -> tuple[PoolObservation, int]:
        """Return the machines, observed at *began* or later, and the desired size once the pool has reached it.

        While machines are missing, the pool may be launching them, and its responses show them only after its next
        listing. If the size were lowered before that, the pool would see a surplus and terminate a machine of its
        choice. So this method waits until machines have been missing for `settleTime`; then it assumes that the pool
        cannot get them, and returns the current machines. Raises DeadlineExceeded if that takes too long, or if *stop*
        is set.
        """
        view = self.read_since(began, deadline=deadline, stop=stop)
        while view.active < (size := self.desired_size(deadline=deadline)):
            now = self.clock.monotonic()
            lacking = self._lacking
            if lacking is None or lacking.size != size or now > lacking.last + self.config.settle_time:
                lacking = _Lacking(size, now, now)
            self._lacking = replace(lacking, last=now)
            if now >= lacking.since + self.config.settle_time:
                break
            self.pause(f"it lists {view.active} of {size} desired machines; it may be launching more", deadline, stop)
            view = self.read(deadline=deadline)
        return view, size

    def desired_size(self, *, deadline: float) -> int:
        return self.client.size(deadline=deadline).desired_size

    def instances(self, *, deadline: float) -> Sequence[Instance]:
        """Return the active machines and those being terminated or rejected; other inactive ones are not scaled."""
        machines = self.view(deadline=deadline).machines
        return [_instance(machine) for machine in machines if machine.active or _passing(machine)]

    def increase(self, delta: int, *, deadline: float) -> None:
        with self.changing(deadline=deadline):
            wanted = self.desired_size(deadline=deadline) + delta
            if wanted > self.group.max_size:
                raise AboveMaximum(f"cloudpool {self.group.id}: {wanted} is above {self.group.max_size}")
            self.client.set_size(wanted, deadline=deadline)

    def decrease_unfulfilled(self, delta: int, *, deadline: float) -> None:
        """Cancel *delta* machines that are not running: first machines that were never requested, then requested ones.

        If there are fewer, all of them are canceled and BelowMinimum is raised.
        Requests are canceled one by one: given only a number, the pool would choose, and might choose a machine that
        has started in the meantime, or terminate a machine instead of a request that it does not list yet.
        """
        began = self.clock.now()
        with self.changing(deadline=deadline):
            view, desired = self.caught_up(began, deadline=deadline)
            active = [machine for machine in view.machines if machine.active]
            wanted = desired - delta
            requested = [machine for machine in active if machine.machine_state == MachineState.REQUESTED]
            floor = max(self.group.min_size, len(active) - len(requested))
            short = f"{wanted} is less than the {floor} machines that are running or required" if wanted < floor else ""
            wanted = min(desired, max(wanted, floor))
            for machine in requested[: max(0, len(active) - wanted)]:
                self.client.terminate(machine.id, decrement=True, deadline=deadline)
            left = self.desired_size(deadline=deadline)
            if left > wanted and len(active) >= desired:
                raise BackendUnavailable(f"cloudpool {self.group.id}: size still {left} after requests were canceled")
            if left > wanted:
                self.client.set_size(wanted, deadline=deadline)
            if short:
                given_up = f"{desired - wanted} of {delta} were canceled"
                raise BelowMinimum(f"cloudpool {self.group.id}: {short}; {given_up}")

    def template(self) -> NodeTemplate:
        template = self.config.template
        if template is None:
            raise NotSupported(f"cloudpool {self.group.id}: no template is configured")
        taints = tuple(NodeTaint(taint.key, taint.value, taint.effect) for taint in template.taints)
        allocatable = template.capacity if template.allocatable is None else template.allocatable
        return NodeTemplate(template.labels, taints, template.capacity, allocatable)


def _passing(machine: Machine) -> bool:
    return machine.machine_state in {MachineState.TERMINATING, MachineState.REJECTED}


def _instance(machine: Machine) -> Instance:
    rejected = machine.machine_state == MachineState.REJECTED
    return Instance(
        id=matching.provider_id(machine),
        state=_STATES[MachineState(machine.machine_state)],
        error=InstanceError("REJECTED", "the cloud refused the request") if rejected else None,
        spot=_SPOT.get(str(machine.cloud_provider)),
    )
