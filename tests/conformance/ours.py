"""Our own side, asked about every pod and every node: what ``rescheduler explain`` stands on."""

from collections.abc import Sequence

import msgspec
import numpy as np

from predicates import plugins
from predicates.filters import Filters
from predicates.framework import Plugin
from predicates.snapshot import Snapshot
from predicates.wire import KINDS, Decoder, Interner
from rescheduler.planning.explain import Explanation, explain
from tests.conformance.generate.world import Json
from tests.conformance.verdicts import PerNode, Refusal


def load(snapshot: Json) -> Snapshot:
    table, decoder = Snapshot(), Decoder(Interner())
    for item in snapshot["items"]:
        if item["kind"] in KINDS:
            table.upsert(item["kind"], decoder.decode(item["kind"], msgspec.json.encode(item)))
    return table


def judge(snapshot: Json, using: Sequence[Plugin] = plugins.DEFAULT) -> dict[str, PerNode]:
    """By pod: every unfinished pod as if it alone were evicted and made again."""
    return judge_all(load(snapshot), using)


def judge_all(table: Snapshot, using: Sequence[Plugin] = plugins.DEFAULT) -> dict[str, PerNode]:
    filters = Filters(table, using)
    rows = np.flatnonzero(table.nodes.alive)
    return {name: of_explanation(explain(pod, table, filters, rows, ())) for name, pod in table.pods.items()}


def of_explanation(explanation: Explanation) -> PerNode:
    refusals = [
        tuple(Refusal(plugin, tuple(sorted(reasons))) for plugin, reasons in one) for one in explanation.refusals
    ]
    return {node: refusals[which] for node, which in zip(explanation.nodes, explanation.which, strict=True)}
