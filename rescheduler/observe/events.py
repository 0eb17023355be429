"""Events of the program, as values. Metrics, logs, Kubernetes Events and the status page listen to them.

:mod:`rescheduler.observe.round_events` defines the events of the process and of its rounds,
:mod:`rescheduler.observe.drain_events` those of single nodes. All events can be imported from here.
"""

from collections.abc import Callable
from typing import TypeAlias

from rescheduler.observe.drain_events import (
    Compared,
    CoolingDown,
    DrainEnded,
    DrainProgressed,
    DrainStarted,
    EvictionAnswered,
    MachineAnswered,
    MachineGone,
    MachineOrdered,
    OrderWithheld,
    PodProgress,
    RemovalPostponed,
    Sweep,
    Swept,
    Tainted,
)
from rescheduler.observe.involved import InvolvedLease, InvolvedNode
from rescheduler.observe.room_events import PlaceholdersObserved, RoomEnded, RoomEnding, RoomOrdered
from rescheduler.observe.round_events import (
    Chosen,
    DebtEnded,
    ErrorKind,
    Held,
    HistoryEvent,
    LeadershipChanged,
    MemoryDropped,
    Observed,
    OwedChanged,
    OwnerSetAside,
    PauseChanged,
    Planned,
    RoundEnded,
    SavingsCounted,
    Started,
    Surveyed,
    Trouble,
    Waiting,
    WatchAges,
)

__all__ = [
    "Chosen",
    "Compared",
    "CoolingDown",
    "DebtEnded",
    "DrainEnded",
    "DrainProgressed",
    "DrainStarted",
    "ErrorKind",
    "Event",
    "EvictionAnswered",
    "Held",
    "HistoryEvent",
    "InvolvedLease",
    "InvolvedNode",
    "LeadershipChanged",
    "MachineAnswered",
    "MachineGone",
    "MachineOrdered",
    "MemoryDropped",
    "NodeEvent",
    "Observed",
    "OrderWithheld",
    "OwedChanged",
    "OwnerSetAside",
    "PageEvent",
    "PauseChanged",
    "PlaceholdersObserved",
    "Planned",
    "PodProgress",
    "ProcessEvent",
    "RemovalPostponed",
    "Report",
    "RoomEnded",
    "RoomEnding",
    "RoomOrdered",
    "RoundEnded",
    "RoundEvent",
    "SavingsCounted",
    "Started",
    "Surveyed",
    "Sweep",
    "Swept",
    "Tainted",
    "Trouble",
    "Waiting",
    "WatchAges",
    "tee",
]

#: Events of the process, of rounds and of single nodes.
ProcessEvent: TypeAlias = Started | LeadershipChanged | PauseChanged | WatchAges | SavingsCounted
RoundEvent: TypeAlias = (
    ProcessEvent
    | HistoryEvent
    | Observed
    | OwedChanged
    | PlaceholdersObserved
    | Held
    | Planned
    | Chosen
    | Trouble
    | RoundEnded
)
NodeEvent: TypeAlias = (
    DrainStarted
    | Tainted
    | EvictionAnswered
    | MachineOrdered
    | OrderWithheld
    | MachineAnswered
    | DrainEnded
    | MachineGone
    | RemovalPostponed
    | Compared
    | CoolingDown
    | Swept
    | RoomOrdered
    | RoomEnded
)
#: Events that only the status page shows.
PageEvent: TypeAlias = Surveyed | DrainProgressed
Event: TypeAlias = RoundEvent | NodeEvent | PageEvent
Report: TypeAlias = Callable[[Event], None]


def tee(*listeners: Report) -> Report:
    """Return a listener that passes every event to all *listeners*, in order."""

    def report(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return report
