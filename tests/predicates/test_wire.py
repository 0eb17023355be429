"""JSON as objects: what is shared, what is kept, and what is said of an object that cannot be read."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predicates import wire
from predicates.objects import (
    Container,
    ContainerStatus,
    HostPort,
    Node,
    Object,
    ObjectMeta,
    Pod,
    PodSpec,
    Volume,
)
from predicates.wire import KINDS, Decoder, Interner, WireError, name_of
from tests.conformance.builders import node, pod
from tests.conformance.generate.world import Json


def _decode(one: Json, decoder: Decoder | None = None) -> Object:
    return (decoder or Decoder(Interner())).decode(one["kind"], msgspec.json.encode(one))


def _pod(one: Json, decoder: Decoder | None = None) -> Pod:
    found = _decode(one, decoder)
    assert isinstance(found, Pod)
    return found


def _with(one: Json, path: str, value: Any) -> Json:
    """*one* with *value* at *path*, as ``spec.containers.0.name``."""
    copy: Json = json.loads(json.dumps(one))
    at: Any = copy
    *steps, last = path.split(".")
    for step in steps:
        at = at[int(step)] if isinstance(at, list) else at.setdefault(step, {})
    at[int(last) if isinstance(at, list) else last] = value
    return copy


POD = pod("web-1", "n1", labels={"app": "web"}, requests={"cpu": "100m"})

# Classes

#: Whatever a filter reads makes a class of its own.
TELLING: dict[str, tuple[str, Any]] = {
    "namespace": ("metadata.namespace", "other"),
    "label": ("metadata.labels.app", "db"),
    "deletion": ("metadata.deletionTimestamp", "2024-01-01T00:00:00Z"),
    "request": ("spec.containers.0.resources.requests.cpu", "200m"),
    "host port": ("spec.containers.0.ports", [{"hostPort": 80}]),
    "restart rule": ("spec.containers.0.restartPolicyRules", [{"action": "RestartAllContainers"}]),
    "image": ("spec.containers.0.image", "other"),
    "sidecar": ("spec.initContainers", [{"name": "s", "restartPolicy": "Always"}]),
    "node selector": ("spec.nodeSelector", {"zone": "a"}),
    "affinity": ("spec.affinity", {"podAffinity": {}}),
    "toleration": ("spec.tolerations", [{"operator": "Exists"}]),
    "spread": ("spec.topologySpreadConstraints", [{"maxSkew": 1, "topologyKey": "zone"}]),
    "volume": ("spec.volumes", [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
    "overhead": ("spec.overhead", {"cpu": "1"}),
    "pod-level resources": ("spec.resources", {"requests": {"cpu": "1"}}),
    "gate": ("spec.schedulingGates", [{"name": "g"}]),
    "resource claim": ("spec.resourceClaims", [{"name": "r", "resourceClaimName": "c"}]),
    "priority": ("spec.priority", 5),
    "host network": ("spec.hostNetwork", True),
    "user namespace": ("spec.hostUsers", False),
}

#: What no filter reads leaves the class alone.
SILENT: dict[str, tuple[str, Any]] = {
    "name": ("metadata.name", "web-2"),
    "uid": ("metadata.uid", "other"),
    "node": ("spec.nodeName", "n2"),
    "annotation": ("metadata.annotations", {"a": "b"}),
    "phase": ("status.phase", "Pending"),
    "environment": ("spec.containers.0.env", [{"name": "A", "value": "b"}]),
    "token of the service account": ("spec.volumes", [{"name": "kube-api-access-x", "projected": {"sources": []}}]),
    "unknown field": ("spec.novelty", {"deep": [1, 2]}),
}


@pytest.mark.parametrize(("path", "value"), TELLING.values(), ids=TELLING)
def test_pods_that_differ_in_what_filters_read_have_classes_of_their_own(path: str, value: Any) -> None:
    decoder = Decoder(Interner())
    assert _pod(POD, decoder).cls is not _pod(_with(POD, path, value), decoder).cls


@pytest.mark.parametrize(
    ("read", "key"),
    [
        (PodSpec, wire._SpecKey),
        (Container, wire._ContainerKey),
        (Volume, wire._VolumeKey),
        (ContainerStatus, wire._ContainerStatusKey),
    ],
)
def test_whatever_is_read_of_a_pod_is_in_a_key(read: type[msgspec.Struct], key: type[msgspec.Struct]) -> None:
    names = ({field.encode_name for field in msgspec.structs.fields(kind)} for kind in (read, key))
    assert set.difference(*names) == set()


@pytest.mark.parametrize(("path", "value"), SILENT.values(), ids=SILENT)
def test_pods_that_schedule_alike_share_their_class(path: str, value: Any) -> None:
    decoder = Decoder(Interner())
    assert _pod(POD, decoder).cls is _pod(_with(POD, path, value), decoder).cls


@pytest.mark.parametrize("volume", [{"ephemeral": {}}, None], ids=["ephemeral volume", "resource claim"])
def test_pods_whose_verdict_depends_on_their_name_share_with_nobody(volume: Json | None) -> None:
    own = {"volumes": [{"name": "v", **volume}]} if volume else {"resourceClaims": [{"name": "r"}]}
    decoder = Decoder(Interner())
    first, second = (_pod(pod(name, **own), decoder).cls for name in ("a", "b"))
    assert first is not second


def test_a_class_keeps_what_the_filters_ask_for() -> None:
    ports = [{"hostPort": 80, "hostIP": ""}, {"hostPort": 80, "protocol": "TCP"}, {"containerPort": 9}]
    cls = _pod(_with(POD, "spec.containers.0.ports", ports)).cls
    assert (cls.requests, cls.ports, cls.labels, cls.spec.node_name) == (
        (("cpu", 100),),
        (HostPort("TCP", "0.0.0.0", 80),),
        {"app": "web"},
        "",
    )


def test_two_pods_of_a_class_with_unlike_status_take_what_their_own_status_says() -> None:
    decoder, loads = Decoder(Interner()), []
    for actual in ("300m", "100m", None, "300m"):
        resources = {} if actual is None else {"resources": {"requests": {"cpu": actual}}}
        one = _with(POD, "status.containerStatuses", [{"name": "c", **resources}])
        loads.append(_pod(one, decoder).load)
    assert loads == [(("cpu", 300),), (("cpu", 100),), (("cpu", 100),), (("cpu", 300),)]


def test_classes_that_no_pod_uses_are_forgotten() -> None:
    interner = Interner()
    decoder = Decoder(interner)
    kept = _pod(POD, decoder).cls
    _pod(_with(POD, "metadata.labels.app", "db"), decoder)
    interner.forget({kept})
    assert (len(interner), _pod(POD, decoder).cls) == (1, kept)


# Nulls, as Go reads them

NODE = node("n1", labels={"zone": "a"})


@pytest.mark.parametrize(
    ("nulled", "plain"),
    [
        (_with(NODE, "metadata.labels", None), _with(NODE, "metadata.labels", {})),
        (_with(NODE, "metadata.labels.zone", None), _with(NODE, "metadata.labels.zone", "")),
        (_with(NODE, "spec", None), _with(NODE, "spec", {})),
        (_with(NODE, "spec.taints", [None]), _with(NODE, "spec.taints", [{}])),
        (_with(NODE, "spec.unschedulable", None), NODE),
        (_with(NODE, "status.allocatable", None), _with(NODE, "status.allocatable", {})),
        (_with(NODE, "status.allocatable.cpu", None), _with(NODE, "status.allocatable.cpu", 0)),
        (_with(NODE, "status.declaredFeatures", [None, "b"]), _with(NODE, "status.declaredFeatures", ["", "b"])),
    ],
    ids=["map", "text in a map", "struct", "struct in a list", "flag", "amounts", "amount in a map", "text in a list"],
)
def test_a_null_in_a_node_is_a_zero(nulled: Json, plain: Json) -> None:
    assert _decode(nulled) == _decode(plain)


@pytest.mark.parametrize(
    "path",
    [
        "metadata.labels",
        "metadata.ownerReferences",
        "spec.affinity",
        "spec.nodeSelector",
        "spec.tolerations",
        "spec.volumes",
        "spec.initContainers",
        "spec.containers.0.ports",
        "spec.containers.0.resources.limits",
        "spec.priority",
        "status.conditions",
        "status.containerStatuses",
    ],
)
def test_a_null_in_a_pod_is_as_if_it_were_not_there(path: str) -> None:
    nulled, plain = _pod(_with(POD, path, None)), _pod(POD)
    spec = msgspec.to_builtins(nulled.cls.spec)
    labels = {} if path == "metadata.labels" else plain.cls.labels
    assert (spec, nulled.cls.labels, nulled.load) == (msgspec.to_builtins(plain.cls.spec), labels, plain.load)


def test_nulls_in_lists_of_a_pod_count_as_empty_entries() -> None:
    one = _with(POD, "spec.tolerations", [None, {"key": "a"}])
    assert [toleration.key for toleration in _pod(one).cls.spec.tolerations] == ["", "a"]


# What cannot be read

BROKEN: dict[str, tuple[Json, str]] = {
    "amount": (_with(POD, "spec.containers.0.resources.requests.cpu", "12x"), "cpu: quantity '12x': expected"),
    "amount of a node": (_with(NODE, "status.allocatable.memory", "1 Gi"), "memory: quantity '1 Gi': expected"),
    "amount that is a list": (_with(NODE, "status.allocatable.memory", []), r"got `array` - at `\$.status.allocatable"),
    "amount that is a flag": (_with(NODE, "status.allocatable.cpu", True), r"got `bool` - at `\$.status.allocatable"),
    "amount in a status": (
        _with(POD, "status.containerStatuses", [{"name": "c", "resources": {"requests": {"cpu": ""}}}]),
        "cpu: quantity '': expected",
    ),
    "overhead": (_with(POD, "spec.overhead", {"memory": "much"}), "memory: quantity 'much': expected"),
    "number for a name": (_with(POD, "metadata.name", 5), r"Expected `str`, got `int` - at `\$.metadata.name`"),
    "number for a label": (_with(POD, "metadata.labels.app", 5), r"Expected `str`, got `int` - at `\$.metadata.labels"),
    "list for a map": (_with(POD, "spec.nodeSelector", []), r"Expected `object`, got `array` - at `\$.spec.node"),
    "map for a list": (_with(POD, "spec.tolerations", {}), r"Expected `array`, got `object` - at `\$.spec.tol"),
    "text for a number": (_with(POD, "spec.priority", "high"), r"Expected `int \| null`, got `str` - at `\$.spec.prio"),
    "text for a flag": (_with(NODE, "spec.unschedulable", "true"), r"Expected `bool`, got `str` - at `\$.spec.unsch"),
    "number past 32 bits": (
        _with(POD, "spec.containers.0.ports", [{"hostPort": 2**31}]),
        r"Expected `int` <= 2147483647 - at `\$.spec.containers\[0\].ports\[0\].hostPort`",
    ),
    "number past 64 bits": (
        _with(POD, "spec.topologySpreadConstraints", [{"maxSkew": 2**70}]),
        r"Expected `int` <= 2147483647 - at `\$.spec.topologySpread",
    ),
    "null and something worse": (_with(_with(POD, "spec.affinity", None), "spec.volumes", 5), "Expected `array`"),
}


@pytest.mark.parametrize(("one", "words"), BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_read_is_named_with_its_field_and_what_was_expected(one: Json, words: str) -> None:
    name = "Pod default/web-1" if one["kind"] == "Pod" else "Node n1"
    with pytest.raises(WireError, match=rf"^{name if 'name' not in words else 'Pod'}.*: .*{words}"):
        _decode(one)


def test_an_object_without_metadata_is_refused() -> None:
    with pytest.raises(WireError, match=r"^Pod without a name: Object missing required field `metadata`$"):
        _decode({"kind": "Pod", "spec": {}})


@pytest.mark.parametrize("raw", [b"", b"null", b"5", b"[]", b'"pod"', b"{", b"{}", b'{"metadata": 5}', b"\xff{}"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_object_is_refused(kind: str, raw: bytes) -> None:
    with pytest.raises(WireError, match=rf"^{kind} without a name: "):
        Decoder(Interner()).decode(kind, raw)


@pytest.mark.parametrize("cut", range(1, len(msgspec.json.encode(POD)), 7))
def test_json_cut_short_is_refused_and_named_where_the_name_is_still_there(cut: int) -> None:
    raw = msgspec.json.encode(POD)[:cut]
    named = b'"labels":{"app":"web"}}' in raw
    with pytest.raises(WireError, match=f"^Pod {'default/web-1' if named else 'without a name'}: "):
        Decoder(Interner()).decode("Pod", raw)


@pytest.mark.parametrize("path", ["novelty", "spec.novelty", "spec.affinity", "status.novelty"])
def test_very_deep_nesting_is_refused_by_name(path: str) -> None:
    depth = 100_000
    raw = msgspec.json.encode(_with(POD, path, "deep")).replace(b'"deep"', b'{"a":' * depth + b"1" + b"}" * depth)
    with pytest.raises(WireError, match=r"^Pod default/web-1: "):
        Decoder(Interner()).decode("Pod", raw)


def test_text_that_is_not_utf8_is_refused_by_name() -> None:
    raw = msgspec.json.encode(_with(POD, "spec.schedulerName", "?")).replace(b'"?"', b'"\xff"')
    with pytest.raises(WireError, match=r"^Pod default/web-1: "):
        Decoder(Interner()).decode("Pod", raw)


def test_of_a_key_that_is_there_twice_the_last_counts() -> None:
    raw = msgspec.json.encode(POD).replace(b'"cpu":"100m"', b'"cpu":"100m","cpu":"200m"')
    found = Decoder(Interner()).decode("Pod", raw)
    assert isinstance(found, Pod)
    assert found.cls.requests == (("cpu", 200),)


def test_a_name_is_found_beside_labels_and_annotations_of_that_name() -> None:
    raw = b'{"kind":"Pod","metadata":{"annotations":{"name":"x"},"labels":{"name":"y"},"name":"z","namespace":"n"},'
    assert name_of(raw) == "n/z"


def test_a_node_without_anything_but_a_name_can_be_read() -> None:
    assert _decode({"kind": "Node", "metadata": {"name": "n"}}) == Node(metadata=ObjectMeta(name="n"))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_PATHS = [*(path for path, _ in TELLING.values()), *(path for path, _ in SILENT.values()), "status.conditions", "spec"]


@given(st.sampled_from(_PATHS), _JSON)
def test_anything_anywhere_in_a_pod_is_read_or_refused_in_our_words(path: str, value: Any) -> None:
    try:
        told = f"Pod {_pod(_with(POD, path, value)).key}"
    except WireError as error:
        told = str(error)
    assert told.startswith("Pod ")
