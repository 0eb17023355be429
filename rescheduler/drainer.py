"""Drains nodes, one at a time, and takes care of marks that no drain in progress explains."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from predicates.objects import Node
from rescheduler import refs
from rescheduler.access import PROVIDER_SECONDS, Access
from rescheduler.acts import Acts
from rescheduler.backends.base import Refusal
from rescheduler.course import Course, DebtKeeper, NoDebtKeeper, Standing
from rescheduler.draining import intent, machine, removing
from rescheduler.draining.intent import Intent, Step
from rescheduler.draining.state import Drain, Failure, Limits, Phase, Result, Why
from rescheduler.errors import NotFound, ReschedulerError
from rescheduler.observe.events import (
    DrainEnded,
    DrainStarted,
    ErrorKind,
    MachineGone,
    NodeRef,
    RemovalPostponed,
    Report,
    Sweep,
    Swept,
    Trouble,
)
from rescheduler.orders import MachineOrders
from rescheduler.planning.candidates import PROXIES
from rescheduler.planning.debts import Debt
from rescheduler.planning.outcome import Blocker, Plan, Reason
from rescheduler.threads import Threads
from rescheduler.view import View

#: Another installation that has not renewed its mark for so long after its promise is taken for dead.
ABANDONED: Final = timedelta(hours=1)

#: Seconds between two questions about a machine whose end is not confirmed: doubling, so that others have their turn.
FIRST_QUESTION: Final = 10.0
LONGEST_QUESTION: Final = 300.0

#: Seconds that such a question may take.
QUESTION_SECONDS: Final = 10.0

log = logging.getLogger(__name__)


class ProviderSilent(ReschedulerError):
    """The provider cannot be asked now: that says nothing about any node."""


@dataclass(frozen=True, slots=True)
class _Removal:
    """What is remembered of a removal between rounds."""

    ask_at: float
    wait: float
    absent: bool


@dataclass(frozen=True, slots=True)
class Ordered:
    """A drain whose machine was ordered away, and whose end is still to be awaited."""

    drain: Drain
    node: Node
    started: float  #: when the drain began, in monotonic seconds


class Drainer:
    """For one thread. *debts*: see :class:`~rescheduler.course.Course`."""

    def __init__(
        self,
        access: Access,
        view: View,
        standing: Standing,
        threads: Threads,
        limits: Limits,
        report: Report,
        debts: DebtKeeper | None = None,
    ) -> None:
        self._access = access
        self._view = view
        self._standing = standing
        self._threads = threads
        self._limits = limits
        self._report = report
        self._debts = debts or NoDebtKeeper()
        self._removals: dict[str, _Removal] = {}  # by UID of the Node

    @property
    def takes_machines(self) -> bool:
        """Whether emptied nodes are handed to a provider."""
        return self._access.provider.name != "none"

    def notices(self, nodes: Sequence[Node]) -> Mapping[str, datetime]:
        """Which of *nodes* the provider, asked now, knows to end soon, and when. Raises ProviderSilent."""
        provider, deadline = self._access.provider, self._access.clock.monotonic() + PROVIDER_SECONDS
        with self._asking():
            provider.refresh(deadline=deadline)
            return provider.notices([refs.ref(node) for node in nodes], deadline=deadline)

    def refusal(self, name: str) -> Blocker | None:
        """Why the provider keeps the machine of node *name*; None for a machine that it would take, or that is not
        its own. Raises ProviderSilent.
        """
        if not self.takes_machines or (node := self._view.node(name)) is None:
            return None
        orders = MachineOrders(self._access, node, refs.rivals(node, self._view.nodes().values()))
        with self._asking():
            _, refused = orders.inquire()
        if refused is None:
            return None
        provider = self._access.provider.name
        if refused.reason is Refusal.BELOW_MINIMUM:
            return Blocker(Reason.BELOW_MINIMUM, f"{provider}: {refused.detail}")
        return Blocker(Reason.PROVIDER_REFUSED, f"{provider}: {refused.reason}: {refused.detail}")

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except ReschedulerError as error:
            self._report(Trouble(ErrorKind.PROVIDER, f"{self._access.provider.name}: {error}"))
            raise ProviderSilent(str(error)) from error

    def ending(self, nodes: Iterable[Node]) -> frozenset[str]:
        """Which of *nodes* have no machine any more, or one that is on its way out. Raises ProviderSilent."""
        provider, deadline = self._access.provider, self._access.clock.monotonic() + PROVIDER_SECONDS
        with self._asking():
            provider.refresh(deadline=deadline)
            asked = ((node.name, provider.has_instance(refs.ref(node), deadline=deadline)) for node in nodes)
            return frozenset(name for name, there in asked if there is False)

    def drain(self, plan: Plan) -> Drain | None:
        """Carry *plan* out; how it ended, None where the node is gone already."""
        if (node := self._view.node(plan.node)) is None:
            return None
        self._report(DrainStarted(_ref(node), plan))
        return self._played(node, machine.start(plan, self._limits))

    def order(self, plan: Plan) -> Drain | Ordered | None:
        """As `drain`, but where the provider has taken the order for the machine, `finish` waits for its end.

        So the next drain can begin meanwhile. The provider must answer as soon as it has taken an order.
        """
        if (node := self._view.node(plan.node)) is None:
            return None
        self._report(DrainStarted(_ref(node), plan))
        started = self._access.clock.monotonic()
        drain = self._play(node, machine.start(plan, replace(self._limits, removal=0)))
        if drain.handed_over:
            return Ordered(drain, node, started)
        return self._ended(node, drain, started)

    def finish(self, ordered: Ordered) -> Drain:
        """Wait for the end of the machine; how the drain ended."""
        begun = removing.await_end(ordered.drain, self._limits, self._access.clock.monotonic())
        drain = self._play(self._with_order(ordered.node), begun)
        return self._ended(ordered.node, drain, ordered.started)

    def _with_order(self, node: Node) -> Node:
        """*node* with the mark of our order on it, which further marks may replace; as it was, where that is lost."""
        fresh = self._fresh(node)
        written = intent.read(fresh) if fresh is not None else None
        ours = written is not None and written.holder == self._access.holder and written.step is Step.REMOVING
        return fresh if fresh is not None and ours else node

    def sweep(self, ended: Callable[[Drain], object] = lambda _: None, *, hurried: bool = False) -> bool:
        """Continue or roll back the drains that marks tell of and nobody performs; whether there were any.

        *ended* is told of each drain at its end. *hurried*: somebody waits, so machines are asked about now.

        A cloudpool proxy has no Lease: nobody can tell from outside whether it runs, and it finishes its own drains
        after a restart. So its marks are left to it until the moment that they name has passed.
        """
        marked = self._view.marked()
        here = {node.metadata.uid for node in marked}
        self._removals = {uid: removal for uid, removal in self._removals.items() if uid in here}
        swept = False
        for node in marked:
            if (drain := self._swept(node, hurried=hurried)) is not None:
                ended(drain)
                swept = True
        return swept

    def _swept(self, node: Node, *, hurried: bool) -> Drain | None:
        """What another process of ours began is continued; what we left behind, or nobody can read, is rolled back.

        The watched state may lag behind our own last write, so the Node is read again before.
        """
        fresh = self._fresh(node)
        if fresh is None or not intent.is_marked(fresh):
            return None
        node, written = fresh, intent.read(fresh)
        if written is not None and self._of_a_proxy(written):
            return self._after_proxy(node, written)
        if written is not None and self._of_another(written):
            return self._after_another(node, written)
        if written is not None and written.step is Step.REMOVING:
            return self._removal(node, written, hurried=hurried)
        if written is None or written.holder == self._access.holder:
            debts = written.debts if written is not None else ()
            return self._roll_back(node, written.holder if written else "", debts)
        self._report(Swept(_ref(node), written.holder, Sweep.RESUMED))
        self._report(DrainStarted(_ref(node), None))
        return self._played(node, machine.resume(node.name, self._limits, written.pods, written.debts))

    def _fresh(self, node: Node) -> Node | None:
        """*node* as the API server has it, `None` where it is gone. Where that cannot be read, as it was."""
        try:
            fresh = self._access.cluster.node(node.name)
        except NotFound:
            return None
        except ReschedulerError:
            return node
        return fresh if fresh.metadata.uid == node.metadata.uid else None

    def _removal(self, node: Node, written: Intent, *, hurried: bool) -> Drain | None:
        """Ask once for the machine. One that does not end is asked about ever more rarely, unless somebody waits.

        A provider that did not know the machine is always given its time.
        """
        now, uid = self._access.clock.monotonic(), node.metadata.uid
        before = self._removals.get(uid, _Removal(now, FIRST_QUESTION, absent=False))
        if now < before.ask_at and (before.absent or not hurried):
            return None
        limits = replace(self._limits, removal=0)
        begun = machine.resume_removal(
            node.name, limits, written.group, written.since, written.debts, absent=before.absent
        )
        drain = self._played(node, begun, resumed=True)
        asked = self._access.clock.monotonic()
        self._removals[uid] = _Removal(asked + before.wait, min(2 * before.wait, LONGEST_QUESTION), drain.absent)
        return drain

    def _of_a_proxy(self, written: Intent) -> bool:
        return written.holder.startswith(PROXIES) and written.holder != self._access.holder

    def _of_another(self, written: Intent) -> bool:
        """Whether another installation wrote it. Marks of version 0.1.0 name no installation: they count as ours."""
        return bool(written.identity) and written.identity != self._access.identity

    def _after_proxy(self, node: Node, written: Intent) -> Drain | None:
        """A dead proxy's call is nobody's any more: its drain is rolled back.

        A machine that it may have ordered away, and that still runs after all this time, stays. Where the machine is
        gone, its Node is for whoever knows the cloud to delete; until then nothing is put there.
        """
        runs = written.step is not Step.REMOVING or node.condition("Ready") == "True"
        if written.lapsed(self._access.clock.now()) and runs:
            return self._roll_back(node, written.holder)
        return None

    def _after_another(self, node: Node, written: Intent) -> Drain | None:
        """Marks of another installation are respected; long after its promise a drain of it is rolled back."""
        now = self._access.clock.now()
        if written.step is Step.DRAINING and written.lapsed(now - ABANDONED):
            return self._roll_back(node, written.holder)
        return None

    def _roll_back(self, node: Node, holder: str, debts: tuple[Debt, ...] = ()) -> Drain:
        self._report(Swept(_ref(node), holder, Sweep.ROLLED_BACK))
        now = self._access.clock.monotonic()
        return self._play(node, machine.roll_back(node.name, self._limits, debts, now))

    def _played(self, node: Node, begun: Result, *, resumed: bool = False) -> Drain:
        """Play a drain to its end, and report it. *resumed*: the drain itself was reported when it ended."""
        started = self._access.clock.monotonic()
        return self._ended(node, self._play(node, begun, resumed=resumed), started, resumed=resumed)

    def _ended(self, node: Node, drain: Drain, started: float, *, resumed: bool = False) -> Drain:
        """Report a drain that has ended."""
        clock = self._access.clock
        if drain.handed_over and not resumed:
            self._removals[node.metadata.uid] = _Removal(
                clock.monotonic() + FIRST_QUESTION, FIRST_QUESTION, drain.absent
            )
        if resumed and drain.failure is None:
            if drain.succeeded:
                self._report(MachineGone(_ref(node)))
            elif drain.postponed is not None:
                self._report(RemovalPostponed(_ref(node), drain.postponed))
            return drain
        self._report(
            DrainEnded(
                at=clock.now(),
                node=_ref(node),
                placements=drain.placements,
                evicted=drain.evicted,
                failure=drain.failure,
                seconds=clock.monotonic() - started,
                removed=drain.succeeded and drain.group is not None,
                unshrunk=drain.unshrunk,
                handed_over=drain.handed_over,
                tainted=not drain.released,
                landing_seconds=drain.landing_seconds,
                removed_by=drain.removed_by,
            )
        )
        return drain

    def _play(self, node: Node, begun: Result, *, resumed: bool = False) -> Drain:
        """Play a drain to its end. An error of this program fails it: the node keeps its marks until the next sweep."""
        course = self._course(node, resumed=resumed)
        try:
            return course.play(begun)
        except Exception as error:
            log.exception("the drain of node %s ended in an error of this program", node.name)
            why = f"{type(error).__name__}: {error}"
            self._report(Trouble(ErrorKind.ROUND, why, node.name))
            return replace(course.drain, phase=Phase.DONE, failure=Failure(Why.INTERNAL_ERROR, why))

    def _course(self, node: Node, *, resumed: bool = False) -> Course:
        access = replace(self._access, provider_seconds=QUESTION_SECONDS) if resumed else self._access
        acts = Acts(access, node, refs.rivals(node, self._view.nodes().values()))
        return Course(
            node, acts, self._access.clock, self._view, self._standing, self._threads, self._report, self._debts
        )


def _ref(node: Node) -> NodeRef:
    return NodeRef(node.metadata.name, node.metadata.uid)
