"""The cluster as the proxy's drains and updates see it."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from predicates.objects import Node, Pod
from predicates.snapshot import DRAIN_TAINT
from rescheduler import refs
from rescheduler.access import Access
from rescheduler.backends.base import NodeRef
from rescheduler.clock import Clock
from rescheduler.draining import intent
from rescheduler.draining.intent import ANNOTATION, Intent, Step
from rescheduler.errors import MarkLost, NotFound, ReschedulerError
from rescheduler.kube.node_edit import NodeEdit
from rescheduler.observe import events
from rescheduler.observe.events import ErrorKind, Report, Trouble
from rescheduler.planning.outcome import Verdict
from rescheduler.planning.policy import MoveJobs, Policy
from rescheduler.proxy.victims import Choice, Victims
from rescheduler.view import State, View

#: Nodes are judged by the rules of `victims`; of the policy, nothing else is asked.
_POLICY: Final = Policy(move_jobs=MoveJobs.ALWAYS)

#: Seconds in which what was taken back must show in the watched state, and between two looks whether it does.
AGREE_SECONDS: Final = 3.0
AGREE_STEP_SECONDS: Final = 0.2


class ProxyView(View):
    """Judges nodes by the rules of a scale-down, and sees only the marks that *mine* says are its own."""

    def __init__(
        self, state: State, clock: Clock, holder: str, mine: Callable[[Intent], bool], own_node: str = ""
    ) -> None:
        super().__init__(state, _POLICY, clock, holder, own_node)
        self._cluster_state, self._now, self._mine = state, clock.now, mine
        self._name, self._own_name = holder, own_node

    def unfit(self) -> str:
        return super().unfit() or self.stale()

    def victims(self) -> Victims:
        """The judge of the cluster as it is now."""
        others = self._of_others(self._intents())
        return Victims(self._cluster_state.snapshot(), self._now(), self._name, self._own_name, others)

    def plan_node(self, node: str, evicted: Collection[str] = ()) -> Verdict:
        return self.victims().judge(node, evicted)

    def follow(self, node: str, due: Sequence[Pod], evicted: Collection[str] = ()) -> Verdict:
        return self.victims().follow(node, due, evicted)

    def marked(self) -> list[Node]:
        found = ((node, intent.read(node)) for node in super().marked())
        return [node for node, written in found if written is not None and self._mine(written)]


class ClusterNodes:
    """See `removal.Nodes`."""

    def __init__(
        self,
        view: ProxyView,
        state: State,
        access: Access,
        report: Report,
        stop: threading.Event,
        owed: Callable[[], str],
    ) -> None:
        """Of *access*, its provider is not asked. Once *stop* is set, nothing is waited for.

        *owed* tells what failed drains still owe.
        """
        self._view, self._state, self._cluster = view, state, access.cluster
        self._clock, self._holder, self._promise, self._report = access.clock, access.holder, access.promise, report
        self._stop, self._owed = stop, owed

    def unfit(self) -> str:
        return self._view.unfit()

    def owed(self) -> str:
        return self._owed()

    def leaving(self) -> Collection[str]:
        return self._marked(Step.REMOVING)

    def draining(self) -> Collection[str]:
        """Nodes that carry our marks, and whose machines stay as far as we know."""
        return self._marked(Step.DRAINING)

    def agree(self) -> None:
        """Wait until the watched state shows that our marks are off; not for long."""
        deadline = self._clock.monotonic() + AGREE_SECONDS
        while self.draining() and self._clock.monotonic() < deadline:
            if self._clock.wait(AGREE_STEP_SECONDS, self._stop):
                break

    def _marked(self, step: Step) -> Collection[str]:
        intents = ((name, intent.read(node)) for name, node in self._view.nodes().items())
        return {name for name, found in intents if found and found.holder == self._holder and found.step is step}

    def refs(self) -> Sequence[NodeRef]:
        victims = self._view.victims()
        control = victims.control_plane
        return [refs.ref(node, control_plane=node.name in control) for node in self._view.nodes().values()]

    def choose(self, nodes: Sequence[str], most: int) -> Choice:
        choice = self._view.victims().choose(nodes, most)
        known = {name: events.NodeRef(name, node.metadata.uid) for name, node in self._view.nodes().items()}
        self._report(events.Chosen(choice.plans, choice.rejected, known))
        return choice

    def taint(self, nodes: Sequence[str]) -> None:
        now = self._clock.now()
        written = Intent(self._holder, Step.DRAINING, now, until=now + self._promise if self._promise else None)
        taint = intent.taint(self._holder)
        edit = NodeEdit(taint=(taint,), annotate={ANNOTATION: written.dump()}, only_if=self._not_ours)
        for name in nodes:
            self._edit(name, edit)

    def release(self, nodes: Sequence[str]) -> None:
        edit = NodeEdit(untaint=(DRAIN_TAINT.key,), annotate={ANNOTATION: None}, only_if=self._not_ours)
        for name in nodes:
            try:
                self._edit(name, edit)
            except (NotFound, MarkLost):  # nothing of ours is left
                continue
            except ReschedulerError as error:
                self._report(Trouble(ErrorKind.WRITE, f"the taint is still on: {error}", name))
        if nodes:
            self.agree()

    def _not_ours(self, annotations: Mapping[str, str]) -> str:
        """Why the marks on a node must be left alone: somebody else's."""
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
            self._report(events.Tainted(events.NodeRef(name, node.metadata.uid)))
