"""Random events of a course: what happens to the cluster and to the daemon, at any time and in the middle of drains."""

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rescheduler.simulation.store import Json
from tests.simulation.acts import OPT_OUTS

#: Seconds without events and faults at the end of a course.
CALM: Final = 600.0


@dataclass(slots=True)
class Choice:
    """Random choices. *names* are the workloads of the course, as ``namespace/name``."""

    source: random.Random
    names: list[str] = field(default_factory=list)

    def one(self, *options: Any) -> Any:
        return self.source.choice(options)

    def some(self, options: Sequence[Any], most: int) -> Sequence[Any]:
        return self.source.sample(options, min(most, len(options)))

    def chance(self, share: float) -> bool:
        return self.source.random() < share


#: What makes the daemon act late.
_DELAYS: Final = frozenset({"freeze", "watches silent", "forbidden", "requests fail", "slow requests"})


@dataclass(frozen=True, slots=True)
class RandomEvent:
    """An event at a time: a line of an events file, or something that happens to the daemon."""

    at: float
    entry: Json

    def __str__(self) -> str:
        return f"{self.at:8.1f} s  {self.entry}"

    @property
    def delays(self) -> bool:
        """Whether the daemon acts late because of the event."""
        return not _DELAYS.isdisjoint(self.entry) or self.entry.get("in a drain") in _DELAYS


def random_events(choice: Choice, seconds: float, weather: "Weather") -> Sequence[RandomEvent]:
    """Return the events, in order: about one in a minute, half of them in the middle of the next drain.

    On-demand nodes with pods join again and again, so that there is something to drain.
    """
    events = [RandomEvent(at, {"back": choice.source.randint(3, 12)}) for at in _times(choice, seconds, 60.0, 120.0)]
    times = _times(choice, seconds, 5.0, 120.0, 240.0) if weather.acts else ()
    events += [RandomEvent(at, choice.one(*weather.acts)(choice)) for at in times]
    steps = [step for step, acts in (("draining", weather.in_drains), ("removing", weather.at_orders)) if acts]
    for at in _times(choice, seconds, 60.0, 120.0) if steps else ():
        step = choice.one(*steps)
        after = choice.source.uniform(0.0, 45.0) if step == "draining" else choice.source.expovariate(2.0)
        act = choice.one(*(weather.in_drains if step == "draining" else weather.at_orders))
        events.append(RandomEvent(at, {"in a drain": act, "step": step, "after": round(after, 3), **_extent(choice)}))
    for at in _times(choice, seconds, 60.0, 120.0) if weather.at_requests else ():
        row = choice.one(*weather.at_requests)
        request, skip = choice.one(*row.requests)
        entry = {"in a drain": choice.one(*row.acts), "step": row.step, "before": request, "skip": skip}
        events.append(RandomEvent(at, entry | _extent(choice)))
    return sorted(events, key=lambda each: each.at)


def _extent(choice: Choice) -> Json:
    return {"number": choice.source.randint(1, 3), "for": choice.one(40, 90, 200)}


def _times(choice: Choice, seconds: float, *means: float) -> Iterator[float]:
    at = 30.0
    while (at := at + choice.source.expovariate(1 / choice.one(*means))) < seconds - CALM:
        yield round(at, 1)


def _app(choice: Choice) -> str:
    return str(choice.one(*choice.names))


_ACTS: Final[tuple[Callable[[Choice], Json], ...]] = (
    lambda choice: {"scale": _app(choice), "replicas": choice.source.randint(0, 7)},
    lambda choice: {"scale": _app(choice), "replicas": choice.source.randint(1, 5)},
    lambda choice: {"roll-out": _app(choice)},
    lambda choice: {"stuck": _app(choice), "for": f"{choice.one(30, 200)}s"},
    lambda choice: {"lose": 1, "notice": choice.chance(0.7)},
    lambda choice: {"silent": choice.one("od-0", "od-1", "spot-0", "spot-1"), "for": f"{choice.one(20, 90, 200)}s"},
    lambda choice: {"delete": f"Deployment {_app(choice)}"},
    lambda choice: {"renew": choice.source.randint(1, 4)},
    lambda choice: {"renew": choice.source.randint(1, 4)},
    lambda choice: {"kill": choice.source.randint(0, 1)},
    lambda choice: {"kill": choice.source.randint(0, 1)},
    lambda choice: {"freeze": choice.source.randint(0, 1), "seconds": choice.one(3, 9, 18)},
    lambda choice: {"join": choice.one("od-0", "od-1", "spot-0")},
    lambda choice: {"lose pods": choice.source.randint(1, 3)},
    lambda choice: {"scheduler away": choice.one(10, 60, 200)},
    lambda choice: {"opt out": choice.one(*OPT_OUTS), "for": choice.one(60, 300)},
    lambda choice: {"keep pods": choice.source.randint(1, 4), "for": choice.one(60, 200)},
    lambda choice: {"same name": choice.source.randint(0, 5)},
    lambda choice: {"watches silent": choice.one(20, 60, 140)},
    lambda choice: {"forbidden": choice.one("nodes", "pods", "poddisruptionbudgets"), "for": choice.one(20, 100)},
    lambda choice: {"slow requests": choice.one(0.5, 3, 9), "for": choice.one(20, 60)},
    lambda choice: {"pause": choice.one(30, 90)},
    lambda choice: {"requests fail": choice.one(500, 409, 0), "number": choice.source.randint(1, 8)},
    lambda choice: {"outranked": choice.source.randint(1, 3), "for": choice.one(60, 200)},
)

