"""Drains nodes: runs the state machine on the caller's thread, and has its actions performed on others.

Evictions go side by side, everything else one after the other, so that a taint never comes off before it went
on. What the requests bring back waits in one queue.
"""

import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Protocol

from predicates.objects import Node
from rescheduler import refs
from rescheduler.acts import PROVIDER_SECONDS, Access, Acts, Answer, Listed
from rescheduler.clock import Clock
from rescheduler.draining import intent, machine
from rescheduler.draining.intent import Step
from rescheduler.draining.messages import Action, Cause, Event, Evict, LookAgain, Looked, LookFailed, Seen, Stop
from rescheduler.draining.state import Drain, Limits, Phase, Result
from rescheduler.errors import ReschedulerError
from rescheduler.observe.events import DrainEnded, DrainStarted, ErrorKind, NodeRef, Report, Sweep, Swept, Trouble
from rescheduler.planning.candidates import PROXIES
from rescheduler.planning.outcome import Plan
from rescheduler.threads import Threads
from rescheduler.view import View

#: Seconds between two looks at the pods of the node.
POLL_SECONDS: Final = 0.5

#: What a LIST showed must show in the watched state so soon; where it does not, it is listed anew.
AGREE_SECONDS: Final = 3.0
LISTINGS: Final = 5


class Standing(Protocol):
    """Whether we may act. Read by many threads."""

    @property
    def leading(self) -> bool: ...

    @property
    def stopping(self) -> bool:
        """We were told to end: what was begun is taken back."""
        ...

    def beat(self) -> None:
        """The loop is alive."""
        ...


class Drainer:
    def __init__(
        self, access: Access, view: View, standing: Standing, threads: Threads, limits: Limits, report: Report
    ) -> None:
        self._access = access
        self._view = view
        self._standing = standing
        self._threads = threads
        self._limits = limits
        self._report = report

    @property
    def takes_machines(self) -> bool:
        """Whether emptied nodes are handed to a provider."""
        return self._access.provider.name != "none"

    def notices(self, nodes: Sequence[Node]) -> Mapping[str, datetime]:
        """Which of *nodes* the provider, looking anew, knows to end soon, and when. Raises ReschedulerError."""
        provider, deadline = self._access.provider, self._access.clock.monotonic() + PROVIDER_SECONDS
        try:
            provider.refresh(deadline=deadline)
            return provider.notices([refs.ref(node) for node in nodes], deadline=deadline)
        except ReschedulerError as error:
            self._report(Trouble(ErrorKind.PROVIDER, f"{provider.name}: {error}"))
            raise

    def drain(self, plan: Plan) -> Drain | None:
        """Carry *plan* out; how it ended, None where the node is gone already."""
        if (node := self._view.node(plan.node)) is None:
            return None
        self._report(DrainStarted(_ref(node), plan))
        return self._played(node, machine.start(plan, self._limits))

    def sweep(self) -> tuple[Drain, ...]:
        """Take care of the nodes that carry marks of ours while nobody drains them; the drains gone on with.

        A cloudpool proxy needs no lease: nobody can tell from outside whether it is at work, and it finishes its
        own drains after a restart. So its marks are left to it until the moment that they name has passed.
        """
        swept = [self._swept(node) for node in self._view.marked()]
        return tuple(drain for drain in swept if drain is not None)

    def _swept(self, node: Node) -> Drain | None:
        """What somebody else began is gone on with; what we ourselves left behind, or nobody can read, is undone."""
        found = intent.read(node)
        if found is not None and self._of_a_proxy(found):
            self._after_proxy(node, found)
            return None
        if found is not None and found.step is Step.REMOVING:
            # The provider is asked once a round: other nodes need not wait for a machine to end.
            limits = replace(self._limits, removal=0)
            return self._played(node, machine.resume_removal(node.name, limits, found.group, found.since))
        if found is None or found.holder == self._access.holder:
            self._roll_back(node, found.holder if found else "")
            return None
        self._report(Swept(_ref(node), found.holder, Sweep.RESUMED))
        self._report(DrainStarted(_ref(node), None))
        return self._played(node, machine.resume(node.name, self._limits, found.pods))

    def _of_a_proxy(self, found: intent.Intent) -> bool:
        return found.holder.startswith(PROXIES) and found.holder != self._access.holder

    def _after_proxy(self, node: Node, found: intent.Intent) -> None:
        """A dead proxy's call is nobody's any more: its drain is undone.

        A machine that it may have ordered away, and that still runs after all this time, stays. Where the machine is
        gone, its Node is for whoever knows the cloud to delete; until then nothing is put there.
        """
        lives = found.step is not Step.REMOVING or node.condition("Ready") == "True"
        if found.lapsed(self._access.clock.now()) and lives:
            self._roll_back(node, found.holder)

    def _roll_back(self, node: Node, holder: str) -> None:
        self._report(Swept(_ref(node), holder, Sweep.ROLLED_BACK))
        now = self._access.clock.monotonic()
        self._course(node).play(machine.roll_back(node.name, self._limits, now))

    def _played(self, node: Node, begun: Result) -> Drain:
        """Play a drain to its end, and tell; that an order is still at work is told once."""
        clock = self._access.clock
        started = clock.monotonic()
        drain = self._course(node).play(begun)
        if drain.handed_over and drain.ordered_at is not None:
            return drain
        ended = DrainEnded(
            at=clock.now(),
            node=_ref(node),
            placements=drain.placements,
            evicted=drain.evicted,
            failure=drain.failure,
            seconds=clock.monotonic() - started,
            removed=drain.succeeded and drain.group is not None,
            handed_over=drain.handed_over,
            tainted=not drain.released,
        )
        self._report(ended)
        return drain

    def _course(self, node: Node) -> "_Course":
        acts = Acts(self._access, node, refs.rivals(node, self._view.nodes().values()))
        return _Course(node, acts, self._access.clock, self._view, self._standing, self._threads, self._report)


