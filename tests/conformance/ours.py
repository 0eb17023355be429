"""Our own filters on a snapshot, asked about every pod and every node: what ``rescheduler explain`` stands on."""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from predicates import plugins
from predicates.framework import Filters, Plugin
from predicates.objects import Pod
from predicates.snapshot import Snapshot
from predicates.wire import KINDS, Decoder, Interner
from tests.conformance.generate.world import Json
from tests.conformance.verdicts import PerNode, Refusal


def load(snapshot: Json) -> tuple[Snapshot, dict[str, Pod]]:
    """The snapshot, and all its pods by key, finished ones included."""
    table, decoder, pods = Snapshot(), Decoder(Interner()), {}
    for item in snapshot["items"]:
        if item["kind"] in KINDS:
            one = decoder.decode(item["kind"], msgspec.json.encode(item))
            table.upsert(item["kind"], one)
            if isinstance(one, Pod):
                pods[one.key] = one
    return table, pods


def judge(
    snapshot: Json, names: Iterable[str] | None = None, using: Sequence[Plugin] = plugins.DEFAULT
) -> dict[str, PerNode]:
    """By pod: each pod as if it alone were evicted and made again."""
    table, pods = load(snapshot)
    filters = Filters(table, using)
    return {name: _judge(table, filters, pods[name]) for name in (pods if names is None else names)}


def _judge(table: Snapshot, filters: Filters, pod: Pod) -> PerNode:
    rows = np.flatnonzero(table.nodes.alive)
    found: dict[str, list[Refusal]] = {table.nodes.names[row]: [] for row in rows}
    with table.trial() as trial:
        if not pod.finished and pod.node_name in table.nodes.row:
            trial.evict(pod)
        for refused in filters.refusals(pod.cls, rows):
            for row, code in zip(rows, refused.codes.tolist(), strict=True):
                if code:
                    reasons = tuple(sorted(refused.sentences(code)))
                    found[table.nodes.names[row]].append(Refusal(refused.plugin, reasons))
    return {node: tuple(refusals) for node, refusals in found.items()}
