"""Detect bursts of lost spot nodes. After a burst more losses are likely, so drains wait for a while."""

import enum
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from predicates.objects import Node
from rescheduler.planning.rules.interruptions import signals_on

#: A burst is the loss of at least FEWEST spot nodes, and of at least one in ONE_IN, within WINDOW.
FEWEST: Final = 2
ONE_IN: Final = 10
WINDOW: Final = timedelta(minutes=5)


class SpotState(enum.Enum):
    """The state of a spot node."""

    USABLE = enum.auto()
    WITHDRAWN = enum.auto()  #: removed on purpose by a tool, or cordoned by a person: not counted as lost
    LOST = enum.auto()  #: not Ready, or about to be interrupted


def state_of(node: Node) -> SpotState:
    """Return the state of a spot node.

    A deliberate removal takes precedence over an interruption, because it explains the interruption (for example the
    shutdown of the machine). An interruption takes precedence over a cordon, because termination handlers cordon the
    nodes that they drain.
    """
    signals = signals_on(node)
    if any(signal.deliberate for signal in signals):
        return SpotState.WITHDRAWN
    if signals:
        return SpotState.LOST
    if node.spec.unschedulable or node.metadata.deletion_timestamp is not None:
        return SpotState.WITHDRAWN
    return SpotState.USABLE if node.condition("Ready") in ("True", "") else SpotState.LOST


class SpotWatch:
    """Tracks the spot nodes from one round to the next. Losses before the first call are not known."""

    def __init__(self, settle: timedelta) -> None:
        """Set *settle*, the time that drains wait after a burst; zero disables the wait."""
        self._settle = settle
        self._usable: frozenset[str] = frozenset()  #: UIDs at the last call
        self._lost: dict[str, datetime] = {}  #: when the loss was observed, by UID, within the window
        self._until: datetime | None = None
        self._states: tuple[Iterable[Node], dict[str, SpotState]] = (), {}

    def update(self, nodes: Iterable[Node], now: datetime) -> datetime | None:
        """Record the state of all spot *nodes* at *now*. Return the time until which drains wait, or None.

        A node that was usable at the last call and is lost or gone now counts as lost now. So all losses between two
        calls count together, regardless of the time between them. If *nodes* is the object of the last call, its nodes
        must not have changed.
        """
        if nodes is not self._states[0]:
            self._states = nodes, {node.metadata.uid: state_of(node) for node in nodes}
        states = self._states[1]
        previously_usable = self._usable
        self._usable = frozenset(uid for uid, state in states.items() if state is SpotState.USABLE)
        self._lost = {uid: at for uid, at in self._lost.items() if now - at <= WINDOW}
        newly_lost = {
            uid for uid in previously_usable - self._lost.keys() if states.get(uid, SpotState.LOST) is SpotState.LOST
        }
        self._lost |= dict.fromkeys(newly_lost, now)
        if newly_lost and self._is_burst(len(previously_usable | self._lost.keys())):
            self._until = now + self._settle
        return self._until if self._until is not None and now < self._until else None

    def _is_burst(self, nodes: int) -> bool:
        return len(self._lost) >= FEWEST and ONE_IN * len(self._lost) >= nodes
