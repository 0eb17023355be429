"""Scripts of events for replicas in trouble, and the alerts that must fire."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, TypeAlias

from rescheduler.draining.events import EvictionResult
from rescheduler.draining.state import Failure, Why
from rescheduler.observe.events import (
    Compared,
    DrainEnded,
    DrainStarted,
    ErrorKind,
    Event,
    EvictionAnswered,
    Held,
    LeadershipChanged,
    MachineAnswered,
    Observed,
    OwedChanged,
    Planned,
    RoundEnded,
    SavingsCounted,
    Started,
    Trouble,
    Waiting,
    WatchAges,
)
from rescheduler.planning.money.savings import Savings
from rescheduler.planning.money.worth import Worth
from rescheduler.planning.outcome import LandingOutcome, Planning
from tests.monitoring.recording import BACKEND, Script
from tests.observe.builders import BLOCKED, OD, PLAN, SPOT, WEB, WORKER

#: The minute when trouble begins, and the minute when all alerts about it must have fired.
TROUBLE: Final = 14
END: Final = 80

#: The events of the leader's round, by minutes since the trouble began. None if the replica does not run.
Rounds: TypeAlias = Callable[[int], Iterable[Event] | None]


@dataclass(frozen=True)
class Incident:
    """One cluster: its leader's rounds in trouble, its other replicas, and the alerts that fire at the end."""

    rounds: Rounds
    alerts: frozenset[str]
    others: Mapping[str, Script] = field(default_factory=dict)

    @property
    def scripts(self) -> dict[str, Script]:
        return {"a": self._leader, **self.others}

    def _leader(self, minute: int) -> Iterable[Event] | None:
        if minute < TROUBLE:
            return (*started(minute), *healthy(minute))
        return self.rounds(minute - TROUBLE)


WORTHS = {PLAN.node: Worth.of(Decimal(1), Decimal(0), Decimal("0.25"))}


