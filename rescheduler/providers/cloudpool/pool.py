"""A cloudpool as a group: its observed machines and its size."""

import datetime as dt
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rescheduler.backoff import Backoff
from rescheduler.clock import Clock
from rescheduler.errors import BackendUnavailable, DeadlineExceeded
from rescheduler.providers.base import (
    AboveMaximum,
    BelowMinimum,
    Instance,
    InstanceError,
    InstanceState,
    NodeGroup,
    NodeTaint,
    NodeTemplate,
    NotSupported,
)
from rescheduler.providers.cloudpool import identity
from rescheduler.providers.cloudpool.client import CloudPoolClient, PoolObservation
from rescheduler.providers.cloudpool.config import PoolSection
from rescheduler.providers.cloudpool.deletion import TerminationOrder
from rescheduler.providers.cloudpool.messages import Machine, MachineState
from rescheduler.providers.ledger import Ledger
from rescheduler.providers.waiting import PolledSystem

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
        super().__init__(f"cloudpool {config.id}", clock, config.poll_interval)
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
        id=identity.provider_id(machine),
        state=_STATES[MachineState(machine.machine_state)],
        error=InstanceError("REJECTED", "the cloud refused the request") if rejected else None,
        spot=_SPOT.get(str(machine.cloud_provider)),
    )
