"""Whether so many spot nodes were lost lately that more will follow: for a while spot is not trusted then."""

import enum
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from predicates.objects import Node
from rescheduler.planning.interruptions import signals_on

#: A burst is a loss of at least so many nodes, and of at least one in so many, within so long.
FEWEST: Final = 2
ONE_IN: Final = 10
WINDOW: Final = timedelta(minutes=5)


class SpotState(enum.Enum):
    """How a spot node is."""

    USABLE = enum.auto()
    WITHDRAWN = enum.auto()  #: a tool removes it on purpose, or a person has cordoned it: its end is no loss
    LOST = enum.auto()  #: it is not Ready, or about to be interrupted


def state_of(node: Node) -> SpotState:
    """How the spot node *node* is.

    A deliberate removal explains an interruption, for instance the shutdown of the machine. An interruption explains a
    cordon: handlers cordon what they drain.
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
    """Watches the spot nodes from round to round. What happened before the first look is not known."""

    def __init__(self, settle: timedelta) -> None:
        """*settle*: how long drains wait after a burst; zero: they never do."""
        self._settle = settle
        self._usable: frozenset[str] = frozenset()  #: UIDs at the last look
        self._lost: dict[str, datetime] = {}  #: UID → when its loss was seen, within the window
        self._until: datetime | None = None

    def look(self, nodes: Iterable[Node], now: datetime) -> datetime | None:
        """Take note of all spot *nodes* as they are *now*: until when drains wait, None where they need not.

        A node that was usable at the last look, and is lost or gone now, was lost now. So all losses between two looks
        count together, however far apart these are.
        """
        states = {node.metadata.uid: state_of(node) for node in nodes}
        before = self._usable
        self._usable = frozenset(uid for uid, state in states.items() if state is SpotState.USABLE)
        self._lost = {uid: at for uid, at in self._lost.items() if now - at <= WINDOW}
        new = {uid for uid in before - self._lost.keys() if states.get(uid, SpotState.LOST) is SpotState.LOST}
        self._lost |= dict.fromkeys(new, now)
        if new and self._is_burst(len(before | self._lost.keys())):
            self._until = now + self._settle
        return self._until if self._until is not None and now < self._until else None

    def _is_burst(self, nodes: int) -> bool:
        return len(self._lost) >= FEWEST and ONE_IN * len(self._lost) >= nodes
