"""Where the replacement pods of a drain landed, compared with its forecast.

A plan is only a forecast: the scheduler decides. If too many pods return to on-demand nodes, drains move pods without
freeing nodes, so further drains are delayed.
"""

import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from predicates.objects import Pod
from rescheduler.planning.outcome import Plan


class LandingOutcome(enum.StrEnum):
    """The outcome of the forecast for one pod; used as a metric label."""

    AS_FORECAST = "as-forecast"  #: on the forecast node
    OTHER_SPOT = "other-spot"
    RETURNED = "on-demand"  #: on a node that is not spot, although it was not forecast to return
    FORESEEN_RETURN = "on-demand-as-forecast"
    MISSING = "missing"  #: no replacement pod exists


@dataclass(frozen=True, slots=True)
class Expected:
    """The forecast of one drain, recorded while its pods still run."""

    node: str
    #: A controller (namespace and UID) → the nodes that were forecast for its pods.
    nodes: Mapping[tuple[str, str], tuple[str, ...]]
    existing: frozenset[str]  #: UIDs of all pods with a controller before the drain; any other pod is a replacement


@dataclass(frozen=True, slots=True)
class Landed:
    """Where the replacement pods of one drain landed."""

    node: str
    outcomes: Mapping[LandingOutcome, int]
    returned_from: frozenset[str] = frozenset()  #: the namespaces of the pods that returned

    @property
    def returned(self) -> int:
        """Return how many pods are on nodes that are not spot."""
        return self.outcomes.get(LandingOutcome.RETURNED, 0) + self.outcomes.get(LandingOutcome.FORESEEN_RETURN, 0)

    @property
    def badly(self) -> bool:
        """Return whether more than half of the pods returned to on-demand nodes, and of more than one namespace.

        The pods of one namespace show nothing about those of others: their controllers wait by themselves.
        """
        return 2 * self.returned > sum(self.outcomes.values()) and len(self.returned_from) > 1


def expect(plan: Plan, pods: Collection[Pod]) -> Expected:
    """Return the expected landing of *plan*. *pods* are all pods of the cluster."""
    owners = {pod.uid: (pod.namespace, pod.owner.uid) for pod in pods if pod.owner is not None and pod.owner.uid}
    nodes_by_owner: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for placement in plan.forecast or plan.placements:
        if (owner := owners.get(placement.pod.uid)) is not None:
            nodes_by_owner[owner].append(placement.node)
    return Expected(plan.node, {owner: tuple(nodes) for owner, nodes in nodes_by_owner.items()}, frozenset(owners))


def compare(expected: Expected, pods: Iterable[Pod], is_spot: Callable[[str], bool]) -> Landed:
    """Compare *pods*, all pods of the cluster now, with the forecast. Pods of one controller are interchangeable."""
    landed: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for pod in pods:
        if pod.owner is not None and pod.node_name and pod.uid not in expected.existing:
            landed[pod.namespace, pod.owner.uid].append(pod.node_name)
    outcomes: Counter[LandingOutcome] = Counter()
    returned_from: set[str] = set()
    for owner, nodes in expected.nodes.items():
        of_owner = Landed(expected.node, _of_controller(nodes, landed.get(owner, []), is_spot))
        outcomes += Counter(of_owner.outcomes)
        if of_owner.returned:
            returned_from.add(owner[0])
    return Landed(expected.node, outcomes, frozenset(returned_from))


def _of_controller(
    expected_nodes: Collection[str], landed: list[str], is_spot: Callable[[str], bool]
) -> Counter[LandingOutcome]:
    forecast, actual = Counter(expected_nodes), Counter(landed[: len(expected_nodes)])
    outcomes: Counter[LandingOutcome] = Counter()
    for node, count in (forecast & actual).items():
        outcomes[LandingOutcome.AS_FORECAST if is_spot(node) else LandingOutcome.FORESEEN_RETURN] += count
    foreseen = sum(count for node, count in (forecast - actual).items() if not is_spot(node))
    for node, count in (actual - forecast).items():
        if is_spot(node):
            outcomes[LandingOutcome.OTHER_SPOT] += count
            continue
        as_foreseen = min(count, foreseen)
        foreseen -= as_foreseen
        outcomes[LandingOutcome.FORESEEN_RETURN] += as_foreseen
        outcomes[LandingOutcome.RETURNED] += count - as_foreseen
    outcomes[LandingOutcome.MISSING] += len(expected_nodes) - actual.total()
    return outcomes
