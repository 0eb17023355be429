"""The nodes of a plan on a page, and the blockers of nodes and pods, grouped by reason and then by controller."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import Final, TypeAlias

from rescheduler.pages.plan_tree import drain_notes, making_room
from rescheduler.pages.tree import BLANK, GOOD, HEADING, Line, styled
from rescheduler.planning.controllers import ControllerLookup
from rescheduler.planning.forms import age, count, cpu, memory, per_month
from rescheduler.planning.money.prices import HOURS_PER_MONTH
from rescheduler.planning.outcome import Blocker, Plan, Reason, Rejected
from rescheduler.planning.severity import worst_of
from rescheduler.planning.what_if.overview import Overview

# Blockers of nodes and pods on a page, grouped by reason and then by controller.


def by_controller(pods: Iterable[str], controller: ControllerLookup) -> dict[str, list[str]]:
    """Group *pods* (``namespace/name``) by controller, in the order of their first pod."""
    groups: dict[str, list[str]] = {}
    for pod in pods:
        groups.setdefault(controller(pod), []).append(pod)
    return groups


def severity_style(blockers: Iterable[Blocker]) -> str:
    """Return the mood of the heading of a node with *blockers*, in the color of the worst severity."""
    return f"{HEADING} {worst_of(blockers) or ''}"


def blocker_lines(
    blockers: Sequence[Blocker], controller: ControllerLookup, level: int, *, wide: bool = False
) -> Iterator[Line]:
    """Yield the reasons in the order of their first blocker, each followed by the pods to which it applies."""
    groups: dict[tuple[Reason, str], list[str]] = {}
    for blocker in blockers:
        pods = groups.setdefault((blocker.reason, blocker.detail), [])
        if blocker.pod is not None:
            pods.append(blocker.pod)
    for (reason, detail), pods in groups.items():
        yield Line(f"{reason} ({reason.severity}): {detail}", level)
        for name, members in by_controller(pods, controller).items():
            yield Line(f"{name}{_members(name, members, wide=wide)}", level + 1)


def _members(controller: str, pods: list[str], *, wide: bool) -> str:
    """Return the text after the name of a controller: its only pod, or the number of its pods."""
    if controller.startswith("Pod "):
        return ""
    names = ", ".join(pod.partition("/")[2] for pod in pods)
    if len(pods) == 1:
        return f": pod {names}"
    return f": {count(len(pods), 'pod')}" + (f" ({names})" if wide else "")


# Short names of nodes, without the suffix that all names share.

#: The minimum length of a suffix: removing shorter ones is not worth an explanation.
_LEAST: Final = 8


@dataclass(frozen=True, slots=True)
class NodeNames:
    """Shortens the names of nodes."""

    suffix: str = ""  #: the suffix to remove; "" if there is none

    @classmethod
    def of(cls, names: Iterable[str]) -> "NodeNames":
        """Return the object that removes the common suffix of *names*, which starts with a dot and is no full name."""
        parts = [name.split(".")[:0:-1] for name in names]  # the parts of each name from its end, without the first
        common = list(takewhile(lambda equal: len(set(equal)) == 1, zip(*parts, strict=False)))
        suffix = "".join(f".{equal[0]}" for equal in reversed(common))
        return cls(suffix if len(parts) > 1 and len(suffix) > _LEAST else "")

    def short(self, name: str) -> str:
        """Return *name* without the suffix."""
        return name.removesuffix(self.suffix)

    def shorten_in(self, text: str) -> str:
        """Return *text* with the suffix removed from each node name in it."""
        return text.replace(self.suffix, "") if self.suffix else text

    @property
    def note(self) -> str:
        """The sentence that states which suffix is removed; "" if there is none."""
        return f"Node names end with {self.suffix}, which is left out." if self.suffix else ""


# The nodes of a plan on a page: one block per node, and one for all nodes that stay for the same reasons.

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
        yield styled(f"{self._heading(plan.node)}: drainable{plan.with_surge}{plan.with_leftovers}", GOOD)
        yield Line(self._requests(plan.node), 1)
        if reason := self.overview.left.get(plan.node):
            yield Line(f"the daemon would not drain it: {reason}", 1)
        yield from (Line(note, 1) for note in drain_notes(plan))
        for each in plan.first:
            yield Line(f"{making_room(each, self.names.short)}:", 1)
            yield from self._moves_of(each, 2)
        yield from self._moves_of(plan, 1)

    def _moves_of(self, plan: Plan, level: int) -> Iterator[Line]:
        for line in self._every_move(plan) if self.wide else self._moves(plan):
            yield replace(line, level=level)

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
        style = severity_style(first.blockers)
        if len(alike) == 1:
            yield styled(f"{self._heading(first.node)}: stays", style)
            yield Line(self._requests(first.node), 1)
        else:
            yield styled(f"{count(len(alike), 'node')} stay for the same reasons", style)
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
