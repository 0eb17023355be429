"""One drain in progress: the state machine on the caller's thread, its actions on others.

Evictions run side by side, everything else one after the other, so that a taint is never removed before it was
added. What the requests bring back waits in one queue.
"""

import queue
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from predicates.objects import Node, OwnerReference, Pod
from rescheduler.access import Answer, Read
from rescheduler.acts import Acts
from rescheduler.clock import Clock
from rescheduler.draining import machine
from rescheduler.draining.messages import (
    Action,
    Cause,
    ControllersRead,
    Event,
    Evict,
    EvictionSkipped,
    LookAgain,
    Looked,
    LookFailed,
    Marked,
    MarkFailed,
    PlanAgain,
    PlannedAgain,
    ReadControllers,
    Seen,
    Stop,
    TryEviction,
)
from rescheduler.draining.state import Drain, Phase, Result, targets
from rescheduler.errors import NotLeading
from rescheduler.observe.events import Report
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import Replicas
from rescheduler.planning.freshness import Fresh
from rescheduler.planning.outcome import Plan
from rescheduler.threads import Threads
from rescheduler.view import View

#: Seconds between two looks at the watched state.
POLL_SECONDS: Final = 0.25

#: What a consistent read showed must show in the watched state so soon; otherwise it is read again.
AGREE_SECONDS: Final = 3.0
READS: Final = 5


class Standing(Protocol):
    """Whether we may act. Read by many threads."""

    @property
    def leading(self) -> bool: ...

    @property
    def stopping(self) -> bool:
        """We were told to stop: the drain is rolled back."""
        ...

    def beat(self) -> None:
        """Report that the loop is alive."""
        ...


@dataclass(frozen=True, slots=True)
class _Reading:
    """A consistent read that the watched state does not show yet."""

    fresh: Fresh
    at: float
    count: int
    again: bool = False  #: a further read was asked for


class DebtKeeper(Protocol):
    """Keeps what a drain owes where it survives this process, and the Node."""

    def noted(self, drain: Drain) -> bool:
        """Store what *drain* will owe, before its first eviction; whether it is stored."""
        ...

    def ending(self, drain: Drain) -> None:
        """Store what *drain* did and owes, before its node is opened or its machine is ordered away."""
        ...


class NoDebtKeeper:
    """Debts are on the node only."""

    def noted(self, _: Drain) -> bool:
        return True

    def ending(self, _: Drain) -> None:
        pass


