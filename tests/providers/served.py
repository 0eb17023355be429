"""``rescheduler provider serve`` as a process, and Cluster Autoscaler's calls from another process in Go."""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

CALLER_SECONDS = 300
END_SECONDS = 120
SERVER_FILES = ("--cert=server.crt", "--key-cert=server.key", "--ca-cert=ca.pem")  #: created by `pki`
CLIENT_FILES = {"cert": "client.crt", "key": "client.key", "cacert": "ca.pem"}

_PROXIES = {"http_proxy", "https_proxy", "all_proxy"}


class Service:
    """The running process; *folder* contains its files. Its output is read continuously."""

    def __init__(self, folder: Path, *flags: str, environ: Mapping[str, str] | None = None) -> None:
        self._command = [sys.executable, "-m", "rescheduler", "provider", "serve", "--address=127.0.0.1:0", *flags]
        own = {"HOME": str(folder), "KUBECONFIG": ""}  # no cluster is found by default
        self._folder, self._environ = folder, {**_environment(), **own, **(environ or {})}
        self.lines: list[str] = []
        self._up = threading.Event()

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self._command, cwd=self._folder, env=self._environ, stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(END_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join()
            assert self.process.stderr is not None
            self.process.stderr.close()

    @property
    def address(self) -> str:
        """Address of the service; wait until it serves."""
        assert self._up.wait(END_SECONDS), "the service did not start"
        match = re.search(r"serving the cloud provider \S+ on (\S+),", "\n".join(self.lines))
        assert match, self.lines
        return match[1]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())
            if "serving the cloud provider" in line:
                self._up.set()
        self._up.set()


@dataclass(frozen=True, slots=True)
class Played:
    """The report of the caller; see devcluster/caller."""

    calls: Sequence[Mapping[str, str]]
    victim: str  #: provider ID
    created: Sequence[str] = field(default_factory=list)  #: provider IDs of machines that were created and deleted
    problem: str = ""

    def codes(self, rpc: str) -> set[str]:
        return {request["code"] for request in self.calls if request["rpc"] == rpc}


def play(binary: Path, folder: Path, **settings: Any) -> Played:
    """Play one run of Cluster Autoscaler; *settings* are the caller's settings, with files in *folder*."""
    done = subprocess.run(
        [binary],
        input=json.dumps(settings),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=CALLER_SECONDS,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    return Played(**json.loads(done.stdout))


def _environment() -> dict[str, str]:
    """Return the environment without variables that set options or proxies."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RESCHEDULER_") and name.lower() not in _PROXIES
    }


@contextlib.contextmanager
def services(*all_of_them: Service) -> Iterator[None]:
    """Start the services in parallel."""
    with contextlib.ExitStack() as stack:
        for service in all_of_them:
            stack.enter_context(service)
        yield
