"""One plugin, asked about a pod on every node of a small cluster."""

import msgspec
import numpy as np

from predicates.framework import Plugin
from predicates.objects import PodClass
from predicates.snapshot import Snapshot
from predicates.wire import Decoder, Interner
from tests.conformance.generate.world import Json


def load(*objects: Json) -> Snapshot:
    table, decoder = Snapshot(), Decoder(Interner())
    for one in objects:
        table.upsert(one["kind"], decoder.decode(one["kind"], msgspec.json.encode(one)))
    return table


def reasons(plugin: Plugin, pod: PodClass, table: Snapshot) -> dict[str, str]:
    """By node: why not, "" where the plugin has nothing against it; rows asked together and one by one must agree."""
    rows = np.flatnonzero(table.nodes.alive)
    together = _asked(plugin, pod, table, rows)
    assert together == [_asked(plugin, pod, table, rows[i : i + 1])[0] for i in range(len(rows))]
    if (part := plugin.pre_filter(pod)) is not None:
        refuses = plugin.rejects_row(part, table)
        assert [bool(why) for why in together] == [refuses(row) for row in rows.tolist()]
    return dict(zip([table.nodes.names[row] for row in rows], together, strict=True))


def _asked(plugin: Plugin, pod: PodClass, table: Snapshot, rows: np.typing.NDArray[np.intp]) -> list[str]:
    part = plugin.pre_filter(pod)
    refusal = None if part is None else plugin.filter(part, table, rows)
    if refusal is None:
        return [""] * len(rows)
    return [", ".join(refusal.reasons(code)) if code else "" for code in refusal.codes.tolist()]
