"""The real scheduler's plugins as a process that answers one request after the other."""

import json
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from deploy.local import build
from tests.conformance.generate.world import Json


class OracleError(Exception):
    """The oracle could not answer; the message says why."""


class Oracle:
    """One oracle process. Requests and answers are described in ``deploy/local/oracle/main.go``.

    A request may be sent ahead of its answer: the oracle works on it while the caller does.
    """

    def __init__(self, binary: Path | None = None) -> None:
        self._process = subprocess.Popen([binary or build.oracle()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def send(self, request: Json) -> None:
        pipe = _pipe(self._process.stdin)
        try:
            pipe.write(json.dumps(request).encode() + b"\n")
            pipe.flush()
        except BrokenPipeError as error:
            raise OracleError("the oracle has ended") from error

    def receive(self, seconds: float = 60) -> Json:
        """The answer to the oldest request without one. Raises OracleError, also after *seconds*."""
        deadline = threading.Timer(seconds, self._process.kill)
        deadline.start()
        try:
            line = _pipe(self._process.stdout).readline()
        finally:
            deadline.cancel()
        if not line:
            raise OracleError(f"the oracle ended, or gave no answer within {seconds} s")
        answer: Json = json.loads(line)
        if "error" in answer:
            raise OracleError(answer["error"] + "\n" + answer.get("stack", ""))
        return answer

    def ask(self, request: Json, seconds: float = 60) -> Json:
        self.send(request)
        return self.receive(seconds)

    def explain(
        self, snapshot: Json, pods: Iterable[str] | None = None, nodes: Iterable[str] | None = None
    ) -> list[Json]:
        """What every plugin says about each pod (all of them by default) on each node."""
        return list(self.ask(explain_request(snapshot, pods, nodes))["verdicts"])

    def replay(self, snapshot: Json, drains: list[Json]) -> list[Json]:
        """The placements of the drains, one after the other, each with the plugins that refuse it."""
        return list(self.ask({"mode": "replay", "snapshot": snapshot, "drains": drains})["placements"])


def explain_request(snapshot: Json, pods: Iterable[str] | None = None, nodes: Iterable[str] | None = None) -> Json:
    request: Json = {"mode": "explain", "snapshot": snapshot, "all": True}
    if pods is not None:
        request["pods"] = list(pods)
    if nodes is not None:
        request["nodes"] = list(nodes)
    return request


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
