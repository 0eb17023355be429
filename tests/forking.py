"""Programs as processes that are forked from a server with preloaded modules: starting them costs no imports."""

import contextlib
import gc
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing import connection, reduction
from pathlib import Path
from typing import Any, Final, TextIO

ROOT: Final = Path(__file__).parents[1]
PROGRAM: Final = ("-m", "rescheduler")
COMMAND_SECONDS: Final = 120.0

_FORKS: Final = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        *(
            f"rescheduler.cli.{command}"
            for command in ("liqo", "pause", "plan", "proxy", "resume", "run", "savings", "status")
        ),
        "rescheduler.housekeeping.composition",
        "rescheduler.cloudpool.proxy.run",
        __name__,
    ]
)
#: `Process.start` also polls all other processes, and two polls at the same time can lose an exit code.
_ONE_AT_A_TIME: Final = threading.Lock()


class Forked:
    """A process that calls *main*, with the methods of `subprocess.Popen` that tests use.

    It has its own session. *stdout* and *stderr* are file descriptors, by default /dev/null.
    """

    def __init__(
        self,
        main: Callable[[], object],
        *,
        stdout: int | None = None,
        stderr: int | None = None,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
    ) -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            outputs = [_Descriptor(null if number is None else number) for number in (stdout, stderr)]
            arguments = (main, *outputs, str(cwd), environment() if env is None else dict(env))
            # A daemon in the sense of multiprocessing: it is terminated when the tests exit.
            self._process = _FORKS.Process(target=_run, args=arguments, daemon=True)
            with _ONE_AT_A_TIME:
                self._process.start()
        finally:
            os.close(null)
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while the process runs."""
        with _ONE_AT_A_TIME:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit and return the exit code. Raises subprocess.TimeoutExpired."""
        if self.poll() is None:
            connection.wait([self._process.sentinel], timeout)
        code = self.poll()
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it may have exited in the meantime
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def with_log(
    main: Callable[[], object], *, cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> tuple[Forked, TextIO]:
    """Call *main* in a process, and return the process and a file from which its standard error is read."""
    reading, writing = os.pipe()
    try:
        return Forked(main, stderr=writing, cwd=cwd, env=env), os.fdopen(reading)
    finally:
        os.close(writing)


def python(arguments: Sequence[str]) -> Callable[[], object]:
    """Return the main function of ``python -m MODULE …``; *arguments* start with ``-m``."""
    option, module, *rest = arguments
    assert option == "-m"
    return partial(_run_module, module, rest)


def run(*arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    """Run ``rescheduler`` with *arguments* until it exits, like `subprocess.run` with captured text."""
    done = completed(python([*PROGRAM, *arguments]))
    if check:
        done.check_returncode()
    return done


def completed(main: Callable[[], object], *, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Call *main* in a process until it exits, and return its output."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        process = Forked(main, stdout=out.fileno(), stderr=error.fileno(), env=env)
        try:
            code = process.wait(COMMAND_SECONDS)
        finally:
            process.kill()
        texts = [(file.seek(0), file.read())[1] for file in (out, error)]
    return subprocess.CompletedProcess([], code, *texts)


def environment() -> dict[str, str]:
    """Return the environment without variables that set options of the program."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("RESCHEDULER_", "KUBE"))}


class _Descriptor:
    """A file descriptor that is duplicated into the new process, where the argument is its number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _detach, (reduction.DupFd(self._number),)


def _detach(duplicate: Any) -> int:
    number: int = duplicate.detach()
    return number


def _run(main: Callable[[], object], stdout: int, stderr: int, cwd: str, env: Mapping[str, str]) -> None:
    os.setsid()
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    main()


def _run_module(module: str, arguments: Sequence[str]) -> None:
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


# In the server: collections would otherwise write to the pages that all processes share.
gc.freeze()
