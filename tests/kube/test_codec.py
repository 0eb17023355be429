"""Lists and watches in JSON: all kinds are decoded, streams may be split anywhere, invalid bytes are errors."""

import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from predicates.objects import Node, Pod
from predicates.wire import KINDS, Interner
from rescheduler.errors import Expired, ReschedulerError
from rescheduler.kube.codec import Broken, JsonCodec, ListPage, WatchedChange
from rescheduler.kube.lister import ALL_RESOURCES
from tests.kube.samples import SAMPLES


def test_every_kind_that_can_be_decoded_is_read() -> None:
    assert sorted(resource.kind for resource in ALL_RESOURCES) == sorted(KINDS)


def test_every_kind_has_a_sample() -> None:
    assert {kind for kind, _ in SAMPLES.values()} == set(KINDS)


def page(kind: str, *values: dict[str, Any]) -> ListPage:
    body = {"metadata": {"resourceVersion": "10", "continue": "c"}, "items": values}
    return JsonCodec(kind, Interner()).page(msgspec.json.encode(body))


@pytest.mark.parametrize(("kind", "value"), SAMPLES.values(), ids=SAMPLES)
def test_every_sample_is_decoded(kind: str, value: dict[str, Any]) -> None:
    decoded = page(kind, value)
    assert (len(decoded.objects), decoded.unreadable) == (1, {})
    assert (decoded.resource_version, decoded.next) == ("10", "c")


READY: dict[str, tuple[str, tuple[bool, str | None]]] = {
    "Ready": ("a pod that is Ready", (True, "2026-05-04T03:02:05Z")),
    "not Ready": ("a pod with everything", (False, None)),
    "without conditions": ("a pod with nothing", (True, None)),
}


@pytest.mark.parametrize(("sample", "expected"), READY.values(), ids=READY)
def test_the_time_of_the_ready_condition_is_decoded(sample: str, expected: tuple[bool, str | None]) -> None:
    kind, value = SAMPLES[sample]
    [pod] = page(kind, value).objects
    assert isinstance(pod, Pod)
    assert (pod.ready, pod.ready_since) == expected


NAMESPACES = JsonCodec("Namespace", Interner())


def namespace(name: str, version: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": version}}


STREAM = (("ADDED", "a", "11"), ("MODIFIED", "b", "12"), ("DELETED", "a", "13"), ("BOOKMARK", "", "14"))


def json_stream() -> bytes:
    events = ({"type": kind, "object": namespace(name, version)} for kind, name, version in STREAM)
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def _brief(changes: Iterable[WatchedChange]) -> list[tuple[str, str, str, bool]]:
    return [(change.type, change.key, change.resource_version, change.object is not None) for change in changes]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_a_stream_may_be_split_into_chunks_anywhere(size: int) -> None:
    stream = json_stream()
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert _brief(NAMESPACES.changes(chunks)) == [
        ("ADDED", "a", "11", True),
        ("MODIFIED", "b", "12", True),
        ("DELETED", "a", "13", False),
        ("BOOKMARK", "", "14", False),
    ]


@pytest.mark.parametrize("kind", ["Node", "Namespace"])
def test_the_last_state_of_a_deleted_node_is_known(kind: str) -> None:
    """It tells which tool removed the node, also if nobody has seen its taint before."""
    taints = [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]
    event = {"type": "DELETED", "object": namespace("n", "11") | {"spec": {"taints": taints}}}
    [change] = JsonCodec(kind, Interner()).changes([json.dumps(event).encode() + b"\n"])
    assert change.object is None
    last = change.last
    assert [taint.key for taint in last.spec.taints] == [taints[0]["key"]] if isinstance(last, Node) else last is None
    assert isinstance(last, Node) is (kind == "Node")


def test_a_deleted_node_that_cannot_be_decoded_is_deleted() -> None:
    event = {"type": "DELETED", "object": namespace("n", "11") | {"spec": {"taints": 3}}}
    [change] = JsonCodec("Node", Interner()).changes([json.dumps(event).encode() + b"\n"])
    assert (change.type, change.key, change.last, change.unreadable) == ("DELETED", "n", None, None)


def test_a_truncated_event_at_the_end_is_dropped() -> None:
    assert len(_brief(NAMESPACES.changes([json_stream()[:-3]]))) == 3


def test_an_error_event_is_the_error_of_its_status() -> None:
    with pytest.raises(Expired, match="watch Namespace: too old"):
        list(NAMESPACES.changes([error_line(410)]))
    with pytest.raises(ReschedulerError, match=r"watch Namespace: too old \(500\)"):
        list(NAMESPACES.changes([error_line(500)]))


def error_line(code: int) -> bytes:
    status = {"code": code, "message": "too old", "status": "Failure"}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


BROKEN_PAGES = {
    "cut off JSON": b'{"metadata": {}, "items": [{"met',
    "JSON that is not a list": b'{"items": []}',
    "not UTF-8": b'{"metadata": {"resourceVersion": "\xff"}}',
    "not JSON": b"<html>",
}


@pytest.mark.parametrize("body", BROKEN_PAGES.values(), ids=BROKEN_PAGES)
def test_an_invalid_page_is_an_error_without_a_traceback(body: bytes) -> None:
    with pytest.raises(Broken, match="list Namespace: the response is not a"):
        NAMESPACES.page(body)


BROKEN_LINES = {
    "HTML": b"<html>not found</html>\n",
    "random bytes": b"\xff\xff\xff\n",
    "an unknown type": b'{"type": "SURPRISE", "object": {"metadata": {}}}\n',
    "no object": b'{"type": "ADDED"}\n',
}


@pytest.mark.parametrize("line", BROKEN_LINES.values(), ids=BROKEN_LINES)
def test_an_invalid_event_is_an_error_without_a_traceback(line: bytes) -> None:
    with pytest.raises(Broken, match="watch Namespace: "):
        list(NAMESPACES.changes([line]))


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
    decoded = page("Pod", bad, good)
    assert [item.name for item in decoded.objects if isinstance(item, Pod)] == ["good"]
    [(key, unreadable)] = decoded.unreadable.items()
    assert (key, unreadable.kind, unreadable.key, unreadable.node) == ("ns/bad", "Pod", "ns/bad", node)
    assert unreadable.why.startswith("Pod ns/bad: ")
    assert "quantity 'lots'" in unreadable.why
