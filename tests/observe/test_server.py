"""Tests of the pages, over a real socket."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from prometheus_client import CollectorRegistry

from rescheduler.clock import SystemClock
from rescheduler.draining.state import Why
from rescheduler.errors import ReschedulerError
from rescheduler.net.server import serving
from rescheduler.observe.events import Event, Held, LeadershipChanged, Started, Waiting
from rescheduler.observe.metrics import Metrics
from rescheduler.observe.pages import Health, application
from rescheduler.observe.prepared_pages import Rendered, StatusPage
from rescheduler.observe.status import Board, Status
from rescheduler.settings import ListenAddress
from tests.observe.builders import BLOCKED, PLAN, ended, observed, planned

LOOPBACK = ListenAddress("127.0.0.1", 0)


class ManualClock(SystemClock):
    """A clock that is set by the test."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


class ServedPages:
    def __init__(self) -> None:
        self.clock, self.ready = ManualClock(), False
        self.health = Health(self.clock, 10, lambda: self.ready, lambda: "not read yet: pods")
        self.status, registry = Status(), CollectorRegistry()
        self.metrics = Metrics(registry)
        self.application = application(registry, self.health, self.status)
        self.url = ""

    def tell(self, *events: Event) -> None:
        for event in events:
            self.metrics(event)
            self.status(event)

    def get(self, path: str, accept: str = "*/*") -> httpx2.Response:
        return httpx2.get(self.url + path, headers={"accept": accept}, timeout=60)


@pytest.fixture
def pages() -> Iterator[ServedPages]:
    rendered = ServedPages()
    with serving(rendered.application, LOOPBACK) as address:
        rendered.url = f"http://{address}"
        yield rendered


def test_metrics_have_the_requested_format(pages: ServedPages) -> None:
    plain = pages.get("/metrics", accept="text/plain")
    assert plain.headers["content-type"].startswith("text/plain; version=")
    assert "spot_rescheduler_leader 0.0" in plain.text.splitlines()
    assert pages.get("/metrics", accept="application/openmetrics-text; version=1.0.0").text.endswith("# EOF\n")


def test_the_daemon_is_alive_while_its_loop_has_a_heartbeat(pages: ServedPages) -> None:
    assert pages.get("/healthz").status_code == 200
    pages.clock.seconds = 181
    silent = pages.get("/healthz")
    assert (silent.status_code, silent.text) == (503, "no heartbeat of the loop for 181 s\n")
    pages.health.beat()
    assert pages.get("/healthz").status_code == 200


def test_longer_intervals_allow_longer_silence() -> None:
    clock = ManualClock()
    health = Health(clock, 600, lambda: True)
    clock.seconds = 3600
    assert health.silence() is None
    clock.seconds = 3601
    assert health.silence() == 3601


def test_the_daemon_is_ready_once_the_cluster_is_read(pages: ServedPages) -> None:
    response = pages.get("/readyz")
    assert (response.status_code, response.text) == (503, "not read yet: pods\n")
    pages.ready = True
    response = pages.get("/readyz")
    assert (response.status_code, response.text) == (200, "ok\n")


def test_the_status_of_a_new_daemon_has_no_plan(pages: ServedPages) -> None:
    status = pages.get("/statusz").json()
    assert (status["plannedAt"], status["nodes"], status["drains"]) == (None, [], [])
    assert "No plan yet" in pages.get("/statusz", accept="text/html").text


STORY = (
    Started("1.2", "me", "x:1", dry_run=False),
    LeadershipChanged(leading=True),
    observed("od-1", "od-2"),
    planned(PLAN, BLOCKED),
    ended(Why.EVICTION_TIMEOUT),
    ended(),
    Held(Waiting.DRAIN_DELAY, "the drain delay runs for 9 s more"),
)


def test_the_json_status_has_the_whole_state(pages: ServedPages) -> None:
    pages.tell(*STORY)
    assert pages.get("/statusz").json() == {
        "version": "1.2",
        "holder": "me",
        "dryRun": False,
        "leading": True,
        "waiting": {"reason": "drain-delay", "detail": "the drain delay runs for 9 s more"},
        "leader": "me",
        "draining": None,
        "drain": None,
        "plannedAt": "2026-01-01T12:00:00Z",
        "complete": True,
        "spotNodes": 2,
        "drainableNodes": 1,
        "emptyNodes": 0,
        "nodesByReason": {"no-controller": 1, "pod-disruption-budget": 1},
        "inSequence": None,
        "onDemandNodes": 2,
        "pending": {"pods": 0, "cpu": 0, "memory": 0, "buffered": 0},
        "potentialSavings": None,
        "nodes": [
            {
                "node": "od-1",
                "drainable": True,
                "placements": [{"pod": "default/web-1", "node": "spot-1"}],
                "surges": [],
                "blockers": [],
                "severity": None,
            },
            {
                "node": "od-2",
                "drainable": False,
                "placements": [],
                "surges": [],
                "blockers": [
                    {
                        "pod": "default/bare",
                        "reason": "no-controller",
                        "severity": "error",
                        "detail": "no <b>controller</b> recreates it",
                    },
                    {
                        "pod": "default/db-1",
                        "reason": "pod-disruption-budget",
                        "severity": "warning",
                        "detail": "0 of 1",
                    },
                ],
                "severity": "error",
            },
        ],
        "coolingDown": {},
        "spotPools": [],
        "drains": [
            drain(succeeded=True, reason=None, detail=""),
            drain(succeeded=False, reason="eviction-timeout", detail="it took too long"),
        ],
        "savings": None,
    }


