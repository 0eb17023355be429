"""Tests of snapshot files: gzip, standard input, duplicate objects, objects without a name."""

import gzip
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from predicates.objects import Unreadable
from rescheduler.errors import InputError, UsageError
from rescheduler.snapshot_file import reader, text
from rescheduler.snapshot_file.yaml_text import as_json
from tests.cli.test_reduction import content
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


#: Two lists, as two commands of kubectl print them.
NODES, OTHERS = {"kind": "NodeList", "items": [node("n")]}, {"kind": "List", "items": PODS}
ITEMS = [node("n"), *PODS]
#: The same in YAML.
APPENDED = [yaml.safe_dump({"apiVersion": "v1", **part}).encode() for part in (NODES, OTHERS)]
#: What people's shells and tools make of the output of kubectl.
FORMS: dict[str, bytes] = {
    "a byte-order mark": b"\xef\xbb\xbf" + TEXT,
    "PowerShell's UTF-16": TEXT.decode().replace("\n", "\r\n").encode("utf-16"),
    "UTF-16 without a mark": TEXT.decode().encode("utf-16-be"),
    "UTF-16 with the other byte order": b"\xff\xfe" + TEXT.decode().encode("utf-16-le"),
    "UTF-32": TEXT.decode().encode("utf-32"),
    "gzipped UTF-16": gzip.compress(TEXT.decode().encode("utf-16")),
    "two lists": json.dumps(NODES, indent=4).encode() + b"\n" + json.dumps(OTHERS).encode(),
    "documents of JSON": b"\n---\n".join(json.dumps(part, indent=4).encode() for part in (NODES, OTHERS)),
    "documents of JSON with a separator at the end": b"\r\n---\r\n".join(
        (*(json.dumps(item).encode() for item in ITEMS), b"")
    ),
    "documents of JSON with one at the start, and twice": b"--- \n"
    + b"\n---\n---\n".join(json.dumps(part).encode() for part in (NODES, OTHERS)),
    "two lists with marks": b"".join(b"\xef\xbb\xbf" + json.dumps(part).encode() for part in (NODES, OTHERS)),
    "two gzipped lists": b"".join(gzip.compress(json.dumps(part).encode()) for part in (NODES, OTHERS)),
    "an array of lists": json.dumps([NODES, OTHERS], indent=2).encode(),
    "an array of items": json.dumps(ITEMS, indent=2).encode(),
    "an array of arrays": json.dumps([[node("n")], PODS, []]).encode(),
    "JSON lines": b"\n".join(json.dumps(item).encode() for item in ITEMS),
    "printed items": b"\n".join(json.dumps(item, indent=4).encode() for item in ITEMS),
    "a list and an item": json.dumps(OTHERS).encode() + json.dumps(node("n")).encode(),
    "sorted keys": json.dumps({"kind": "PodList", "items": PODS}, sort_keys=True).encode()
    + json.dumps(node("n")).encode(),
    "items without kinds before the kind of the list": json.dumps(
        {"items": [{key: value for key, value in pod.items() if key != "kind"} for pod in PODS], "kind": "PodList"}
    ).encode()
    + json.dumps(NODES).encode(),
    "YAML": yaml.safe_dump({"kind": "List", "items": ITEMS}).encode(),
    "YAML with comments": b"# of today\n%YAML 1.1\n---\n" + yaml.safe_dump({"kind": "List", "items": ITEMS}).encode(),
    "documents of YAML": yaml.safe_dump_all([*ITEMS, None]).encode(),
    "YAML in UTF-16": yaml.safe_dump_all([NODES, OTHERS], explicit_start=True).encode("utf-16"),
    "YAML with aliases": yaml.dump_all([NODES, {"kind": "List", "items": [*PODS, PODS[0]]}]).encode(),
    "lists of YAML that were appended": b"".join(APPENDED),
    "lists of YAML that were appended, with marks": b"".join(b"\xef\xbb\xbf" + part for part in APPENDED),
    "documents of YAML with marks": b"---\n".join(b"\xef\xbb\xbf" + part for part in APPENDED),
    "documents of YAML with marks before their separators": b"".join(
        b"\xef\xbb\xbf---\r\n" + part.replace(b"\n", b"\r\n") for part in APPENDED
    ),
    "objects of YAML that were appended": b"".join(
        yaml.safe_dump({"apiVersion": "v1", **item}).encode() for item in ITEMS
    ),
    "gzipped spaces before it": gzip.compress(b" " * (1 << 17)) + gzip.compress(b"") * 3 + PACKED,
    "YAML in flow style": b"--- " + yaml.safe_dump({"kind": "List", "items": ITEMS}, default_flow_style=True).encode(),
}


@pytest.mark.parametrize("chunk", [1, 1 << 16])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_cluster_is_the_same_snapshot(
    form: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "list").write_bytes(TEXT)
    expected = content(reader.read(str(tmp_path / "list")))
    monkeypatch.setattr(text, "_CHUNK", chunk)
    (tmp_path / "list").write_bytes(FORMS[form])
    assert content(reader.read(str(tmp_path / "list"))) == expected


