"""What earlier rounds, earlier processes and earlier leaders learned, as the loop asks for it and adds to it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from predicates.objects import Pod
from rescheduler.clock import Clock
from rescheduler.observe.events import Held, Report, Waiting
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.cooldowns import Cooldown
from rescheduler.planning.debts import Debt
from rescheduler.planning.memory import Memory, OpenDebt, owing
from rescheduler.planning.outcome import Blocker
from rescheduler.planning.waits import Doubling, Pause, Waits
from rescheduler.settings import Timing
from rescheduler.synced_memory import Store, SyncedMemory


def waits(timing: Timing) -> Waits:
    """The waits that the flags ask for."""
    return Waits(
        cooldown=Doubling(timing.node_cooldown, timing.node_cooldown_max),
        pause=Doubling(timing.failure_pause, timing.failure_pause_max),
        returned=Doubling(timing.return_wait, timing.return_wait_max),
        moves_per_pod=timing.max_moves_per_pod_per_day,
    )


class Recollection:
    """For the loop's thread. What is noted is stored by the next :meth:`save`."""

    def __init__(
        self,
        store: Store,
        timing: Timing,
        clock: Clock,
        report: Report,
        leading: Callable[[], bool],
        *,
        dry_run: bool = False,
    ) -> None:
        """As :class:`~rescheduler.synced_memory.SyncedMemory`."""
        self._delay = timing.node_drain_delay
        self._waits = waits(timing)
        self._clock = clock
        self._dry_run = dry_run
        self._synced = SyncedMemory(store, self._waits, clock, report, leading, dry_run=dry_run)

    def refresh(self) -> None:
        """Read what is stored, at the start of a round; see :meth:`SyncedMemory.refresh`."""
        self._synced.refresh()

    def save(self) -> bool:
        """Store what was noted; whether all of it is stored. See :meth:`SyncedMemory.save`."""
        return self._synced.save()

    def forget(self) -> None:
        """Another replica leads."""
        self._synced.forget()

    # What is known

    @property
    def memory(self) -> Memory:
        return self._synced.memory

    def held(self) -> Held | None:
        """Why nothing may be drained now, by what is known of earlier drains."""
        now = self._clock.now()
        if self._synced.trouble and not self._dry_run:
            return Held(Waiting.MEMORY_UNREADABLE, f"the memory cannot be read or stored: {self._synced.trouble}")
        drained_at = self.memory.drained_at
        if drained_at is not None and (left := drained_at + self._delay - now) > timedelta():
            return Held(Waiting.DRAIN_DELAY, f"the drain delay runs for {left.total_seconds():.0f} s more")
        if (until := self.memory.failure.active(now)) is not None:
            detail = "replacement pods of the last drains did not run in time; drains wait until"
            return Held(Waiting.FAILURE_PAUSE, f"{detail} {until:%Y-%m-%dT%H:%M:%SZ}")
        if (until := self.memory.returned.active(now)) is not None:
            detail = "moved pods came back to on-demand nodes; drains wait until"
            advice = "--manage-soft-taint would keep them away"
            return Held(Waiting.RETURNED_PODS, f"{detail} {until:%Y-%m-%dT%H:%M:%SZ}; {advice}")
        return None

    def cooling(self) -> Mapping[str, Cooldown]:
        """The nodes that are left alone now."""
        return self.memory.cooldowns.active(self._clock.now())

    def vetoes(self, node: str, pods: Mapping[ControllerState, Sequence[Pod]]) -> tuple[Blocker, ...]:
        """What forbids that *node* is drained now; returns that are seen on it are noted.

        *pods* are all pods, on any node, of the controllers that have pods on *node* which would move.
        """
        movements, blockers = self.memory.movements.judge(node, pods, self._clock.now(), self._waits)
        self._note(movements=movements)
        return blockers

    # What happened

    def drained(self) -> None:
        """A drain has ended that starts the drain delay."""
        self._note(drained_at=self._clock.now())

    def node_failed(self, node: str, uid: str, reason: str = "", detail: str = "") -> Cooldown:
        """The drain of *node* failed; with a *reason*, the node is shown with it in place of ``cooling-down``."""
        cooldowns = self.memory.cooldowns
        cooldowns = cooldowns.failed(node, uid, self._clock.now(), self._waits.cooldown, reason, detail)
        self._note(cooldowns=cooldowns)
        return cooldowns.by_node[node]

    def node_succeeded(self, node: str) -> None:
        self._note(cooldowns=self.memory.cooldowns.succeeded(node))

    def keep_nodes(self, uids: Mapping[str, str]) -> None:
        """Forget the cooldowns of all nodes but *uids* (UID by name)."""
        self._note(cooldowns=self.memory.cooldowns.kept(uids))

    def landing_failed(self) -> datetime:
        """Replacement pods did not run in time; until when drains wait."""
        return self._lengthen("failure")

    def landing_succeeded(self) -> None:
        self._note(failure=Pause())

    def pods_returned(self) -> datetime:
        """The pods of a drain mostly came back to on-demand nodes; until when drains wait."""
        return self._lengthen("returned")

    def pods_stayed(self) -> None:
        self._note(returned=Pause())

    @property
    def debts(self) -> tuple[OpenDebt, ...]:
        return self.memory.debts

    def owe(self, node: str, debts: Iterable[Debt]) -> None:
        """The drain of *node* owes exactly *debts* now; none: all is paid."""
        self._note(debts=owing(self.memory.debts, node, debts, self._clock.now()))

    def waive(self, controllers: Collection[str]) -> None:
        self._note(debts=self.memory.waived(controllers).debts)

    def moved(self, controller: Controller, pods: int, at: datetime) -> None:
        """*pods* pods of *controller* were evicted by a drain that began to evict *at* this time."""
        self._note(movements=self.memory.movements.moved(controller, pods, at))

    def _lengthen(self, name: str) -> datetime:
        pause: Pause = getattr(self.memory, name)
        now = self._clock.now()
        longer = pause.lengthened(now, self._waits.pause)
        self._note(**{name: longer})
        return longer.until or now

    def _note(self, **changes: Any) -> None:
        self._synced.memory = msgspec.structs.replace(self._synced.memory, **changes)
