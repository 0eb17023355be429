"""Tests of Ctrl-C: at any moment, the program exits with 130 and prints no traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: A shell starts background processes with ignored interrupts, which the processes of the tests would inherit.
_NOT_IGNORED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
_IMPORTING = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "{}":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
"""
_EXITING = """
import atexit, os, signal
atexit.register(os.kill, os.getpid(), signal.SIGINT)
"""
_MAIN = """
import sys
sys.argv = ["rescheduler", "plan", "--snapshot", "docs/sample.json.gz"]
from rescheduler.__main__ import main
main()
"""

MOMENTS = {
    **{
        f"importing {name}": _IMPORTING.format(name)
        for name in ("rescheduler.cli", "click", "rescheduler.cli.plan", "numpy", "rescheduler.snapshot_file.text")
    },
    "exiting": _EXITING,
}


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_an_interrupt_is_exit_code_130_without_a_traceback(moment: str) -> None:
    command = [sys.executable, "-c", _NOT_IGNORED + moment + _MAIN]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (130, False)
    assert done.stderr.strip() in ("", "rescheduler: interrupted")


def test_an_ignored_interrupt_stays_ignored() -> None:
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)" + MOMENTS["importing numpy"]
    command = [sys.executable, "-c", ignoring + _MAIN]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout[:2]) == (0, "14")


def test_nothing_that_takes_time_is_imported_before_the_handler_is_installed() -> None:
    """Before that, an interrupt is a traceback. The interpreter's own start cannot be changed."""
    script = (
        "import sys; sys.path.insert(0, ''); import os; before = set(sys.modules); import rescheduler.__main__; "
        "print(*sorted(set(sys.modules) - before))"
    )
    command = [sys.executable, "-S", "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["rescheduler", "rescheduler.__main__"]
