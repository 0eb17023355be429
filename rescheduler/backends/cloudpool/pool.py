"""One cloudpool as one group: what it was seen to hold, and its size."""

import datetime as dt
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rescheduler.backends.base import (
    AboveMaximum,
    BackendUnavailable,
    BelowMinimum,
    DeadlineExceeded,
    Instance,
    InstanceError,
    InstanceState,
    NodeGroup,
    NodeTemplate,
    NotSupported,
    Taint,
)
from rescheduler.backends.cloudpool import identity
from rescheduler.backends.cloudpool.client import CloudPoolClient, Observation
from rescheduler.backends.cloudpool.config import PoolSection
from rescheduler.backends.cloudpool.deletion import Order
from rescheduler.backends.cloudpool.messages import Machine, MachineState
from rescheduler.backends.ledger import Ledger
from rescheduler.backends.waiting import Waiting
from rescheduler.clock import Clock

_STATES = {
    MachineState.REQUESTED: InstanceState.CREATING,
    MachineState.PENDING: InstanceState.CREATING,
    MachineState.REJECTED: InstanceState.CREATING,
    MachineState.RUNNING: InstanceState.RUNNING,
    MachineState.TERMINATING: InstanceState.DELETING,
}
#: Of a poll interval, how long is waited for a younger answer; and by how much longer each time.
_FIRST_PAUSE: Final = 0.125
_GROWTH: Final = 1.5
_SPOT = {"AWS-SPOT": True, "AWS-EC2": False, "AWS_EC2": False}


@dataclass(frozen=True, slots=True)
class _Lacking:
    """The pool was seen to have fewer active machines than it wants; times are of the clock's monotonic()."""

    size: int
    since: float
    last: float  #: when that was seen last


class Pool(Waiting):
    """Views are values: readers keep what they were given while another thread looks again."""

    def __init__(self, config: PoolSection, folder: Path, clock: Clock, password: str | None = None) -> None:
        """*password*: see `CloudPoolClient`."""
        super().__init__(f"cloudpool {config.id}", clock, config.poll_interval)
        self.config = config
        self.group = NodeGroup(config.id, config.min_size, config.max_size, f"cloudpool {config.backend.url}")
        self.client = CloudPoolClient(config, folder, clock, password)
        self.ledger: Ledger[Order] = Ledger()
        self._view: tuple[float, Observation] | None = None
        self._lacking: _Lacking | None = None

    def close(self) -> None:
        self.closed.set()
        self.client.close()

    def view(self, *, deadline: float) -> Observation:
        """The machines, seen at most a refresh interval ago."""
        known = self._view
        if known is not None and self.clock.monotonic() - known[0] < self.config.refresh_interval:
            return known[1]
        return self.look(deadline=deadline)

    def look(self, *, deadline: float) -> Observation:
        """The machines as the pool tells them now; its own cache may be older."""
        observation = self.client.pool(deadline=deadline)
        self._view = (self.clock.monotonic(), observation)
        if self._lacking is not None and observation.active >= self._lacking.size:
            self._lacking = None
        return observation

    def look_since(self, moment: dt.datetime, *, deadline: float, stop: threading.Event | None = None) -> Observation:
        """The machines as the pool saw them at *moment* or later.

        DeadlineExceeded if it does not look again, or if *stop* is set before it does. It is asked often at first: its
        answers tell their time to the second, so that one from now may count in a second only.
        """
        pause = self.config.poll_interval * _FIRST_PAUSE
        observation = self.look(deadline=deadline)
        while observation.observed_at < moment:
            why = f"the pool's answers are older than {moment.isoformat(timespec='seconds')}"
            self.pause(why, deadline, stop, seconds=pause)
            pause = min(pause * _GROWTH, self.config.poll_interval)
            try:
                observation = self.look(deadline=deadline)
            except (BackendUnavailable, DeadlineExceeded) as error:
                if self.clock.monotonic() < deadline:
                    raise
                # The last look had what was left of the time: that it got no answer says nothing of the pool.
                raise DeadlineExceeded(f"{self._name}: {why}") from error
        return observation

    def caught_up(
        self, began: dt.datetime, *, deadline: float, stop: threading.Event | None = None
    ) -> tuple[Observation, int]:
        """The machines, as the pool saw them at *began* or later, and its desired size, once it has as many.

        While it lacks machines it may be launching them, and its answers show them only after its next look. Told a
        smaller number before, it would find a machine too many and end one of its own choice. So its further looks
        are waited for, until it has lacked machines for `settleTime`; then it cannot get them, and what it has is
        returned. DeadlineExceeded if that takes too long, or if *stop* is set.
        """
        view = self.look_since(began, deadline=deadline, stop=stop)
        while view.active < (size := self.desired_size(deadline=deadline)):
            now = self.clock.monotonic()
            lacking = self._lacking
            if lacking is None or lacking.size != size or now > lacking.last + self.config.settle_time:
                lacking = _Lacking(size, now, now)
            self._lacking = replace(lacking, last=now)
            if now >= lacking.since + self.config.settle_time:
                break
            self.pause(f"it wants {size} machines and shows {view.active}; it may be launching others", deadline, stop)
            view = self.look(deadline=deadline)
        return view, size

    def desired_size(self, *, deadline: float) -> int:
        return self.client.size(deadline=deadline).desired_size

    def instances(self, *, deadline: float) -> Sequence[Instance]:
        """The members that count, and those that go; an inactive machine is extra and nobody's to scale."""
        machines = self.view(deadline=deadline).machines
        return [_instance(machine) for machine in machines if machine.active or _passing(machine)]

    def increase(self, delta: int, *, deadline: float) -> None:
        with self.changing(deadline=deadline):
            wanted = self.desired_size(deadline=deadline) + delta
            if wanted > self.group.max_size:
                raise AboveMaximum(f"cloudpool {self.group.id}: {wanted} is above {self.group.max_size}")
            self.client.set_size(wanted, deadline=deadline)

    def decrease_unfulfilled(self, delta: int, *, deadline: float) -> None:
        """Give up *delta* machines that do not run: what was never requested first, then requests.

        BelowMinimum where there are fewer; those are given up.
        Requests are cancelled one by one: told only a number, the pool would choose, and might choose a machine
        that began to run meanwhile, or end another one in place of a request that its answers do not show yet.
        """
        began = self.clock.now()
        with self.changing(deadline=deadline):
            view, desired = self.caught_up(began, deadline=deadline)
            active = [machine for machine in view.machines if machine.active]
            wanted = desired - delta
            requested = [machine for machine in active if machine.machine_state == MachineState.REQUESTED]
            floor = max(self.group.min_size, len(active) - len(requested))
            short = f"{wanted} is below {floor}, which run or must be" if wanted < floor else ""
            wanted = min(desired, max(wanted, floor))
            for machine in requested[: max(0, len(active) - wanted)]:
                self.client.terminate(machine.id, decrement=True, deadline=deadline)
            left = self.desired_size(deadline=deadline)
            if left > wanted and len(active) >= desired:
                raise BackendUnavailable(f"cloudpool {self.group.id}: requests were cancelled, it wants {left} still")
            if left > wanted:
                self.client.set_size(wanted, deadline=deadline)
            if short:
                given_up = f"{desired - wanted} of {delta} are given up"
                raise BelowMinimum(f"cloudpool {self.group.id}: {short}; {given_up}")

    def template(self) -> NodeTemplate:
        template = self.config.template
        if template is None:
            raise NotSupported(f"cloudpool {self.group.id}: no template is configured")
        taints = tuple(Taint(taint.key, taint.value, taint.effect) for taint in template.taints)
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