WRONG: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it is empty"),
    "blank": (b" \n" * 100, "it is empty"),
    "comments": (b"# nothing\n", "it is empty"),
    "gzipped nothing": (gzip.compress(b""), "it is empty"),
    "a table": (b"NAME   STATUS\nn      Ready\n", "line 1: expected an object, got text"),
    "a page": (b"<html><body>Bad Gateway</body></html>", "line 1: expected an object, got text"),
    "a status": (b'{"kind":"Status","message":"Unauthorized"}', "instead of objects: Unauthorized"),
    "a status in YAML": (b"kind: Status\n", "an error of the API server instead of objects"),
    "an error of kubectl": (b"error: You must be logged in to the server (Unauthorized)\n", "Unauthorized"),
    "two dashes between documents": (b'{"kind":"List","items":[]}\n--\n', "expected '{'"),
    "no object of Kubernetes": (b'{"name":"n"}', "got 'no kind'"),
    "text": (b'["n"]', r"expected '\{' \(byte 1\)"),
    "a comma between lists": (TEXT + b"," + TEXT, r"expected '\{' \(byte "),
    "binary": (bytes(range(256)), "it is binary"),
    "zeros": (bytes(100), "it is binary"),
    "gzip in gzip": (gzip.compress(PACKED), "gzip in gzip, which gunzip -c decompresses"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(10), "a zstd file, which zstd -dc decompresses"),
    "xz": (b"\xfd7zXZ\0" + bytes(10), "an xz file, which xz -dc decompresses"),
    "half a character": (TEXT.decode().encode("utf-16")[:-1], "expected UTF-16"),
    "tabs in YAML": (b"a:\n\tb: 1\n", "line 2: "),
    "an alias without an anchor": (b"a: *b\n", "line 1: found undefined alias|line 1: the alias 'b' stands for"),
    "an alias of itself": (b"a: &b [*b]\n", "line 1: the alias 'b' stands for itself"),
    "a merged mapping": (b"a: &b {kind: List}\n<<: *b\nitems: []\n", "line 2: expected no <<, which merges mappings"),
    "a merged mapping in an item": (b"kind: List\nitems:\n- {<<: {kind: Pod}}\n", "line 3: expected no <<"),
    "a key that is a list": (b"? [a]\n: b\n", "line 1: expected a text as the key"),
    "deep lists": (b"[" * 100_000, r"expected '\{'"),
    "deep items": (b'{"kind":"List","items":[{"kind":"Pod","spec":' + b"[" * 100_000, "nested too deeply"),
    "deep items that are complete": (
        b'{"kind":"List","items":[{"kind":"Pod","spec":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
        "nested too deeply",
    ),
    "deep YAML": (b"a: " + b"[" * 100_000, "line 1: "),
    "deep lines": (b"".join(b" " * depth + b"a:\n" for depth in range(200)), "line 101: expected at most 100 levels"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_cannot_be_read_is_reported_with_a_command_that_writes_one(name: str, tmp_path: Path) -> None:
    wrong, message = WRONG[name]
    (tmp_path / "list").write_bytes(wrong)
    with pytest.raises(InputError, match=message) as caught:
        reader.read(str(tmp_path / "list"))
    assert str(caught.value).startswith(f"{tmp_path / 'list'}: ")
    assert str(caught.value).endswith("; `rescheduler snapshot > FILE` writes a file that can be read")


SCALARS: dict[str, Any] = {
    "null": None,
    "~": None,
    "": None,
    "true": True,
    "False": False,
    "yes": "yes",
    "on": "on",
    "'true'": "true",
    '"1"': "1",
    "!!str 1": "1",
    "1": 1,
    "-12": -12,
    "007": 7.0,
    "1.5": 1.5,
    "1e3": 1000.0,
    "1e999": "1e999",
    "123456789012345678901": 123456789012345678901.0,
    ".nan": ".nan",
    "100m": "100m",
    "1:30": "1:30",
    "2026-01-02": "2026-01-02",
    "2026-01-02T03:04:05Z": "2026-01-02T03:04:05Z",
    "|\n  two\n  lines": "two\nlines\n",
}


@pytest.mark.parametrize("written", SCALARS)
def test_scalars_of_yaml_are_those_of_kubernetes(written: str) -> None:
    [converted] = [json.loads(line) for line in b"".join(as_json([f"a: {written}\n".encode()])).splitlines()]
    assert converted == {"a": SCALARS[written]}
    assert type(converted["a"]) is type(SCALARS[written])


@pytest.mark.parametrize("chunk", [2, 16, 1 << 20])
@pytest.mark.parametrize("valid", VALID.values(), ids=VALID)
def test_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, valid: bytes, chunk: int) -> None:
    monkeypatch.setattr(text, "_CHUNK", chunk)
    (tmp_path / "list").write_bytes(valid)
    assert list(reader.read(str(tmp_path / "list")).pods) == ["default/a", "default/b"]


@pytest.mark.parametrize("valid", VALID.values(), ids=VALID)
def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, valid: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(valid)))
    assert list(reader.read("-").nodes.row) == ["n"]


@pytest.mark.parametrize("chunk", [2, 1 << 20])
@pytest.mark.parametrize("truncated", TRUNCATED.values(), ids=TRUNCATED)
def test_a_truncated_gzip_file_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, truncated: bytes, chunk: int
) -> None:
    monkeypatch.setattr(text, "_CHUNK", chunk)
    (tmp_path / "list.gz").write_bytes(truncated)
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
