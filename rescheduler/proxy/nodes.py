"""The view of the cluster that the proxy's drains and updates use."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from predicates.objects import Node, Pod
from predicates.snapshot import DRAIN_TAINT
from rescheduler.clock import Clock
from rescheduler.draining import intent
from rescheduler.draining.intent import ANNOTATION, Intent, Step
from rescheduler.errors import MarkLost, NotFound, ReschedulerError
from rescheduler.execution import node_refs
from rescheduler.execution.circumstances import intents, vetoes_of_others
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import DrainContext
from rescheduler.execution.watched_state import State
from rescheduler.kube.node_edit import NodeEdit
from rescheduler.observe import events
from rescheduler.observe.events import ErrorKind, Report, Trouble
from rescheduler.planning.last_look import OrderTerms
from rescheduler.planning.outcome import Verdict
from rescheduler.planning.policy import MoveJobs, Policy
from rescheduler.providers.base import NodeRef
from rescheduler.proxy.victim_rules import stays
from rescheduler.proxy.victims import Choice, Victims

#: Nodes are judged by the rules of `victims`; this policy only applies to the daemon's other checks.
_POLICY: Final = Policy(move_jobs=MoveJobs.ALWAYS)

#: The maximum wait until the watched state shows released nodes, and the wait between two checks, in seconds.
RELEASE_SECONDS: Final = 3.0
RELEASE_POLL_SECONDS: Final = 0.2


class ProxyView(ClusterView):
    """A view that judges nodes by the rules of a scale-down and sees only the marks for which *is_ours* is true."""

    def __init__(
        self, state: State, clock: Clock, holder: str, is_ours: Callable[[Intent], bool], own_node: str = ""
    ) -> None:
        super().__init__(state, _POLICY, clock, holder, own_node)
        self._cluster_state, self._now, self._is_ours = state, clock.now, is_ours
        self._name, self._own_name = holder, own_node

    def why_unusable(self) -> str:
        return super().why_unusable() or self.stale()

    def victims(self) -> Victims:
        """Return the rules applied to the current state of the cluster."""
        snapshot, now = self._cluster_state.snapshot(), self._now()
        others = vetoes_of_others(intents(snapshot.nodes), "", now)  # a proxy has no identity
        return Victims(snapshot, now, self._name, self._own_name, others)

    def plan_node(self, node: str, evicted: Collection[str] = ()) -> Verdict:
        return self.victims().judge(node, evicted)

    def order_terms(self, node: str) -> OrderTerms:  # noqa: ARG002 -- the pool defines which nodes it has
        return OrderTerms(stays=stays)

    def follow(self, node: str, due: Sequence[Pod], evicted: Collection[str] = ()) -> Verdict:
        return self.victims().follow(node, due, evicted)

    def marked(self) -> list[Node]:
        marked = ((node, intent.read(node)) for node in super().marked())
        return [node for node, written in marked if written is not None and self._is_ours(written)]


class ClusterNodes:
    """The watched cluster (implements `removal.NodeOperations`)."""

    def __init__(
        self,
        view: ProxyView,
        state: State,
        access: DrainContext,
        report: Report,
        stop: threading.Event,
        owed: Callable[[], str],
    ) -> None:
        """Create the operations. The provider of *access* is not used. Once *stop* is set, waits end.

        *owed* returns the pods that failed drains still owe.
        """
        self._view, self._state, self._cluster = view, state, access.cluster
        self._clock, self._holder, self._mark_validity, self._report = (
            access.clock,
            access.holder,
            access.mark_validity,
            report,
        )
        self._stop, self._owed = stop, owed

    def why_unusable(self) -> str:
        return self._view.why_unusable()

    def owed(self) -> str:
        return self._owed()

    def leaving(self) -> Collection[str]:
        return self._marked(Step.REMOVING)

    def draining(self) -> Collection[str]:
        """Return the nodes with our marks for which no machine termination was requested."""
        return self._marked(Step.DRAINING)

    def wait_for_release(self) -> None:
        """Wait briefly until the watched state no longer shows our marks."""
        deadline = self._clock.monotonic() + RELEASE_SECONDS
        while self.draining() and self._clock.monotonic() < deadline:
            if self._clock.wait(RELEASE_POLL_SECONDS, self._stop):
                break

    def _marked(self, step: Step) -> Collection[str]:
        intents = ((name, intent.read(node)) for name, node in self._view.nodes().items())
        return {name for name, mark in intents if mark and mark.holder == self._holder and mark.step is step}

    def refs(self) -> Sequence[NodeRef]:
        victims = self._view.victims()
        control = victims.control_plane
        return [node_refs.ref(node, control_plane=node.name in control) for node in self._view.nodes().values()]

    def choose(self, nodes: Sequence[str], limit: int) -> Choice:
        choice = self._view.victims().choose(nodes, limit)
        known = {name: events.InvolvedNode.of(node) for name, node in self._view.nodes().items()}
        self._report(events.Chosen(choice.plans, choice.rejected, known))
        return choice

    def taint(self, nodes: Sequence[str]) -> None:
        now = self._clock.now()
        written = Intent(
            self._holder, Step.DRAINING, now, until=now + self._mark_validity if self._mark_validity else None
        )
        taint = intent.taint(self._holder)
        edit = NodeEdit(taint=(taint,), annotate={ANNOTATION: written.dump()}, only_if=self._not_ours)
        for name in nodes:
            self._edit(name, edit)

    def release(self, nodes: Sequence[str]) -> None:
        edit = NodeEdit(untaint=(DRAIN_TAINT.key,), annotate={ANNOTATION: None}, only_if=self._not_ours)
        for name in nodes:
            try:
                self._edit(name, edit)
            except (NotFound, MarkLost):  # nothing left to release
                continue
            except ReschedulerError as error:
                self._report(Trouble(ErrorKind.WRITE, f"the taint could not be removed: {error}", name))
        if nodes:
            self.wait_for_release()

    def _not_ours(self, annotations: Mapping[str, str]) -> str:
        """Return why the marks on a node must not be changed if they belong to another program; "" otherwise."""
        text = annotations.get(ANNOTATION)
        written = None if text is None else intent.parse(text)
        if text is None or (written is not None and written.holder == self._holder):
            return ""
        return "another program drains it"

    def _edit(self, name: str, edit: NodeEdit) -> None:
        node = self._view.node(name)
        if node is None:
            raise NotFound(f"node {name} is gone")
        self._cluster.edit_node(name, node.metadata.uid, edit)
        if edit.taint:
            self._report(events.Tainted(events.InvolvedNode.of(node)))
