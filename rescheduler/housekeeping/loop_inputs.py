"""The inputs of the housekeeping loop: its settings, the parts that it uses, and the state of the process."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from rescheduler.execution.drainer import Drainer
from rescheduler.execution.landings import Landings
from rescheduler.housekeeping.bookkeeping import NoBookkeeping
from rescheduler.housekeeping.candidates import Candidates
from rescheduler.housekeeping.drain_history import DrainHistory
from rescheduler.housekeeping.drain_records import DrainRecords
from rescheduler.housekeeping.new_nodes import NewNodes
from rescheduler.housekeeping.placeholder_room import NoRoomOrders
from rescheduler.housekeeping.soft_taint import SoftTaint
from rescheduler.observe.events import InvolvedLease
from rescheduler.planning.drain_windows import DrainWindow
from rescheduler.planning.spot_losses import SpotWatch
from rescheduler.settings import Timing


class LoopState(Protocol):
    """Whether this process may act, and the wait between two rounds."""

    @property
    def leading(self) -> bool: ...

    @property
    def stopping(self) -> bool: ...

    @property
    def paused(self) -> str:
        """Why a user paused drains, or ""."""
        ...

    @property
    def lease(self) -> InvolvedLease: ...

    @property
    def rival(self) -> str:
        """The leader, if it is known to be another replica; otherwise ""."""
        ...

    def beat(self) -> None: ...

    def pause(self, seconds: float) -> None:
        """Wait for *seconds*, or until the process is told to stop."""
        ...


@dataclass(frozen=True, slots=True)
class Mode:
    """The settings of the loop."""

    timing: Timing
    dry_run: bool = False
    minimum: int = 0  #: on-demand nodes to keep; nodes whose machines are terminating do not count
    windows: tuple[DrainWindow, ...] = ()  #: when drains may start; empty: always


@dataclass(frozen=True, slots=True)
class Actors:
    """The parts that change the cluster. A dry run does not use them."""

    drainer: Drainer
    soft_taint: SoftTaint
    new_nodes: NewNodes
    records: DrainRecords
    room: NoRoomOrders = field(default_factory=NoRoomOrders)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The inputs of decisions in addition to the watched state."""

    history: DrainHistory
    candidates: Candidates
    landings: Landings
    spot_watch: SpotWatch
    missing_rights: Callable[[], str] = str  #: returns a message; "" if none is missing
    savings: NoBookkeeping = field(default_factory=NoBookkeeping)
    refresh_prices: Callable[[], None] = lambda: None  #: for the drain order