class _Course:
    """One drain under way."""

    def __init__(
        self, node: Node, acts: Acts, clock: Clock, view: View, standing: Standing, threads: Threads, report: Report
    ) -> None:
        self._node = node
        self._acts = acts
        self._clock = clock
        self._view = view
        self._standing = standing
        self._threads = threads
        self._report = report
        self._answers: queue.SimpleQueue[Answer | Exception] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._evicting = False  # evictions that wait in the pool lapse when this turns False
        self._deposed = False  # once seen, it counts, even if we lead again a moment later
        self._stopped: Cause | None = None
        self._listing: _Listing | None = None

    def play(self, begun: Result) -> Drain:
        """Run the machine to its end. Raises what no request was expected to raise."""
        drain, actions = begun
        while not drain.done:
            self._evicting = drain.phase is Phase.EVICTING
            for action in actions:
                self._start(action)
            drain, actions = machine.step(drain, self._next(), self._clock.monotonic())
        self._evicting = False
        return drain

    def _start(self, action: Action) -> None:
        executor = self._threads.evictions if isinstance(action, Evict) else self._threads.others
        executor.submit(self._do, action)

    def _do(self, action: Action) -> None:
        """On a request thread: perform, unless it may not be done any more."""
        if not self._standing.leading:
            self._deposed = True
        if self._deposed or (isinstance(action, Evict) and (self._standing.stopping or not self._evicting)):
            return
        try:
            self._answers.put(self._acts.perform(action))
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
                return Seen(self._view.pods_on(self._node.name))

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
            if not isinstance(answer.event, Listed):
                return answer.event
            count = self._listing.count + 1 if self._listing else 1
            self._listing = _Listing(answer.event.present, self._clock.monotonic(), count)
        return None

    def _looked(self) -> Event | None:
        """The new plan, once the watched state shows the pods that the API server has listed.

        The LIST was made after the taint was on, so a plan on a state that agrees with it sees every pod that
        was bound before.
        """
        listing, name = self._listing, self._node.name
        if listing is None or listing.asked_anew:
            return None
        node = self._view.node(name)
        if node is None or node.metadata.uid != self._node.metadata.uid:
            self._listing = None
            return LookFailed(f"node {name} is gone", node_gone=True)
        if self._view.pods_on(name) == listing.present:
            self._listing = None
            return Looked(self._view.plan_node(name))
        if self._clock.monotonic() < listing.at + AGREE_SECONDS:
            return None
        if listing.count >= LISTINGS:
            self._listing = None
            return LookFailed(f"the pods that are watched on node {name} are not those that the API server lists there")
        self._listing = replace(listing, asked_anew=True)
        self._start(LookAgain())
        return None


@dataclass(frozen=True, slots=True)
class _Listing:
    present: frozenset[str]
    at: float
    count: int
    asked_anew: bool = False


def _ref(node: Node) -> NodeRef:
    return NodeRef(node.metadata.name, node.metadata.uid)
