"""Our verdicts about every pod on every node, by the code behind ``rescheduler explain``."""

from collections.abc import Sequence

import msgspec
import numpy as np

from predicates.filters import Filters
from predicates.framework import Plugin
from predicates.scheduler import Scheduler
from predicates.snapshot import Snapshot
from predicates.wire import KINDS, Decoder, Interner
from rescheduler.planning.placement.explain import Explanation, explain
from tests.conformance.generate.world import Json
from tests.conformance.verdicts import PerNode, Rejection


def load(snapshot: Json, scheduler: Scheduler | None = None) -> Snapshot:
    """Decode a ``kind: List``; unknown kinds are ignored."""
    table, decoder = Snapshot(scheduler), Decoder(Interner())
    for item in snapshot["items"]:
        if item["kind"] in KINDS:
            table.upsert(item["kind"], decoder.decode(item["kind"], msgspec.json.encode(item)))
    return table


def judge(
    snapshot: Json, scheduler: Scheduler | None = None, using: Sequence[Plugin] | None = None
) -> dict[str, PerNode]:
    """Return the verdicts by pod; each pod is evaluated as if it alone were evicted and created again."""
    return judge_all(load(snapshot, scheduler), using)


def judge_all(table: Snapshot, using: Sequence[Plugin] | None = None) -> dict[str, PerNode]:
    """Return the verdicts by pod."""
    filters = Filters(table, using)
    rows = np.flatnonzero(table.nodes.alive)
    return {name: of_explanation(explain(pod, pod, table, filters, rows, ())) for name, pod in table.pods.items()}


def of_explanation(explanation: Explanation) -> PerNode:
    """Return the verdicts of an explanation by node."""
    verdicts = [
        tuple(Rejection(plugin, tuple(sorted(reasons))) for plugin, reasons in group) for group in explanation.refusals
    ]
    return {node: verdicts[which] for node, which in zip(explanation.nodes, explanation.which, strict=True)}
