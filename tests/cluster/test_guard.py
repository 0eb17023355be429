"""A guarded command ends with its owner, with its guard, or on its own."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster import guard
from tests.cluster.waiting import alive, children, eventually

#: Starts a guarded `sleep`, prints the guard's process id, and waits.
OWNER = f"""
import os, signal, subprocess, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored
guarded = [sys.executable, {guard.__file__!r}, str(os.getpid()), "sleep", "600"]
print(subprocess.Popen(guarded, start_new_session=True).pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_the_command_ends_with_its_owner(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        guard_pid = int(owner.stdout.readline())
        (command_pid,) = eventually(lambda: children(guard_pid))
        owner.send_signal(number)
    assert eventually(lambda: not alive(guard_pid) and not alive(command_pid))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_command_ends_with_its_guard(number: signal.Signals) -> None:
    with guarded("sleep", "600") as process:
        (command_pid,) = eventually(lambda: children(process.pid))
        eventually(lambda: Path(f"/proc/{command_pid}/comm").read_text() == "sleep\n")
        process.send_signal(number)
    assert eventually(lambda: not alive(command_pid))


@pytest.mark.parametrize(
    ("command", "code"),
    [
        pytest.param(["true"], 0, id="success"),
        pytest.param(["sh", "-c", "exit 3"], 3, id="failure"),
        pytest.param(["sh", "-c", "kill -9 $$"], 128 + 9, id="killed"),
        pytest.param(["/does/not/exist"], 127, id="no such program"),
    ],
)
def test_the_guard_returns_the_exit_code(command: list[str], code: int) -> None:
    with guarded(*command) as process:
        assert process.wait(120) == code


def test_a_guard_whose_owner_is_gone_starts_nothing() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait(120)
    process = subprocess.run([sys.executable, guard.__file__, str(gone.pid), "true"], check=False, timeout=120)
    assert process.returncode == guard.NOT_STARTED


def guarded(*command: str) -> subprocess.Popen[bytes]:
    """Start *command* with a guard whose owner is this process."""
    me = str(Path("/proc/self").readlink())
    return subprocess.Popen([sys.executable, guard.__file__, me, *command], stderr=subprocess.DEVNULL)
