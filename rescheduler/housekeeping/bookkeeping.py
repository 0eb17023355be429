"""The ledger of savings of a process, and its copy in a ConfigMap.

Drains never wait for the ledger: without it, or without permission to access its ConfigMap, only the savings are
unknown.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Final

import msgspec

from predicates.objects import Node
from rescheduler.clock import Clock
from rescheduler.draining.state import Drain
from rescheduler.errors import ReschedulerError
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.housekeeping.synced_memory import ATTEMPTS, MemoryStorage, StoredForm, StoredValue
from rescheduler.kube.client import retry_on_conflict
from rescheduler.observe.events import ErrorKind, Report, SavingsCounted, Trouble
from rescheduler.planning.forms import instant
from rescheduler.planning.money.prices import NodeFacts, PriceList, instance_type
from rescheduler.planning.money.savings import LiveNodes, Receipt, SavingsLedger, merged, observed
from rescheduler.planning.money.savings_form import bounded, dump_ledger, load_ledger, summary
from rescheduler.planning.money.worth import covered, spot_share
from rescheduler.planning.outcome import Plan
from rescheduler.planning.rules.pod_traits import belongs_to_node

#: Seconds until a ConfigMap that could not be read or written is tried again.
RETRY_SECONDS: Final = 60.0

LEDGER: Final = StoredForm("ledger", SavingsLedger(), load_ledger, merged)


@dataclass(slots=True)
class Pricing:
    """The user's prices, and a query to the cloud provider for nodes that the user's prices do not cover."""

    prices: PriceList  #: replaced when the user's price file changes
    ask: Callable[[Iterable[Node]], Mapping[str, Decimal]] = lambda _: {}  #: returns prices per hour by node name

    def of(self, nodes: Iterable[tuple[Node, NodeFacts]]) -> PriceList:
        """Return the user's prices, and the provider's prices of the *nodes* that are not in the user's price file."""
        unlisted = [node for node, facts in nodes if not self.lists(facts)]
        return replace(self.prices, by_node=self.ask(unlisted)) if unlisted else self.prices

    def lists(self, facts: NodeFacts) -> bool:
        """Return whether the user's price file contains a node with these *facts*."""
        return PriceList(by_type=self.prices.by_type).per_hour(facts) is not None


class NoBookkeeping:
    """Keeps no ledger: a dry run saves nothing."""

    def observe(self) -> None:
        pass

    def begins(self, plan: Plan) -> None:
        pass

    def ends(self, drain: Drain) -> None:
        pass

    def save(self) -> None:
        pass

    def forget(self) -> None:
        pass


