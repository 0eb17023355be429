"""InterPodAffinity on small clusters. The expected results are those of the scheduler."""

import gc
from typing import Any

import pytest

from predicates.filters import Filters
from predicates.objects import PodClass
from predicates.plugins import pods as plugins_pods
from predicates.scheduler import Scheduler
from predicates.versions import VERSIONS
from tests.conformance.builders import node, pod
from tests.conformance.generate.world import Json
from tests.predicates.asking import load, reasons

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
UNATTRACTED = "node(s) didn't match pod affinity rules"
REPELLING = "node(s) didn't match pod anti-affinity rules"
REPELLED = "node(s) didn't satisfy existing pods anti-affinity rules"
WEB, DB = {"app": "web"}, {"app": "db"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

A1, A2, B = (node(name, labels={ZONE: name[0]}) for name in ("a1", "a2", "b"))
WITHOUT_ZONE = node("n")
NODES = [A1, A2, B]


def _term(labels: Json | None = DB, key: str = ZONE, **fields: Any) -> Json:
    selector = {"labelSelector": {"matchLabels": labels}} if labels is not None else {}
    return {"topologyKey": key, **selector, **fields}


def _near(*terms: Json) -> Json:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def _far(*terms: Json) -> Json:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def _p(spec: Json, labels: Json = WEB) -> Json:
    return pod("p", labels=labels, **spec)


def _in(namespace: str, obj: Json) -> Json:
    obj["metadata"]["namespace"] = namespace
    return obj


def _leaving(obj: Json) -> Json:
    obj["metadata"]["deletionTimestamp"] = "2024-03-01T10:00:00Z"
    return obj


def _namespace(name: str, **labels: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


DB_A1 = pod("q", "a1", labels=DB)
RED = {"matchLabels": {"team": "red"}}
NOT_RED = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]}


def _verdicts(a1: str = "", a2: str = "", b: str = "", **fields: str) -> dict[str, str]:
    return {"a1": a1, "a2": a2, "b": b, **fields}


FITS = _verdicts()
ONLY_ZONE_A = _verdicts(b=UNATTRACTED)
NO_NODE = _verdicts(UNATTRACTED, UNATTRACTED, UNATTRACTED)
NOT_ZONE_A = _verdicts(REPELLING, REPELLING)

