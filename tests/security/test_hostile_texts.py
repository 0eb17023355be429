"""Hostile texts in every field that a cluster's objects have: whatever is said about them is printable and short.

The outputs are those of the commands on a snapshot file, and of a daemon in memory: metrics, logs, Kubernetes Events,
the status page, the annotations of Nodes and the ConfigMap.
"""

import copy
import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from predicates.texts import LONGEST_REASON, LONGEST_SHOWN, escaped
from predicates.wire import FILE_KINDS, Decoder, Interner, WireError
from rescheduler.cli.output import json_bytes, print_yaml
from rescheduler.observe.events import DrainEnded
from rescheduler.observe.kube_events import KubeEvents
from rescheduler.observe.logs import JsonLines, Logs, TextLines
from rescheduler.observe.metrics import Metrics
from rescheduler.observe.prepared_pages import StatusPage
from rescheduler.observe.status import Status, as_json
from rescheduler.planning.forms import unpack
from rescheduler.settings import Timing
from tests import forking
from tests.housekeeping.world import world
from tests.kube.samples import SAMPLES
from tests.planning.builders import ON_DEMAND, SYSTEM_POD, Manifest, node, pod
from tests.planning.test_hostile_fields import CHECKED, HOSTILE, fields

#: Samples of pods with the same spec as others.
REPEATED: Final = frozenset({"a pod that is Ready", "a terminating pod"})

FieldPath = tuple[str | int, ...]

#: Between two rounds of the daemon.
INTERVAL: Final = timedelta(minutes=10)


def changed(manifest: Manifest, path: FieldPath, number: int) -> Manifest:
    """Return *manifest* under a name of its own, with a hostile text in the field *path*."""
    result = copy.deepcopy(manifest)
    meta = result["metadata"]
    meta["name"] = f"x{number}"
    meta["uid"] = f"uid-{number}"
    place: Any = result
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = HOSTILE
    if result["kind"] == "Pod" and result.get("spec", {}).get("nodeName"):
        result["spec"]["nodeName"] = f"od-{number}"
    if result["kind"] == "Node":
        result["metadata"].setdefault("labels", {})[ON_DEMAND] = ""
    return result


def plain() -> Iterator[Manifest]:
    """Yield objects of every kind, and pods that can be moved."""
    for name, (kind, manifest) in SAMPLES.items():
        if kind in FILE_KINDS and name not in REPEATED:
            yield {"kind": kind, **manifest}
    for owner in ("ReplicaSet", "example.com/v1/Widget"):
        movable = pod("team/web-1", "node-1", owner=owner, cpu="10m", created="2025-12-01T00:00:00Z")
        movable["metadata"]["annotations"] = {
            "karpenter.sh/do-not-disrupt": "1h",
            "spot-rescheduler/do-not-evict": "1h",
        }
        yield movable


#: The API server chooses UIDs.
SERVERS: Final = ("metadata", "uid")


@cache
def cluster() -> list[Manifest]:
    objects: list[Manifest] = [node(f"spot-{n}", cpu="64", pods=1000) for n in range(3)]
    decoder, number = Decoder(Interner()), 0
    for manifest in plain():
        for path in fields(manifest):
            if path in CHECKED or path[:1] in (("kind",), ("apiVersion",)) or path in ((HOSTILE,), SERVERS):
                continue
            number += 1
            hostile = changed(manifest, path, number)
            try:
                decoder.decode(hostile["kind"], msgspec.json.encode(hostile))
            except WireError:
                continue
            objects += [hostile, *([node(f"od-{number}", ON_DEMAND)] if hostile["kind"] == "Pod" else [])]
    return objects


def faults(text: str, longest: int = LONGEST_SHOWN) -> list[str]:
    """Return the lines of an output that are not printable, or contain more than *longest* characters from outside."""
    long = "y" * (longest + 1)
    return [line[:300] for line in text.split("\n") if not line.isprintable() or long in line]


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from (key, *strings(item))
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str):
        yield value


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("hostile") / "cluster.json"
    target.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*cluster(), SYSTEM_POD]}))
    return target


@pytest.mark.parametrize("command", [("plan",), ("explain",), ("explain", "od-1"), ("report",)], ids=" ".join)
def test_pages_of_commands(file: Path, command: tuple[str, ...]) -> None:
    done = forking.run(*command, f"--snapshot={file}")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 100
    assert faults(done.stdout) + faults(done.stderr) == []