class Bookkeeping(NoBookkeeping):
    """The ledger. Used by the loop's thread only."""

    def __init__(
        self,
        store: MemoryStorage,
        view: ClusterView,
        pricing: Pricing,
        clock: Clock,
        report: Report,
        leading: Callable[[], bool],
    ) -> None:
        """Create the ledger. *leading* returns whether this replica may write at present."""
        self._ledger = StoredValue(store, LEDGER)
        self._view = view
        self._pricing = pricing
        self._clock = clock
        self._report = report
        self._leading = leading
        self._readable = False
        self._retry_at = clock.monotonic()  # the ConfigMap is neither read nor written before this time
        self._trouble = ""  # the last error, so that the same error is not reported twice in a row
        self._drained: dict[str, Receipt] = {}  # by node name: nodes whose drain may end in this round

    def observe(self) -> None:
        """Read the ledger if necessary, and observe the nodes, at the start of a round."""
        if not self._readable and self._clock.monotonic() >= self._retry_at:
            self._attempt(self._read, ErrorKind.READ)
        now = self._now()
        self._ledger.value = observed(self._ledger.value, self._live_nodes(), now)
        self._report(SavingsCounted(self._ledger.value.total(now)))
        self._note_marked()

    def _note_marked(self) -> None:
        """Record the prices of nodes that another process began to drain. This process may end their drains."""
        recorded = {receipt.uid for receipt in self._ledger.value.receipts}
        before, self._drained = self._drained, {}
        for node in self._view.facts.marked:
            if node.metadata.uid in recorded or not self._view.facts.is_on_demand(node):
                continue
            known = before.get(node.name)
            receipt = known if known and known.uid == node.metadata.uid else self._receipt(node, None)
            if receipt is not None:
                self._drained[node.name] = receipt

    def begins(self, plan: Plan) -> None:
        """Record the price of a node, and the cost of its pods on spot nodes, before its drain."""
        node = self._view.facts.node(plan.node)
        receipt = self._receipt(node, plan) if node is not None else None
        if receipt is not None:
            self._drained[plan.node] = receipt

    def ends(self, drain: Drain) -> None:
        """Record a drain that emptied its node. The saving begins when the Node is gone."""
        receipt = self._drained.pop(drain.node, None)
        if receipt is None or drain.failure is not None or drain.rolled_back or drain.unshrunk:
            return
        self._ledger.value = self._ledger.value.recorded(msgspec.structs.replace(receipt, drained_at=self._now()))

    def save(self) -> None:
        """Store the changes at the end of a round. Errors are reported and not raised."""
        if not self._leading() or not self._readable or self._clock.monotonic() < self._retry_at:
            return
        if not self._ledger.is_stored:
            self._ledger.value = bounded(self._ledger.value)
            self._attempt(self._write, ErrorKind.WRITE)

    def forget(self) -> None:
        """Discard the ledger, because another replica is the leader."""
        self._ledger.forget()
        self._readable, self._drained = False, {}

    def _attempt(self, request: Callable[[], None], kind: ErrorKind) -> None:
        try:
            request()
        except ReschedulerError as error:
            self._retry_at = self._clock.monotonic() + RETRY_SECONDS
            if str(error) != self._trouble and self._leading():
                self._trouble = str(error)
                verb = "read" if kind is ErrorKind.READ else "stored"
                self._report(Trouble(kind, f"the ledger of savings could not be {verb}: {error}; drains continue"))
        else:
            self._trouble = ""

    def _read(self) -> None:
        self._ledger.read()
        self._readable = True

    def _write(self) -> None:
        retry_on_conflict(self._write_once, ATTEMPTS, self._read)

    def _write_once(self) -> None:
        self._ledger.write(
            self._ledger.value, dump_ledger(self._ledger.value), summary(self._ledger.value, self._now())
        )

    def _live_nodes(self) -> LiveNodes:
        """Return the data of the nodes for the ledger; empty if none of its entries depends on nodes."""
        if all(receipt.ended_at is not None for receipt in self._ledger.value.receipts):
            return LiveNodes(frozenset(), frozenset(), ())
        facts, nodes = self._view.facts, self._view.facts.nodes
        emptied = {receipt.uid for receipt in self._ledger.value.receipts if receipt.gone_at is None}
        busy = {node.metadata.uid for node in nodes.values() if node.metadata.uid in emptied and self._is_busy(node)}
        on_demand = [node for node in nodes.values() if facts.is_on_demand(node)]
        return LiveNodes(
            frozenset(node.metadata.uid for node in nodes.values()),
            frozenset(busy),
            tuple((instance_type(node), instant(node.metadata.creation_timestamp)) for node in on_demand),
        )

    def _is_busy(self, node: Node) -> bool:
        pods = self._view.facts.pods_of(node.name)
        return any(not belongs_to_node(pod) and pod.deletion_timestamp is None for pod in pods)

    def _receipt(self, node: Node, plan: Plan | None) -> Receipt | None:
        """Return the receipt of a drain. *plan* is None if another process started the drain; its pods are unknown."""
        cluster = self._view.facts
        if (facts := cluster.priced(node.name)) is None:
            return None
        targets = {placement.node for placement in plan.placements} if plan is not None else set[str]()
        known = [(target, cluster.priced(target.name)) for target in map(cluster.node, sorted(targets)) if target]
        spot = {target_facts.name: target_facts for _, target_facts in known if target_facts is not None}
        prices = self._pricing.of(
            [(node, facts), *((target, target_facts) for target, target_facts in known if target_facts is not None)]
        )
        price = prices.per_hour(facts)
        return Receipt(
            node=node.name,
            uid=node.metadata.uid,
            instance_type=facts.instance_type,
            zone=facts.zone,
            cpu=facts.cpu,
            memory=facts.memory,
            drained_at=self._now(),
            nodes_before=sum(map(cluster.is_on_demand, cluster.nodes.values())),
            price=price,
            committed=(price or Decimal(0)) * self._committed_part(facts, prices),
            spot_cost=None
            if plan is None
            else spot_share(plan.placements, cluster.snapshot.pods.get, spot.get, prices),
            currency=prices.currency,
            move_cost=None if plan is None else round(self._view.worth(node.name).cost, 3),
        )

    def _committed_part(self, facts: NodeFacts, prices: PriceList) -> Decimal:
        """Return the part of the node's price that commitments pay anyway: they pay for all other nodes first."""
        if not prices.commitments:
            return Decimal(0)
        cluster = self._view.facts
        others = [name for name, node in cluster.nodes.items() if name != facts.name and cluster.is_on_demand(node)]
        staying = [*cluster.priced_on_demand(sorted(others)).values(), facts]
        return covered(staying, prices, self._now().date()).get(facts.name, Decimal(0))

    def _now(self) -> datetime:
        return self._clock.now().replace(microsecond=0)
