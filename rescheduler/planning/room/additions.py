"""Spot nodes that can be added: what is offered, and a copy of a snapshot for one trial at a time. Pure.

Purchases and orders of room choose among the same offers, and the same trial shows what a number of one of them frees.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain
from typing import TypeAlias

from predicates.snapshot import Snapshot
from rescheduler.planning.answers.node import could_be_drained
from rescheduler.planning.examined import Examined, examine
from rescheduler.planning.money.prices import (
    NodeFacts,
    PriceList,
    instance_type,
    template_facts,
    with_added,
)
from rescheduler.planning.outcome import Plan
from rescheduler.planning.placement.added_nodes import GrowthLimits, most_of
from rescheduler.planning.placement.packing import Effort
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.pools import pool_of
from rescheduler.planning.question import Attempt, after
from rescheduler.planning.what_if.added_spot import AddSpot, NewSpot
from rescheduler.planning.what_if.changes import copied


@dataclass(frozen=True, slots=True)
class SpotOffer:
    """A spot node of one type in one zone that can be added."""

    change: AddSpot  #: adds one
    facts: NodeFacts
    price: Decimal | None  #: per hour: its own, or that of a spot node of its type
    pool: str  #: by the labels of ``--spot-pool-label``
    limits: GrowthLimits = field(default_factory=dict, compare=False)

    @property
    def most(self) -> int:
        """The largest number that can be added."""
        return most_of(self.limits)


#: What is added together: offers of different pools, each with its number of nodes.
Parts: TypeAlias = tuple[tuple[SpotOffer, int], ...]


def changes_of(parts: Parts) -> list[AddSpot]:
    """Return the changes that add *parts*."""
    return [replace(offer.change, count=number) for offer, number in parts]


def is_possible(parts: Parts) -> bool:
    """Return whether the limits that the offers of *parts* may share are kept."""
    taken = Counter[str]()
    for offer, number in parts:
        taken.update({limit: number * each for limit, (_, each) in offer.limits.items()})
    return all(taken[limit] <= left for offer, _ in parts for limit, (left, _) in offer.limits.items())


class Additions:
    """The copy, with the planner for it. Valid while the original does not change."""

    def __init__(self, snapshot: Snapshot, policy: Policy, circumstances: Circumstances) -> None:
        self.original = snapshot
        self.snapshot = copied(snapshot)
        self.policy = policy
        self.circumstances = circumstances
        self.today = circumstances.now.date()
        self.planner = Planner(self.snapshot, policy)
        self.new = NewSpot(snapshot, policy)

    def offers(
        self, found: Iterable[tuple[AddSpot, GrowthLimits]], prices: PriceList, *, of_models: bool = False
    ) -> list[SpotOffer]:
        """Return what was *found*, with its price if one is known.

        With *of_models*, a node like a spot node has the price of this one, as the provider says it, and otherwise the
        lowest of its type, as the plan counts what new nodes cost.
        """
        alike, spot = defaultdict[str, list[NodeFacts]](list), {node.name for node in self.new.existing}
        for node in self.new.existing:
            alike[instance_type(node)].append(template_facts(node))
        offers = []
        for change, limits in found:
            new = self.new.of(change).node
            facts = template_facts(new)
            model = change.like if of_models and change.like in spot else ""
            own = replace(facts, name=new.name or model)
            price = with_added(prices, [own], alike[facts.instance_type]).per_hour(own)
            facts = replace(facts, name=change.group or new.name or change.like)
            pool = pool_of(new.metadata.labels, self.policy.spot_pool_labels)
            offers.append(SpotOffer(change, facts, price, pool, limits))
        return offers

    @contextmanager
    def of(self, *changes: AddSpot) -> Iterator[list[list[str]]]:
        """Add the nodes of *changes* while the block runs, and yield their names, change by change."""
        names = [self.new.of(change).add(self.snapshot, change.count) for change in changes]
        try:
            yield names
        finally:
            for name in chain.from_iterable(names):
                for key in list(self.snapshot.pods_on[name]):
                    self.snapshot.delete("Pod", key)
                self.snapshot.delete("CSINode", name)
                self.snapshot.delete("Node", name)

    def after(self, plans: Sequence[Plan]) -> AbstractContextManager[Attempt]:
        """Open the state after *plans*, in which first-fit finds places."""
        return after(plans, self.planner.round(self.circumstances), Effort(0))

    def lacking_room(self, nodes: Iterable[str], plans: Sequence[Plan]) -> list[Examined]:
        """Return those of *nodes* that nothing but room for their pods keeps after *plans*, with what the rules say."""
        given = {item.pod.uid for plan in plans if not plan.empties for item in plan.placements}
        with self.after(plans) as attempt:
            shared = attempt.shared
            if given:
                left = frozenset(pod.uid for pod in self.snapshot.pods.values() if pod.uid not in given)
                shared = replace(shared, only=left)
            found = (examine(node, shared) for node in nodes)
            return [each for each in found if could_be_drained(each, attempt)]