def drain(**fields: object) -> dict[str, object]:
    return {
        "at": "2026-01-01T12:00:00Z",
        "node": "od-1",
        "seconds": 12.5,
        "evicted": ["default/web-1"],
        "removed": False,
        **fields,
    }


def test_the_html_status_is_escaped(pages: ServedPages) -> None:
    pages.tell(*STORY)
    page = pages.get("/statusz", accept="text/html,*/*").text
    assert "no &lt;b&gt;controller&lt;/b&gt; recreates it" in page
    assert "<b>makes" not in page
    assert "1 of 2 on-demand nodes can be drained to 2 spot nodes, each by itself, 0 of them empty." in page
    assert pages.get("/statusz?format=json", accept="text/html").headers["content-type"] == "application/json"


def test_a_page_that_the_client_has_is_not_sent_again(pages: ServedPages) -> None:
    tag = pages.get("/statusz", accept="text/html").headers["etag"]
    again = httpx2.get(pages.url + "/statusz", headers={"accept": "text/html", "if-none-match": tag}, timeout=60)
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    other = httpx2.get(pages.url + "/statusz", headers={"accept": "*/*", "if-none-match": tag}, timeout=60)
    assert (other.status_code, other.headers["content-type"]) == (200, "application/json")


def test_a_partial_plan_does_not_replace_a_complete_one(pages: ServedPages) -> None:
    pages.tell(planned(PLAN, BLOCKED), planned(PLAN, complete=False))
    assert len(pages.get("/statusz").json()["nodes"]) == 2


class TestRendered:
    def test_a_board_is_rendered_once_and_a_new_one_at_most_once_a_second(self) -> None:
        clock, status, boards = ManualClock(), Status(), []

        def render(board: Board) -> bytes:
            boards.append(board)
            return str(len(boards)).encode()

        page = Rendered(status, render, clock)
        assert [page.current()[0] for _ in range(3)] == [b"1"] * 3
        status(LeadershipChanged(leading=True))
        clock.seconds = 0.9
        assert page.current()[0] == b"1"
        clock.seconds = 1.0
        assert [page.current()[0] for _ in range(3)] == [b"2"] * 3
        clock.seconds = 100.0
        assert page.current()[0] == b"2"

    def test_the_cached_page_is_served_for_a_second_and_while_a_new_one_is_rendered(self) -> None:
        clock, status, during = ManualClock(), Status(), []

        def render(board: Board) -> bytes:
            during.append(page.cached())
            return b"leads" if board.leading else b"new"

        page = Rendered(status, render, clock)
        assert page.cached() is None
        first = page.current()
        status(LeadershipChanged(leading=True))
        assert page.cached() == first
        clock.seconds = 1.0
        assert page.cached() is None
        second = page.current()
        assert (page.cached(), second[0], during) == (second, b"leads", [None, first])

    def test_one_thread_renders_for_all_clients(self) -> None:
        begun, go_on, count = threading.Event(), threading.Event(), []

        def render(_: Board) -> bytes:
            count.append(1)
            begun.set()
            assert go_on.wait(60)
            return b"page"

        page = Rendered(Status(), render)
        with ThreadPoolExecutor(8) as threads:
            asked = [threads.submit(page.current) for _ in range(8)]
            assert begun.wait(60)
            go_on.set()
            assert {response.result()[0] for response in asked} == {b"page"}
        assert len(count) == 1


def test_probes_are_served_while_a_page_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(_: StatusPage, __: Board) -> str:
        begun.set()
        assert go_on.wait(60)
        return "page"

    monkeypatch.setattr(StatusPage, "as_html", slow)
    pages = ServedPages()
    pages.ready = True
    with serving(pages.application, LOOPBACK) as address, ThreadPoolExecutor(60) as threads:
        pages.url = f"http://{address}"
        asked = [threads.submit(pages.get, "/statusz", "text/html") for _ in range(60)]
        assert begun.wait(60)
        assert [pages.get(path).text for path in ("/healthz", "/readyz")] == ["ok\n", "ok\n"]
        assert "spot_rescheduler" in pages.get("/metrics").text
        go_on.set()
        assert {response.result().text for response in asked} == {"page"}


def test_other_paths_are_not_found(pages: ServedPages) -> None:
    assert pages.get("/").status_code == 200
    assert pages.get("/etc/passwd").status_code == 404
    assert httpx2.post(pages.url + "/metrics", timeout=60).status_code == 405


def test_an_address_in_use_is_reported_in_one_line() -> None:
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        port = occupied.getsockname()[1]
        with (
            pytest.raises(ReschedulerError) as caught,
            serving(ServedPages().application, ListenAddress("127.0.0.1", port)),
        ):
            pass
    assert str(caught.value) == f"--listen-address 127.0.0.1:{port}: cannot listen there: Address already in use"


def test_an_unknown_host_is_reported() -> None:
    with (
        pytest.raises(ReschedulerError, match=r"--listen-address no\.such\.host\.invalid:1"),
        serving(ServedPages().application, ListenAddress("no.such.host.invalid", 1)),
    ):
        pass


def test_the_server_stops_at_the_end_of_the_block() -> None:
    with serving(ServedPages().application, LOOPBACK):
        assert "http" in {thread.name for thread in threading.enumerate()}
    assert "http" not in {thread.name for thread in threading.enumerate()}
