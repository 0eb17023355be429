"""PodTopologySpread on small clusters. The expected results are those of the scheduler."""

from typing import Any

import pytest

from predicates.plugins import pods
from predicates.snapshot import DRAIN_TAINT
from tests.conformance.builders import node, pod
from tests.conformance.generate.world import Json
from tests.predicates.asking import load, reasons

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
UNEVEN = "node(s) didn't match pod topology spread constraints"
UNLABELLED = "node(s) didn't match pod topology spread constraints (missing required label)"
WEB = {"app": "web"}


def _constraint(key: str = ZONE, labels: Json | None = WEB, skew: int = 1, **fields: Any) -> Json:
    selector = {"labelSelector": {"matchLabels": labels}} if labels is not None else {}
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", **selector, **fields}


def _asking(*constraints: Json, **spec: Any) -> Json:
    return pod("p", labels=WEB, topologySpreadConstraints=list(constraints), **spec)


def _leaving(obj: Json) -> Json:
    obj["metadata"]["deletionTimestamp"] = "2024-03-01T10:00:00Z"
    return obj


def _elsewhere(obj: Json) -> Json:
    obj["metadata"]["namespace"] = "other"
    return obj


A, B, C = (node(name, labels={ZONE: name}) for name in "abc")
BUSY = node("b", labels={ZONE: "b"}, taints=[{"key": "busy", "effect": "NoSchedule"}])
POOL = [node("a", labels={ZONE: "a", "pool": "x"}), node("b", labels={ZONE: "b"})]
ON_A = pod("q", "a", labels=WEB)
FITS: Json = {"a": "", "b": ""}
ONLY_B: Json = {"a": UNEVEN, "b": ""}

