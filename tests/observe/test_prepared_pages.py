"""Pages that are rendered at the end of a round and served as they are."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from rescheduler.observe.events import DrainStarted, Event, Held, LeadershipChanged, RoundEnded, Tainted, Waiting
from rescheduler.observe.prepared_pages import PREPARED_SECONDS, PreparedPages, StatusPage
from rescheduler.observe.status import Board, Status, StatusJson, as_json
from rescheduler.planning.money.prices import NodeFacts
from tests.observe.builders import BLOCKED, NOW, OD, PLAN, ended, observed, planned
from tests.observe.test_server import ManualClock

ROUND_ENDED = RoundEnded(NOW, 0.1, succeeded=True)
PLAIN = "text/plain"
OPEN = "application/openmetrics-text; version=1.0.0"


class Scrapes(Collector):
    """Counts how often the metrics are rendered."""

    def __init__(self) -> None:
        self.count = 0

    def collect(self) -> list[Metric]:
        self.count += 1
        return []


class PreparedSite:
    def __init__(self) -> None:
        self.clock, self.status, self.registry, self.scrapes = ManualClock(), Status(), CollectorRegistry(), Scrapes()
        self.registry.register(self.scrapes)
        self.gauge = Gauge("value", "A value.", registry=self.registry)
        self.pages = PreparedPages(self.registry, self.status, self.clock)
        self.scrapes.count = 0

    def tell(self, *events: Event) -> None:
        for event in events:
            self.status(event)
            self.pages(event)

    def scrape(self, accept: str = PLAIN) -> str:
        metrics = self.pages.metrics
        return (metrics.cached(accept) or metrics.current(accept))[0].decode()


def test_nothing_is_prepared_before_the_first_request() -> None:
    site = PreparedSite()
    site.tell(planned(PLAN), ROUND_ENDED)
    assert site.scrapes.count == 0
    assert (site.pages.html.cached(), site.pages.plain.cached(), site.pages.metrics.cached(PLAIN)) == (None, None, None)


def test_requested_metrics_are_prepared_at_the_end_of_each_round() -> None:
    site = PreparedSite()
    site.scrape()
    site.gauge.set(7)
    site.clock.seconds = 10
    site.tell(ROUND_ENDED)
    assert site.scrapes.count == 2
    assert "value 7.0" in site.scrape()
    assert site.scrapes.count == 2


def test_each_format_is_prepared() -> None:
    site = PreparedSite()
    assert [site.scrape(accept).endswith("# EOF\n") for accept in (PLAIN, OPEN)] == [False, True]
    site.gauge.set(7)
    site.tell(ROUND_ENDED)
    assert ["value 7.0" in site.scrape(accept) for accept in (PLAIN, OPEN)] == [True, True]
    assert site.scrapes.count == 4


#: Versions and escapings that a client can write, and the content type of what it gets.
ODD: dict[str, str] = {
    "": "text/plain; version=0.0.4",
    "application/openmetrics-text;version=abc": "text/plain; version=0.0.4",
    "application/openmetrics-text;version=1.0.0.1": "text/plain; version=0.0.4",
    "application/openmetrics-text;version=9": "text/plain; version=0.0.4",
    "application/openmetrics-text;version=1.0.0;escaping=no": "application/openmetrics-text; version=1.0.0",
    "application/openmetrics-text;version=": "application/openmetrics-text; version=1.0.0",
    "text/plain;version=x": "text/plain; version=0.0.4",
    "text/plain;version=1.0.0;escaping=allow-utf-8": "text/plain; version=1.0.0",
    f"{OPEN};q=0.5,text/plain;version=x": "application/openmetrics-text; version=1.0.0",
    "x/y;;=;,,": "text/plain; version=0.0.4",
}


@pytest.mark.parametrize("accept", ODD)
def test_versions_that_do_not_exist_get_plain_text(accept: str) -> None:
    metrics = PreparedSite().pages.metrics
    assert metrics.cached(accept) is None
    text, kind = metrics.current(accept)
    assert kind.startswith(ODD[accept])
    assert metrics.cached(accept) == (text, kind)


def test_a_client_cannot_make_rounds_render_more_formats_than_there_are() -> None:
    """Nor keep a format prepared that is not requested any more."""
    site = PreparedSite()
    for number in range(2000):
        for kind in ("application/openmetrics-text", "text/plain"):
            site.scrape(f"{kind};version={number}.1;escaping=dots")
            site.scrape(f"{kind};version=1.0.0;escaping={number}")
    assert site.scrapes.count == 4
    site.scrapes.count = 0
    site.tell(ROUND_ENDED)
    assert site.scrapes.count == 4
    site.clock.seconds = 100
    site.scrape()
    site.clock.seconds = 150
    site.scrapes.count = 0
    site.tell(ROUND_ENDED)
    assert site.scrapes.count == 1


def test_metrics_are_rendered_on_request_if_no_round_has_ended_for_long() -> None:
    site = PreparedSite()
    site.scrape()
    site.gauge.set(7)
    site.clock.seconds = PREPARED_SECONDS - 0.1
    assert "value 0.0" in site.scrape()
    site.clock.seconds = PREPARED_SECONDS
    assert "value 7.0" in site.scrape()


def test_metrics_follow_a_drain_every_second() -> None:
    site = PreparedSite()
    site.scrape()
    site.tell(DrainStarted(OD, PLAN))
    for number in range(1, 5):
        site.gauge.set(number)
        site.clock.seconds = number / 2
        site.tell(Tainted(OD))
    assert (site.scrapes.count, "value 4.0" in site.scrape()) == (3, True)
    site.clock.seconds = 9
    site.tell(ended(), ROUND_ENDED)
    site.clock.seconds = 15
    site.tell(Held(Waiting.DRAIN_DELAY, "wait"))
    assert site.scrapes.count == 5


def test_pages_that_are_no_longer_requested_are_not_prepared() -> None:
    site = PreparedSite()
    site.scrape()
    site.pages.plain.cached()
    site.clock.seconds = 121
    site.tell(planned(PLAN), ROUND_ENDED)
    assert (site.scrapes.count, site.pages.plain.cached()) == (1, None)


#: The status pages
PAGES: dict[str, Callable[[PreparedPages], object]] = {
    "html": lambda pages: pages.html.cached(),
    "json": lambda pages: pages.plain.cached(),
}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_requested_status_page_is_prepared_for_a_new_plan(page: Callable[[PreparedPages], object]) -> None:
    site = PreparedSite()
    assert page(site.pages) is None
    site.tell(LeadershipChanged(leading=True))
    assert page(site.pages) is None
    site.tell(planned(PLAN, BLOCKED))
    prepared = page(site.pages)
    assert isinstance(prepared, tuple)
    assert b"od-2" in prepared[0]


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_status_page_is_that_of_the_last_round_except_during_a_drain(page: Callable[[PreparedPages], object]) -> None:
    site = PreparedSite()
    page(site.pages)
    site.tell(planned(PLAN), ROUND_ENDED)
    prepared = page(site.pages)
    site.clock.seconds = 5
    site.tell(Held(Waiting.DRAIN_DELAY, "wait"))
    assert page(site.pages) is prepared
    site.tell(DrainStarted(OD, PLAN))
    assert page(site.pages) is None


FACTS = {"od-1": NodeFacts("od-1", False, "m5", "a", 4000, 2**34, 1000, 2**30, "2026-01-01T11:00:00Z")}
STARTED = replace(planned(PLAN, BLOCKED), facts=FACTS)

#: Boards that follow each other
BOARDS: dict[str, list[Board]] = {
    "the same planning, later": [
        Board(planned=STARTED),
        Board(planned=replace(STARTED, at=NOW + timedelta(minutes=1))),
    ],
    "another planning": [Board(planned=STARTED), Board(planned=planned(BLOCKED))],
    "other facts": [Board(planned=STARTED), Board(planned=replace(STARTED, facts={}))],
    "a cooldown": [
        Board(planned=STARTED),
        Board(planned=STARTED, observed=replace(observed("od-1"), cooling={"od-1": NOW})),
    ],
    "no plan": [Board(), Board(held=Held(Waiting.PAUSED, "paused"))],
    "the first plan": [Board(), Board(planned=STARTED)],
}


@pytest.mark.parametrize("boards", BOARDS.values(), ids=BOARDS)
def test_pages_that_reuse_the_nodes_equal_new_pages(boards: list[Board]) -> None:
    page, plain = StatusPage(), StatusJson()
    for board in boards:
        assert page.as_html(board) == StatusPage().as_html(board)
        assert json.loads(plain.as_bytes(board)) == as_json(board)
