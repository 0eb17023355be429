"""Simulated processes that drain the node of a simulated cluster, one after the other.

Their requests take time and fail.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import Final

from rescheduler.draining import transitions
from rescheduler.draining.actions import (
    Action,
    AskProvider,
    DeleteNode,
    DeletePlaceholder,
    Evict,
    LookAgain,
    Mark,
    OrderRemoval,
    PlanAgain,
    ReadControllers,
    Release,
    Step,
    StoreDebts,
    TryEviction,
    WrittenMark,
)
from rescheduler.draining.events import (
    Cause,
    ControllersRead,
    Done,
    DrainEvent,
    EvictionAccepted,
    EvictionFailed,
    EvictionRefused,
    Looked,
    NodeSeen,
    NotDone,
    Outcome,
    PlannedAgain,
    PodGone,
    ProviderAnswered,
    Removed,
    RequestWithheld,
    Stop,
)
from rescheduler.draining.state import Drain, Result
from rescheduler.planning.controllers import Controller
from rescheduler.planning.last_look import Ground
from rescheduler.planning.outcome import Plan, PodRef
from tests.draining.simulation import LIMITS, NODE, Scenario, SimulatedCluster

ORDERED_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)

#: A drain that has not ended by this time hangs. In seconds.
END: Final = 3000.0


@dataclass(frozen=True)
class Moment:
    """An event, and the state of the drain after the event."""

    at: float
    process: int
    before: Drain
    event: DrainEvent
    after: Drain
    actions: tuple[Action, ...]


class DrainProcesses:
    """A sequence of processes: each continues where the previous one died. :attr:`moments` records all of them."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = SimulatedCluster(scenario, self.random)
        self.scenario = scenario
        self.moments: list[Moment] = []
        self.begun: list[tuple[float, Result]] = []  #: start time and result of each process
        self._due: list[tuple[float, int, Action]] = []  # requests by time of the response
        self._numbers: Iterator[int] = count()
        self._busy_until = 0.0  # the thread that sends all requests except evictions
        self._kills = list(scenario.kills)
        self._stopped = False

    def run(self) -> Drain:
        """Run all processes and return the final state of the last drain."""
        plan = self.cluster.plan()
        begun: Result | None = transitions.start(plan, LIMITS) if isinstance(plan, Plan) else None
        assert begun is not None
        while True:
            self.begun.append((self.cluster.now, begun))
            drain = self._play(begun)
            begun = self._next() if self._dead(drain) else None
            if begun is None:
                return drain

    @property
    def seconds(self) -> float:
        """Return how long the last process ran."""
        return self.cluster.now - self.begun[-1][0]

    def _dead(self, drain: Drain) -> bool:
        deposed = self._stopped and self.scenario.stop is Cause.LEADERSHIP_LOST
        return not drain.done or deposed

    def _next(self) -> Result | None:
        """Return the drain that a new process starts from the mark on the node."""
        self._due.clear()
        self._stopped, self._busy_until = False, self.cluster.now
        mark = self.cluster.mark
        if mark is None:
            return None
        if mark.step is Step.REMOVING:
            return transitions.resume_removal(NODE, LIMITS, mark.group, ORDERED_AT, mark.debts)
        return transitions.resume(NODE, LIMITS, mark.pods, mark.debts)

    def _play(self, begun: Result) -> Drain:
        drain, actions = begun
        self._request(actions)
        while not drain.done and self.cluster.now < END:
            self.cluster.pass_second()
            now = self.cluster.now
            if self._kills and now >= self._kills[0]:
                self._kills.pop(0)
                self._die()
                return drain
            if self.scenario.stop_at == now:
                self._stopped = True
                drain = self._step(drain, Stop(self.scenario.stop))
            while self._due and self._due[0][0] <= now and not drain.done:
                _, _, action = heapq.heappop(self._due)
                if (event := self._perform(action)) is not None:
                    drain = self._step(drain, event)
            drain = self._step(drain, self._seen(drain))
        return drain

    def _die(self) -> None:
        """Kill the process. Requests in flight may still be executed, but their responses are lost."""
        for _, _, action in self._due:
            if self.random.random() < 0.5:
                self._perform(action)

    def _step(self, drain: Drain, event: DrainEvent) -> Drain:
        after, actions = transitions.step(drain, event, self.cluster.now)
        self.moments.append(Moment(self.cluster.now, len(self.begun), drain, event, after, actions))
        self._request(actions)
        for action in actions:
            if isinstance(action, PlanAgain):
                verdict = self.cluster.plan()
                return self._step(after, PlannedAgain(verdict))
            if isinstance(action, StoreDebts):  # at once, on the same thread
                failed = self.scenario.failing and self._fails()
                return self._step(
                    after, NotDone(StoreDebts, "conflict", Outcome.UNKNOWN) if failed else Done(StoreDebts)
                )
        return after

    def _request(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            if isinstance(action, PlanAgain | StoreDebts):
                continue
            at = self.cluster.now + self.random.uniform(0, self.scenario.slow)
            if not isinstance(action, Evict | TryEviction | DeletePlaceholder):
                at = self._busy_until = max(at, self._busy_until)
            heapq.heappush(self._due, (at, next(self._numbers), action))

    def _seen(self, drain: Drain) -> NodeSeen:
        return NodeSeen(
            present=frozenset(pod.ref.uid for pod in self.cluster.here()),
            replicas=self.cluster.replicas(drain),
            tainted=self.cluster.tainted,
            lost="node s1: it is gone" if self.cluster.targets_lost and "s1" in drain.targets else "",
            placeholders={uid: PodRef("room", uid, uid) for uid in self.cluster.placeholders},
        )

    def _fails(self) -> bool:
        return self.random.random() < self.scenario.failing

    def _perform(self, action: Action) -> DrainEvent | None:
        match action:
            case Evict() | TryEviction():
                return self._evict(action)
            case WrittenMark():
                return self._mark(action)
            case Release():
                return self._release()
            case OrderRemoval():
                return self._order()
            case _:
                return self._read(action)

    def _read(self, action: Action) -> DrainEvent:
        match action:
            case AskProvider():
                return ProviderAnswered(self.scenario.group, "no answer" if self._fails() else "")
            case LookAgain():
                unseen = self._fails() or not self.cluster.tainted
                return (
                    NotDone(LookAgain, "the taint is not seen", Outcome.UNKNOWN)
                    if unseen
                    else Looked(self.cluster.plan())
                )
            case ReadControllers(owners, controllers):
                return self._read_controllers(frozenset(uid.uid for _, uid in owners), controllers)
            case DeletePlaceholder(uid=uid):
                if self._fails():
                    return NotDone(DeletePlaceholder, "500", Outcome.UNKNOWN, uid=uid)
                self.cluster.delete_placeholder(uid)
                return Done(DeletePlaceholder, uid)
            case DeleteNode():
                return NotDone(DeleteNode, "500") if self._fails() else Done(DeleteNode)
            case _:
                raise TypeError(action)

    def _read_controllers(self, uids: frozenset[str], controllers: frozenset[Controller]) -> DrainEvent:
        if self._fails():
            return NotDone(ReadControllers, "timeout", Outcome.UNKNOWN)
        known = {owner.controller.uid: owner.controller for owner in self.scenario.owners}
        named = {(known[uid].namespace, uid): known[uid] for uid in uids}
        states = {each: self.cluster.state(each) for each in {*controllers, *named.values()}}
        return ControllersRead(states, named, self.cluster.replicas(self.drain))

    @property
    def drain(self) -> Drain:
        """Return the current state of the drain."""
        return self.moments[-1].after

    def _mark(self, action: WrittenMark) -> DrainEvent | None:
        fails = self._fails()
        if not fails or self.random.random() < 0.5:
            self.cluster.tainted, self.cluster.mark = True, action
        if fails:
            return NotDone(Mark, "timeout", Outcome.UNKNOWN)
        return Done(Mark) if isinstance(action, Mark) else None

    def _release(self) -> DrainEvent:
        fails = self._fails()
        if not fails or self.random.random() < 0.5:
            self.cluster.tainted, self.cluster.mark = False, None
        return NotDone(Release, "timeout") if fails else Done(Release)

    def _evict(self, action: Evict | TryEviction) -> DrainEvent:
        uid = action.pod.uid
        pod = self.cluster.pods.get(uid)
        if pod is None:
            return PodGone(uid)
        if self.random.random() < self.scenario.refused and isinstance(action, Evict):
            return EvictionRefused(uid, "budget", self.random.choice((None, 3.0)))
        fails = self._fails()
        if isinstance(action, Evict) and (not fails or self.random.random() < 0.5):
            self.cluster.evict(pod)
        return EvictionFailed(uid, "timeout", retryable=True) if fails else EvictionAccepted(uid)

    def _order(self) -> DrainEvent:
        if self._fails():
            withheld = RequestWithheld(self.random.choice(list(Ground)), "not now")
            others = (
                NotDone(OrderRemoval, "timeout", Outcome.UNKNOWN),
                NotDone(OrderRemoval, "protected"),
                Removed(unproven=True),
            )
            return self.random.choice((*others, withheld))
        return Removed()
