"""Tests of snapshot files: gzip, standard input, duplicate objects, objects without a name."""

import gzip
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from predicates.unreadable import Unreadable
from rescheduler.errors import InputError, UsageError
from rescheduler.snapshot_file import reader, text
from tests.planning.builders import budget, node, pod

PODS = [pod("a", "n"), pod("b", "n")]
TEXT = json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("n"), *PODS]}, indent=4).encode()
PACKED = gzip.compress(TEXT)

VALID: dict[str, bytes] = {
    "plain": TEXT,
    "gzipped": PACKED,
    "gzipped in parts": gzip.compress(TEXT[:100]) + gzip.compress(b"") + gzip.compress(TEXT[100:]),
    "gzipped and padded": gzip.compress(TEXT[:100]) + bytes(5) + gzip.compress(TEXT[100:]) + bytes(500),
}
TRUNCATED: dict[str, bytes] = {
    "truncated": PACKED[:-20],
    "without a checksum": PACKED[:-8],
    "with a wrong checksum": PACKED[:-8] + bytes(8),
    "with trailing data": PACKED + b"more",
    "truncated in its second part": gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:])[:-9],
    "only its beginning": b"\x1f\x8b",
}


@pytest.mark.parametrize("chunk", [2, 16, 1 << 20])
@pytest.mark.parametrize("content", VALID.values(), ids=VALID)
def test_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, chunk: int) -> None:
    monkeypatch.setattr(text, "_CHUNK", chunk)
    (tmp_path / "list").write_bytes(content)
    assert list(reader.read(str(tmp_path / "list")).pods) == ["default/a", "default/b"]


@pytest.mark.parametrize("content", VALID.values(), ids=VALID)
def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    assert list(reader.read("-").nodes.row) == ["n"]


@pytest.mark.parametrize("chunk", [2, 1 << 20])
@pytest.mark.parametrize("content", TRUNCATED.values(), ids=TRUNCATED)
def test_a_truncated_gzip_file_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, chunk: int
) -> None:
    monkeypatch.setattr(text, "_CHUNK", chunk)
    (tmp_path / "list.gz").write_bytes(content)
    with pytest.raises(InputError, match=r"list\.gz: corrupt gzip file: "):
        reader.read(str(tmp_path / "list.gz"))


def _write(path: Path, *items: Any) -> str:
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return str(path)


def test_duplicate_objects_are_merged(tmp_path: Path) -> None:
    assert len(reader.read(_write(tmp_path / "list", *PODS, *PODS, node("n"), node("n"))).pods) == 2


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ((PODS[0], pod("a", "elsewhere")), "Pod default/a occurs twice, with different content"),
        ((node("n"), node("n", labels={"other": "label"})), "Node n occurs twice, with different content"),
    ],
)
def test_impossible_objects_are_rejected(tmp_path: Path, items: tuple[Any, ...], message: str) -> None:
    path = _write(tmp_path / "list", *items)
    with pytest.raises(InputError, match=f"^{path}: {message}"):
        reader.read(path)


UNDECODABLE: dict[str, tuple[dict[str, Any], Unreadable]] = {
    "a Node without a name": (
        {"kind": "Node", "metadata": {}},
        Unreadable("Node", "without a name", "Node without a name: expected metadata.name"),
    ),
    "a Pod without a name": (
        {"kind": "Pod", "metadata": {"namespace": "x"}, "spec": {"nodeName": "n"}},
        Unreadable("Pod", "x", "Pod x: expected metadata.name", "n"),
    ),
    "a Pod with a number for its spec": (
        {"kind": "Pod", "metadata": {"namespace": "x", "name": "p"}, "spec": 1},
        Unreadable("Pod", "x/p", "Pod x/p: Expected `object`, got `int` - at `$.spec`"),
    ),
    "a Pod with a broken quantity": (
        pod("broken", "n", cpu="lots"),
        Unreadable(
            "Pod",
            "default/broken",
            "Pod default/broken: cpu: quantity 'lots': expected a number such as 250m, 1.5Gi or 1e3",
            "n",
        ),
    ),
    "a PodDisruptionBudget with a text for its status": (
        budget("b", "a", allowed=1) | {"status": "x"},
        Unreadable(
            "PodDisruptionBudget",
            "default/b",
            "PodDisruptionBudget default/b: Expected `object`, got `str` - at `$.status`",
        ),
    ),
}


@pytest.mark.parametrize(("item", "expected"), UNDECODABLE.values(), ids=UNDECODABLE)
def test_an_object_that_cannot_be_decoded_is_recorded_and_the_others_are_read(
    tmp_path: Path, item: dict[str, Any], expected: Unreadable
) -> None:
    cluster = reader.read(_write(tmp_path / "list", PODS[0], item, item, PODS[1]))
    assert (list(cluster.pods), cluster.unreadable) == (["default/a", "default/b"], (expected,))


def test_missing_and_special_files_are_usage_errors(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UsageError, match=f"^--snapshot {path}: "):
            reader.read(str(path))
