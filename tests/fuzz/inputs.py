"""Snapshots, configurations and flags with unexpected values, each processed by a process of its own.

One or two values of a valid document are replaced by odd ones. The command must then exit with a documented exit code
and at most one line of error, or serve until it receives a signal.
"""

import contextlib
import json
import os
import re
import selectors
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from hypothesis import strategies as st

from tests import forking
from tests.cli.wrong.facts import CHERRY, DISCOVERY, MANAGER, NODES, SERVE, SPC, kubeconfig
from tests.fuzz.attack import AttackTally, attack

_TIMEOUT: Final = 60.0  #: seconds for a command to exit or to serve
_CODES: Final = frozenset({0, 1, 2, 3})
_BROKEN: Final = ("Traceback", "internal error", "Exception ignored", "never awaited")
_SERVES: Final = re.compile(r"serving |forwarding port ")
_LOGGED: Final = re.compile(r"\d{4}-\d\d-\d\dT[^ ]+Z [A-Z]+ |rescheduler: ignored, because ")

Json = dict[str, Any]


@dataclass(frozen=True)
class Command:
    """A command line that reads the document from the file `input`."""

    arguments: str
    document: Json
    environ: Mapping[str, str] = field(default_factory=dict)
    as_yaml: bool = True


_POD: Final[Json] = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {
        "name": "web-1",
        "namespace": "default",
        "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "w", "controller": True}],
    },
    "spec": {
        "nodeName": "n1",
        "priority": 5,
        "terminationGracePeriodSeconds": 30,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 5}],
    },
    "status": {"phase": "Running"},
}
_NODE: Final[Json] = {
    "kind": "Node",
    "apiVersion": "v1",
    "metadata": {"name": "n1", "labels": {"node-role.kubernetes.io/worker": "true"}},
    "spec": {"taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]},
    "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}],
    },
}
_BUDGET: Final[Json] = {
    "kind": "PodDisruptionBudget",
    "apiVersion": "policy/v1",
    "metadata": {"name": "b", "namespace": "default"},
    "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"app": "web"}}},
    "status": {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2},
}
_SNAPSHOT: Final[Json] = {"kind": "List", "apiVersion": "v1", "items": [_NODE, _POD, _BUDGET]}
_PROXY: Final[Json] = {
    "server": {"timeout": "60s", "tls": {"certPath": "c", "keyPath": "k", "clientCaPath": "a"}},
    "apiServer": {"url": "http://127.0.0.1:1", "auth": {"kubeConfigPath": "kubeconfig"}, "timeout": "1s"},
    "backend": {"url": "http://127.0.0.1:1", "auth": {"tokenPath": "token"}, "pollInterval": "2s"},
    "drain": {"evictionTimeout": "1m", "landingTimeout": "0"},
    "minSize": 1,
}
_POOLS: Final[Json] = {
    "pools": [
        {
            "id": "a",
            "backend": {"url": "http://127.0.0.1:1", "timeout": "5s", "attempts": 2, "tokenFile": "token"},
            "minSize": 1,
            "maxSize": 3,
            "refreshInterval": "1s",
            "template": {"capacity": {"cpu": "4"}, "labels": {"a": "b"}},
        }
    ]
}
_GROUPS: Final[Json] = {
    "groups": [
        {
            "id": "A",
            "minSize": 0,
            "maxSize": 2,
            "cost": 1.5,
            "resources": {"min": {"cpu": 1, "memory": "1Gi", "pods": 10}, "max": {"cpu": 2}},
            "labels": {"a": "b"},
            "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
        }
    ],
    "provisionTimeout": "5m",
    "unpeerAfter": "1h",
}
_GRPC: Final[Json] = {"address": "a:1", "cert": "c", "key": "k", "cacert": "a", "grpc_timeout": "5s"}
_STACKPOINT: Final[Json] = {"nodePoolsFile": "pools", "refreshInterval": "1s", "buildTimeout": "1m"}
_PLAIN: Final = "--insecure-plaintext --database=:memory: --discovery-url=http://127.0.0.1:1"
COMMANDS: Final = (
    Command("plan --snapshot=input -o json", _SNAPSHOT, as_yaml=False),
    Command("explain --snapshot=input -o json", _SNAPSHOT, as_yaml=False),
    Command("plan --kubeconfig=input", json.loads(kubeconfig())),
    Command("proxy --config-file=input --port=0 --host=127.0.0.1 --listen-address=127.0.0.1:0", _PROXY, as_yaml=False),
    Command(f"{SERVE}=cloudpool --cloud-config=input", _POOLS),
    Command(f"{SERVE}=externalgrpc --cloud-config=input", _GRPC),
    Command(f"{SERVE}=stackpoint --cloud-config=input", _STACKPOINT, SPC),
    Command(f"{SERVE}=cherryservers {NODES} --cloud-config=input", {"global": {}}, CHERRY),
    Command(f"{MANAGER} {_PLAIN} --config=input", _GROUPS),
    Command(f"{DISCOVERY} --insecure-plaintext --database=input", {}),
)

