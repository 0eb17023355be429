"""Cost of starting a process, in CPU time and memory: of commands, and of imports."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.bench.big import big
from tests.bench.result import Result, cost

_TIMES: Final = 10
_ROLES: Final = {"on-demand": "worker", "spot": "spot-worker"}

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
    """Yield the CPU time of short commands, and the cost of importing the daemon and the Kubernetes client.

    The daemon imports that client only for kubeconfigs with plugins, and for proxies.
    """
    version, plan = _short_commands()
    yield cost("rescheduler version: CPU time of the process", version, "s", 0.1, 0.05)
    yield cost("plan on ten nodes: CPU time of the process", plan, "s", 0.4, 0.3)
    daemon, client = _best("rescheduler.housekeeping.composition"), _best("kubernetes.client")
    for index, (label, unit) in enumerate((("CPU time", "s"), ("memory", "MiB"))):
        both = daemon[index] + client[index]
        yield Result(
            f"{label} of importing the daemon, and the Kubernetes client in addition",
            f"{daemon[index]:.2f} {unit}",
            f"{both:.2f} {unit}",
            both / daemon[index],
            "×",
            1.3,
            1.5,
        )


def _short_commands() -> tuple[float, float]:
    """Return the CPU seconds of ``version``, and of ``plan`` on ten nodes."""
    with TemporaryDirectory() as folder:
        cluster = Path(folder) / "cluster.json"
        big(cluster, on_demand=5, spot=5, pods_per_node=10)
        labels = [f"--{kind}-node-label=node-role.kubernetes.io/{role}" for kind, role in _ROLES.items()]
        return _cpu("version"), _cpu("plan", "--snapshot", str(cluster), *labels)


def _cpu(*arguments: str) -> float:
    """Return the least CPU seconds of a command in _TIMES runs, with its modules compiled."""
    environment, command, runs = _keeping_compiled(), [sys.executable, "-m", "rescheduler", *arguments], []
    subprocess.run(command, check=True, capture_output=True, env=environment)  # compiles the modules
    for _ in range(_TIMES):
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, f"{command} exited with {process.returncode}"
        runs.append(usage.ru_utime + usage.ru_stime)
    return min(runs)


def _keeping_compiled() -> dict[str, str]:
    """Return the environment of a process that keeps the modules that it compiles, as an installation has them."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _best(module: str) -> tuple[float, float]:
    _imported(module)  # compiles the modules
    runs = [_imported(module) for _ in range(_TIMES)]
    return min(seconds for seconds, _ in runs), min(mebibytes for _, mebibytes in runs)


def _imported(module: str) -> tuple[float, float]:
    command = [sys.executable, "-c", _IMPORT, module]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=_keeping_compiled())
    seconds, mebibytes = map(float, done.stdout.split())
    return seconds, mebibytes
