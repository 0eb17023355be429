"""Our scores before the real scheduler's, node by node: the totals that decide where a pod goes."""

import numpy as np
import pytest

from predicates import plugins, scores
from predicates.devices import device_resources
from predicates.filters import Filters
from predicates.objects import Pod
from predicates.scores.frame import ScoringRequest
from predicates.scores.pod_topology_spread import default_spread_selector
from predicates.selectors import NOTHING, compile_selector, valid_term
from predicates.snapshot import Snapshot
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle
from tests.conformance.ours import load
from tests.conformance.scores import scored_cluster

TOTALS = 4000
FAMILIES = ("plannable", "all", "PodTopologySpread", "InterPodAffinity", "NodeAffinity", "TaintToleration")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_total_is_the_scheduler_s(oracle: Oracle, family: str) -> None:
    compared, spread, seed = 0, 0, 0
    while compared < TOTALS:
        given = scored_cluster(seed, family)
        known = _owners(given)
        table = load(given)
        filters = Filters(table, plugins.DEFAULT)
        names = [pod.key for pod in table.pods.values() if _scorable(pod, table)]
        for found in oracle.ask({"mode": "score", "snapshot": given, "pods": names})["scores"]:
            pod = table.pods[found["pod"]]
            mine = _scored(table, filters, pod, owned=(pod.namespace, pod.owner.name if pod.owner else "") in known)
            assert mine == _of_oracle(found), f"{family} seed {seed}: {found['pod']}"
            compared += len(mine)
            spread += len({one["total"] for one in mine.values()}) > 1
        seed += 1
    assert spread > compared // 100


def _scorable(pod: Pod, table: Snapshot) -> bool:
    """Whether the scheduler gets as far as scores, and we do.

    Gated pods wait, and the scheduler fails those with preferences that the API would not take. We place no pod that
    needs devices.
    """
    spec = pod.cls.spec
    affinity = spec.affinity.node_affinity if spec.affinity else None
    preferred = [one.preference for one in affinity.preferred if one.weight] if affinity else []
    constraints = [one for one in spec.topology_spread_constraints if one.when_unsatisfiable == "ScheduleAnyway"]
    return (
        not (spec.resource_claims or spec.scheduling_gates)
        and not any(resource in device_resources(table) for resource, _ in pod.cls.requests)
        and all(valid_term(one) for one in preferred if one.match_expressions or one.match_fields)
        and not any(compile_selector(one.label_selector).error for one in constraints)
    )


def _owners(given: Json) -> set[tuple[str, str]]:
    found = (one["metadata"] for one in given["items"] if one["kind"] == "ReplicaSet")
    return {(one["namespace"], one["name"]) for one in found}


def _scored(table: Snapshot, filters: Filters, pod: Pod, *, owned: bool) -> dict[str, dict[str, int]]:
    """By node that takes the pod: what each plugin gives it, weighted, and ``total``."""
    with table.trial() as trial:
        if pod.node_name in table.nodes.row:
            trial.evict(pod)
        rows = np.flatnonzero(filters.feasible(pod.cls))
        if not len(rows):
            return {}
        request = ScoringRequest(table, pod.cls, rows, default_spread_selector(pod) if owned else NOTHING)
        by_plugin = {one.name: scores.totals(request, (one,)).tolist() for one in scores.DEFAULT}
        total = scores.totals(request).tolist()
    return {
        table.nodes.names[row]: {name: given[at] for name, given in by_plugin.items() if given[at]}
        | {"total": total[at]}
        for at, row in enumerate(rows)
    }


def _of_oracle(found: Json) -> dict[str, dict[str, int]]:
    return {
        node: {name: score for name, score in given.items() if score} | {"total": found["total"][node]}
        for node, given in found["nodes"].items()
    }
