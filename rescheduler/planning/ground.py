"""The inputs that the verdicts on all nodes share, as one value. Verdicts can be reused while it is unchanged.

A verdict also depends on facts of its own node: its pods and their edits (annotations and status), the budgets that
select them, its cooldown and vetoes, and deadlines that pass. They are checked node by node, in
:mod:`rescheduler.planning.kept_verdicts`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from predicates.snapshot import Snapshot
from predicates.unreadable import Unreadable
from rescheduler.planning.budgets import Budgets
from rescheduler.planning.policy import Circumstances

#: Replaces the time in circumstances that are compared.
_ANY_TIME: Final = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Ground:
    """The inputs of planning that concern all nodes, except for the policy."""

    nodes: tuple[int, int]  #: counts of changes to nodes, and to everything else that all filters depend on
    pods: int  #: unchanged while each node has equal pods
    generation: int
    versions: Mapping[str, int]  #: without PodDisruptionBudgets
    selection: object  #: changes with the selectors of PodDisruptionBudgets
    unreadable: tuple[Unreadable, ...]
    circumstances: Circumstances  #: without the time, cooldowns and vetoes


def common_ground(snapshot: Snapshot, budgets: Budgets, circumstances: Circumstances) -> Ground:
    """Return the ground of the current *snapshot*.

    Edits of pods, the replacement of pods by equal ones on the same nodes, and the status of budgets do not change it.
    """
    return Ground(
        nodes=(snapshot.node_versions, snapshot.epoch),
        pods=snapshot.balance.version(),
        generation=snapshot.generation,
        versions={kind: count for kind, count in snapshot.versions.items() if kind != "PodDisruptionBudget"},
        selection=budgets.selection,
        unreadable=snapshot.unreadable,
        circumstances=replace(timeless(circumstances), cooling={}, vetoes={}),
    )


def timeless(circumstances: Circumstances) -> Circumstances:
    """Return *circumstances* without the time, for comparisons."""
    return replace(circumstances, now=_ANY_TIME)
