"""What it costs to move pods, and what a node is worth for it: money per month for a moved pod. Pure.

A pod costs 1, times five factors that docs/money.md defines for users. What is not known has the factor 1.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from rescheduler.planning.forms import count, money, per_month, plain
from rescheduler.planning.outcome import Blocker, Reason

#: Annotations of pods that say what their eviction costs, as integers of 32 bits. The first one that is there counts.
DISRUPTION_COSTS: Final = ("karpenter.sh/disruption-cost", "controller.kubernetes.io/pod-deletion-cost")

#: How Karpenter weighs an annotation and the priority of a pod (``disruption.EvictionCost``).
_COST_UNIT: Final = 2**27
_PRIORITY_UNIT: Final = 2**25

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_BITS: Final = range(-(2**31), 2**31)

#: The bounds of the factors.
LEAST_OWN: Final = 0.1
MOST_OWN: Final = 10.0
SLOWEST: Final = 4.0
ONLY_REPLICA: Final = 2.0
MOST_MOVED: Final = 4.0

#: Seconds until a replacement pod is Ready, up to which the factor is 1. Fast owners do not cost less than unknown
#: ones: otherwise, nodes would become worth more after the first drains.
USUAL_SECONDS: Final = 30.0


def annotated_cost(annotations: Mapping[str, str]) -> int:
    """Return the cost that the *annotations* of a pod state; 0 if there is none, or if it is not such an integer."""
    text = next((annotations[key] for key in DISRUPTION_COSTS if key in annotations), "")
    number = int(text) if _INTEGER.fullmatch(text) else 0
    return number if number in _BITS else 0


def own_factor(cost: int, priority: int) -> float:
    """Return the factor of what the pod says of itself: 1, as for Karpenter, with *cost* 0 and *priority* 0."""
    return min(max(1 + cost / _COST_UNIT + priority / _PRIORITY_UNIT, LEAST_OWN), MOST_OWN)


def owner_factor(ready: float | None, moved: int, replicas: int) -> float:
    """Return the factor of an owner: its moves cost more if they take long, were many, or interrupt its only replica.

    *ready* are the seconds until its replacement pods were Ready, or None if that is not known. Of its *replicas*, as
    many pods were *moved* within a week.
    """
    slow = 1.0 if ready is None else min(max(ready / USUAL_SECONDS, 1.0), SLOWEST)
    often = min(1 + moved / max(1, replicas), MOST_MOVED)
    return slow * often * (ONLY_REPLICA if replicas == 1 else 1.0)


def min_worth_flag(value: float) -> str:
    """Return the flag ``--min-worth`` with *value*, in the form that it accepts."""
    return f"--min-worth={plain(value)}"


@dataclass(frozen=True, slots=True)
class MoveHistory:
    """What is remembered about moves. Owners are named ``namespace/Kind/name``."""

    moved: Mapping[str, int]  #: pods that were moved within a week, by owner
    ready: Mapping[str, float]  #: seconds until replacement pods were Ready, by owner
    hazards: Mapping[str, float]  #: the probability that a spot node is lost within a week, by pool


NO_HISTORY: Final = MoveHistory({}, {}, {})


@dataclass(frozen=True, slots=True)
class MoveWorth:
    """What it costs to move the pods of a node, and what that saves."""

    pods: int
    cost: float  #: the sum of the costs of the pods: as if so many plain pods were moved
    saved_per_month: float | None  #: None if the price of the node is not known

    @property
    def per_move(self) -> float | None:
        """Money per month for a moved pod. None if the price is not known; infinite if no pod has to move."""
        if self.saved_per_month is None:
            return None
        return self.saved_per_month / self.cost if self.cost else math.inf

    @property
    def rank(self) -> tuple[bool, float, float]:
        """The place in the drain order: nodes with a price first, the most money for a moved pod, the lowest cost."""
        return self.per_move is None, -(self.per_move or 0.0), self.cost

    def blocker(self, least: float, currency: str) -> Blocker | None:
        """Return a blocker if the node is worth less than *least* for a moved pod. Without a price, there is none."""
        per_move = self.per_move
        if self.saved_per_month is None or per_move is None or per_move >= least:
            return None
        saved = per_month(Decimal(self.saved_per_month), currency)
        detail = (
            f"it saves {saved} for {count(self.pods, 'pod')} that cost {self.cost:.1f} moves: "
            f"{money(Decimal(per_move), '')} for a move; {min_worth_flag(least)} asks for more"
        )
        return Blocker(Reason.NOT_WORTH_IT, detail)


@dataclass(frozen=True, slots=True)
class PlanMoves:
    """What the moves of a plan cost, and what nodes are worth for theirs."""

    worths: Mapping[str, MoveWorth] = field(default_factory=dict)  #: of nodes with plans, and of those not worth it
    cost: float = 0.0  #: of all moves of the plan


# What is saved with fewer moves.


@dataclass(frozen=True, slots=True)
class WorthPoint:
    """A plan with a value of ``--min-worth``."""

    min_worth: float
    nodes: int  #: that it frees
    pods: int  #: that it moves
    cost: float  #: of these moves
    per_month: Decimal  #: what it saves


@dataclass(frozen=True, slots=True)
class WorthCurve:
    """Plans with rising values of ``--min-worth``."""

    points: tuple[WorthPoint, ...]  #: the first one is the plan as it is
    recommended: WorthPoint | None  #: with most of the money and few of the moves; None if there is none

    @property
    def text(self) -> str:
        """The recommended value, as the part of a sentence; "" if there is none."""
        point, whole = self.recommended, self.points[0]
        if point is None:
            return ""
        money = math.floor(100 * point.per_month / whole.per_month)
        moves = math.ceil(100 * point.pods / whole.pods)
        return f"{money}% of the money with {moves}% of the moves: {min_worth_flag(point.min_worth)}"
