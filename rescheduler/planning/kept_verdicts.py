"""The verdicts of earlier rounds that are still valid.

A verdict is judged again if its ground has changed, a pod of its node was edited, its cooldown or vetoes differ, an
instant that it depends on has come, or a pod was edited whose budget's steps it estimates.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from predicates.snapshot import Snapshot
from rescheduler.planning.cooldowns import Cooldown
from rescheduler.planning.ground import Ground
from rescheduler.planning.minimum import Minimum
from rescheduler.planning.outcome import Blocker, Verdict
from rescheduler.planning.planning_round import PlanningRound

#: Given the name of a node: its verdict, and whether the verdict is final.
Judge: TypeAlias = Callable[[str], tuple[Verdict, bool]]


@dataclass(slots=True)
class JudgedNode:
    """A verdict and what it depends on besides its ground."""

    verdict: Verdict
    final: bool  #: False: a later round may come to another verdict although nothing changes
    changes: int  #: of the snapshot when the node was judged
    until: datetime | None  #: the verdict is not valid from this instant on
    budgets: frozenset[str]  #: budgets whose pods' time until Ready was estimated
    cooldown: Cooldown | None
    vetoes: tuple[Blocker, ...]
    forecast: Verdict | None = None  #: the verdict with a forecast, if there is one


class KeptVerdicts:
    """The verdicts of one kind, by node. Valid for one snapshot and one policy."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._ground: tuple[Ground, Minimum] | None = None
        self._by_node: dict[str, JudgedNode] = {}
        self._edited: tuple[int, Mapping[str, int]] = -1, {}

    def of(self, node: str, shared: PlanningRound, judge: Judge) -> JudgedNode:
        """Return the kept verdict on *node* if it is valid. Otherwise *judge* the node, and keep a final verdict."""
        self._look(shared)
        kept = self._by_node.get(node)
        if kept is not None and self._is_valid(node, kept, shared):
            return kept
        self._by_node.pop(node, None)
        judged = self._judged(node, shared, judge)
        if judged.final:
            self._by_node[node] = judged
        return judged

    def _look(self, shared: PlanningRound) -> None:
        """Drop all verdicts if the ground has changed."""
        if self._ground is None or self._ground[0] is not shared.ground or self._ground[1] is not shared.minimum:
            ground = shared.ground, shared.minimum
            if self._ground != ground:
                self._by_node.clear()
            self._ground = ground

    def _is_valid(self, node: str, kept: JudgedNode, shared: PlanningRound) -> bool:
        now, (cooldown, vetoes) = shared.circumstances.now, _own_facts(node, shared)
        return (
            (kept.until is None or now < kept.until)
            and kept.cooldown == cooldown
            and kept.vetoes == vetoes
            and self._snapshot.edited_on.get(node, 0) <= kept.changes
            and (not kept.budgets or not self._edited_since(kept, shared))
        )

    def _edited_since(self, kept: JudgedNode, shared: PlanningRound) -> bool:
        """Return whether a pod of one of the budgets of *kept* was edited after the node was judged."""
        if self._edited[0] != self._snapshot.changes:
            last: dict[str, int] = {}
            for pod, change in self._snapshot.edited_of.items():
                for key in shared.budgets.of(pod):
                    last[key] = max(change, last.get(key, 0))
            self._edited = self._snapshot.changes, last
        return any(self._edited[1].get(key, 0) > kept.changes for key in kept.budgets)

    def _judged(self, node: str, shared: PlanningRound, judge: Judge) -> JudgedNode:
        deadlines, steps = shared.circumstances.deadlines, shared.steps
        deadlines.take()
        steps.take_estimated()
        verdict, final = judge(node)
        changes, until, budgets = self._snapshot.changes, deadlines.take(), steps.take_estimated()
        return JudgedNode(verdict, final, changes, until, budgets, *_own_facts(node, shared))


def _own_facts(node: str, shared: PlanningRound) -> tuple[Cooldown | None, tuple[Blocker, ...]]:
    circumstances = shared.circumstances
    return circumstances.cooling.get(node), circumstances.vetoes.get(node, ())