@pytest.mark.parametrize("command", ["plan", "explain"])
def test_json_of_commands(file: Path, command: str) -> None:
    done = forking.run(command, f"--snapshot={file}", "-o", "json", check=True)
    values = [json.loads(line) for line in done.stdout.splitlines()]
    texts = [text for value in values for text in strings(value)]
    assert len(texts) > 100
    # The reasons of scheduler plugins are those of kube-scheduler, which quote several texts.
    assert [fault for text in texts for fault in faults(text, LONGEST_REASON)] == []


#: What a name in a file can contain: controls of C0 and C1, marks of direction, invisible characters; some characters
#: that are printed as they are.
NAMES: Final[dict[str, str]] = {
    "a mark of direction": "x\u202ecba",
    "isolates": "x\u2066y\u2069",
    "C1": "x\x9b31my\x85",
    "DEL": "x\x7fy",
    "colors": "x\x1b[31m",
    "a byte order mark": "x\ufeffy",
    "no width": "x\u200by\u00ad",
    "a separator of lines": "x\u2028y\u2029",
    "tags beyond the first plane": "x\U000e0041",
    "an unassigned character": "x\u0378",
    "private use": "x\ue000\U0010fffd",
    "umlauts and emoji": "größe–\U0001f600",
}


@pytest.mark.parametrize("output", ["json", "yaml"])
@pytest.mark.parametrize("command", ["plan", "explain"])
def test_names_are_escapes_and_are_decoded_as_they_are(command: str, output: str, tmp_path: Path) -> None:
    names = list(NAMES.values())
    objects = [node("s"), *(node(name, ON_DEMAND) for name in names), *(pod(f"p{name}", name) for name in names)]
    (tmp_path / "c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    done = forking.run(command, f"--snapshot={tmp_path / 'c.json'}", "-o", output, check=True)
    assert faults(done.stdout) == []
    values = yaml.safe_load_all(done.stdout) if output == "yaml" else map(json.loads, done.stdout.splitlines())
    found = {text.removeprefix("default/") for value in values for text in strings(value)}
    assert {f"p{name}" for name in names} <= found
    assert command == "explain" or set(names) <= found


@pytest.mark.parametrize("name", NAMES)
def test_json_has_escapes_for_what_is_not_printable(name: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    value = {NAMES[name]: [NAMES[name]]}
    printed = json_bytes(value).decode()
    assert (printed.isprintable(), json.loads(printed)) == (True, value)
    print_yaml(value)
    document = capsysbinary.readouterr().out.decode()
    assert (faults(document), yaml.safe_load(document)) == ([], value)
    assert escaped(json.dumps(value, ensure_ascii=False)) == json.dumps(value, ensure_ascii=NAMES[name][0] != "g")


def test_json_of_a_surrogate_without_its_pair() -> None:
    printed = json_bytes({"x": "a\ud800b"})
    assert (printed, json.loads(printed)) == (b'{"x":"a\\ud800b"}', {"x": "a\ud800b"})


def test_json_lines_of_the_log() -> None:
    line = JsonLines().format(logging.LogRecord("rescheduler", logging.INFO, "", 0, "node %s", ("x\u202e",), None))
    assert (line.isprintable(), json.loads(line)["message"]) == (True, "node x?")


def test_outputs_of_the_daemon() -> None:
    log, messages = io.StringIO(), list[str]()
    metrics, status = Metrics(registry := CollectorRegistry()), Status()
    events = KubeEvents(lambda subject, reason, message, **_: messages.append(f"{subject} {reason} {message}"))
    with world(*cluster()) as here:
        here.stop_at(3 * INTERVAL.total_seconds())
        here.allow_returning_plans = True  # most nodes are not spot
        here.loop(Timing(housekeeping_interval=INTERVAL)).run()
        with logged(log):
            for _, event in here.reported:
                for listener in (metrics, status, events, Logs()):
                    listener(event)
        assert here.of(DrainEnded)
        assert here.config_map.stored is not None
        memory = json.loads(unpack(here.config_map.stored.content))
        annotations = [str(intent) for _, intent in here.intents]
    surfaces = {
        "metrics": generate_latest(registry).decode(),
        "status page": StatusPage().as_html(status.board),
        "status": "\n".join(strings(as_json(status.board))),
        "log": log.getvalue(),
        "events": "\n".join(messages),
        "memory": "\n".join(strings(memory)),
        "annotations": "\n".join(annotations),
    }
    assert [name for name, text in surfaces.items() if len(text) < 100] == []
    assert {name: found for name, text in surfaces.items() if (found := faults(text))} == {}


@contextmanager
def logged(to: io.StringIO) -> Iterator[None]:
    """Write all log lines in their text format."""
    handler, logger = logging.StreamHandler(to), logging.getLogger("rescheduler")
    handler.setFormatter(TextLines())
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
