"""Cost of imports at the start of a process, in CPU time and memory."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Final

from tests.bench.result import Result

_TIMES: Final = 5

#: Print the CPU seconds and the growth of the resident memory in MiB of one import.
_IMPORT: Final = """
import importlib, sys, time
def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024
start, before = time.process_time(), resident()
importlib.import_module(sys.argv[1])
print(time.process_time() - start, resident() - before)
"""


def run() -> Iterator[Result]:
    """Yield the share of the Kubernetes client in the import cost of the daemon: CPU time and memory."""
    daemon, client = _best("rescheduler.housekeeping.composition"), _best("kubernetes.client")
    for index, (what, unit) in enumerate((("CPU time", "s"), ("memory", "MiB"))):
        share = 100 * client[index] / daemon[index]
        yield Result(
            f"{what} of importing the daemon without the Kubernetes client, and the client itself",
            f"{daemon[index] - client[index]:.2f} {unit}",
            f"{client[index]:.2f} {unit}",
            100 - share,
            "%",
            30,
            50,
        )


def _best(module: str) -> tuple[float, float]:
    runs = [_imported(module) for _ in range(_TIMES)]
    return min(seconds for seconds, _ in runs), min(mebibytes for _, mebibytes in runs)


def _imported(module: str) -> tuple[float, float]:
    done = subprocess.run([sys.executable, "-c", _IMPORT, module], check=True, capture_output=True, text=True)
    seconds, mebibytes = map(float, done.stdout.split())
    return seconds, mebibytes
