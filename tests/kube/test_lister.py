"""Lists of many pages: when pages are requested, and how many are kept."""

import functools
import threading
from collections.abc import Iterator

import pytest

from predicates.snapshot import key_of
from predicates.wire import Interner
from rescheduler.errors import Expired, Forbidden, Retryable
from rescheduler.kube.client import Client
from rescheduler.kube.codec import JsonCodec, ListPage, RawPage
from rescheduler.kube.lister import Lister, Listing, Resource, list_patiently
from tests.kube.conftest import HastyClock, eventually
from tests.kube.edge import Reply, ScriptedApiServer, Step, status

NAMESPACES = Resource("Namespace", "/api/v1/namespaces")
PATH = NAMESPACES.path


def page(name: str, following: str = "") -> Reply:
    meta = {"resourceVersion": "10"} | ({"continue": following} if following else {})
    return Reply({"metadata": meta, "items": [{"metadata": {"name": name}}]})


class ObservedCodec(JsonCodec):
    """A decoder that calls *before* before it decodes the objects of a page."""

    def __init__(self, before: Iterator[None]) -> None:
        super().__init__("Namespace", Interner())
        self._before = before

    def decoded(self, page: RawPage) -> ListPage:
        next(self._before)
        return super().decoded(page)


def lister(client: Client, clock: HastyClock, codec: JsonCodec | None = None) -> Lister:
    codec = codec or JsonCodec("Namespace", Interner())
    return Lister(NAMESPACES, client, codec, clock, page_size=1)


def names(listing: Listing) -> list[str]:
    return [key_of(item) for item in listing.objects]


def _requested(edge: ScriptedApiServer, requests: int) -> bool:
    return len(edge.requests) == requests


def test_one_page_is_requested_before_the_page_before_it_is_decoded(
    edge: ScriptedApiServer, client: Client, clock: HastyClock
) -> None:
    def expectations() -> Iterator[None]:
        for requests in (2, 3, 4, 4):
            eventually(functools.partial(_requested, edge, requests))
            yield

    edge.on("GET", PATH, page("a", "1"), page("b", "2"), page("c", "3"), page("d"))
    listing = lister(client, clock, ObservedCodec(expectations())).list()
    assert names(listing) == ["a", "b", "c", "d"]
    assert [request.query.get("continue") for request in edge.requests] == [None, "1", "2", "3"]


def test_no_more_than_one_page_is_requested_ahead(edge: ScriptedApiServer, client: Client, clock: HastyClock) -> None:
    decoding, counted = threading.Event(), threading.Event()

    def wait() -> Iterator[None]:
        decoding.set()
        assert counted.wait(60)
        while True:
            yield

    edge.on("GET", PATH, page("a", "1"), page("b", "2"), page("c", "3"), page("d"))
    reader = lister(client, clock, ObservedCodec(wait()))
    listings: list[Listing] = []
    thread = threading.Thread(target=lambda: listings.append(reader.list()))
    thread.start()
    assert decoding.wait(60)
    eventually(lambda: len(edge.requests) == 2)
    assert not counted.wait(0.2), "the test sets it"
    assert len(edge.requests) == 2
    counted.set()
    thread.join(60)
    assert [names(listing) for listing in listings] == [["a", "b", "c", "d"]]


FAILURES: dict[str, tuple[tuple[Step, ...], list[str | None]]] = {
    "a page requested ahead that fails": (
        (page("a", "1"), status(500), page("b", "2"), page("c")),
        [None, "1", "1", "2"],
    ),
    "a page requested ahead that is cut off": (
        (page("a", "1"), Reply(b'{"metadata": {}, "items": [{"met'), page("b", "2"), page("c")),
        [None, "1", "1", "2"],
    ),
    "a continue token that expires twice": (
        (page("x", "1"), status(410), page("y", "2"), status(410), page("a", "3"), page("b", "4"), page("c")),
        [None, "1", None, "2", None, "3", "4"],
    ),
}


@pytest.mark.parametrize(("steps", "requested"), FAILURES.values(), ids=FAILURES)
def test_a_failed_page_that_was_requested_ahead_is_requested_again(
    edge: ScriptedApiServer,
    client: Client,
    clock: HastyClock,
    steps: tuple[Step, ...],
    requested: list[str | None],
) -> None:
    edge.on("GET", PATH, *steps)
    assert names(list_patiently(lister(client, clock), clock)) == ["a", "b", "c"]
    assert [request.query.get("continue") for request in edge.requests] == requested


ERRORS: dict[str, tuple[tuple[Step, ...], type[Exception], int]] = {
    "forbidden": ((page("a", "1"), status(403, "no")), Forbidden, 2),
    "always fails": ((page("a", "1"), status(500, "no")), Retryable, 5),
    "always expires": ((page("a", "1"), status(410, "no")) * 3, Expired, 6),
}


@pytest.mark.parametrize(("steps", "error", "requests"), ERRORS.values(), ids=ERRORS)
def test_the_error_of_a_page_that_is_requested_ahead_is_raised(
    edge: ScriptedApiServer,
    client: Client,
    clock: HastyClock,
    steps: tuple[Step, ...],
    error: type[Exception],
    requests: int,
) -> None:
    edge.on("GET", PATH, *steps)
    with pytest.raises(error, match="list namespaces: no"):
        list_patiently(lister(client, clock), clock)
    assert len(edge.requests) == requests


def test_a_list_continues_with_the_page_that_failed(edge: ScriptedApiServer, client: Client, clock: HastyClock) -> None:
    edge.on("GET", PATH, page("a", "1"), status(500, "no"), page("b"), page("c"))
    reader = lister(client, clock)
    with pytest.raises(Retryable, match="list namespaces: no"):
        reader.list()
    assert names(reader.list()) == ["a", "b"]
    assert names(reader.list()) == ["c"]
    assert [request.query.get("continue") for request in edge.requests] == [None, "1", "1", None]
