"""Files that are made to cost memory: ``plan`` refuses them, in hardly more memory than it takes for a small cluster.

The memory is that of the largest process, because large files are read by two.
"""

import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, BinaryIO, Final

import pytest

from tests.fuzz.process import ROOT
from tests.planning.builders import node, pod

MEGABYTES: Final = 100.0  #: more than a small cluster takes

_MB: Final = 1 << 20
LARGE: Final = 128 * _MB
_HEAD: Final = b'{"kind":"List","items":['
_TEXT: Final = b"a" * 1000
_POD: Final = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b","labels":{"c":"%b"}}},' % _TEXT
_TEXTS: Final = tuple(b'"%016x",' % (number * 0x9E3779B97F4A7C15 % (1 << 64)) for number in range(1 << 10))


def bomb(head: bytes, repeated: bytes, size: int = 4096 * _MB) -> bytes:
    """Return a gzip file of about 4 MB for 4 GB: *head*, and *repeated* up to *size* bytes."""
    block = repeated * (64 * _MB // len(repeated))
    return gzip.compress(head) + gzip.compress(block, 9) * (size // len(block))


#: Each is repeated, and compressed like zeros.
REPEATED: dict[str, tuple[bytes, bytes]] = {
    "one string": (_HEAD + b'{"kind":"Pod","a":"', b"a"),
    "spaces": (b"", b" "),
    "spaces in a list": (_HEAD, b"\n"),
    "one key": (b'{"', b"a"),
    "one number": (_HEAD, b"1"),
    "deep lists": (_HEAD, b"["),
    "one pod": (_HEAD, _POD),
    "items without a kind": (b'{"items":[', b'{"a":"%b"},' % _TEXT),
    "YAML": (b"kind: List\nitems:\n", b"- kind: Pod\n  a: %b\n" % _TEXT),
    "YAML text": (b"kind: ", b"a "),
    "zeros": (b"", b"\0"),
}
#: Compressed less than the limit of the ratio allows, or not at all. No item may be larger than 16 MiB.
ITEMS: dict[str, tuple[bytes, Iterable[bytes]]] = {
    "a string": (_HEAD + b'{"apiVersion":"v1","kind":"Pod","a":"', [b"a" * _MB]),
    "an array": (_HEAD + b'{"apiVersion":"v1","kind":"Pod","a":[', _TEXTS),
    "an array in an object": (b'{"kind":"Pod","a":[', _TEXTS),
    "members of an object": (b'{"kind":"Pod"', [b',"a":' + b"".join(_TEXTS[:99]).rstrip(b",").join((b"[", b"]"))]),
    "an item of another kind": (_HEAD + b'{"apiVersion":"v1","kind":"Secret","a":[', _TEXTS),
    "items without a kind": (b'{"items":[', [b'{"a":[%s0]},' % b"".join(_TEXTS)]),
    "lines of YAML": (b"a: |\n", [b"  " + text + b"\n" for text in _TEXTS]),
    "a line of YAML": (b'a: "', [b"a" * _MB]),
    "UTF-16": ((_HEAD + b'{"apiVersion":"v1","kind":"Pod","a":"').decode().encode("utf-16"), [b"a\0" * _MB]),
}


#: Runs a command, and prints its exit code and the kilobytes of its largest process. A new process counts the memory of
#: its parent until it starts its program, so the parent must be small.
_MEASURE: Final = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def planned(path: Path, stdin: IO[bytes] | int = subprocess.DEVNULL) -> tuple[int, str, float]:
    """Return the exit code of ``plan``, its errors, and the megabytes of its largest process."""
    command = [sys.executable, "-P", "-m", "rescheduler", "plan", f"--snapshot={path}"]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _MEASURE, *command],
        stdin=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    code, kilobytes = done.stdout.split()
    return int(code), done.stderr, int(kilobytes) / 1024


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Return the megabytes for a small cluster."""
    path = tmp_path_factory.mktemp("usual") / "list.json"
    path.write_text(json.dumps({"kind": "List", "items": [node("n"), pod("a", "n")]}))
    return planned(path)[2]


def refused(code: int, errors: str, megabytes: float, usual: float) -> str:
    *warnings, line = errors.splitlines()
    assert all(each.startswith("rescheduler: warning: ") and len(each) < 500 for each in warnings)
    assert (code, line.startswith("rescheduler: ")) == (1, True)
    assert line.endswith("; `rescheduler snapshot > FILE` writes a file that can be read")
    assert len(line) < 500
    assert megabytes < usual + MEGABYTES
    return line


@pytest.mark.parametrize("name", REPEATED)
def test_a_file_of_4_megabytes_does_not_take_4_gigabytes(name: str, tmp_path: Path, usual: float) -> None:
    path = tmp_path / "list.gz"
    path.write_bytes(bomb(*REPEATED[name]))
    assert path.stat().st_size < 25 * _MB
    refused(*planned(path), usual)


@pytest.mark.parametrize("name", ["one string", "one pod"])
def test_nor_does_standard_input(name: str, tmp_path: Path, usual: float) -> None:
    path = tmp_path / "list.gz"
    path.write_bytes(bomb(*REPEATED[name]))
    with path.open("rb") as file:
        assert "decompresses to over 200 times its size" in refused(*planned(Path("-"), file), usual)


def test_nor_does_a_bomb_in_a_bomb(tmp_path: Path, usual: float) -> None:
    path = tmp_path / "list.gz"
    path.write_bytes(gzip.compress(bomb(_HEAD, b" ")))
    assert "gzip in gzip" in refused(*planned(path), usual)


def _write(name: str, file: BinaryIO | gzip.GzipFile) -> None:
    head, repeated = ITEMS[name]
    block = b"".join(repeated) * 64
    file.write(head)
    for _ in range(0, LARGE, len(block)):
        file.write(block)


@pytest.mark.parametrize("name", ITEMS)
def test_a_large_item_is_refused(name: str, tmp_path: Path, usual: float) -> None:
    path = tmp_path / "list"
    with path.open("wb") as file:
        _write(name, file)
    refused(*planned(path), usual)


@pytest.mark.parametrize("name", ["an array", "items without a kind"])
def test_a_large_item_is_refused_in_a_gzip_file(name: str, tmp_path: Path, usual: float) -> None:
    path = tmp_path / "list"
    with gzip.open(path, "wb", 1) as file:
        _write(name, file)
    refused(*planned(path), usual)


def _noise(number: int, size: int) -> str:
    """Return a text that is not compressible, so that the ratio of decompression stays below its limit."""
    return "".join(hashlib.sha256(f"{number} {part}".encode()).hexdigest() for part in range(size // 64))


def _tolerations(number: int, values: int) -> str:
    return f'"spec":{{"tolerations":[{",".join(["{}"] * (values - number))}]}},"metadata":{{'


def _labels(number: int, values: int) -> str:
    labels = ",".join(f'"{number:x}-{value:x}":""' for value in range(values))
    return f'"metadata":{{"labels":{{{labels}}},'


#: Pods of many short values that differ, which take far more memory than their text.
SHORT_VALUES: dict[str, Callable[[int, int], str]] = {"tolerations": _tolerations, "labels": _labels}


def _pods(name: str, values: int) -> Iterator[bytes]:
    yield _HEAD + json.dumps(node("n")).encode()
    for number in range(60):
        noise = _noise(number, max(64, values // 30))
        text = SHORT_VALUES[name](number, values)
        yield f',{{"apiVersion":"v1","kind":"Pod",{text}"name":"p-{number}","namespace":"{noise}"}}}}'.encode()
    yield b"]}"


@pytest.mark.parametrize("name", SHORT_VALUES)
@pytest.mark.parametrize("opened", [open, partial(gzip.open, compresslevel=1)], ids=["plain", "gzip"])
def test_many_short_values_are_refused(name: str, opened: Any, tmp_path: Path, usual: float) -> None:
    path = tmp_path / "list"
    with opened(path, "wb") as file:
        for part in _pods(name, 120_000):
            file.write(part)
    assert "take far more memory than those of a cluster" in refused(*planned(path), usual + 500)


def test_short_values_on_standard_input_are_refused(tmp_path: Path, usual: float) -> None:
    path = tmp_path / "list.gz"
    with gzip.open(path, "wb", 1) as packed:
        for part in _pods("tolerations", 120_000):
            packed.write(part)
    with path.open("rb") as file:
        assert "take far more memory" in refused(*planned(Path("-"), file), usual + 500)


@pytest.mark.parametrize("name", SHORT_VALUES)
def test_an_item_of_many_values_is_refused(name: str, tmp_path: Path, usual: float) -> None:
    path = tmp_path / "list"
    path.write_bytes(b"".join(islice(_pods(name, 300_000), 2)) + b"]}")
    assert "an object has more than 250,000 values" in refused(*planned(path), usual)


def test_a_string_of_2_gigabytes_is_refused(usual: float) -> None:
    """On standard input, of which only the beginning is read."""
    writer = "import sys\nsys.stdout.write(sys.argv[1])\nfor _ in range(2048): sys.stdout.write('a' * (1 << 20))"
    head = (_HEAD + b'{"kind":"Pod","a":"').decode()
    command = [sys.executable, "-c", writer, head]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as written:
        assert written.stdout is not None
        try:
            assert "larger than 16 MiB" in refused(*planned(Path("-"), written.stdout), usual)
        finally:
            written.kill()


ALIASES: dict[str, str] = {
    "exponential": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefghijk", "bcdefghijkl", strict=True)),
    "many of one": f"a: &a {'x' * 100_000}\nb: [{','.join(['*a'] * 100_000)}]\n",
    "in documents": f"a: &a {'x' * 10_000}\nb: [{','.join(['*a'] * 1000)}]\n---\n" * 100,
    "anchors in anchors": "".join(f"{' ' * depth}a: &a{depth}\n" for depth in range(90))
    + f"{' ' * 90}a: {'x' * 1_000_000}\n",
}


@pytest.mark.parametrize("name", ALIASES)
def test_aliases_of_aliases_are_refused(name: str, tmp_path: Path, usual: float) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(ALIASES[name])
    refused(*planned(path), usual)


def test_large_lists_are_read_item_by_item(tmp_path: Path, usual: float) -> None:
    """Also those whose items are not separated alike: the same pods again and again take no more memory."""
    texts = [json.dumps(pod(name, "n"), indent=indent) for indent, name in ((None, "a"), (1, "b"), (4, "c"))]
    block = ",".join(texts * 1000)
    path = tmp_path / "list.json"
    with path.open("w") as file:
        file.write(f'{{"kind":"List","items":[{json.dumps(node("n"))}')
        for _ in range(40):
            file.write("," + block)
        file.write("]}")
    assert path.stat().st_size > 50 * _MB
    code, _, megabytes = planned(path)
    assert (code, megabytes < usual + MEGABYTES) == (3, True)  # no spot nodes
