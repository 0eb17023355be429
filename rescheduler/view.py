"""The cluster through the eyes of planning: one snapshot, one planner over it, kept from round to round.

For one thread. What is returned holds until the next call.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Final, Protocol

from predicates.objects import Node, Pod
from predicates.snapshot import Snapshot
from rescheduler.clock import Clock
from rescheduler.cooldown import CoolDowns
from rescheduler.draining.intent import ANNOTATION, Step, is_marked, read
from rescheduler.errors import ReschedulerError
from rescheduler.planning.drainability import MIRROR, instant
from rescheduler.planning.outcome import Planning, Verdict
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, NodeLabel, Policy

#: A new pod that the scheduler has not looked at yet is waited for, but not for longer than this.
SETTLING: Final = timedelta(minutes=1)


class State(Protocol):
    """The watched cluster."""

    @property
    def synced(self) -> bool: ...

    @property
    def missing(self) -> tuple[str, ...]: ...

    @property
    def errors(self) -> Mapping[str, ReschedulerError]: ...

    def snapshot(self) -> Snapshot: ...


class View:
    def __init__(
        self,
        state: State,
        policy: Policy,
        clock: Clock,
        holder: str,
        optional: Collection[str] = (),
        own_node: str = "",
    ) -> None:
        """*optional*: the kinds without which a plan is still true; *own_node*: the one that we run on."""
        self.cooldowns = CoolDowns()
        self.ending: frozenset[str] = frozenset()  #: nodes that the cloud takes away soon, as far as it was asked
        self._state = state
        self._optional = frozenset(optional)
        self._policy = policy
        self._clock = clock
        self._holder = holder
        self._own_node = own_node
        self._made: Planner | None = None

    def unfit(self) -> str:
        """Why nothing can be decided from what was read of the cluster; "" where it can."""
        errors = {kind: error for kind, error in self._state.errors.items() if kind not in self._optional}
        if not self._state.synced:
            missing = ", ".join(self._state.missing)
            return f"not read yet: {missing}" + "".join(f"; {error}" for error in list(errors.values())[:1])
        if errors:
            kind, error = next(iter(errors.items()))
            return f"{kind} cannot be read at present: {error}"
        return ""

    def first_plan(self, *, take_empty: Callable[[str], bool]) -> Planning:
        """Verdicts up to the first node that can be emptied, or is empty and by *take_empty* to be taken."""
        return self._planner.first_plan(self._circumstances(), take_empty=take_empty)

    def plan_each(self) -> Planning:
        """A verdict for each on-demand node by itself."""
        return self._planner.plan_each(self._circumstances())

    def plan_node(self, node: str) -> Verdict:
        """A verdict for one node. Its own cool-down does not count: it is being drained already."""
        circumstances = self._circumstances()
        cooling = {name: until for name, until in circumstances.cooling.items() if name != node}
        return self._planner.look_again(
            node, Circumstances(circumstances.now, cooling, self._holder, own=self._own_node, ending=self.ending)
        )

    def waiting(self, patience: timedelta) -> list[Pod]:
        """Pods that wait for a place which drains could take from them; none after *patience*."""
        if not patience:
            return []
        stuck = self._planner.waiting(self._circumstances(), patience)
        now, known = self._clock.now(), {pod.key for pod in stuck}
        young = now - min(patience, SETTLING)
        settling = [
            pod
            for pod in self._state.snapshot().pods_on[""].values()
            if pod.unschedulable_since is None
            and pod.deletion_timestamp is None
            and not pod.cls.spec.scheduling_gates
            and (instant(pod.creation_timestamp) or young) > young
            and pod.key not in known
        ]
        return stuck + sorted(settling, key=lambda pod: pod.key)

    def node(self, name: str) -> Node | None:
        table = self._state.snapshot().nodes
        row = table.row.get(name)
        return None if row is None else table.nodes[row]

    def nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self._state.snapshot().nodes}

    def marked(self) -> list[Node]:
        """Nodes that carry our taint or our annotation, by name."""
        return sorted(filter(is_marked, self._state.snapshot().nodes), key=lambda node: node.name)

    def pods_on(self, node: str) -> frozenset[str]:
        """UIDs of the pods on *node* that have not ended."""
        return frozenset(pod.uid for pod in self._state.snapshot().pods_on[node].values())

    def pods(self) -> dict[str, Pod]:
        """All pods that have not ended, by key."""
        return self._state.snapshot().pods

    def is_spot(self, node: str) -> bool:
        """Whether *node* is there and is spot."""
        found = self.node(node)
        return found is not None and self._label_of(found) == self._policy.spot_label

    def counts(self) -> dict[str, dict[str, int]]:
        """How many pods that count each labelled node runs: label string of the flag → node → pods."""
        snapshot = self._state.snapshot()
        found: dict[str, dict[str, int]] = {str(self._policy.on_demand_label): {}, str(self._policy.spot_label): {}}
        for node in sorted(snapshot.nodes, key=lambda one: one.name):
            if (label := self._label_of(node)) is not None:
                found[str(label)][node.name] = sum(map(_counts, snapshot.pods_on[node.name].values()))
        return found

    def spot_nodes(self) -> list[Node]:
        """All spot nodes, by name."""
        return [node for name, node in sorted(self.nodes().items()) if self.is_spot(name)]

    def is_on_demand(self, node: Node) -> bool:
        return self._label_of(node) == self._policy.on_demand_label

    def _label_of(self, node: Node) -> NodeLabel | None:
        """The label that makes the node's type; spot wins."""
        for label in (self._policy.spot_label, self._policy.on_demand_label):
            if label.matches(node.metadata.labels):
                return label
        return None

    @property
    def _planner(self) -> Planner:
        snapshot = self._state.snapshot()
        if self._made is None:
            self._made = Planner(snapshot, self._policy)
        return self._made

    def _circumstances(self) -> Circumstances:
        now = self._clock.now()
        return Circumstances(
            now, self.cooldowns.active(now), self._holder, self._own_node, self._ordered(), self.ending
        )

    def _ordered(self) -> frozenset[str]:
        """Nodes whose machines may have been ordered away: a drain begun anew would forget when."""
        noted = (node for node in self._state.snapshot().nodes if ANNOTATION in node.metadata.annotations)
        intents = ((node.name, read(node)) for node in noted)
        return frozenset(name for name, found in intents if found is not None and found.step is Step.REMOVING)


def _counts(pod: Pod) -> bool:
    """The original counts no DaemonSet and no mirror pods."""
    return MIRROR not in pod.annotations and (pod.owner is None or pod.owner.kind != "DaemonSet")
