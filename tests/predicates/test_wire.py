"""Decoding of JSON: pod classes, nulls, and errors."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predicates import pod_classes
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
from predicates.pod_classes import split, split_labels
from predicates.wire import KINDS, Decoder, Interner, SplitPods, WireError, name_of
from tests.conformance.builders import node, pod
from tests.conformance.generate.world import Json


def _decode(obj: Json, decoder: Decoder | None = None) -> Object:
    return (decoder or Decoder(Interner())).decode(obj["kind"], msgspec.json.encode(obj))


def _pod(obj: Json, decoder: Decoder | None = None) -> Pod:
    result = _decode(obj, decoder)
    assert isinstance(result, Pod)
    return result


def _split(raw: bytes, decoder: Decoder) -> tuple[Pod, bytes]:
    """Return the pod as another process would pass it on, and the text that it shares with equal pods."""
    own, text = split(raw, split_labels)
    pods = SplitPods(decoder)
    pods.add(text)
    return pods.pod(own, 0), text


def _with(obj: Json, path: str, value: Any) -> Json:
    """Return *obj* with *value* at *path*, such as ``spec.containers.0.name``."""
    copy: Json = json.loads(json.dumps(obj))
    at: Any = copy
    *steps, last = path.split(".")
    for step in steps:
        at = at[int(step)] if isinstance(at, list) else at.setdefault(step, {})
    at[int(last) if isinstance(at, list) else last] = value
    return copy


POD = pod("web-1", "n1", labels={"app": "web"}, requests={"cpu": "100m"})

# Classes

#: Every field that a filter reads affects the class.
FIELDS_IN_CLASS: dict[str, tuple[str, Any]] = {
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
    "certificate": ("spec.volumes", [{"name": "c", "projected": {"sources": [{"podCertificate": {"keyType": "X"}}]}}]),
}

#: Fields that no filter reads do not affect the class.
OTHER_FIELDS: dict[str, tuple[str, Any]] = {
    "name": ("metadata.name", "web-2"),
    "uid": ("metadata.uid", "other"),
    "node": ("spec.nodeName", "n2"),
    "annotation": ("metadata.annotations", {"a": "b"}),
    "phase": ("status.phase", "Pending"),
    "environment": ("spec.containers.0.env", [{"name": "A", "value": "b"}]),
    "service account token": ("spec.volumes", [{"name": "kube-api-access-x", "projected": {"sources": []}}]),
    "source of a volume": ("spec.volumes", [{"name": "x", "projected": {"sources": [{"configMap": {"name": "y"}}]}}]),
    "unknown field": ("spec.novelty", {"deep": [1, 2]}),
}


@pytest.mark.parametrize(("path", "value"), FIELDS_IN_CLASS.values(), ids=FIELDS_IN_CLASS)
def test_fields_that_filters_read_affect_the_class(path: str, value: Any) -> None:
    decoder = Decoder(Interner())
    assert _pod(POD, decoder).cls is not _pod(_with(POD, path, value), decoder).cls


@pytest.mark.parametrize(
    ("read", "key"),
    [
        (PodSpec, pod_classes.RawSpec),
        (Container, pod_classes.RawContainer),
        (Volume, pod_classes.RawVolume),
        (ContainerStatus, pod_classes.RawContainerStatus),
    ],
)
def test_all_decoded_fields_are_in_a_key(read: type[msgspec.Struct], key: type[msgspec.Struct]) -> None:
    names = ({field.encode_name for field in msgspec.structs.fields(kind)} for kind in (read, key))
    assert set.difference(*names) == set()


@pytest.mark.parametrize(("path", "value"), OTHER_FIELDS.values(), ids=OTHER_FIELDS)
def test_pods_with_equal_scheduling_fields_share_a_class(path: str, value: Any) -> None:
    decoder = Decoder(Interner())
    assert _pod(POD, decoder).cls is _pod(_with(POD, path, value), decoder).cls


@pytest.mark.parametrize("volume", [{"ephemeral": {}}, None], ids=["ephemeral volume", "resource claim"])
def test_pods_whose_reasons_contain_their_name_do_not_share_a_class(volume: Json | None) -> None:
    own = {"volumes": [{"name": "v", **volume}]} if volume else {"resourceClaims": [{"name": "r"}]}
    decoder = Decoder(Interner())
    first, second = (_pod(pod(name, **own), decoder).cls for name in ("a", "b"))
    assert first is not second


def test_class_has_the_fields_that_filters_read() -> None:
    ports = [{"hostPort": 80, "hostIP": ""}, {"hostPort": 80, "protocol": "TCP"}, {"containerPort": 9}]
    cls = _pod(_with(POD, "spec.containers.0.ports", ports)).cls
    assert (cls.requests, cls.ports, cls.labels, cls.spec.node_name) == (
        (("cpu", 100),),
        (HostPort("TCP", "0.0.0.0", 80),),
        {"app": "web"},
        "",
    )


ZONE, REGION, SUBZONE = (f"topology.kubernetes.io/{key}" for key in ("zone", "region", "subzone"))

#: The node of a pod and its labels, and which of them are its class's and which the API server added.
BOUND: dict[str, tuple[str, Json, Json, tuple[tuple[str, str], ...]]] = {
    "bound": ("n", {"app": "w", REGION: "r", ZONE: "a"}, {"app": "w"}, ((REGION, "r"), (ZONE, "a"))),
    "bound to a node without a region": ("n", {"app": "w", ZONE: "a"}, {"app": "w"}, ((ZONE, "a"),)),
    "bound, with a label that is not copied": ("n", {SUBZONE: "a1"}, {SUBZONE: "a1"}, ()),
    "not bound": ("", {"app": "w", ZONE: "a"}, {"app": "w", ZONE: "a"}, ()),
}


@pytest.mark.parametrize(("on", "labels", "own", "added"), BOUND.values(), ids=BOUND)
def test_labels_that_the_api_server_adds_are_not_in_the_class(
    on: str, labels: Json, own: Json, added: tuple[tuple[str, str], ...]
) -> None:
    decoder = Decoder(Interner())
    decoded = _pod(pod("w", on, labels=labels), decoder)
    assert (decoded.cls.labels, decoded.added_labels) == (own, added)
    assert decoded.cls is _pod(pod("v", labels=own), decoder).cls


def test_names_of_mounts_do_not_make_a_class_but_their_options_do() -> None:
    decoder, classes = Decoder(Interner()), []
    for mount in ({"name": "token-1"}, {"name": "token-2"}, {"name": "token-1", "bindMountOptions": ["noexec"]}):
        raw = msgspec.json.encode(_with(POD, "spec.containers.0.volumeMounts", [{"mountPath": "/t", **mount}]))
        decoded = decoder.decode("Pod", raw)
        assert isinstance(decoded, Pod)
        again, text = _split(raw, decoder)
        assert again == decoded
        assert (b"token" in text) is ("bindMountOptions" in mount)
        classes.append(decoded.cls)
    assert classes[0] is classes[1] is not classes[2]


CONDITIONS: dict[str, tuple[Json, bool]] = {
    "not ready": ({"type": "Ready", "status": "False"}, True),
    "ready since": ({"type": "Ready", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"}, True),
    "unschedulable": ({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}, True),
    "resize": ({"type": "PodResizePending", "status": "True", "reason": "Infeasible"}, True),
    "preempted": ({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}, True),
    "not read": ({"type": "Initialized", "status": "False"}, False),
}


@pytest.mark.parametrize(("condition", "read"), CONDITIONS.values(), ids=CONDITIONS)
def test_a_split_pod_has_the_conditions_that_are_read(condition: Json, read: bool) -> None:
    raw = msgspec.json.encode(_with(POD, "status", {"conditions": [{"type": "ContainersReady"}, condition]}))
    decoder, plain = Decoder(Interner()), msgspec.json.encode(_with(POD, "status", {}))
    decoded, _ = _split(raw, decoder)
    assert decoded == decoder.decode("Pod", raw)
    without, _ = _split(plain, decoder)
    assert (msgspec.structs.replace(decoded, cls=without.cls) != without) is read


REFUSALS: dict[str, tuple[Json, str]] = {
    "by admission": ({"reason": "OutOfcpu", "message": "Pod was\nrejected"}, "OutOfcpu: Pod was rejected"),
    "without a message": ({"reason": "SysctlForbidden"}, "SysctlForbidden"),
    "a container has run": ({"reason": "Error", "containerStatuses": [{"name": "c"}]}, ""),
    "not failed": ({"reason": "OutOfcpu", "phase": "Running"}, ""),
    "without a reason": ({}, ""),
    "evicted by the kubelet": ({"reason": "Evicted", "message": "The node was low on memory"}, ""),
    "the node shuts down": ({"reason": "NodeShutdown"}, ""),
    "its time is over": ({"reason": "DeadlineExceeded"}, ""),
}


@pytest.mark.parametrize(("status", "refused"), REFUSALS.values(), ids=REFUSALS)
def test_a_failed_pod_says_whether_its_kubelet_refused_it(status: Json, refused: str) -> None:
    decoder = Decoder(Interner())
    pods = [_pod(_with(POD, "status", each), decoder) for each in ({"phase": "Failed"} | status, {"phase": "Running"})]
    assert [pod.refused for pod in pods] == [refused, ""]
    assert pods[0].cls is pods[1].cls


def test_load_depends_on_the_status_of_each_pod() -> None:
    decoder, loads = Decoder(Interner()), []
    for actual in ("300m", "100m", None, "300m"):
        resources = {} if actual is None else {"resources": {"requests": {"cpu": actual}}}
        obj = _with(POD, "status.containerStatuses", [{"name": "c", **resources}])
        loads.append([load.amounts for load in _pod(obj, decoder).loads])
    assert loads == [[(("cpu", 300),)] * 3, [], [], [(("cpu", 300),)] * 3]


def test_unused_classes_are_dropped() -> None:
    interner = Interner()
    decoder = Decoder(interner)
    kept = _pod(POD, decoder).cls
    _pod(_with(POD, "metadata.labels.app", "db"), decoder)
    interner.forget({kept})
    assert (len(interner), _pod(POD, decoder).cls) == (1, kept)


# Nulls, as decoded by Go

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
def test_null_in_a_node_is_a_zero_value(nulled: Json, plain: Json) -> None:
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
def test_null_in_a_pod_is_unset(path: str) -> None:
    nulled, plain = _pod(_with(POD, path, None)), _pod(POD)
    spec = msgspec.to_builtins(nulled.cls.spec)
    labels = {} if path == "metadata.labels" else plain.cls.labels
    assert (spec, nulled.cls.labels, nulled.loads) == (msgspec.to_builtins(plain.cls.spec), labels, plain.loads)


def test_nulls_in_lists_of_a_pod_count_as_empty_entries() -> None:
    obj = _with(POD, "spec.tolerations", [None, {"key": "a"}])
    assert [toleration.key for toleration in _pod(obj).cls.spec.tolerations] == ["", "a"]


# Errors

BROKEN: dict[str, tuple[Json, str]] = {
    "amount": (_with(POD, "spec.containers.0.resources.requests.cpu", "12x"), "cpu: quantity '12x': expected"),
    "invalid quantity of a node": (
        _with(NODE, "status.allocatable.memory", "1 Gi"),
        "memory: quantity '1 Gi': expected",
    ),
    "quantity that is a list": (
        _with(NODE, "status.allocatable.memory", []),
        r"got `array` - at `\$.status.allocatable",
    ),
    "quantity that is a boolean": (
        _with(NODE, "status.allocatable.cpu", True),
        r"got `bool` - at `\$.status.allocatable",
    ),
    "invalid quantity in a status": (
        _with(POD, "status.containerStatuses", [{"name": "c", "resources": {"requests": {"cpu": ""}}}]),
        "cpu: quantity '': expected",
    ),
    "overhead": (_with(POD, "spec.overhead", {"memory": "much"}), "memory: quantity 'much': expected"),
    "number instead of a name": (_with(POD, "metadata.name", 5), r"Expected `str`, got `int` - at `\$.metadata.name`"),
    "number instead of a label": (
        _with(POD, "metadata.labels.app", 5),
        r"Expected `str`, got `int` - at `\$.metadata.labels",
    ),
    "list instead of a map": (
        _with(POD, "spec.nodeSelector", []),
        r"Expected `object`, got `array` - at `\$.spec.node",
    ),
    "map instead of a list": (_with(POD, "spec.tolerations", {}), r"Expected `array`, got `object` - at `\$.spec.tol"),
    "text instead of a number": (
        _with(POD, "spec.priority", "high"),
        r"Expected `int \| null`, got `str` - at `\$.spec.prio",
    ),
    "text instead of a boolean": (
        _with(NODE, "spec.unschedulable", "true"),
        r"Expected `bool`, got `str` - at `\$.spec.unsch",
    ),
    "number beyond 32 bits": (
        _with(POD, "spec.containers.0.ports", [{"hostPort": 2**31}]),
        r"Expected `int` <= 2147483647 - at `\$.spec.containers\[0\].ports\[0\].hostPort`",
    ),
    "number beyond 64 bits": (
        _with(POD, "spec.topologySpreadConstraints", [{"maxSkew": 2**70}]),
        r"Expected `int` <= 2147483647 - at `\$.spec.topologySpread",
    ),
    "null and another error": (_with(_with(POD, "spec.affinity", None), "spec.volumes", 5), "Expected `array`"),
}


@pytest.mark.parametrize(("obj", "message"), BROKEN.values(), ids=BROKEN)
def test_errors_name_the_field_and_the_expected_value(obj: Json, message: str) -> None:
    name = "Pod default/web-1" if obj["kind"] == "Pod" else "Node n1"
    with pytest.raises(WireError, match=rf"^{name if 'name' not in message else 'Pod'}.*: .*{message}"):
        _decode(obj)


def test_object_without_metadata_is_rejected() -> None:
    with pytest.raises(WireError, match=r"^Pod without a name: Object missing required field `metadata`$"):
        _decode({"kind": "Pod", "spec": {}})


@pytest.mark.parametrize("raw", [b"", b"null", b"5", b"[]", b'"pod"', b"{", b"{}", b'{"metadata": 5}', b"\xff{}"])
@pytest.mark.parametrize("kind", KINDS)
def test_json_that_is_not_an_object_is_rejected(kind: str, raw: bytes) -> None:
    with pytest.raises(WireError, match=rf"^{kind} without a name: "):
        Decoder(Interner()).decode(kind, raw)


@pytest.mark.parametrize("cut", range(1, len(msgspec.json.encode(POD)), 7))
def test_truncated_json_is_rejected_and_named_if_possible(cut: int) -> None:
    raw = msgspec.json.encode(POD)[:cut]
    named = b'"labels":{"app":"web"}}' in raw
    with pytest.raises(WireError, match=f"^Pod {'default/web-1' if named else 'without a name'}: "):
        Decoder(Interner()).decode("Pod", raw)


@pytest.mark.parametrize("path", ["novelty", "spec.novelty", "spec.affinity", "status.novelty"])
def test_very_deep_nesting_is_rejected(path: str) -> None:
    depth = 100_000
    raw = msgspec.json.encode(_with(POD, path, "deep")).replace(b'"deep"', b'{"a":' * depth + b"1" + b"}" * depth)
    with pytest.raises(WireError, match=r"^Pod default/web-1: "):
        Decoder(Interner()).decode("Pod", raw)


def test_invalid_utf8_is_rejected() -> None:
    raw = msgspec.json.encode(_with(POD, "spec.schedulerName", "?")).replace(b'"?"', b'"\xff"')
    with pytest.raises(WireError, match=r"^Pod default/web-1: "):
        Decoder(Interner()).decode("Pod", raw)


def test_last_of_duplicate_keys_wins() -> None:
    raw = msgspec.json.encode(POD).replace(b'"cpu":"100m"', b'"cpu":"100m","cpu":"200m"')
    actual = Decoder(Interner()).decode("Pod", raw)
    assert isinstance(actual, Pod)
    assert actual.cls.requests == (("cpu", 200),)


def test_name_is_found_next_to_labels_and_annotations_with_that_key() -> None:
    raw = b'{"kind":"Pod","metadata":{"annotations":{"name":"x"},"labels":{"name":"y"},"name":"z","namespace":"n"},'
    assert name_of(raw) == "n/z"


def test_node_with_only_a_name_can_be_decoded() -> None:
    assert _decode({"kind": "Node", "metadata": {"name": "n"}}) == Node(metadata=ObjectMeta(name="n"))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_PATHS = [
    *(path for path, _ in FIELDS_IN_CLASS.values()),
    *(path for path, _ in OTHER_FIELDS.values()),
    "status.conditions",
    "spec",
]


@given(st.sampled_from(_PATHS), _JSON)
def test_any_value_in_a_pod_is_decoded_or_rejected_with_a_clear_error(path: str, value: Any) -> None:
    try:
        message = f"Pod {_pod(_with(POD, path, value)).key}"
    except WireError as error:
        message = str(error)
    assert message.startswith("Pod ")


def managed(*fields: str) -> Json:
    manifest: Json = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"nodeName": "n"}}
    owned: Json = {"f:spec": {field: {} for field in fields}}
    manifest["metadata"]["managedFields"] = [{"manager": "operator", "fieldsType": "FieldsV1", "fieldsV1": owned}]
    return manifest


@pytest.mark.parametrize(
    ("manifest", "assigned"),
    [
        (managed("f:containers", "f:nodeName"), True),
        (managed("f:containers", "f:nodeSelector"), False),
        ({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}}, False),
    ],
)
def test_a_pod_whose_node_a_client_set_is_told_apart(manifest: Json, assigned: bool) -> None:
    raw = msgspec.json.encode(manifest)
    decoder = Decoder(Interner())
    passed_on, text = _split(raw, decoder)
    for decoded in (decoder.decode("Pod", raw), passed_on):
        assert isinstance(decoded, Pod)
        assert decoded.assigned is assigned
    assert b"operator" not in text
