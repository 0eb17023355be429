"""JSON and protobuf give equal objects; streams may be split anywhere."""

import json
import struct
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from predicates.objects import Pod, PodClass
from predicates.wire import KINDS, Interner
from rescheduler.errors import Expired, ReschedulerError
from rescheduler.kube import schema
from rescheduler.kube.codec import Broken, Change, Codec, decode_page
from rescheduler.kube.json_codec import JsonCodec
from rescheduler.kube.proto_codec import ProtoCodec
from rescheduler.kube.resources import RESOURCES
from tests.kube import proto_samples
from tests.kube.samples import SAMPLES


def test_every_kind_that_can_be_decoded_is_read() -> None:
    assert sorted(resource.kind for resource in RESOURCES) == sorted(KINDS)


def test_every_kind_has_a_sample() -> None:
    assert {kind for kind, _ in SAMPLES.values()} == set(KINDS)


def plain(obj: object) -> object:
    """Return the fields of an object; for pods also those of their class, because classes compare by identity."""
    if isinstance(obj, Pod):
        fields = {name: getattr(obj, name) for name in Pod.__struct_fields__ if name != "cls"}
        return fields, {name: getattr(obj.cls, name) for name in PodClass.__struct_fields__}
    return obj


@pytest.mark.parametrize(("kind", "value"), SAMPLES.values(), ids=SAMPLES)
def test_both_encodings_give_equal_objects(kind: str, value: dict[str, Any]) -> None:
    body = json.dumps({"metadata": {"resourceVersion": "10", "continue": "c"}, "items": [value]}).encode()
    as_json = decode_page(JsonCodec(kind, Interner()), body)
    as_protobuf = decode_page(ProtoCodec(kind, Interner()), proto_samples.page(kind, [value], following="c"))
    assert (as_json.unreadable, as_protobuf.unreadable) == ({}, {})
    assert [plain(item) for item in as_protobuf.objects] == [plain(item) for item in as_json.objects]
    assert (as_protobuf.resource_version, as_protobuf.next) == (as_json.resource_version, as_json.next)


READY: dict[str, tuple[str, tuple[bool, str | None]]] = {
    "Ready": ("a pod that is Ready", (True, "2026-05-04T03:02:05Z")),
    "not Ready": ("a pod with everything", (False, None)),
    "without conditions": ("a pod with nothing", (True, None)),
}


@pytest.mark.parametrize(("sample", "expected"), READY.values(), ids=READY)
def test_the_time_of_the_ready_condition_is_decoded(sample: str, expected: tuple[bool, str | None]) -> None:
    kind, value = SAMPLES[sample]
    [pod] = decode_page(ProtoCodec(kind, Interner()), proto_samples.page(kind, [value])).objects
    assert isinstance(pod, Pod)
    assert (pod.ready, pod.ready_since) == expected


def _pods(*changes: dict[str, Any]) -> tuple[Pod, ...]:
    """Return the sample pod in protobuf, unchanged and once for each change of its ``spec``."""
    _, pod = SAMPLES["a pod with everything"]
    values = [pod, *({**pod, "spec": {**pod["spec"], **item}} for item in changes)]
    objects = decode_page(ProtoCodec("Pod", Interner()), proto_samples.page("Pod", values)).objects
    return tuple(manifest for manifest in objects if isinstance(manifest, Pod))


SAME_CLASS: dict[str, dict[str, Any]] = {
    "another node": {"nodeName": "elsewhere"},
    "another token volume": {"volumes": [{"name": "kube-api-access-zzzzz", "projected": {}}]},
}
OTHER_CLASS: dict[str, dict[str, Any]] = {
    "tolerations": {"tolerations": [{"operator": "Exists"}]},
    "priority zero": {"priority": 0},
    "host network": {"hostNetwork": True},
    "fewer containers": {"containers": [{"name": "only"}]},
}


def test_pods_with_equal_scheduling_share_a_class_in_protobuf_too() -> None:
    bare: dict[str, Any] = {"volumes": []}
    first, *others = _pods(bare, *({**bare, **item} for item in SAME_CLASS.values()))[1:]
    assert [item.cls is first.cls for item in others] == [True] * len(SAME_CLASS)
    first, *others = _pods(bare, *({**bare, **item} for item in OTHER_CLASS.values()))[1:]
    assert [item.cls is first.cls for item in others] == [False] * len(OTHER_CLASS)


