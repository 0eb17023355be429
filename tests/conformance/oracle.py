"""The real scheduler's plugins as a process that responds to requests."""

import json
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from devcluster import build
from predicates.scheduler import Scheduler
from predicates.versions import VERSIONS
from tests.conformance.generate.quantities import without_huge
from tests.conformance.generate.world import Json

#: The first minor version whose amounts saturate.
_SATURATING: Final = 38


class OracleError(Exception):
    """The oracle could not process a request; the message is the reason."""


class PluginError(OracleError):
    """The plugins ended a request with an error. The scheduler leaves such a pod pending."""


class Oracle:
    """One oracle process. Requests and responses are described in ``devcluster/oracle/main.go``.

    A request can be sent before the previous response is read, so that oracle and caller work in parallel.
    """

    def __init__(self, binary: Path | None = None, minor: str | None = None) -> None:
        known = build.version(minor, build.PLUGINS)
        self.version = VERSIONS[int(known.partition(".")[2])]  #: the version of the plugins
        self.scheduler = Scheduler(self.version)  #: our rules for the same version
        command = [binary or build.oracle(minor)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the process."""
        self._process.kill()
        self._process.communicate()

    def send(self, request: Json) -> None:
        """Send a request without waiting for the response. Raises OracleError if the process has exited."""
        pipe = _pipe(self._process.stdin)
        try:
            pipe.write(json.dumps(request).encode() + b"\n")
            pipe.flush()
        except BrokenPipeError as error:
            raise OracleError("the oracle has exited") from error

    def receive(self, seconds: float = 300) -> Json:
        """Return the response to the oldest pending request.

        Raises PluginError if the plugins ended it with an error, and OracleError without a response after *seconds*.
        """
        deadline = threading.Timer(seconds, self._process.kill)
        deadline.start()
        try:
            line = _pipe(self._process.stdout).readline()
        finally:
            deadline.cancel()
        if not line:
            raise OracleError(f"the oracle exited or did not answer within {seconds} s")
        response: Json = json.loads(line)
        if "error" in response:
            raise PluginError(response["error"] + "\n" + response.get("stack", ""))
        return response

    def ask(self, request: Json, seconds: float = 300) -> Json:
        """Send a request and return the response."""
        self.send(request)
        return self.receive(seconds)

    def comparable(self, snapshot: Json) -> Json:
        """Return *snapshot* without what is known to differ in this version: see ``predicates/versions.py``."""
        given: Json = without_huge(snapshot) if self.version.minor >= _SATURATING else snapshot
        return given

    def explain(
        self, snapshot: Json, pods: Iterable[str] | None = None, nodes: Iterable[str] | None = None
    ) -> list[Json]:
        """Return the verdicts of every plugin about the pods (default: all) on the nodes (default: all)."""
        return list(self.ask(explain_request(snapshot, pods, nodes))["verdicts"])

    def replay(self, snapshot: Json, drains: list[Json]) -> list[Json]:
        """Replay the placements of *drains* in order; return each with the plugins that reject it."""
        request = {"mode": "replay", "snapshot": with_versions(snapshot), "drains": drains}
        return list(self.ask(request)["placements"])


def with_versions(snapshot: Json) -> Json:
    """Return *snapshot* with a version of each object. Kubernetes 1.34 reserves no volumes without one."""
    items = [item | {"metadata": {"resourceVersion": "1"} | item["metadata"]} for item in snapshot["items"]]
    return snapshot | {"items": items}


def explain_request(snapshot: Json, pods: Iterable[str] | None = None, nodes: Iterable[str] | None = None) -> Json:
    """Return an ``explain`` request for the oracle."""
    request: Json = {"mode": "explain", "snapshot": snapshot, "all": True}
    if pods is not None:
        request["pods"] = list(pods)
    if nodes is not None:
        request["nodes"] = list(nodes)
    return request


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