#: Objects in addition to three nodes, including the pod p, and the reason by node; "" where the pod fits.
CASES: dict[str, tuple[list[Json], Json]] = {
    "no terms, no other pods": ([DB_A1, _p({})], FITS),
    "affinity to the zone of a matching pod": ([DB_A1, _p(_near(_term()))], ONLY_ZONE_A),
    "affinity to the node of a matching pod": (
        [DB_A1, _p(_near(_term(key=HOST)))],
        _verdicts(a2=UNATTRACTED, b=UNATTRACTED),
    ),
    "a pod that is being deleted matches": (
        [_leaving(pod("q", "a1", labels=DB)), _p(_near(_term()))],
        ONLY_ZONE_A,
    ),
    "all terms must match the same pod": (
        [DB_A1, pod("r", "a1", labels=WEB), _p(_near(_term(), _term(WEB)))],
        NO_NODE,
    ),
    "one pod matches all terms": (
        [pod("q", "a1", labels={**DB, "tier": "x"}), _p(_near(_term(), _term({"tier": "x"}, HOST)))],
        _verdicts(a2=UNATTRACTED, b=UNATTRACTED),
    ),
    "the first pod that matches its own terms fits": ([_p(_near(_term(WEB)))], FITS),
    "the first pod does not fit nodes without the label": (
        [WITHOUT_ZONE, _p(_near(_term(WEB)))],
        _verdicts(n=UNATTRACTED),
    ),
    "matching pods outside of all domains do not count": (
        [WITHOUT_ZONE, pod("q", "n", labels=WEB), _p(_near(_term(WEB)))],
        _verdicts(n=UNATTRACTED),
    ),
    "a matching pod in a domain of any key counts": (
        [WITHOUT_ZONE, pod("q", "n", labels=WEB), _p(_near(_term(WEB), _term(WEB, HOST)))],
        _verdicts(UNATTRACTED, UNATTRACTED, UNATTRACTED, n=UNATTRACTED),
    ),
    "the first pod must match its own terms": ([_p(_near(_term()))], NO_NODE),
    "a term without a selector matches nothing": ([DB_A1, _p(_near(_term(None)))], NO_NODE),
    "anti-affinity to the zone of a matching pod": ([DB_A1, _p(_far(_term()))], NOT_ZONE_A),
    "a match of any anti-affinity term rejects": (
        [DB_A1, _p(_far(_term({"app": "none"}), _term(key=HOST)))],
        _verdicts(a1=REPELLING),
    ),
    "anti-affinity does not reject nodes without the label": (
        [WITHOUT_ZONE, pod("q", "n", labels=DB), _p(_far(_term()))],
        _verdicts(n=""),
    ),
    "anti-affinity of placed pods": (
        [pod("q", "a1", labels=DB, **_far(_term(WEB))), _p({})],
        _verdicts(REPELLED, REPELLED),
    ),
    "anti-affinity of placed pods applies to their own namespace": (
        [_in("other", pod("q", "a1", labels=DB, **_far(_term(WEB)))), _p({})],
        FITS,
    ),
    "anti-affinity of placed pods with listed namespaces": (
        [_in("other", pod("q", "a1", labels=DB, **_far(_term(WEB, namespaces=["default"])))), _p({})],
        _verdicts(REPELLED, REPELLED),
    ),
    "anti-affinity of placed pods with a namespace selector": (
        [
            _namespace("default", team="red"),
            _in("other", pod("q", "a1", labels=DB, **_far(_term(WEB, namespaceSelector=RED)))),
            _p({}),
        ],
        _verdicts(REPELLED, REPELLED),
    ),
    "a namespace without an object has no labels": (
        [_in("other", pod("q", "a1", labels=DB, **_far(_term(WEB, namespaceSelector=NOT_RED)))), _p({})],
        _verdicts(REPELLED, REPELLED),
    ),
    "a placed pod with an invalid term rejects nothing": (
        [pod("q", "a1", labels=DB, **_far(_term(WEB), _term({"a b": ""}))), _p({})],
        FITS,
    ),
    "order of reasons: affinity, anti-affinity, anti-affinity of placed pods": (
        [
            pod("q", "a1", labels={**DB, "x": "y"}, **_far(_term(WEB))),
            pod("r", "a2", labels=DB),
            _p(
                {
                    "affinity": {
                        "podAffinity": {REQUIRED: [_term()]},
                        "podAntiAffinity": {REQUIRED: [_term({"x": "y"}, HOST)]},
                    }
                }
            ),
        ],
        _verdicts(REPELLING, REPELLED, UNATTRACTED),
    ),
    "an empty namespace selector selects all namespaces": (
        [_in("gone", pod("q", "a1", labels=DB)), _p(_far(_term(namespaceSelector={})))],
        NOT_ZONE_A,
    ),
    "a namespace selector selects namespaces by label": (
        [
            _namespace("red", team="red"),
            _in("red", pod("q", "a1", labels=DB)),
            _in("blue", pod("r", "b", labels=DB)),
            _p(_far(_term(namespaceSelector=RED))),
        ],
        NOT_ZONE_A,
    ),
    "a namespace selector does not include the pod's own namespace": (
        [DB_A1, _p(_far(_term(namespaceSelector=RED)))],
        FITS,
    ),
    "matchLabelKeys are ignored (merged by the API server)": (
        [pod("q", "a1", labels={**DB, "v": "1"}), _p(_far(_term(matchLabelKeys=["v"])), {**WEB, "v": "2"})],
        NOT_ZONE_A,
    ),
    "an invalid selector rejects the pod": (
        [_p(_near(_term({"app": "-"})))],
        dict.fromkeys(
            ("a1", "a2", "b"),
            'parsing pod: requiredAffinityTerms: values[0][app]: Invalid value: "-": a valid label must be an empty '
            "string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
            "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
    ),
}


def test_namespace_selector_that_matches_empty_labels_selects_all_namespaces_until_1_36() -> None:
    red = _namespace("red", team="red"), _in("red", pod("q", "a1", labels=DB))
    table = load(*NODES, *red, _p(_far(_term(namespaceSelector=NOT_RED))))
    for minor, version in VERSIONS.items():
        table.use(Scheduler(version))
        found = reasons(plugins_pods.INTER_POD_AFFINITY, table.pods["default/p"].cls, table)
        assert (found == NOT_ZONE_A) == (minor <= 36), minor


@pytest.mark.parametrize(("objects", "expected"), CASES.values(), ids=CASES)
def test_nodes_are_rejected_for_the_schedulers_reasons(objects: list[Json], expected: Json) -> None:
    table = load(*NODES, *objects)
    assert reasons(plugins_pods.INTER_POD_AFFINITY, table.pods["default/p"].cls, table) == expected


def test_errors_in_preferred_terms_reject_the_pod() -> None:
    preferred = [
        {
            "weight": 1,
            "podAffinityTerm": _term(None, labelSelector={"matchExpressions": [{"key": "a", "operator": "Is"}]}),
        }
    ]
    affinity = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    table = load(B, pod("p", affinity=affinity))
    reason = 'parsing pod: preferredAntiAffinityTerms: "Is" is not a valid label selector operator'
    assert reasons(plugins_pods.INTER_POD_AFFINITY, table.pods["default/p"].cls, table) == {"b": reason}


def test_dropped_classes_are_not_kept() -> None:
    """Every roll-out creates classes, so a long-lived process must not keep the parsed terms of unused classes."""
    labels = [{"app": "kept", "pod-template-hash": "1"}, {"app": "old", "pod-template-hash": "2"}]
    pods = [pod(each["app"], "b", labels=each, **_far(_term())) for each in labels]
    table = load(*NODES, *pods)
    filters = Filters(table, [plugins_pods.INTER_POD_AFFINITY])
    kept = table.pods["default/kept"].cls
    for each in list(table.pods.values()):
        filters.feasible(each.cls)
    table.delete("Pod", "default/old")
    table.compact()
    filters.feasible(kept)
    del each
    gc.collect()
    alive = [item.labels for item in gc.get_objects() if isinstance(item, PodClass)]
    assert [each in alive for each in labels] == [True, False]