#: Objects, of which the last is the pod to schedule, and the reason by node; "" where the pod fits.
CASES: dict[str, tuple[list[Json], Json]] = {
    "the zone with more pods is rejected": ([A, B, ON_A, _asking(_constraint())], ONLY_B),
    "maxSkew 2": ([A, B, ON_A, _asking(_constraint(skew=2))], FITS),
    "the pod does not match its own selector": (
        [A, B, pod("q", "a", labels={"app": "db"}), _asking(_constraint(labels={"app": "db"}))],
        FITS,
    ),
    "ScheduleAnyway does not filter": ([A, B, ON_A, _asking(_constraint(whenUnsatisfiable="ScheduleAnyway"))], FITS),
    "no whenUnsatisfiable does not filter": (
        [A, B, ON_A, pod("p", labels=WEB, topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": ZONE}])],
        FITS,
    ),
    "an empty selector counts nothing": ([A, B, ON_A, _asking(_constraint(labels={}))], FITS),
    "a missing selector counts nothing": ([A, B, ON_A, _asking(_constraint(labels=None))], FITS),
    "matchLabelKeys extend an empty selector": (
        [A, B, ON_A, _asking(_constraint(labels={}, matchLabelKeys=["app", "absent"]))],
        ONLY_B,
    ),
    "matchLabelKeys exclude other versions": (
        [A, B, ON_A, pod("p", labels={**WEB, "v": "2"}, topologySpreadConstraints=[_constraint(matchLabelKeys=["v"])])],
        FITS,
    ),
    "pods of other namespaces do not count": (
        [A, B, _elsewhere(pod("q", "a", labels=WEB)), _asking(_constraint())],
        FITS,
    ),
    "pods that are being deleted do not count": (
        [A, B, _leaving(pod("q", "a", labels=WEB)), _asking(_constraint())],
        FITS,
    ),
    "fewer domains than minDomains: the minimum is 0": (
        [A, B, ON_A, pod("r", "b", labels=WEB), _asking(_constraint(minDomains=3))],
        {"a": UNEVEN, "b": UNEVEN},
    ),
    "as many domains as minDomains": (
        [A, B, ON_A, pod("r", "b", labels=WEB), _asking(_constraint(minDomains=2))],
        FITS,
    ),
    "a node without the label is rejected": (
        [A, node("n"), _asking(_constraint())],
        {"a": "", "n": UNLABELLED},
    ),
    "a node without one of the keys does not count for any": (
        [A, B, node("n", labels={"rack": "1"}), pod("r", "n", labels=WEB), _asking(_constraint(HOST), _constraint())],
        {"a": "", "b": "", "n": UNLABELLED},
    ),
    "the first failing constraint is reported": (
        [
            A,
            node("n", labels={"rack": "1"}),
            pod("r", "n", labels=WEB),
            _asking(_constraint(HOST, minDomains=9), _constraint()),
        ],
        {"a": "", "n": UNLABELLED},
    ),
    "an empty label value is a domain": (
        [A, node("n", labels={ZONE: ""}), ON_A, _asking(_constraint())],
        {"a": UNEVEN, "n": ""},
    ),
    "nodes that the pod's affinity excludes do not count": (
        [*POOL, ON_A, _asking(_constraint(), nodeSelector={"pool": "x"})],
        FITS,
    ),
    "nodeAffinityPolicy: Ignore": (
        [*POOL, ON_A, _asking(_constraint(nodeAffinityPolicy="Ignore"), nodeSelector={"pool": "x"})],
        ONLY_B,
    ),
    "taints are ignored by default": ([A, BUSY, ON_A, _asking(_constraint())], ONLY_B),
    "nodeTaintsPolicy: Honor": ([A, BUSY, ON_A, _asking(_constraint(nodeTaintsPolicy="Honor"))], FITS),
    "nodeTaintsPolicy: Honor with a toleration": (
        [
            A,
            BUSY,
            ON_A,
            _asking(_constraint(nodeTaintsPolicy="Honor"), tolerations=[{"key": "busy", "operator": "Exists"}]),
        ],
        ONLY_B,
    ),
    "no eligible node": (
        [A, B, ON_A, _asking(_constraint(), nodeSelector={"pool": "x"})],
        FITS,
    ),
    "no eligible node and minDomains 0": (
        [A, B, ON_A, _asking(_constraint(minDomains=0, skew=0), nodeSelector={"pool": "x"})],
        FITS,
    ),
    "an invalid selector rejects the pod": (
        [A, _asking(_constraint(labels=None, labelSelector={"matchExpressions": [{"key": "a", "operator": "Is"}]}))],
        {
            "a": 'running PreFilter plugin "PodTopologySpread": '
            "get constraints from pod: obtaining pod's hard topology spread constraints: "
            '"Is" is not a valid label selector operator'
        },
    ),
}


@pytest.mark.parametrize(("objects", "expected"), CASES.values(), ids=CASES)
def test_nodes_are_rejected_for_the_schedulers_reasons(objects: list[Json], expected: Json) -> None:
    table = load(*objects)
    assert reasons(pods.POD_TOPOLOGY_SPREAD, table.pods["default/p"].cls, table) == expected


GHOSTS: dict[str, tuple[Json, Json]] = {
    # kubernetes/autoscaler#9287: if the domain disappeared with its node, both others would accept the pod.
    "its domain still exists": (_constraint(), {"a": UNEVEN, "b": UNEVEN, "c": ""}),
    "its domain does not exist if taints are honored": (
        _constraint(nodeTaintsPolicy="Honor"),
        {"a": "", "b": "", "c": ""},
    ),
}


@pytest.mark.parametrize(("constraint", "expected"), GHOSTS.values(), ids=GHOSTS)
def test_the_domain_of_a_draining_node_still_counts(constraint: Json, expected: Json) -> None:
    table = load(A, B, C, ON_A, pod("r", "b", labels=WEB), _asking(constraint))
    with table.trial() as trial:
        trial.drain(table.nodes.row["c"])
        assert reasons(pods.POD_TOPOLOGY_SPREAD, table.pods["default/p"].cls, table) == expected


def test_pods_on_a_draining_node_do_not_count_if_taints_are_honored() -> None:
    zone = [node(name, labels={ZONE: "z"}) for name in ("c", "d")]
    table = load(A, *zone, pod("r", "c", labels=WEB), _asking(_constraint(nodeTaintsPolicy="Honor")))
    cls = table.pods["default/p"].cls
    before = reasons(pods.POD_TOPOLOGY_SPREAD, cls, table)
    with table.trial() as trial:
        trial.drain(table.nodes.row["c"])
        during = reasons(pods.POD_TOPOLOGY_SPREAD, cls, table)
    after = reasons(pods.POD_TOPOLOGY_SPREAD, cls, table)
    full = {"a": "", "c": UNEVEN, "d": UNEVEN}
    assert (before, during, after) == (full, dict.fromkeys("acd", ""), full)


def test_draining_nodes_one_after_another_changes_the_minimum() -> None:
    """Two pods are in a and one in b: only if b and c are both drained, no domain has fewer pods than a."""
    others = (pod("r", "a", labels=WEB), pod("s", "b", labels=WEB))
    table = load(A, B, C, ON_A, *others, _asking(_constraint(nodeTaintsPolicy="Honor")))
    cls, actual = table.pods["default/p"].cls, []
    for drained in ("cb", "bc"):
        with table.trial() as trial:
            for name in drained:
                actual.append(reasons(pods.POD_TOPOLOGY_SPREAD, cls, table)["a"])
                trial.drain(table.nodes.row[name])
            actual.append(reasons(pods.POD_TOPOLOGY_SPREAD, cls, table)["a"])
    assert actual == [UNEVEN, UNEVEN, "", UNEVEN, UNEVEN, ""]


def test_the_domain_of_a_node_whose_drain_is_reverted_counts_again() -> None:
    """Without c, a and b have a pod each. Without b1, c has none, and no other domain may have two."""
    two = (node(name, labels={ZONE: "b"}) for name in ("b1", "b2"))
    table = load(A, *two, C, ON_A, pod("s", "b2", labels=WEB), _asking(_constraint(nodeTaintsPolicy="Honor")))
    cls, actual = table.pods["default/p"].cls, []
    with table.trial() as trial:
        for name in ("c", "b1"):
            mark = trial.savepoint()
            trial.drain(table.nodes.row[name])
            actual.append(reasons(pods.POD_TOPOLOGY_SPREAD, cls, table))
            trial.revert(mark)
    rejected = dict.fromkeys(("a", "b1", "b2"), UNEVEN)
    assert actual == [dict.fromkeys(("a", "b1", "b2", "c"), ""), {**rejected, "c": ""}]


def test_drain_taint_can_be_tolerated() -> None:
    tolerations = [{"key": DRAIN_TAINT.key, "operator": "Exists"}]
    table = load(A, B, ON_A, _asking(_constraint(nodeTaintsPolicy="Honor"), tolerations=tolerations))
    with table.trial() as trial:
        trial.drain(table.nodes.row["b"])
        assert reasons(pods.POD_TOPOLOGY_SPREAD, table.pods["default/p"].cls, table) == ONLY_B
