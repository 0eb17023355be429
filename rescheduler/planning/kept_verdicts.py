"""The verdicts of earlier rounds that are still valid.

While the ground is unchanged, a verdict follows from the findings on its node: the results of the rules and the
budgets. The findings are computed again in these cases: a pod of the node was edited or replaced; a budget of these
pods, or the cooldown or vetoes of the node have changed; an instant that the rules depend on has been reached; a pod
was edited or replaced whose times were used to estimate the steps under a budget. If the findings on the same pods are
unchanged, so is the verdict.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import TypeAlias

from predicates.snapshot import Snapshot
from rescheduler.planning.budgets import BudgetTerms
from rescheduler.planning.cooldowns import Cooldown
from rescheduler.planning.ground import Ground
from rescheduler.planning.outcome import Blocker, PodRef, Verdict
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.rules.minimum import Minimum
from rescheduler.planning.verdicts import Examined, examine

#: Takes an examined node; returns its verdict, and whether the verdict is final.
Judge: TypeAlias = Callable[[Examined], tuple[Verdict, bool]]


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of the rules and the budgets for a node."""

    blockers: tuple[Blocker, ...]
    movers: tuple[str, ...]  #: keys of the pods that may be evicted
    must_move: tuple[str, ...]  #: keys of all pods that must move
    leaving: tuple[PodRef, ...]
    counts: bool  #: whether the node counts towards the minimum
    of_budgets: tuple[Blocker, ...]  #: blockers for all pods that must move
    of_movers: tuple[Blocker, ...]  #: blockers for the pods that may be evicted


@dataclass(frozen=True, slots=True)
class Inputs:
    """The facts on which the findings depend, in addition to the ground."""

    changes: int  #: of the snapshot
    until: datetime | None  #: the findings are not valid from this instant on
    cooldown: Cooldown | None
    vetoes: tuple[Blocker, ...]
    budgets: Mapping[str, BudgetTerms]  #: those that select pods of the node
    budgets_version: object  #: of the snapshot
    estimated: frozenset[str]  #: budgets whose pods' time until Ready was estimated


@dataclass(slots=True)
class JudgedNode:
    """A verdict, and the inputs that it was derived from."""

    verdict: Verdict
    final: bool  #: False if a later round may reach a different verdict although nothing changes
    findings: Findings
    inputs: Inputs
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
        self._drop_if_outdated(shared)
        stored = self._by_node.get(node)
        if stored is not None and self._has_inputs(node, stored.inputs, shared):
            return stored
        examined, findings, inputs = _apply_rules(node, shared)
        same_pods = stored is not None and self._snapshot.placed_on.get(node, 0) <= stored.inputs.changes
        if stored is not None and same_pods and stored.findings == findings:
            stored.inputs = inputs
            return stored
        self._by_node.pop(node, None)
        judged = JudgedNode(*judge(examined), findings, inputs)
        if judged.final:
            self._by_node[node] = judged
        return judged

    def _drop_if_outdated(self, shared: PlanningRound) -> None:
        """Drop all verdicts if the ground has changed."""
        if self._ground is None or self._ground[0] is not shared.ground or self._ground[1] is not shared.minimum:
            ground = shared.ground, shared.minimum
            if self._ground != ground:
                self._by_node.clear()
            self._ground = ground

    def _has_inputs(self, node: str, inputs: Inputs, shared: PlanningRound) -> bool:
        now, cooling, vetoes = shared.circumstances.now, shared.circumstances.cooling, shared.circumstances.vetoes
        return (
            (inputs.until is None or now < inputs.until)
            and inputs.cooldown == cooling.get(node)
            and inputs.vetoes == vetoes.get(node, ())
            and self._snapshot.edited_on.get(node, 0) <= inputs.changes
            and self._snapshot.placed_on.get(node, 0) <= inputs.changes
            and _are_budgets_unchanged(inputs, shared)
            and (not inputs.estimated or not self._edited_since(inputs, shared))
        )

    def _edited_since(self, inputs: Inputs, shared: PlanningRound) -> bool:
        """Return whether a pod of one of the estimated budgets was edited or replaced after the node was judged."""
        if self._edited[0] != self._snapshot.changes:
            last_edits: dict[str, int] = {}
            for class_and_labels, change in self._snapshot.edited_of.items():
                for key in shared.budgets.of_class(*class_and_labels):
                    last_edits[key] = max(change, last_edits.get(key, 0))
            self._edited = self._snapshot.changes, last_edits
        return any(self._edited[1].get(key, 0) > inputs.changes for key in inputs.estimated)


def _are_budgets_unchanged(inputs: Inputs, shared: PlanningRound) -> bool:
    """Return whether the budgets have the terms that the verdict of *inputs* is based on."""
    if inputs.budgets_version == shared.budgets.built_from:
        return True
    return all(shared.budgets.terms(key) == terms for key, terms in inputs.budgets.items())


def _apply_rules(node: str, shared: PlanningRound) -> tuple[Examined, Findings, Inputs]:
    """Apply the rules and the budgets to *node*. Return the findings and their inputs."""
    deadlines, steps, circumstances = shared.circumstances.deadlines, shared.steps, shared.circumstances
    deadlines.take()
    steps.take_estimated()
    examined = examine(node, shared)
    candidate = examined.candidate
    all_move = len(candidate.movers) == len(examined.must_move)
    must_move = tuple([pod.key for pod in examined.must_move])
    of_budgets = tuple(shared.remaining().blockers(examined.evictions))
    findings = Findings(
        blockers=examined.blockers,
        movers=must_move if all_move else tuple([pod.key for pod in candidate.movers]),
        must_move=must_move,
        leaving=candidate.leaving,
        counts=candidate.counts,
        of_budgets=of_budgets,
        of_movers=of_budgets if all_move else tuple(shared.remaining().lacking(candidate.movers)),
    )
    selecting = set(chain.from_iterable(map(shared.budgets.of, shared.snapshot.pods_on[node].values())))
    inputs = Inputs(
        changes=shared.snapshot.changes,
        until=deadlines.take(),
        cooldown=circumstances.cooling.get(node),
        vetoes=circumstances.vetoes.get(node, ()),
        budgets={key: shared.budgets.terms(key) for key in selecting},
        budgets_version=shared.budgets.built_from,
        estimated=steps.take_estimated(),
    )
    return examined, findings, inputs
