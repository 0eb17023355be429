"""Packages that are slow to import are imported only by the commands that use them."""

import os
import subprocess
import sys
from typing import Final

import pytest

SAMPLE: Final = "deploy/release/sample.json"
LABELS: Final = (
    "--on-demand-node-label=node-role.kubernetes.io/worker",
    "--spot-node-label=node-role.kubernetes.io/spot-worker",
)
_COMMAND: Final = """
import sys
from rescheduler.cli import main
try:
    main()
except SystemExit:
    pass
print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "unused"),
    [
        (
            ("version",),
            {"kubernetes", "numpy", "msgspec", "yaml", "uvicorn", "httpx2", "grpc", "email", "traceback"},
        ),
        (("run", "--help"), {"kubernetes", "uvicorn", "httpx2", "grpc", "google"}),
        (
            ("plan", f"--snapshot={SAMPLE}", *LABELS),
            {"kubernetes", "uvicorn", "httpx2", "grpc", "google", "ssl", "yaml", "logging"},
        ),
    ],
    ids=["version", "help", "plan on a snapshot"],
)
def test_commands_that_do_not_use_a_package_do_not_import_it(arguments: tuple[str, ...], unused: set[str]) -> None:
    command = [sys.executable, "-c", _COMMAND, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout
    imported = set(done.stderr.splitlines()[-1].split())
    assert "click" in imported
    assert not imported & unused


_THREADS: Final = """
import rescheduler.cli, numpy
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("Threads:")))
"""


def test_numpy_starts_no_threads() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    command = [sys.executable, "-c", _THREADS]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, env=environment)
    assert done.stdout.strip() == "1"
