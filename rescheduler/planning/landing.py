"""Where the replacement pods of a drain landed, compared with its forecast.

A plan is a forecast: the scheduler decides. Where too many pods come back to on-demand nodes, drains only shuffle
pods, so the next ones wait.
"""

import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from predicates.objects import Pod
from rescheduler.planning.outcome import Plan


class Outcome(enum.StrEnum):
    """What became of one forecast; a label of metrics."""

    AS_FORECAST = "as-forecast"  #: on the forecast node
    OTHER_SPOT = "other-spot"
    RETURNED = "on-demand"  #: on a node that is not spot, which was not forecast
    FORESEEN_RETURN = "on-demand-as-forecast"
    MISSING = "missing"  #: there is no replacement pod


@dataclass(frozen=True, slots=True)
class Expected:
    """The forecast of one drain, noted while its pods still run."""

    node: str
    wanted: Mapping[str, tuple[str, ...]]  #: UID of a pods' controller → the nodes that were forecast for its pods
    known: frozenset[str]  #: UIDs of all pods with a controller before the drain: any other is a replacement


@dataclass(frozen=True, slots=True)
class Landed:
    """Where the replacement pods of one drain are."""

    node: str
    outcomes: Mapping[Outcome, int]

    @property
    def returned(self) -> int:
        return self.outcomes.get(Outcome.RETURNED, 0) + self.outcomes.get(Outcome.FORESEEN_RETURN, 0)

    @property
    def badly(self) -> bool:
        """More pods came back to on-demand nodes than went anywhere else."""
        return 2 * self.returned > sum(self.outcomes.values())


def expect(plan: Plan, pods: Collection[Pod]) -> Expected:
    """What *plan* forecasts; *pods* are all there are."""
    owners = {pod.uid: pod.owner.uid for pod in pods if pod.owner is not None and pod.owner.uid}
    wanted: defaultdict[str, list[str]] = defaultdict(list)
    for placement in plan.forecast or plan.placements:
        if (owner := owners.get(placement.pod.uid)) is not None:
            wanted[owner].append(placement.node)
    return Expected(plan.node, {owner: tuple(nodes) for owner, nodes in wanted.items()}, frozenset(owners))


def compare(expected: Expected, pods: Iterable[Pod], is_spot: Callable[[str], bool]) -> Landed:
    """How *pods*, all there are now, compare with the forecast; pods of one controller are not told apart."""
    landed: defaultdict[str, list[str]] = defaultdict(list)
    for pod in pods:
        if pod.owner is not None and pod.node_name and pod.uid not in expected.known:
            landed[pod.owner.uid].append(pod.node_name)
    outcomes: Counter[Outcome] = Counter()
    for owner, wanted in expected.wanted.items():
        outcomes += _of_controller(wanted, landed.get(owner, []), is_spot)
    return Landed(expected.node, outcomes)


def _of_controller(wanted: Collection[str], landed: list[str], is_spot: Callable[[str], bool]) -> Counter[Outcome]:
    forecast, actual = Counter(wanted), Counter(landed[: len(wanted)])
    outcomes: Counter[Outcome] = Counter()
    for node, count in (forecast & actual).items():
        outcomes[Outcome.AS_FORECAST if is_spot(node) else Outcome.FORESEEN_RETURN] += count
    foreseen = sum(count for node, count in (forecast - actual).items() if not is_spot(node))
    for node, count in (actual - forecast).items():
        if is_spot(node):
            outcomes[Outcome.OTHER_SPOT] += count
            continue
        also = min(count, foreseen)
        foreseen -= also
        outcomes[Outcome.FORESEEN_RETURN] += also
        outcomes[Outcome.RETURNED] += count - also
    outcomes[Outcome.MISSING] += len(wanted) - actual.total()
    return outcomes