def test_labels_that_the_api_server_adds_are_not_in_the_class_in_protobuf_too() -> None:
    _, sample = SAMPLES["a pod with everything"]
    labels = sample["metadata"]["labels"]
    added = {"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "a"}
    values = [{**sample, "metadata": {**sample["metadata"], "labels": {**labels, **more}}} for more in ({}, added)]
    plain_pod, bound = decode_page(ProtoCodec("Pod", Interner()), proto_samples.page("Pod", values)).objects
    assert isinstance(plain_pod, Pod)
    assert isinstance(bound, Pod)
    assert bound.cls is plain_pod.cls
    assert (dict(bound.cls.labels), bound.added_labels) == (labels, tuple(added.items()))


def namespace(name: str, version: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": version}}


STREAM = (("ADDED", "a", "11"), ("MODIFIED", "b", "12"), ("DELETED", "a", "13"), ("BOOKMARK", "", "14"))


def json_stream() -> bytes:
    events = ({"type": kind, "object": namespace(name, version)} for kind, name, version in STREAM)
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def proto_stream() -> bytes:
    return b"".join(proto_samples.frame(kind, "Namespace", namespace(name, version)) for kind, name, version in STREAM)


CODECS: dict[str, tuple[Codec, bytes]] = {
    "json": (JsonCodec("Namespace", Interner()), json_stream()),
    "protobuf": (ProtoCodec("Namespace", Interner()), proto_stream()),
}


def _brief(changes: Iterable[Change]) -> list[tuple[str, str, str, bool]]:
    return [(change.type, change.key, change.resource_version, change.object is not None) for change in changes]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
@pytest.mark.parametrize(("codec", "stream"), CODECS.values(), ids=CODECS)
def test_a_stream_may_be_split_into_chunks_anywhere(codec: Codec, stream: bytes, size: int) -> None:
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert _brief(codec.changes(chunks)) == [
        ("ADDED", "a", "11", True),
        ("MODIFIED", "b", "12", True),
        ("DELETED", "a", "13", False),
        ("BOOKMARK", "", "14", False),
    ]


@pytest.mark.parametrize(("codec", "stream"), CODECS.values(), ids=CODECS)
def test_a_truncated_event_at_the_end_is_dropped(codec: Codec, stream: bytes) -> None:
    assert len(_brief(codec.changes([stream[:-3]]))) == 3


def error_frame(code: int) -> bytes:
    status = schema.Status(code=code, message="too old", status="Failure")
    raw = schema.RawExtension(raw=proto_samples.enveloped(status))
    body = schema.WatchEvent(type="ERROR", object=raw).SerializeToString()
    return struct.pack(">I", len(body)) + body


def test_an_error_event_in_protobuf_is_the_error_of_its_status() -> None:
    with pytest.raises(Expired, match="watch Namespace: too old"):
        list(ProtoCodec("Namespace", Interner()).changes([error_frame(410)]))
    with pytest.raises(ReschedulerError, match=r"watch Namespace: too old \(500\)"):
        list(ProtoCodec("Namespace", Interner()).changes([error_frame(500)]))


BROKEN_PAGES: dict[str, tuple[type[JsonCodec | ProtoCodec], bytes]] = {
    "cut off JSON": (JsonCodec, b'{"metadata": {}, "items": [{"met'),
    "JSON that is not a list": (JsonCodec, b'{"items": []}'),
    "not UTF-8": (JsonCodec, b'{"metadata": {"resourceVersion": "\xff"}}'),
    "no envelope": (ProtoCodec, b"<html>"),
    "a broken envelope": (ProtoCodec, b"k8s\0\xff\xff\xff"),
    "a broken list": (ProtoCodec, proto_samples.enveloped(b"\xff\xff\xff")),
}


@pytest.mark.parametrize(("codec", "body"), BROKEN_PAGES.values(), ids=BROKEN_PAGES)
def test_an_invalid_page_is_an_error_without_a_traceback(codec: type[JsonCodec | ProtoCodec], body: bytes) -> None:
    with pytest.raises(Broken, match="list Namespace: the response is not a"):
        decode_page(codec("Namespace", Interner()), body)


BROKEN_FRAMES = {
    "text in place of a length": b"<html>not found</html>",
    "a frame of random bytes": struct.pack(">I", 3) + b"\xff\xff\xff",
    "an unknown type": proto_samples.frame("SURPRISE", "Namespace", {}),
    "an object without an envelope": struct.pack(">I", 7) + schema.WatchEvent(type="ADDED").SerializeToString(),
}


@pytest.mark.parametrize("frame", BROKEN_FRAMES.values(), ids=BROKEN_FRAMES)
def test_an_invalid_frame_is_an_error_without_a_traceback(frame: bytes) -> None:
    with pytest.raises(Broken, match="watch Namespace: "):
        list(ProtoCodec("Namespace", Interner()).changes([frame]))


@pytest.mark.parametrize(
    ("spec", "phase", "node"),
    [({"nodeName": "n"}, "Running", "n"), ({}, "Pending", ""), ({"nodeName": "n"}, "Failed", "")],
    ids=["on a node", "without a node", "finished"],
)
def test_a_pod_that_cannot_be_decoded_is_named_and_the_others_are_kept(
    spec: dict[str, Any], phase: str, node: str
) -> None:
    good = {"metadata": {"namespace": "ns", "name": "good"}}
    bad = {
        "metadata": {"namespace": "ns", "name": "bad"},
        "spec": {**spec, "containers": [{"name": "c", "resources": {"requests": {"cpu": "lots"}}}]},
        "status": {"phase": phase},
    }
    for page in (
        decode_page(ProtoCodec("Pod", Interner()), proto_samples.page("Pod", [bad, good])),
        decode_page(JsonCodec("Pod", Interner()), msgspec.json.encode({"metadata": {}, "items": [bad, good]})),
    ):
        assert [item.name for item in page.objects if isinstance(item, Pod)] == ["good"]
        [(key, unreadable)] = page.unreadable.items()
        assert (key, unreadable.kind, unreadable.key, unreadable.node) == ("ns/bad", "Pod", "ns/bad", node)
        assert unreadable.why.startswith("Pod ns/bad: ")
        assert "quantity 'lots'" in unreadable.why
