"""Invariant 8: machines, Nodes and desired size agree at the end."""

from collections.abc import Iterator
from typing import Final

from tests.invariants.history import seconds
from tests.invariants.judging import JudgedMoment
from tests.invariants.moments import HistoryMoment, MachineTerminated
from tests.invariants.rules import Violation

#: Number of last responses of the pool that must show the same disagreement.
LAST_SIZES: Final = 5


class InAgreement:
    def check(self, moment: HistoryMoment, _: JudgedMoment) -> Iterator[Violation]:
        if isinstance(moment, MachineTerminated) and not moment.termination.decrement:
            what = f"the machine of node {moment.termination.node} was terminated without decrementing the desired size"
            yield Violation(8, moment.at, f"{what}: the pool replaces it")

    def end(self, scene: JudgedMoment) -> Iterator[Violation]:
        history = scene.history
        old = history.until - seconds(scene.rules.slack)
        sizes = history.sizes[-LAST_SIZES:]
        if len(sizes) == LAST_SIZES and all(size.desired != size.allocated for size in sizes):
            what = f"the pool has {sizes[-1].allocated} machines, but its desired size is {sizes[-1].desired}"
            yield Violation(8, history.until, what)
        for termination in history.terminations:
            here = termination.node in scene.now.nodes and termination.node not in history.kept_nodes
            if here and termination.at < old:
                what = f"node {termination.node} still exists, but its machine {termination.machine} does not"
                yield Violation(8, history.until, what)
