"""A summary of a history."""

from collections import Counter
from typing import Any

from tests.invariants.judging import Judgement
from tests.invariants.moments import ours
from tests.invariants.resting import is_leftover
from tests.invariants.rules import TITLES


def summary(judgement: Judgement) -> dict[str, Any]:
    """Return counts from the API server and the pool; times are in seconds since the start of the history."""
    scene = judgement.scene
    history, drains = scene.history, scene.now.all_drains
    evictions = [write for write in ours(history.writes, scene.rules) if write.kind == "pods/eviction"]
    begun = sorted(drains, key=lambda drain: drain.began)
    return {
        "seconds": (history.until - history.since).total_seconds(),
        "violations": {number: sum(v.invariant == number for v in judgement.violations) for number in TITLES},
        "evictions": {
            "accepted": sum(write.accepted and not write.dry_run for write in evictions),
            "refused": sum(not write.accepted and not write.dry_run for write in evictions),
            "dry runs": sum(write.dry_run for write in evictions),
        },
        "drains": dict(Counter(drain.outcome for drain in drains)),
        "drained": [
            (
                drain.node,
                (drain.began - history.since).total_seconds(),
                ((drain.ended or history.until) - history.since).total_seconds(),
                drain.outcome,
            )
            for drain in begun
        ],
        "leftovers moved": sum(is_leftover(pod, scene.rules) for drain in drains for pod in drain.evicted),
        "machines terminated": len(history.terminations),
        "landings": sorted(scene.ready.landings),
        "missing": judgement.missing,
        "missing at the end": scene.ready.total,
    }
