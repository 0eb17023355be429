"""InterPodAffinity on clusters small enough to see through; the verdicts are the scheduler's."""

from typing import Any

import pytest

from predicates.plugins import inter_pod_affinity
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
NOWHERE = node("n")
NODES = [A1, A2, B]


def _term(labels: Json | None = DB, key: str = ZONE, **rest: Any) -> Json:
    selector = {"labelSelector": {"matchLabels": labels}} if labels is not None else {}
    return {"topologyKey": key, **selector, **rest}


def _near(*terms: Json) -> Json:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def _far(*terms: Json) -> Json:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def _p(spec: Json, labels: Json = WEB) -> Json:
    return pod("p", labels=labels, **spec)


def _in(namespace: str, one: Json) -> Json:
    one["metadata"]["namespace"] = namespace
    return one


def _leaving(one: Json) -> Json:
    one["metadata"]["deletionTimestamp"] = "2024-03-01T10:00:00Z"
    return one


def _namespace(name: str, **labels: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


DB_A1 = pod("q", "a1", labels=DB)
RED = {"matchLabels": {"team": "red"}}
NOT_RED = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]}


def _verdicts(a1: str = "", a2: str = "", b: str = "", **rest: str) -> dict[str, str]:
    return {"a1": a1, "a2": a2, "b": b, **rest}


FITS = _verdicts()
ONLY_ZONE_A = _verdicts(b=UNATTRACTED)
NO_NODE = _verdicts(UNATTRACTED, UNATTRACTED, UNATTRACTED)
NOT_ZONE_A = _verdicts(REPELLING, REPELLING)

#: Objects beside three nodes, among them the pod p, and the reason by node, "" where it fits.
CASES: dict[str, tuple[list[Json], Json]] = {
    "no terms, no neighbours": ([DB_A1, _p({})], FITS),
    "affinity takes the pod to the sought pod's zone": ([DB_A1, _p(_near(_term()))], ONLY_ZONE_A),
    "affinity to a host": ([DB_A1, _p(_near(_term(key=HOST)))], _verdicts(a2=UNATTRACTED, b=UNATTRACTED)),
    "a pod that is being deleted still attracts": (
        [_leaving(pod("q", "a1", labels=DB)), _p(_near(_term()))],
        ONLY_ZONE_A,
    ),
    "all terms must mean one pod": (
        [DB_A1, pod("r", "a1", labels=WEB), _p(_near(_term(), _term(WEB)))],
        NO_NODE,
    ),
    "one pod that all terms mean": (
        [pod("q", "a1", labels={**DB, "tier": "x"}), _p(_near(_term(), _term({"tier": "x"}, HOST)))],
        _verdicts(a2=UNATTRACTED, b=UNATTRACTED),
    ),
    "the first pod of its own kind may go anywhere": ([_p(_near(_term(WEB)))], FITS),
    "but not where the label is missing": ([NOWHERE, _p(_near(_term(WEB)))], _verdicts(n=UNATTRACTED)),
    "it is still the first where the others stand in no domain": (
        [NOWHERE, pod("q", "n", labels=WEB), _p(_near(_term(WEB)))],
        _verdicts(n=UNATTRACTED),
    ),
    "a pod in a domain of any of the keys ends that": (
        [NOWHERE, pod("q", "n", labels=WEB), _p(_near(_term(WEB), _term(WEB, HOST)))],
        _verdicts(UNATTRACTED, UNATTRACTED, UNATTRACTED, n=UNATTRACTED),
    ),
    "the first pod must satisfy its own terms": ([_p(_near(_term()))], NO_NODE),
    "without a selector nothing is sought": ([DB_A1, _p(_near(_term(None)))], NO_NODE),
    "anti-affinity keeps off the zone": ([DB_A1, _p(_far(_term()))], NOT_ZONE_A),
    "any of the terms is enough to keep off": (
        [DB_A1, _p(_far(_term({"app": "none"}), _term(key=HOST)))],
        _verdicts(a1=REPELLING),
    ),
    "nodes without the label are not kept off": (
        [NOWHERE, pod("q", "n", labels=DB), _p(_far(_term()))],
        _verdicts(n=""),
    ),
    "placed pods keep others off": (
        [pod("q", "a1", labels=DB, **_far(_term(WEB))), _p({})],
        _verdicts(REPELLED, REPELLED),
    ),
    "of their own namespace only": (
        [_in("other", pod("q", "a1", labels=DB, **_far(_term(WEB)))), _p({})],
        FITS,
    ),
    "or of the listed ones": (
        [_in("other", pod("q", "a1", labels=DB, **_far(_term(WEB, namespaces=["default"])))), _p({})],
        _verdicts(REPELLED, REPELLED),
    ),
    "or of those that their selector takes": (
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
    "a pod with a broken term keeps nobody off": (
        [pod("q", "a1", labels=DB, **_far(_term(WEB), _term({"a b": ""}))), _p({})],
        FITS,
    ),
    "affinity is named first, then the pod's own anti-affinity, then the others'": (
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
    "an empty namespace selector means all namespaces": (
        [_in("gone", pod("q", "a1", labels=DB)), _p(_far(_term(namespaceSelector={})))],
        NOT_ZONE_A,
    ),
    "a namespace selector means the namespaces that it takes": (
        [
            _namespace("red", team="red"),
            _in("red", pod("q", "a1", labels=DB)),
            _in("blue", pod("r", "b", labels=DB)),
            _p(_far(_term(namespaceSelector=RED))),
        ],
        NOT_ZONE_A,
    ),
    "and does not mean the pod's own beside them": (
        [DB_A1, _p(_far(_term(namespaceSelector=RED)))],
        FITS,
    ),
    # The scheduler matches the selector of an incoming pod's term against no labels, whatever the namespace's are.
    "a namespace selector that takes no labels at all means all namespaces": (
        [
            _namespace("red", team="red"),
            _in("red", pod("q", "a1", labels=DB)),
            _p(_far(_term(namespaceSelector=NOT_RED))),
        ],
        NOT_ZONE_A,
    ),
    "matchLabelKeys are the API server's work": (
        [pod("q", "a1", labels={**DB, "v": "1"}), _p(_far(_term(matchLabelKeys=["v"])), {**WEB, "v": "2"})],
        NOT_ZONE_A,
    ),
    "a broken selector refuses the pod": (
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


@pytest.mark.parametrize(("objects", "expected"), CASES.values(), ids=CASES)
def test_reasons(objects: list[Json], expected: Json) -> None:
    table = load(*NODES, *objects)
    assert reasons(inter_pod_affinity.PLUGIN, table.pods["default/p"].cls, table) == expected


def test_a_preferred_term_is_read_for_its_errors() -> None:
    preferred = [
        {
            "weight": 1,
            "podAffinityTerm": _term(None, labelSelector={"matchExpressions": [{"key": "a", "operator": "Is"}]}),
        }
    ]
    affinity = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    table = load(B, pod("p", affinity=affinity))
    said = 'parsing pod: preferredAntiAffinityTerms: "Is" is not a valid label selector operator'
    assert reasons(inter_pod_affinity.PLUGIN, table.pods["default/p"].cls, table) == {"b": said}
