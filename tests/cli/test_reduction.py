"""Large snapshot files are read with a second process, with the same result as without it."""

import gzip
import io
import json
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from predicates.objects import Object
from predicates.snapshot import Snapshot
from predicates.wire import KINDS, Decoder, Interner, SplitPods
from rescheduler.errors import InputError
from rescheduler.snapshot_file import items, reader, reduction, text
from tests.bench.big import big
from tests.planning.builders import budget, node, pod

WITH_NULLS = pod("nulls", "n") | {"status": {"phase": "Running", "conditions": None}}
NULL_IN_SPEC = [pod(name, "n", tolerations=None) for name in ("null-1", "null-2")]
UNREADABLE = pod("damaged", "n") | {"spec": {"nodeName": "n", "containers": "none"}}
#: A volume that is not read precedes the one with an error.
VOLUMES = [{"name": "a", "secret": {}}, {"name": "b", "persistentVolumeClaim": {"claimName": 1}}]
UNREADABLE_TWINS = [pod(f"damaged-{number}", node, volumes=VOLUMES) for number, node in enumerate(("n", "m", ""))]
WRONG_AMOUNTS = [pod(f"amount-{number}", "n", cpu="1 core") for number in range(2)]
NAMELESS = pod("", "n")

LONG = "b" * 9999
PODS = [pod(f"web-{number}", "n", cpu=str(number // 4)) for number in range(20)]
NODES = [node(f"n-{number}") for number in range(3)]


def _lines(items: list[Any]) -> bytes:
    """Return a list with one item in a line, as in the file of the benchmark."""
    return b'{"apiVersion":"v1","kind":"List","items":[\n%b\n]}\n' % b",\n".join(json.dumps(i).encode() for i in items)


def _of_kind(kind: str, items: list[Any]) -> bytes:
    """Return a list as the API server returns it: its items have no kind."""
    bare = [{key: value for key, value in item.items() if key not in ("apiVersion", "kind")} for item in items]
    return json.dumps({"kind": kind, "apiVersion": "v1", "metadata": {}, "items": bare}, separators=(",", ":")).encode()


def _with_look_alikes(item: dict[str, Any]) -> dict[str, Any]:
    start = next(iter(item))
    inner = [{start: "v1", "kind": "Pod", "metadata": {"name": "inner", "namespace": "default"}}] * 3
    return item | {"inner": inner}


FILES: dict[str, bytes] = {
    "printed by kubectl": json.dumps(
        {
            "kind": "List",
            "items": [
                *(node("n"), pod("a", "n"), WITH_NULLS, UNREADABLE, NAMELESS, budget("b", "a", allowed=1)),
                *(*NULL_IN_SPEC, *UNREADABLE_TWINS, *WRONG_AMOUNTS),
            ],
        },
        indent=4,
    ).encode(),
    "from the API": json.dumps({"kind": "PodList", "items": [{"metadata": pod("a", "n")["metadata"]}]}).encode(),
    "compressed": gzip.compress(json.dumps({"kind": "List", "items": [node("n"), pod("a", "n")]}).encode()),
    "without items": b'{"kind": "List", "items": []}',
    "one item in a line": _lines(PODS),
    "several lists": _lines(PODS[:5]) + _lines(PODS[5:]),
    "a small and a large list": _lines(PODS[:1]) + _lines(PODS[1:]),
    "lists of several kinds from the API": _of_kind("NodeList", NODES) + _of_kind("PodList", PODS),
    "items without a kind, and the kind of the list at the end": json.dumps(
        {"items": [{"metadata": pod["metadata"], "spec": pod["spec"]} for pod in PODS], "kind": "PodList"}
    ).encode(),
    "items with lists that are separated like items": _lines([*map(_with_look_alikes, PODS)]),
    "an array of lists": b"[" + _lines(PODS) + b"," + _lines(NODES) + b"]",
    "one object in a line": b"\n".join(json.dumps(each).encode() for each in PODS),
    "many objects in lines": b"\n".join(json.dumps(pod(f"p-{number}", "n")).encode() for number in range(2000)),
    "UTF-16": _lines(PODS).decode().encode("utf-16"),
    "YAML": yaml.safe_dump_all(PODS, explicit_start=True).encode(),
    "an item that is longer than all others": _lines(
        [*PODS, pod("long", "n", annotations={"spot-rescheduler/a": "b" * 9999})]
    ),
}
WRONG: dict[str, bytes] = {
    "not JSON": b"apiVersion: v1",
    "truncated": FILES["printed by kubectl"][:-300],
    "a truncated archive": FILES["compressed"][:-20],
    "not a list": b'{"kind": "Status"}',
    "a pod twice, in both parts": _lines([*PODS, pod("web-0", "m")]),
    "truncated in the second part": _lines(PODS)[:-200],
    "broken in the first part": _lines(PODS).replace(b'"web-1"', b'"web-1'),
    "broken in the second part": _lines(PODS).replace(b'"web-18"', b'"web-18'),
    "text after the list": _lines(PODS) + b"text",
    "a pod twice": json.dumps({"kind": "List", "items": [pod("a", "n"), pod("a", "m")]}).encode(),
}


@pytest.fixture
def with_second_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat files of any size as large, on any machine."""
    monkeypatch.setattr(reduction, "LARGE", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def content(snapshot: Snapshot) -> dict[str, Any]:
    """Return all objects that were read, in order."""
    objects = {kind: msgspec.to_builtins(list(snapshot.of(kind).values())) for kind in KINDS}
    pods = {key: msgspec.to_builtins(pod) for key, pod in snapshot.pods.items()}
    nodes = {name: msgspec.to_builtins(snapshot.nodes.nodes[row]) for name, row in snapshot.nodes.row.items()}
    return {"objects": objects, "pods": pods, "nodes": nodes, "unreadable": snapshot.unreadable}


@pytest.fixture(params=FILES)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "list"
    path.write_bytes(FILES[request.param])
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with pods of all kinds that the benchmark generates."""
    path = tmp_path_factory.mktemp("cluster") / "list.json"
    big(path, on_demand=30, spot=60)
    return path


@pytest.mark.usefixtures("with_second_process")
def test_each_file_is_read_completely(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = content(reader.read(str(file)))
    monkeypatch.setattr(reduction, "LARGE", sys.maxsize)
    assert read == content(reader.read(str(file)))


@pytest.mark.usefixtures("with_second_process")
@pytest.mark.parametrize("share", [0.0, 0.35, 0.9])
def test_both_processes_read_a_part(cluster: Path, monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    monkeypatch.setattr(reduction, "_SHARE", share)
    first: list[bytes] = []
    with reduction.SecondProcess(str(cluster)) as second:
        if second.middle:
            with pytest.raises(items.PartEnd):
                items.each(text.chunks(str(cluster)), KINDS, lambda _, item: first.append(item), _fail, _part(second))
        rest = list(second.items())
    listed = [item for item in json.loads(cluster.read_bytes())["items"] if item["kind"] in KINDS]
    assert [json.loads(item)["metadata"]["name"] for item in first] + [_name(item) for item in rest] == [
        item["metadata"]["name"] for item in listed
    ]
    assert abs(sum(map(len, first)) - share * cluster.stat().st_size) < 20_000
    assert sum(len(item.text) for item in rest if item.kind == "Pod") < sum(item.length for item in rest) // 2


def _part(second: reduction.SecondProcess) -> items.Part:
    return reduction.FirstPart(second)


def _fail(error: ValueError) -> None:
    raise error


def _name(item: reduction.Item) -> str:
    name = item.own.name if item.own else json.loads(item.text)["metadata"]["name"]
    assert isinstance(name, str)
    return name


@pytest.mark.parametrize("remembered", [8 << 20, 10_000, 0], ids=["all", "some", "the last"])
def test_split_pods_are_the_same_pods(cluster: Path, monkeypatch: pytest.MonkeyPatch, remembered: int) -> None:
    monkeypatch.setattr(reduction, "_REMEMBERED", remembered)
    raw = [json.dumps(item).encode() for item in json.loads(cluster.read_bytes())["items"] if item["kind"] == "Pod"]
    stream = io.BytesIO()
    batches = reduction._Batches(stream, reduction._SecondPart(0, stream))
    for each in raw:
        batches.add("Pod", each)
    batches.finish()
    stream.seek(0)
    received = list(chain.from_iterable(iter(lambda: reduction._received(stream.read), [])))
    assert 0 < sum(bool(item.text) for item in received) < len(raw) // 2
    decoder, read = Decoder(Interner()), Decoder(Interner())
    split = SplitPods(decoder)
    for item, each in zip(received, raw, strict=True):
        assert item.own is not None
        if item.text:
            split.add(item.text)
        assert split.pod(item.own, item.number) == decoder.decode("Pod", each)
        # The classes are equal as well.
        assert content_of(split.pod(item.own, item.number)) == content_of(read.decode("Pod", each))


def content_of(pod: Object) -> Any:
    return msgspec.to_builtins(pod)


@pytest.mark.usefixtures("with_second_process")
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_an_invalid_file_has_the_same_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: bytes) -> None:
    path = tmp_path / "list"
    path.write_bytes(wrong)
    with pytest.raises(InputError) as error:
        reader.read(str(path))
    monkeypatch.setattr(reduction, "LARGE", sys.maxsize)
    with pytest.raises(InputError) as expected:
        reader.read(str(path))
    assert str(error.value) == str(expected.value)


@pytest.mark.usefixtures("with_second_process")
@pytest.mark.parametrize("program", ["/bin/false", "/bin/echo", "/does/not/exist"])
def test_without_a_second_process_the_file_is_read_by_one(
    file: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(reduction.ReductionError), reduction.SecondProcess(str(file)) as second:
        list(second.items())
    read = content(reader.read(str(file)))
    monkeypatch.setattr(reduction, "LARGE", sys.maxsize)
    assert read == content(reader.read(str(file)))


@pytest.mark.usefixtures("with_second_process")
def test_an_invalid_batch_ends_the_second_process(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nprintf '\\004\\0\\0\\0\\0\\0\\0\\0text'\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with (
        pytest.raises(reduction.ReductionError, match="invalid batch"),
        reduction.SecondProcess(str(file)) as second,
    ):
        list(second.items())


@pytest.mark.usefixtures("with_second_process")
def test_the_working_directory_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rescheduler").mkdir()
    (tmp_path / "rescheduler" / "__init__.py").write_text("raise SystemExit(1)")
    (tmp_path / "list").write_bytes(FILES["compressed"])
    monkeypatch.chdir(tmp_path)
    with reduction.SecondProcess("list") as second:
        assert [item.kind for item in second.items()] == ["Node", "Pod"]


@pytest.mark.usefixtures("with_second_process")
def test_the_second_process_ends_with_the_caller(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class RecordedProcess(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", RecordedProcess)
    with reduction.SecondProcess(str(cluster)):
        assert [process.returncode for process in started] == [None]
    assert [process.returncode is None for process in started] == [False]


@pytest.mark.usefixtures("with_second_process")
def test_small_files_and_standard_input_need_no_second_process(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reduction.is_worthwhile(str(file))
    assert not reduction.is_worthwhile("-")
    assert not reduction.is_worthwhile(f"{file}.missing")
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert not reduction.is_worthwhile(str(file))
    monkeypatch.undo()
    assert not reduction.is_worthwhile(str(file))
