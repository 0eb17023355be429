"""The content of the status page: the latest plan for every node, recent drains, and current waits."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Final

from rescheduler.observe.events import (
    Compared,
    DrainEnded,
    DrainProgressed,
    DrainStarted,
    Event,
    Held,
    LeadershipChanged,
    Observed,
    Planned,
    SavingsCounted,
    Started,
    Surveyed,
)
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.money.savings import Savings

#: Number of recent drains that are kept.
DRAINS: Final = 50


@dataclass(frozen=True, slots=True)
class Board:
    """The displayed state. It is replaced as a whole, so that other threads read a consistent state."""

    started: Started | None = None
    leading: bool | None = None  #: None without leader election
    observed: Observed | None = None
    held: Held | None = None
    planned: Planned | None = None
    draining: DrainStarted | None = None
    drains: tuple[DrainEnded, ...] = ()  #: the most recent first
    progress: DrainProgressed | None = None  #: of the running drain
    landings: Mapping[tuple[str, datetime], Compared] = field(default_factory=dict)  #: by node and end of the drain
    prices: PriceList = field(default_factory=PriceList)
    savings: Savings | None = None  #: None if they are not known


class Status:
    """A listener that updates :attr:`board`, which may be read by any thread."""

    def __init__(self, prices: PriceList | None = None) -> None:
        self.board = Board(prices=prices or PriceList())
        self._drains: deque[DrainEnded] = deque(maxlen=DRAINS)

    def show_prices(self, by_node: Mapping[str, Decimal]) -> None:
        """Replace the prices of the cloud provider, by node name."""
        self.board = replace(self.board, prices=replace(self.board.prices, by_node=by_node))

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self.board = replace(self.board, started=event)
            case LeadershipChanged(leading):
                self.board = replace(self.board, leading=leading)
            case Observed():
                self.board = replace(self.board, observed=event)
            case Held():
                self.board = replace(self.board, held=event)
            case Planned():
                planned = event if event.complete or self.board.planned is None else self.board.planned
                self.board = replace(self.board, planned=planned, held=None)
            case Surveyed(planned):
                self.board = replace(self.board, planned=planned)
            case SavingsCounted(total):
                self.board = replace(self.board, savings=total)
            case DrainStarted() | DrainProgressed() | Compared() | DrainEnded():
                self._of_drain(event)
            case _:
                pass  # not shown

    def _of_drain(self, event: DrainStarted | DrainProgressed | Compared | DrainEnded) -> None:
        match event:
            case DrainStarted():
                self.board = replace(self.board, draining=event, progress=None)
            case DrainProgressed():
                self.board = replace(self.board, progress=event)
            case Compared(node):  # follows the end of the drain
                ends = [drain.at for drain in self._drains if drain.node.name == node][:1]
                self.board = replace(self.board, landings={**self.board.landings, **{(node, at): event for at in ends}})
            case DrainEnded():
                self._drains.appendleft(event)
                drains, shown = tuple(self._drains), {(drain.node.name, drain.at) for drain in self._drains}
                landings = {key: landing for key, landing in self.board.landings.items() if key in shown}
                self.board = replace(self.board, draining=None, progress=None, drains=drains, landings=landings)
