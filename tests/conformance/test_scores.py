"""Our scores are those of the real scheduler, for each plugin and in total."""

import numpy as np
import pytest

from predicates import scores
from predicates.filters import Filters
from predicates.node_selectors import valid_term
from predicates.objects import Pod
from predicates.plugins.resources import device_resources
from predicates.scores.frame import ScoringRequest
from predicates.scores.pods import spreads_by_default
from predicates.selectors import compile_selector
from predicates.snapshot import Snapshot
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle
from tests.conformance.ours import load
from tests.conformance.scores import scored_cluster

TOTALS = 4000
FAMILIES = (
    "plannable",
    "all",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeAffinity",
    "TaintToleration",
    "VolumeBinding",
    "competing claims",
)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_score_is_that_of_the_scheduler(oracle: Oracle, family: str) -> None:
    compared, spread, seed = 0, 0, 0
    while compared < TOTALS:
        given = oracle.comparable(scored_cluster(seed, family))
        known = known_owners(given)
        table = load(given, oracle.scheduler)
        filters = Filters(table)
        seed += 1
        if requests_less_than_nothing(table):
            continue
        names = [pod.key for pod in table.pods.values() if scorable(pod, table)]
        for scored in oracle.ask({"mode": "score", "snapshot": given, "pods": names})["scores"]:
            pod = table.pods[scored["pod"]]
            mine = our_scores(table, filters, pod, owned=(pod.namespace, pod.owner.name if pod.owner else "") in known)
            assert mine == their_scores(scored), f"{family} seed {seed - 1}: {scored['pod']}"
            compared += len(mine)
            spread += len({by_plugin["total"] for by_plugin in mine.values()}) > 1
    assert spread > compared // 100


def requests_less_than_nothing(table: Snapshot) -> bool:
    """Return whether the pods of a node request negative amounts, which the API rejects: the scheduler fails there."""
    return bool((table.nodes.free > table.nodes.allocatable).any())


def scorable(pod: Pod, table: Snapshot) -> bool:
    """Return whether both the scheduler and we score the pod.

    The scheduler does not score pods with scheduling gates or with invalid preferences, which the API would reject. We
    do not score pods that need devices.
    """
    spec = pod.cls.spec
    affinity = spec.affinity.node_affinity if spec.affinity else None
    preferred = [term.preference for term in affinity.preferred if term.weight] if affinity else []
    constraints = [
        constraint
        for constraint in spec.topology_spread_constraints
        if constraint.when_unsatisfiable == "ScheduleAnyway"
    ]
    return (
        not (spec.resource_claims or spec.scheduling_gates)
        and not any(resource in device_resources(table) for resource, _ in pod.cls.requests)
        and all(valid_term(term) for term in preferred if term.match_expressions or term.match_fields)
        and not any(compile_selector(constraint.label_selector).error for constraint in constraints)
    )


def known_owners(snapshot: Json) -> set[tuple[str, str]]:
    metadata = (item["metadata"] for item in snapshot["items"] if item["kind"] == "ReplicaSet")
    return {(meta["namespace"], meta["name"]) for meta in metadata}


def our_scores(table: Snapshot, filters: Filters, pod: Pod, *, owned: bool) -> dict[str, dict[str, int]]:
    """Return the weighted scores by feasible node and plugin, and their ``total``."""
    with table.trial() as trial:
        if pod.node_name in table.nodes.row:
            trial.evict(pod)
        rows = np.flatnonzero(filters.feasible(pod.cls))
        if not len(rows):
            return {}
        request = ScoringRequest(table, pod.cls, rows, owned and spreads_by_default(pod))
        scorers = scores.of(table.scheduler.profile(pod.cls.spec.scheduler_name))
        by_plugin = {plugin.name: scores.totals(request, (plugin,)).tolist() for plugin in scorers}
        total = scores.totals(request).tolist()
    return {
        table.nodes.names[row]: {name: given[at] for name, given in by_plugin.items() if given[at]}
        | {"total": total[at]}
        for at, row in enumerate(rows)
    }


def their_scores(scored: Json) -> dict[str, dict[str, int]]:
    return {
        node: {name: score for name, score in given.items() if score} | {"total": scored["total"][node]}
        for node, given in scored["nodes"].items()
    }