def moment(minute: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(minutes=minute)


def started(minute: int, *, leading: bool = True) -> tuple[Event, ...]:
    if minute:
        return ()
    return Started("1.2.3", "a", "0.0.0.0:9235", dry_run=False), LeadershipChanged(leading)


def healthy(minute: int) -> tuple[Event, ...]:
    """Return the events of a round that plans and drains nothing."""
    pods = {WORKER: {"od-1": 1, "od-2": 2}, SPOT: {"spot-1": 5}}
    nodes = {verdict.node: OD for verdict in (PLAN, BLOCKED)}
    return (
        WatchAges({"Pod": 5.0, "Node": 20.0}),
        Observed(moment(minute), pods, frozenset({"od-1", "od-2", "spot-1"}), {}),
        OwedChanged(0),
        Planned(
            moment(minute), Planning((PLAN, BLOCKED), 2, 1), nodes, 0.2, complete=True, worths=WORTHS, currency="$"
        ),
        RoundEnded(moment(minute), 0.5, succeeded=True),
    )


def waiting(why: Waiting, *, succeeded: bool) -> Callable[[int], tuple[Event, ...]]:
    """Return rounds that only wait. The loop counts some of them as failed."""
    return lambda minute: (Held(why, "x"), RoundEnded(moment(TROUBLE + minute), 0.1, succeeded=succeeded))


def among(events: Mapping[int, Iterable[Event]]) -> Rounds:
    """Return healthy rounds with further *events* in some minutes of the trouble."""
    return lambda minute: (*events.get(minute, ()), *healthy(TROUBLE + minute))


def drain(why: Why | None = None, *, seconds: float = 90.0) -> tuple[Event, ...]:
    """Return the events of a drain. One that succeeds removes the machine."""
    failure = Failure(why, "x", (WEB,)) if why else None
    landing = None if why else 42.0
    evicted = EvictionAnswered(OD, WEB, EvictionResult.REFUSED if why else EvictionResult.EVICTED)
    removed = () if why else (MachineAnswered(OD, BACKEND, "deleted", ""),)
    ended = DrainEnded(moment(0), OD, PLAN.placements, (WEB,), failure, seconds, landing_seconds=landing)
    return DrainStarted(OD, PLAN), evicted, *removed, ended


def moved(pods: int, *, returned: int) -> tuple[Event, ...]:
    """Return the events of a drain that moves *pods* pods, some of which return to on-demand nodes."""
    outcomes: dict[str, int] = {LandingOutcome.AS_FORECAST: pods - returned, LandingOutcome.RETURNED: returned}
    return *[EvictionAnswered(OD, WEB, EvictionResult.EVICTED)] * pods, Compared("od-1", outcomes, returned)


def standby(minute: int) -> Iterable[Event]:
    """Return the events of a replica that does not lead."""
    hold = Held(Waiting.NOT_LEADING, "another replica leads")
    return *started(minute, leading=False), hold, RoundEnded(moment(minute), 0.1, succeeded=False)


def proxy(minute: int) -> Iterable[Event]:
    """Return the events of a cloudpool proxy: it has no rounds and no leader."""
    return () if minute else (Started("1.2.3", "p", "0.0.0.0:9236", dry_run=False), WatchAges({"Pod": 5.0}))


def second_leader(minute: int) -> Iterable[Event]:
    if minute < TROUBLE:
        return standby(minute)
    return LeadershipChanged(leading=True), *healthy(minute)


def leaderless(minute: int) -> Iterable[Event]:
    """Return the events of a leader that loses the Lease, and of no later round."""
    return () if minute else (LeadershipChanged(leading=False),)


def busy(minute: int) -> Iterable[Event]:
    """Return the events of a leader on a day with five drains, a failed drain, an error, and a debt at the end."""
    events: dict[int, tuple[Event, ...]] = dict.fromkeys(range(20, 45, 5), (*drain(), *moved(4, returned=1)))
    events[50] = drain(Why.EVICTION_TIMEOUT)
    events[60] = (Trouble(ErrorKind.WRITE, "x"),)
    if minute == END:
        return DrainStarted(OD, PLAN), OwedChanged(2), Held(Waiting.LANDING_PENDING, "x")
    saved = SavingsCounted(Savings(60 * minute, money={"USD": Decimal(minute) / 100}))
    return *started(minute), saved, *events.get(minute, ()), *healthy(minute)


def alerts(*names: str) -> frozenset[str]:
    return frozenset(f"SpotRescheduler{name}" for name in names)


PAUSE: Final = "a pause is forgotten"

#: Alerts that do not fire before END, although their expression is true: they wait for a day.
AFTER_A_DAY: Final = alerts("Paused")
DAY: Final = 24 * 60

#: By the value of the label ``cluster``.
INCIDENTS: Final[Mapping[str, Incident]] = {
    "quiet": Incident(among({}), alerts(), {"b": standby, "proxy": proxy}),
    "usual failures": Incident(
        among({10: drain(Why.REFUSED), 20: drain(Why.STOPPED), 30: (Trouble(ErrorKind.WRITE, "x"),)}), alerts()
    ),
    "drains are paused three times": Incident(among(dict.fromkeys((30, 40, 50), drain(Why.PAUSED))), alerts()),
    "drains, and few pods return": Incident(among(dict.fromkeys(range(5, 30, 5), moved(8, returned=1))), alerts()),
    "usual waits": Incident(
        lambda minute: waiting(Waiting.DRAIN_DELAY if minute % 2 else Waiting.PENDING_PODS, succeeded=True)(minute),
        alerts(),
    ),
    "no replica runs": Incident(lambda _: None, alerts("Missing")),
    "rounds stop": Incident(lambda _: (), alerts("Stalled")),
    "no replica leads": Incident(leaderless, alerts("NoLeader", "Stalled"), {"b": standby}),
    "two replicas lead": Incident(among({}), alerts("SeveralLeaders"), {"b": second_leader}),
    "a permission is missing": Incident(
        waiting(Waiting.NOT_SYNCED, succeeded=False), alerts("NotSynced", "Stalled"), {"b": standby}
    ),
    "a watch is silent": Incident(
        waiting(Waiting.STALE_WATCH, succeeded=False), alerts("WatchStale", "Stalled"), {"b": standby}
    ),
    "the memory is unreadable": Incident(
        waiting(Waiting.MEMORY_UNREADABLE, succeeded=True), alerts("MemoryUnreadable"), {"b": standby}
    ),
    "the provider fails": Incident(
        among(dict.fromkeys(range(60), (Trouble(ErrorKind.PROVIDER, "x"),))), alerts("ProviderErrors")
    ),
    "writes fail": Incident(among(dict.fromkeys(range(60), (Trouble(ErrorKind.WRITE, "x"),))), alerts("Errors")),
    "the first drain fails": Incident(among({10: drain(Why.EVICTION_TIMEOUT)}), alerts("DrainFailed")),
    "drains fail": Incident(
        among({10: drain(Why.EVICTION_TIMEOUT), 20: drain(Why.PLAN_CHANGED), 30: drain(Why.TARGET_LOST)}),
        alerts("DrainFailed", "DrainsFail"),
    ),
    "a drain does not end": Incident(
        lambda minute: () if minute else (DrainStarted(OD, PLAN),), alerts("DrainStuck"), {"b": standby}
    ),
    "replacement pods do not run": Incident(
        lambda minute: (OwedChanged(3), *waiting(Waiting.LANDING_PENDING, succeeded=True)(minute)),
        alerts("LandingPending"),
    ),
    PAUSE: Incident(waiting(Waiting.PAUSED, succeeded=True), alerts("Paused"), {"b": standby}),
    "a machine stays": Incident(
        among({10: (MachineAnswered(OD, BACKEND, "failed", "x"), *drain(Why.PROVIDER))}),
        alerts("MachineNotRemoved", "DrainFailed"),
    ),
    "pods return": Incident(among({10: moved(8, returned=4), 20: moved(8, returned=4)}), alerts("PodsComeBack")),
}