class Course:
    """One drain in progress."""

    def __init__(
        self,
        node: Node,
        acts: Acts,
        clock: Clock,
        view: View,
        standing: Standing,
        threads: Threads,
        report: Report,
        debts: DebtKeeper,
    ) -> None:
        self._node = node
        self._acts = acts
        self._clock = clock
        self._view = view
        self._standing = standing
        self._threads = threads
        self._report = report
        self._debts = debts
        self._answers: queue.SimpleQueue[Answer | Exception] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._evicting = False  # evictions that wait for a thread are dropped when this turns False
        self._deposed = False  # once seen, it counts, even if we lead again a moment later
        self._stopped: Cause | None = None
        self._reading: _Reading | None = None
        self._reads = 0
        self._targets: frozenset[str] = frozenset()  # nodes that were read consistently
        self._pods: dict[str, Pod] = {}  # all pods that were to move, by UID
        self._drain: Drain

    def play(self, begun: Result) -> Drain:
        """Run the machine to its end. Raises what no request was expected to raise; evictions stop then."""
        self._drain, actions = begun
        try:
            self._announce()
            while not self._drain.done:
                self._evicting = self._drain.phase in (Phase.TRYING, Phase.EVICTING)
                for action in actions:
                    self._start(action)
                before = self._drain
                self._drain, actions = machine.step(before, self._next(), self._clock.monotonic())
                if self._drain.phase is not before.phase:
                    self._announce()
        finally:
            self._evicting = False
        return self._drain

    @property
    def drain(self) -> Drain:
        """Where the drain stands."""
        return self._drain

    def _announce(self) -> None:
        if self._drain.phase in (Phase.ORDERING, Phase.RELEASING):
            self._debts.ending(self._drain)

    def _start(self, action: Action) -> None:
        if isinstance(action, PlanAgain):
            pods = [self._pods[pod.uid] for pod in action.due if pod.uid in self._pods]
            verdict = self._view.follow(self._node.name, pods, self._gone())
            self._answers.put(Answer(PlannedAgain(verdict)))
            return
        if isinstance(action, LookAgain) and self._reading is None:
            self._reads = 0
        namespaces = frozenset(pod.namespace for pod in self._view.pods_of(self._node.name))
        siblings = self._siblings(action) if isinstance(action, ReadControllers) else ()
        executor = self._threads.evictions if isinstance(action, Evict | TryEviction) else self._threads.others
        executor.submit(self._perform, action, namespaces, siblings)

    def _siblings(self, action: ReadControllers) -> Collection[tuple[str, OwnerReference]]:
        namespaces = {namespace for namespace, _ in action.owners}
        return self._view.siblings(namespaces | {controller.namespace for controller in action.controllers})

    def _perform(
        self, action: Action, namespaces: Collection[str], siblings: Collection[tuple[str, OwnerReference]]
    ) -> None:
        """On a request thread: perform *action*, unless it may not be performed any more."""
        if not self._standing.leading:
            self._deposed = True
        if self._deposed:
            return
        if isinstance(action, Evict) and (self._standing.stopping or not self._evicting):
            self._answers.put(Answer(EvictionSkipped(action.pod.uid)))
            self._wake.set()
            return
        try:
            self._answers.put(self._acts.perform(action, namespaces, siblings))
        except NotLeading:
            self._deposed = True
        except Exception as error:  # noqa: BLE001 - raised again on the thread that waits
            self._answers.put(error)
        self._wake.set()

    def _next(self) -> Event:
        """What happens next; at the latest after POLL_SECONDS, that time has passed."""
        while True:
            self._standing.beat()
            if (stop := self._stop()) is not None:
                return stop
            if (event := self._answer()) is not None:
                return event
            if (event := self._looked()) is not None:
                return event
            if self._clock.wait(POLL_SECONDS, self._wake):
                self._wake.clear()
            else:
                return self._seen()

    def _seen(self) -> Seen | MarkFailed:
        node = self._view.node(self._node.name)
        if node is None or node.metadata.uid != self._node.metadata.uid:
            return MarkFailed(f"node {self._node.name} is gone", node_gone=True)
        return Seen(
            present=self._view.pods_on(self._node.name),
            replicas=self._replicas(self._drain.states),
            tainted=self._view.is_ours(self._node.name),
            lost=self._view.lost(self._drain.targets) if self._drain.phase is Phase.EVICTING else "",
            stale=bool(self._view.stale()),
            joined=self._view.joined(self._node.name),
        )

    def _controllers_read(
        self, states: Mapping[Controller, ControllerState], topmost: Mapping[tuple[str, str], Controller]
    ) -> ControllersRead:
        """Pods that came while the node was marked have no verdict yet about their Jobs."""
        waiting = [self._pods[uid] for uid in (victim.pod.uid for victim in self._drain.waiting) if uid in self._pods]
        replicas = self._replicas({**self._drain.states, **states})
        return ControllersRead(states, topmost, replicas, self._view.job_blockers(states.values(), waiting))

    def _replicas(self, states: Mapping[Controller, ControllerState]) -> dict[Controller, Replicas]:
        asked = (victim for victim in self._drain.victims.values() if not victim.accepted)
        staying = frozenset(victim.pod.uid for victim in (*self._drain.waiting, *asked))
        return self._view.replicas(states.values(), self._node.name, staying, self._evicted())

    def _evicted(self) -> frozenset[str]:
        return frozenset(pod.uid for pod in self._drain.evicted)

    def _gone(self) -> frozenset[str]:
        """:meth:`_leaving` without the pods that are still to be evicted."""
        asked = (victim for victim in self._drain.victims.values() if not victim.accepted)
        return self._leaving() - {victim.pod.uid for victim in (*self._drain.waiting, *asked)}

    def _leaving(self) -> frozenset[str]:
        """UIDs of the pods that this drain has evicted, or that a process before us may have evicted."""
        return self._evicted() | frozenset(self._drain.intended)

    def _stop(self) -> Stop | None:
        """That we may not go on, once for each cause."""
        cause = None
        if self._deposed or not self._standing.leading:
            cause = Cause.LEADERSHIP_LOST
        elif self._standing.stopping:
            cause = Cause.TERMINATED
        if cause is None or cause is self._stopped:
            return None
        self._stopped = cause
        return Stop(cause)

    def _answer(self) -> Event | None:
        """The next answer, as far as it is an event."""
        while not self._answers.empty():
            answer = self._answers.get()
            if isinstance(answer, Exception):
                raise answer
            for told in answer.told:
                self._report(told)
            match answer.event:
                case Fresh() as fresh:
                    self._reads += 1
                    self._reading = _Reading(fresh, self._clock.monotonic(), self._reads)
                case Read(states, topmost):
                    return self._controllers_read(states, topmost)
                case None:
                    continue
                case Marked() if self._drain.phase is Phase.NOTING and not self._debts.noted(self._drain):
                    return MarkFailed("what the drain will owe could not be stored in the memory", retryable=True)
                case event:
                    return event
        return None

    def _looked(self) -> Event | None:
        """The new plan, once the watched state shows what the API server has shown.

        The read was made after the taint was on, so a plan on a state that agrees with it sees every pod that was
        bound before. Where the plan counts on nodes that were not read, these are read, too.
        """
        reading, name = self._reading, self._node.name
        if reading is None or reading.again:
            return None
        node = self._view.node(name)
        if node is None or node.metadata.uid != self._node.metadata.uid:
            self._reading = None
            return LookFailed(f"node {name} is gone", node_gone=True)
        lag = self._view.lag(reading.fresh, name)
        if not lag:
            return self._planned(reading)
        if self._clock.monotonic() < reading.at + AGREE_SECONDS:
            return None
        if reading.count >= READS:
            self._reading = None
            return LookFailed(f"the watched state lags behind the API server: {lag}")
        self._read_again(reading, self._drain.targets)
        return None

    def _planned(self, reading: _Reading) -> Event | None:
        verdict = self._view.plan_node(self._node.name, self._leaving())
        if isinstance(verdict, Plan):
            unread = targets(verdict) - reading.fresh.asked
            if unread and reading.count >= READS:
                self._reading = None
                return LookFailed(f"the plan changes with each read: node {min(unread)} was not read")
            if unread:
                self._read_again(reading, targets(verdict))
                return None
            self._pods |= {pod.uid: pod for pod in self._view.pods_of(self._node.name)}
        self._reading = None
        return Looked(verdict)

    def _read_again(self, reading: _Reading, nodes: frozenset[str]) -> None:
        self._reading = replace(reading, again=True)
        self._start(LookAgain(nodes))
