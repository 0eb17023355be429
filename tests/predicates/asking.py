"""Evaluates one plugin for a pod on every node of a small cluster."""

import numpy as np

from predicates.framework import Plugin
from predicates.objects import PodClass
from predicates.snapshot import Snapshot
from tests.conformance.generate.world import Json
from tests.planning.builders import snapshot


def load(*objects: Json) -> Snapshot:
    """Return a snapshot of *objects*."""
    return snapshot(objects)


def reasons(plugin: Plugin, pod: PodClass, table: Snapshot) -> dict[str, str]:
    """Return the reason by node, "" if the plugin accepts it. Checks that single rows give the same result."""
    rows = np.flatnonzero(table.nodes.alive)
    all_rows = _reasons(plugin, pod, table, rows)
    assert all_rows == [_reasons(plugin, pod, table, rows[i : i + 1])[0] for i in range(len(rows))]
    if (state := plugin.pre_filter(pod)) is not None:
        rejects = plugin.rejects_row(state, table)
        assert [bool(why) for why in all_rows] == [rejects(row) for row in rows.tolist()]
    return dict(zip([table.nodes.names[row] for row in rows], all_rows, strict=True))


def _reasons(plugin: Plugin, pod: PodClass, table: Snapshot, rows: np.typing.NDArray[np.intp]) -> list[str]:
    state = plugin.pre_filter(pod)
    rejections = None if state is None else plugin.filter(state, table, rows)
    if rejections is None:
        return [""] * len(rows)
    return [", ".join(rejections.reasons(code)) if code else "" for code in rejections.codes.tolist()]
