"""The stand-in API server: a process that serves a generated cluster from memory, and changes it on request."""

import base64
import contextlib
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol
from urllib.parse import urlsplit

import httpx2
import yaml

from devcluster import build
from tests.bench.big import big
from tests.scale.measured import MeasuredProcess

#: Time to wait for the start of a program. The stand-in encodes thousands of objects per second.
START_SECONDS: Final = 600.0


class ChangeableApiServer(Protocol):
    """A server with a cluster whose pods can be changed."""

    @property
    def name(self) -> str:
        """The name in the table."""
        ...

    @property
    def kubeconfig(self) -> Path: ...

    @property
    def port(self) -> int: ...

    def churn(self, kind: str, rate: int, seconds: int, seed: int = 1) -> int:
        """Change pods at *rate* events per second, and return the number of events.

        *kind* is ``status`` (an annotation of running pods) or ``turnover`` (pods are replaced by others).
        """
        ...


@dataclass(frozen=True)
class StandIn:
    """A running stand-in."""

    name: ClassVar = "stand-in"

    kubeconfig: Path
    process: MeasuredProcess
    client: httpx2.Client

    @property
    def port(self) -> int:
        return urlsplit(str(self.client.base_url)).port or 0

    def churn(self, kind: str, rate: int, seconds: int, seed: int = 1) -> int:
        query = {"kind": kind, "rate": str(rate), "seconds": str(seconds), "seed": str(seed)}
        response = self.client.post("/standin/churn", params=query, timeout=seconds * 10 + 60)
        return int(response.raise_for_status().json()["events"])

    def patch_node(self, name: str, patch: dict[str, Any]) -> None:
        """Apply a merge patch to a Node."""
        headers = {"Content-Type": "application/merge-patch+json"}
        self.client.patch(f"/api/v1/nodes/{name}", json=patch, headers=headers).raise_for_status()

    def calls(self) -> list[dict[str, Any]]:
        """Return the lists and the writes so far: verb, path, query, status, time."""
        calls: list[dict[str, Any]] = self.client.get("/standin/calls").raise_for_status().json() or []
        return calls


@contextlib.contextmanager
def standin(folder: Path, nodes: int, pods: int) -> Iterator[StandIn]:
    """Serve a cluster with *nodes* nodes, a third of them on-demand, and about *pods* pods."""
    cluster, kubeconfig = folder / "cluster.json", folder / "kubeconfig"
    big(cluster, on_demand=nodes // 3, spot=nodes - nodes // 3, pods_per_node=pods // nodes)
    command = [str(build.scale()), "serve", f"--cluster={cluster}", f"--kubeconfig={kubeconfig}"]
    with MeasuredProcess(command, folder / "standin.log") as process:
        eventually(lambda: kubeconfig.exists() and "serving" in process.log.read_text(), process)
        cluster.unlink()
        with _client(kubeconfig) as client:
            yield StandIn(kubeconfig, process, client)


@contextlib.contextmanager
def _client(kubeconfig: Path) -> Iterator[httpx2.Client]:
    [entry] = yaml.safe_load(kubeconfig.read_text())["clusters"]
    authority = base64.b64decode(entry["cluster"]["certificate-authority-data"]).decode()
    verify = ssl.create_default_context(cadata=authority)
    with httpx2.Client(base_url=entry["cluster"]["server"], verify=verify, trust_env=False) as client:
        yield client


def eventually(true: Callable[[], object], process: MeasuredProcess, seconds: float = START_SECONDS) -> None:
    """Wait until *true* returns a true value. Raises RuntimeError if *process* exits, or after *seconds*."""
    deadline = time.monotonic() + seconds  # noqa: TID251 - measured time
    while not true():
        process.check()
        if time.monotonic() > deadline:  # noqa: TID251
            raise RuntimeError(f"{process.log.name}: not ready after {seconds:.0f} s")
        time.sleep(0.01)  # noqa: TID251