#: What a last look must see, between the intent and an order that is given again.
_AT_ORDERS: Final = (
    "untaint",
    "unmark",
    "mark as other",
    "keep node",
    "turn into spot",
    "lose moved",
    "restart moved",
    "unready moved",
    "silence targets",
    "silence others",
    "lose targets",
    "remove others",
    "register again",
    "replace node",
    "add pod",
    "kill",
    "freeze",
)

#: What happens in the middle of drains. What ends a drain at once happens before orders only, so that most go on.
_IN_DRAINS: Final = (
    "untaint",
    "keep node",
    "replace node",
    "turn into spot",
    "lose moved",
    "restart moved",
    "unready moved",
    "lose targets",
    "silence targets",
    "silence others",
    "cordon targets",
    "add pod",
    "keep pods",
    "edit pods",
    "replace pods",
    "lock pods",
    "scale owners",
    "roll owners out",
    "stick owners",
    "kill",
    "outrank",
    "freeze",
)


@dataclass(frozen=True, slots=True)
class AtRequests:
    """What others do in a *step* right before one of the *requests*. Each has the number of those before it."""

    step: str
    requests: tuple[tuple[str, int], ...]
    acts: tuple[str, ...]


#: The last look begins with the second read of the node.
AT_REQUESTS: Final = (
    AtRequests(
        "",
        (("read node", 0), ("patch node", 0)),
        (
            "mark as other",
            "keep node",
            "touch node",
            "taint node",
            "cordon node",
            "register again",
            "replace node",
            "turn into spot",
            "remove others",
        ),
    ),
    AtRequests(
        "draining",
        (("read node", 0), ("read node", 1), ("patch node", 0), ("evict", 0), ("evict", 1)),
        ("keep node", "touch node", "taint node", "register again", "replace node", "turn into spot"),
    ),
    AtRequests(
        "draining",
        (("evict", 0), ("evict", 1), ("evict", 2), ("try eviction", 0), ("read pods", 1), ("read others", 1)),
        tuple(act for act in _IN_DRAINS if not act.endswith("node")),
    ),
    AtRequests(
        "removing",
        (("read node", 0), ("read node", 1), ("read node", 1)),
        (
            "untaint",
            "unmark",
            "mark as other",
            "keep node",
            "turn into spot",
            "register again",
            "replace node",
            "turn others into spot",
        ),
    ),
    AtRequests(
        "removing",
        (("read node", 1), ("read node", 1), ("read pods", 0), ("read others", 0)),
        ("add pod", "lose moved", "unready moved", "restart moved", "turn others into spot", "freeze"),
    ),
)


@dataclass(frozen=True, slots=True)
class Weather:
    """What may happen in a course. A few kinds of events that happen often find more than all kinds that seldom do."""

    acts: Sequence[Callable[[Choice], Json]] = _ACTS
    in_drains: Sequence[str] = _IN_DRAINS
    at_orders: Sequence[str] = _AT_ORDERS
    at_requests: Sequence[AtRequests] = AT_REQUESTS

    def only(self, acts: Collection[str]) -> "Weather":
        """Return the weather in which nothing happens but *acts* in drains."""
        rows = [replace(row, acts=_those(row.acts, acts)) for row in self.at_requests]
        return Weather(
            (), _those(self.in_drains, acts), _those(self.at_orders, acts), [row for row in rows if row.acts]
        )


def _those(names: Sequence[str], wanted: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in wanted)


def random_weather(choice: Choice) -> Weather:
    """Return all that may happen, or a few kinds of it."""
    if choice.chance(0.4):
        return Weather()
    rows = [
        AtRequests(row.step, (choice.one(*row.requests),), tuple(choice.some(row.acts, 3)))
        for row in choice.some(AT_REQUESTS, 2)
    ]
    return Weather(choice.some(_ACTS, 4), choice.some(_IN_DRAINS, 3), choice.some(_AT_ORDERS, 3), rows)
