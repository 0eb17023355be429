"""Fixtures for the tests of rescheduler.kube: a scripted API server, a client for it, and a fast clock."""

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rescheduler.clock import SystemClock
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from tests.kube.edge import ScriptedApiServer, serving


class HastyClock(SystemClock):
    """A clock that shortens long waits and records them."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.fixed_time: dt.datetime | None = None  #: the current time; None: the real time

    def now(self) -> dt.datetime:
        return self.fixed_time or super().now()

    def wait(self, seconds: float, until: threading.Event) -> bool:
        self.waits.append(seconds)
        return until.wait(min(seconds, 0.01))


@pytest.fixture
def edge() -> Iterator[ScriptedApiServer]:
    with serving() as server:
        yield server


@pytest.fixture
def clock() -> HastyClock:
    return HastyClock()


@pytest.fixture
def client(edge: ScriptedApiServer, clock: HastyClock, tmp_path: Path) -> Client:
    return Client(Kubeconfig(str(kubeconfig(tmp_path, edge.url))), clock)


def kubeconfig(folder: Path, server: str, user: str = "{token: sesame}") -> Path:
    """Return a kubeconfig for *server* with the user entry *user* in YAML."""
    path = folder / "kubeconfig"
    path.write_text(
        f"""
current-context: here
contexts: [{{name: here, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {user}}}]
"""
    )
    return path


def eventually(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until *true* returns True; fail after a timeout."""
    deadline = time.monotonic() + seconds  # noqa: TID251 - a test's own deadline
    while not true():
        assert time.monotonic() < deadline, "the condition was not reached"  # noqa: TID251
        time.sleep(0.002)  # noqa: TID251
