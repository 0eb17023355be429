"""What the tests of rescheduler.kube share: the edge, a client that talks to it, a clock that does not dawdle."""

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rescheduler.clock import SystemClock
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from tests.kube.edge import Edge, serving


class HastyClock(SystemClock):
    """Waits a moment where it is asked to wait for long, and remembers what it was asked."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.told: dt.datetime | None = None  #: the time that it tells; None: the real one

    def now(self) -> dt.datetime:
        return self.told or super().now()

    def wait(self, seconds: float, until: threading.Event) -> bool:
        self.waits.append(seconds)
        return until.wait(min(seconds, 0.01))


@pytest.fixture
def edge() -> Iterator[Edge]:
    with serving() as one:
        yield one


@pytest.fixture
def clock() -> HastyClock:
    return HastyClock()


@pytest.fixture
def client(edge: Edge, clock: HastyClock, tmp_path: Path) -> Client:
    return Client(Kubeconfig(str(kubeconfig(tmp_path, edge.url))), clock)


def kubeconfig(folder: Path, server: str, user: str = "{token: sesame}") -> Path:
    """A kubeconfig for *server*; *user* is its user entry in YAML."""
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
    """Wait until *true()*; fail when it does not come true in time."""
    deadline = time.monotonic() + seconds  # noqa: TID251 - a test's own deadline
    while not true():
        assert time.monotonic() < deadline, "it never came true"  # noqa: TID251
        time.sleep(0.002)  # noqa: TID251
