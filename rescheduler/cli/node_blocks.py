"""The nodes of a plan on a page: one block per node, and one for all nodes that stay for the same reasons."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from rescheduler.cli.blockers import ControllerLookup, blocker_lines, by_controller
from rescheduler.cli.console import BAD, BLANK, GOOD, Line, styled
from rescheduler.cli.node_names import NodeNames
from rescheduler.planning.money.prices import HOURS_PER_MONTH
from rescheduler.planning.outcome import Plan, Rejected
from rescheduler.planning.units import age, count, cpu, memory, per_month
from rescheduler.planning.what_if.overview import Overview

#: Nodes with the same signature share a block. It contains the reasons, their details, and the controllers of the pods.
_Signature: TypeAlias = tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class NodeBlocks:
    """Writes the blocks of the nodes of a plan."""

    overview: Overview
    names: NodeNames
    controller: ControllerLookup
    now: datetime
    wide: bool

    def lines(self) -> Iterator[Line]:
        """Yield the blocks: first the plans in drain order, then the nodes that stay."""
        for plan in self.overview.planning.plans:
            yield BLANK
            yield from self._plan(plan)
        for rejected in self._groups_of_rejected():
            yield BLANK
            yield from self._rejected_block(rejected)

    def _plan(self, plan: Plan) -> Iterator[Line]:
        yield styled(f"{self._heading(plan.node)}: drainable", GOOD)
        yield Line(self._requests(plan.node), 1)
        if plan.robust is False:
            yield Line("fragile: the pods fit only if the scheduler chooses these nodes", 1)
        if not plan.placements:
            yield Line("no pods to move", 1)
        if plan.leaving:
            pods = "pod that is" if len(plan.leaving) == 1 else "pods that are"
            yield Line(f"waits for {len(plan.leaving)} {pods} being deleted", 1)
        if plan.landing is not None and plan.landing.on_demand:
            spot, others = plan.landing.spot, plan.landing.on_demand
            yield Line(f"forecast: {count(spot, 'pod')} to spot nodes, {others} to other nodes", 1)
        yield from self._every_move(plan) if self.wide else self._moves(plan)

    def _moves(self, plan: Plan) -> Iterator[Line]:
        targets = {str(placement.pod): placement.node for placement in plan.placements}
        for controller, pods in by_controller(targets, self.controller).items():
            nodes = Counter(targets[pod] for pod in pods)
            number = "" if controller.startswith("Pod ") else f": {count(len(pods), 'pod')}"
            yield Line(f"{controller}{number} → {self._targets(nodes)}", 1)

    def _targets(self, nodes: Counter[str]) -> str:
        """Return the target nodes, each with the number of pods if it gets several."""
        return ", ".join(
            self.names.short(name) + (f" ({number})" if number > 1 and len(nodes) > 1 else "")
            for name, number in nodes.items()
        )

    def _every_move(self, plan: Plan) -> Iterator[Line]:
        forecast = {placement.pod: placement.node for placement in plan.forecast}
        for placement in plan.placements:
            expected = forecast.get(placement.pod, placement.node)
            other = "" if expected == placement.node else f"; the scheduler would prefer {self.names.short(expected)}"
            controller = self.controller(str(placement.pod))
            owner = "" if controller == f"Pod {placement.pod}" else f" ({controller})"
            yield Line(f"{placement.pod}{owner} → {self.names.short(placement.node)}{other}", 1)

    def _groups_of_rejected(self) -> Iterable[list[Rejected]]:
        """Group the rejected nodes by their reasons; with ``-o wide``, return one group per node."""
        groups: dict[_Signature | str, list[Rejected]] = {}
        for rejected in self.overview.planning.rejected:
            groups.setdefault(rejected.node if self.wide else self._signature(rejected), []).append(rejected)
        return groups.values()

    def _signature(self, rejected: Rejected) -> _Signature:
        return tuple(
            dict.fromkeys(
                (blocker.reason, blocker.detail, self.controller(blocker.pod) if blocker.pod else "")
                for blocker in rejected.blockers
            )
        )

    def _rejected_block(self, alike: list[Rejected]) -> Iterator[Line]:
        first = alike[0]
        if len(alike) == 1:
            yield styled(f"{self._heading(first.node)}: stays", BAD)
            yield Line(self._requests(first.node), 1)
        else:
            yield styled(f"{count(len(alike), 'node')} stay for the same reasons", BAD)
            for rejected in alike:
                yield Line(f"{self._heading(rejected.node)}, {self._requests(rejected.node)}", 1)
        yield from blocker_lines(
            [blocker for rejected in alike for blocker in rejected.blockers], self.controller, 1, wide=self.wide
        )

    def _heading(self, node: str) -> str:
        """Return the properties and the price of a node: ``ip-10-0-1-2, m5.large, eu-1a, 3d old, 70 $/month``."""
        facts, prices = self.overview.nodes[node], self.overview.prices
        price = prices.per_hour(facts)
        old = age(facts.created, self.now)
        parts = [self.names.short(node), facts.instance_type, facts.zone, f"{old} old" if old else ""]
        parts.append("" if price is None else per_month(price * HOURS_PER_MONTH, prices.currency))
        return ", ".join(filter(None, parts))

    def _requests(self, node: str) -> str:
        facts = self.overview.nodes[node]
        used_cpu = f"{cpu(facts.requested_cpu)} of {cpu(facts.cpu)} vCPU"
        return f"requests {used_cpu}, {memory(facts.requested_memory)} of {memory(facts.memory)}"
