"""Tests of invalid configuration of each kind for each command: one line with the error and its location.

The files are those of `_furnish`; every secret in them contains SECRET, which must not appear in messages.
"""

import gzip
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rescheduler import cli
from tests.cli.wrong.commands import CLUSTERS, COMMANDS, SNAPSHOTS
from tests.cli.wrong.facts import SECRET, kubeconfig
from tests.cli.wrong.inputs import INPUTS
from tests.cli.wrong.liqos import LIQO
from tests.cli.wrong.providers import PROVIDERS
from tests.cli.wrong.proxies import PROXIES

LOGGED = re.compile(r"\d{4}-\d\d-\d\dT[^ ]+Z [A-Z]+ ")

TABLES = {"commands": COMMANDS, "clusters": CLUSTERS, "snapshots": SNAPSHOTS, "proxy": PROXIES}
TABLES |= {"providers": PROVIDERS, "liqo": LIQO, "inputs": INPUTS}
FACTS = {f"{table}: {fact}": case for table, facts in TABLES.items() for fact, case in facts.items()}


@pytest.fixture(scope="module")
def used() -> Iterator[int]:
    """Return a port that is in use."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture(autouse=True)
def _end() -> Iterator[None]:
    """Fail if a command finds no error, because it would run forever."""

    def late(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _furnish(folder: Path, pems: Path) -> None:
    for pem in pems.iterdir():
        (folder / pem.name).write_bytes(pem.read_bytes())
    (folder / "folder").mkdir()
    (folder / "empty").write_text("")
    (folder / "latin").write_bytes(b'{"k\xe4se": "\xff' + SECRET.encode() + b'"}')
    (folder / "two").write_text(f"{SECRET}-1\n{SECRET}-2\n")
    (folder / "secret").write_text(f"{SECRET}-one\n")
    (folder / "kubeconfig").write_text(kubeconfig())
    (folder / "no.pem").write_text(f"{SECRET} and no certificate\n")
    os.mkfifo(folder / "fifo")
    (folder / "device").symlink_to("/dev/zero")
    (folder / "cut.gz").write_bytes(gzip.compress(b'{"kind": "List", "items": []}')[:-12])


@pytest.mark.parametrize("fact", FACTS)
def test_errors_are_one_line_with_the_cause_and_the_location(
    fact: str,
    used: int,
    certificates: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    case = FACTS[fact]
    _furnish(tmp_path, certificates)
    for name, text in case.files.items():
        (tmp_path / name).write_text(text)
    for name in [name for name in os.environ if name.startswith(("RESCHEDULER_", "CHERRY_", "KUBE", "SPC_"))]:
        monkeypatch.delenv(name)
    for name, value in {"HOME": str(tmp_path), **case.environ}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(case.arguments.replace("{used}", str(used)).split(" "))
    out, everything = capfd.readouterr()
    # Earlier steps may have logged lines.
    message = "".join(line for line in everything.splitlines(keepends=True) if not LOGGED.match(line))
    assert (ended.value.code, out, message.count("\n")) == (case.status, "", 1), message
    assert message.startswith("rescheduler")
    missing = [name for name in case.names if name.replace("{used}", str(used)) not in message]
    assert not missing, message
    assert not [sign for sign in (SECRET, "Traceback", "internal error") if sign in everything], everything
