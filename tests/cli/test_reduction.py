"""Large snapshot files are read with a second process, with the same result as without it."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from predicates.pod_classes import reduced
from predicates.snapshot import Snapshot
from predicates.wire import KINDS, Decoder, Interner
from rescheduler.errors import InputError
from rescheduler.snapshot_file import reader, reduction
from tests.bench.big import big
from tests.planning.builders import budget, node, pod

WITH_NULLS = pod("nulls", "n") | {"status": {"phase": "Running", "conditions": None}}
UNREADABLE = pod("damaged", "n") | {"spec": {"nodeName": "n", "containers": "none"}}
NAMELESS = pod("", "n")

FILES: dict[str, bytes] = {
    "printed by kubectl": json.dumps(
        {
            "kind": "List",
            "items": [node("n"), pod("a", "n"), WITH_NULLS, UNREADABLE, NAMELESS, budget("b", "a", allowed=1)],
        },
        indent=4,
    ).encode(),
    "from the API": json.dumps({"kind": "PodList", "items": [{"metadata": pod("a", "n")["metadata"]}]}).encode(),
    "compressed": gzip.compress(json.dumps({"kind": "List", "items": [node("n"), pod("a", "n")]}).encode()),
    "without items": b'{"kind": "List", "items": []}',
}
WRONG: dict[str, bytes] = {
    "not JSON": b"apiVersion: v1",
    "truncated": FILES["printed by kubectl"][:-300],
    "a truncated archive": FILES["compressed"][:-20],
    "not a list": b'{"kind": "Status"}',
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
def test_the_second_process_passes_on_all_items(cluster: Path) -> None:
    items = list(reduction.each(str(cluster)))
    listed = json.loads(cluster.read_bytes())["items"]
    assert [(kind, json.loads(item)["metadata"]["name"]) for kind, item in items] == [
        (item["kind"], item["metadata"]["name"]) for item in listed if item["kind"] in KINDS
    ]
    assert sum(len(item) for kind, item in items if kind == "Pod") < cluster.stat().st_size * 3 // 4


def test_a_reduced_pod_is_the_same_pod(cluster: Path) -> None:
    decoder = Decoder(Interner())
    for item in json.loads(cluster.read_bytes())["items"]:
        if item["kind"] == "Pod":
            raw = json.dumps(item).encode()
            assert decoder.decode("Pod", reduced(raw)) == decoder.decode("Pod", raw)


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
    with pytest.raises(reduction.ReductionError):
        list(reduction.each(str(file)))
    read = content(reader.read(str(file)))
    monkeypatch.setattr(reduction, "LARGE", sys.maxsize)
    assert read == content(reader.read(str(file)))


@pytest.mark.usefixtures("with_second_process")
def test_an_invalid_batch_ends_the_second_process(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nprintf '\\004\\0\\0\\0\\0\\0\\0\\0text'\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(reduction.ReductionError, match="invalid batch"):
        list(reduction.each(str(file)))


@pytest.mark.usefixtures("with_second_process")
def test_the_working_directory_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rescheduler").mkdir()
    (tmp_path / "rescheduler" / "__init__.py").write_text("raise SystemExit(1)")
    (tmp_path / "list").write_bytes(FILES["compressed"])
    monkeypatch.chdir(tmp_path)
    assert [kind for kind, _ in reduction.each("list")] == ["Node", "Pod"]


@pytest.mark.usefixtures("with_second_process")
def test_the_second_process_ends_with_the_caller(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class RecordedProcess(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", RecordedProcess)
    items = reduction.each(str(cluster))
    next(items)
    assert [process.returncode for process in started] == [None]
    items.close()
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