#: Values that no key expects.
_ODD: Final[st.SearchStrategy[Any]] = st.one_of(
    st.sampled_from(
        [
            "a\0b",
            "fifo",
            "/dev/zero",
            "folder",
            "no.pem",
            "absent",
            "",
            "9" * 400 + "h",
            "100000000h",
            "87600h",
            "1e400",
            "1e1000000000",
            "9" * 5000,
            "\ud800",
            "٣",
            "9999-12-31T23:59:59Z",
            "0001-01-01T00:00:00Z",
            "99999-01-01T00:00:00Z",
            "1000000%",
            None,
            True,
            [],
            {},
            -1,
            0,
            2**31,
            2**63,
            -(2**63) - 1,
            10**400,
            1e308,
            float("inf"),
            float("nan"),
            [[]],
            {"": None},
        ]
    ),
    st.text(max_size=20),
    st.integers(),
    st.floats(),
)


@dataclass(frozen=True)
class Input:
    command: Command
    content: bytes | str  #: content of the file, or the kind of object in its place
    odd: str  #: the odd values and their places


@st.composite
def inputs(draw: st.DrawFn) -> Input:
    command = draw(st.sampled_from(COMMANDS))
    if draw(st.integers(0, 9)) == 0:
        kind = draw(st.sampled_from(["fifo", "/dev/zero", "/dev/null", "folder", "empty", "absent"]))
        return Input(command, kind, f"the file is {kind}")
    document = json.loads(json.dumps(command.document))
    odd = []
    for _ in range(draw(st.integers(1, 2))):
        if places := list(_places(document)):
            holder, key = draw(st.sampled_from(places))
            holder[key] = draw(_ODD)
            odd.append(f"{key}={holder[key]!r:.60}")
    return Input(command, _text(command, document), ", ".join(odd))


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    keys = document.keys() if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    for key in keys:
        yield document, key
        yield from _places(document[key])


def _text(command: Command, document: Json) -> bytes:
    dumped = json.dumps(document)
    if command.as_yaml:
        with contextlib.suppress(yaml.YAMLError, ValueError):
            dumped = yaml.safe_dump(document, allow_unicode=False)
    return dumped.encode("utf-8", "surrogatepass")


class CommandFolder:
    """The working folder of the commands."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.lines: list[str] = []
        os.mkfifo(folder / "fifo")
        (folder / "folder").mkdir()
        (folder / "empty").write_bytes(b"")
        (folder / "no.pem").write_text("no certificate\n")
        (folder / "token").write_text("a-token\n")
        (folder / "kubeconfig").write_text(kubeconfig())

    def attack(self, tally: AttackTally, examples: int, seed: int) -> None:
        def verdict(example: Input) -> Iterable[str]:
            tally.examples += 1
            code, lines = self._ran(example)
            self.lines += lines
            tally.answers[str(code)] += 1
            if code not in _CODES:
                yield f"exited with {code}: {lines[-5:]}"
            if broken := [line for line in lines if any(sign in line for sign in _BROKEN)]:
                yield f"printed {broken}"
            own = [line for line in lines if not _LOGGED.match(line)]
            if code and len(own) != 1:
                yield f"expected one line, printed {own[:5]}"

        attack(inputs(), verdict, examples, seed)

    def _ran(self, example: Input) -> tuple[int | str, Sequence[str]]:
        target = self._folder / "input"
        target.unlink(missing_ok=True)
        if isinstance(example.content, bytes):
            target.write_bytes(example.content)
        elif example.content != "absent":
            target.symlink_to(example.content)
        main = forking.python([*forking.PROGRAM, *example.command.arguments.split()])
        own = {"HOME": str(self._folder), **example.command.environ}
        process, log = forking.with_log(main, cwd=self._folder, env={**forking.environment(), **own})
        with log:
            return _end(process, log.fileno())

    def stop(self) -> int:
        """Return 0; commands have no process that keeps running."""
        return 0


def _end(process: forking.Forked, errors: int) -> tuple[int | str, Sequence[str]]:
    """Return the exit code and the lines; terminate a process that serves, kill one that hangs."""
    stopping, text = False, b""
    end = time.monotonic() + _TIMEOUT  # noqa: TID251 - time limit of a process
    with selectors.DefaultSelector() as waiting:
        waiting.register(errors, selectors.EVENT_READ)
        while time.monotonic() < end:  # noqa: TID251
            if not waiting.select(1.0):
                continue
            if not (chunk := os.read(errors, 1 << 16)):
                break
            text += chunk
            if not stopping and _SERVES.search(text.decode("utf-8", "replace")):
                stopping = True
                process.send_signal(signal.SIGTERM)
        else:
            process.kill()
            process.wait()
            return "none: timed out", text.decode("utf-8", "replace").splitlines()
    return process.wait(), text.decode("utf-8", "replace").splitlines()


@contextlib.contextmanager
def commands(folder: Path) -> Iterator[CommandFolder]:
    yield CommandFolder(folder)
