"""What the taint of a drained node does to topology spread, today, by the scheduler's own plugins and by ours.

By default (``nodeTaintsPolicy: Ignore``) the domain of a drained node still counts: while it has the fewest pods, it
keeps the skew of the other domains down, and pods do not spread away from it. KEP-5980 proposes that a domain whose
nodes are all tainted does not count. The table of versions has its place (:mod:`predicates.versions`); once a version
does so, its row changes here.
"""

import copy
from typing import Any

import numpy as np
import pytest

from predicates.filters import Filters
from predicates.snapshot import DRAIN_TAINT
from tests.conformance import ours
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle, explain_request
from tests.conformance.verdicts import of_oracle
from tests.planning.builders import ON_DEMAND, ZONE, Manifest, node, pod

HONOR = {"nodeTaintsPolicy": "Honor"}
IGNORE = {"nodeTaintsPolicy": "Ignore"}
NODES = [node("od", ON_DEMAND, zone="a"), node("b", zone="b"), node("c", zone="c")]


def spread(name: str, on: str, **fields: Any) -> Manifest:
    """Return a pod that spreads over the zones with a skew of at most 1."""
    selector = {"matchLabels": {"app": "w"}}
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    tolerations = fields.pop("tolerations", [])
    return pod(name, on, topologySpreadConstraints=[constraint | fields], tolerations=tolerations, labels={"app": "w"})


TOLERATES = {"tolerations": [{"operator": "Exists"}]}

#: the pods by node, fields of the constraint and the pod → the nodes that accept one more pod while od is drained
CASES: dict[str, tuple[dict[str, int], dict[str, Any], set[str]]] = {
    "the drained zone is empty and counts": ({"b": 1, "c": 1}, {}, set()),
    "the drained zone is empty and counts, said aloud": ({"b": 1, "c": 1}, IGNORE, set()),
    "the drained zone is empty and does not count": ({"b": 1, "c": 1}, HONOR, {"b", "c"}),
    "it has as many pods as the others": ({"od": 1, "b": 1, "c": 1}, {}, {"b", "c"}),
    "it has fewer pods than one of the others": ({"od": 1, "b": 2, "c": 1}, {}, {"c"}),
    "its pods do not count, either": ({"od": 3, "b": 1, "c": 1}, HONOR, {"b", "c"}),
    "too few domains without it": ({"b": 1, "c": 1}, HONOR | {"minDomains": 3}, set()),
    "a pod that tolerates the taint": ({"b": 1, "c": 1}, HONOR | TOLERATES, {"od"}),
    "a pod that tolerates the taint, ignored": ({"b": 1, "c": 1}, TOLERATES, {"od"}),
}


def cluster(on: dict[str, int], fields: dict[str, Any], *, tainted: bool) -> Json:
    """Return the nodes, the pods of the workload, and one that is pending."""
    nodes = copy.deepcopy(NODES)
    if tainted:
        nodes[0]["spec"]["taints"] = [{"key": DRAIN_TAINT.key, "effect": DRAIN_TAINT.effect}]
    places = [name for name, pods in on.items() for _ in range(pods)]
    placed = [spread(f"w-{number}", name, **fields) for number, name in enumerate(places)]
    return {"apiVersion": "v1", "kind": "List", "items": [*nodes, *placed, spread("next-0", "", **fields)]}


@pytest.mark.parametrize(("on", "fields", "accepting"), CASES.values(), ids=CASES)
def test_the_domain_of_a_drained_node_counts_as_the_scheduler_counts_it(
    oracle: Oracle, on: dict[str, int], fields: dict[str, Any], accepting: set[str]
) -> None:
    given = cluster(on, fields, tainted=True)
    theirs = of_oracle(oracle.ask(explain_request(given, ["default/next-0"]))["verdicts"])["default/next-0"]
    assert {name for name, rejections in theirs.items() if not rejections} == accepting
    assert ours.judge(given, oracle.scheduler)["default/next-0"] == theirs
    assert _in_a_trial(oracle, on, fields) == accepting


def _in_a_trial(oracle: Oracle, on: dict[str, int], fields: dict[str, Any]) -> set[str]:
    """Return the nodes that accept the pod in a trial that drains od, without the taint on the Node."""
    table = ours.load(cluster(on, fields, tainted=False), oracle.scheduler)
    with table.trial() as trial:
        trial.drain(table.nodes.row["od"])
        accepted = np.flatnonzero(Filters(table).feasible(table.pods["default/next-0"].cls))
    return {table.nodes.names[row] for row in accepted}
