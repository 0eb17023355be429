"""Secrets as a source, from an API server that lists, watches and misbehaves."""

import base64
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rescheduler.clock import Clock
from rescheduler.errors import Forbidden, InputError, UsageError
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from rescheduler.liqo.discovery.messages import Said
from rescheduler.liqo.discovery.secrets import Secret, Secrets, first_look, reflector, resource, said
from rescheduler.liqo.discovery.store import AGENT, SECRET, Store, Word
from tests.kube.conftest import HastyClock, eventually
from tests.kube.conftest import kubeconfig as server_config
from tests.kube.edge import Edge, Events, Reply, Reset, serving, status
from tests.liqo.kubeconfigs import kubeconfig

SECRETS = resource("demo", "autoscaling=true")
INFO = {"resources": {"cpu": "8", "memory": "16Gi"}, "labels": {"country": "it", "hasGPU": "false"}, "hasNat": True}
SAID = Said(
    kubeconfig=kubeconfig(),
    resources={"cpu": "8", "memory": "16Gi"},
    labels={"country": "it", "hasGPU": "false"},
    has_nat=True,
)


def secret(name: str, info: object = INFO, version: str = "1", **more: bytes) -> dict[str, Any]:
    data = {"info": info if isinstance(info, bytes) else msgspec.json.encode(info), "kubeconfig": kubeconfig().encode()}
    encoded = {key: base64.b64encode(value).decode() for key, value in (data | more).items()}
    return {"metadata": {"name": name, "namespace": "demo", "resourceVersion": version}, "data": encoded}


def page(*secrets: dict[str, Any], version: str = "10") -> Reply:
    return Reply({"metadata": {"resourceVersion": version}, "items": list(secrets)})


def event(kind: str, found: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": found}


def gone() -> dict[str, Any]:
    return {"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": 410, "message": "too old"}}


@pytest.fixture
def edge() -> Iterator[Edge]:
    with serving() as one:
        yield one


@pytest.fixture
def store() -> Iterator[Store]:
    one = Store(":memory:")
    yield one
    one.close()


@pytest.fixture
def clock() -> HastyClock:
    return HastyClock()


@pytest.fixture
def client(edge: Edge, clock: Clock, tmp_path: Path) -> Client:
    return Client(Kubeconfig(str(server_config(tmp_path, edge.url))), clock)


@contextmanager
def watching(client: Client, clock: Clock, store: Store) -> Iterator[Secrets]:
    secrets = Secrets(store, clock, "demo")
    one = reflector(client, clock, SECRETS, secrets)
    one.start()
    try:
        yield secrets
    finally:
        one.stop()
        one.join(60)


def becomes(store: Store, clock: Clock, expected: set[str]) -> None:
    eventually(lambda: {one.name for one in store.clusters(clock.now())} == expected, 60)


def test_what_secrets_say_is_listed_and_followed(edge: Edge, client: Client, clock: HastyClock, store: Store) -> None:
    edge.on("GET", SECRETS.path, page(secret("one"), secret("two")))
    cheaper = INFO | {"price": 0.25, "free": {"cpu": 2}}
    edge.on_watch(
        SECRETS.path,
        Events((event("ADDED", secret("three", version="11")), event("MODIFIED", secret("one", cheaper, "12")))),
        Events((event("DELETED", secret("two", version="13")),), end="hang"),
    )
    with watching(client, clock, store) as secrets:
        becomes(store, clock, {"one", "three"})
        assert secrets.read
    one = store.said(SECRET, "one", clock.now())
    assert one == msgspec.structs.replace(SAID, price=0.25, free={"cpu": "2"})
    assert store.said(SECRET, "three", clock.now()) == SAID
    queries = [one.query for one in (*edge.seen(), *edge.seen(watch=True))]
    assert {query["labelSelector"] for query in queries} == {"autoscaling=true"}
    assert [query["resourceVersion"] for query in queries if "watch" in query] == ["10", "12"]


@pytest.mark.parametrize("end", ["close", "truncate"])
def test_a_watch_that_ends_is_taken_up_again(
    edge: Edge, client: Client, clock: HastyClock, store: Store, end: str
) -> None:
    edge.on("GET", SECRETS.path, page(secret("one")))
    edge.on_watch(
        SECRETS.path,
        Events((event("ADDED", secret("two", version="11")),), end=end),
        Events((event("ADDED", secret("three", version="12")),), end="hang"),
    )
    with watching(client, clock, store):
        becomes(store, clock, {"one", "two", "three"})


def test_what_the_database_could_not_take_is_asked_for_again(
    edge: Edge, client: Client, clock: HastyClock, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [InputError("the disk is full")]

    def change(source: str, words: Any, *more: Any) -> int:
        if words and failures:
            raise failures.pop()
        return Store.change(store, source, words, *more)

    monkeypatch.setattr(store, "change", change)
    edge.on("GET", SECRETS.path, page())
    two = event("ADDED", secret("two", version="11"))
    edge.on_watch(SECRETS.path, Events((two,), end="hang"), Events((two,), end="hang"))
    with watching(client, clock, store):
        becomes(store, clock, {"two"})
    assert [one.query["resourceVersion"] for one in edge.seen(watch=True)][:2] == ["10", "10"]


def test_what_went_while_nobody_watched_goes_with_the_next_list(
    edge: Edge, client: Client, clock: HastyClock, store: Store
) -> None:
    store.change(SECRET, {"of-the-last-run": Word(SAID)}, (), clock.now())
    store.change(AGENT, {"of-an-agent": Word(SAID)}, (), clock.now())
    edge.on("GET", SECRETS.path, page(secret("one"), secret("two")), page(secret("one"), version="20"))
    edge.on_watch(SECRETS.path, Events((gone(),)), Events(end="hang"))
    with watching(client, clock, store):
        becomes(store, clock, {"one", "of-an-agent"})


def test_an_api_server_that_fails_takes_nothing_away(
    edge: Edge, client: Client, clock: HastyClock, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.change(SECRET, {"of-the-last-run": Word(SAID)}, (), clock.now())
    edge.on("GET", SECRETS.path, *[status(500, "etcd is away")] * 4, Reset(), page(secret("one")))
    with caplog.at_level(logging.WARNING, logger="rescheduler"), watching(client, clock, store) as secrets:
        eventually(lambda: "etcd is away" in caplog.text, 60)
        becomes(store, clock, {"one"})
        eventually(lambda: "are read again" in caplog.text, 60)
        assert secrets.read


def test_a_secret_that_says_nothing_of_use_is_left_out_and_told(
    edge: Edge, client: Client, clock: HastyClock, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    undecodable = secret("coded") | {"data": {"info": "&"}}
    edge.on("GET", SECRETS.path, page(secret("one"), secret("two", b"{"), undecodable))
    edge.on_watch(SECRETS.path, Events((event("MODIFIED", secret("one", {"labels": {}}, "11")),), end="hang"))
    with caplog.at_level(logging.WARNING, logger="rescheduler"), watching(client, clock, store) as secrets:
        eventually(lambda: secrets.unreadable.keys() == {"one", "two", "coded"}, 60)
        becomes(store, clock, set())
    assert "Secret demo/one is left out: info: Object missing required field `resources`" in caplog.text
    assert "Secret demo/two is left out: info: Input data was truncated" in caplog.text
    assert "sesame" not in caplog.text


def test_a_first_look_tells_what_is_wrong_for_good(edge: Edge, client: Client) -> None:
    edge.on("GET", SECRETS.path, status(403, "secrets is forbidden"), status(500, "away"), page())
    with pytest.raises(Forbidden):
        first_look(client, SECRETS)
    first_look(client, SECRETS)
    first_look(client, SECRETS)


def _decoded(found: dict[str, Any]) -> Secret:
    return msgspec.convert(found, Secret)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no info": (
        {"metadata": {"name": "one"}},
        "info: expected JSON with resources, labels and hasNat under this key",
    ),
    "another name": (
        secret("my.cluster"),
        "name 'my.cluster': expected a cluster ID: at most 63 of a-z, 0-9 and -",
    ),
    "no bytes of UTF-8": (secret("one", b"\xff"), "info: "),
    "depth": (secret("one", b'{"resources": {}, "x": ' + b"[" * 100_000), "info: maximum recursion depth exceeded"),
    "a kubeconfig in another code": (secret("one", kubeconfig=b"\xff"), "kubeconfig: expected UTF-8"),
    "amounts": (
        secret("one", INFO | {"resources": {"cpu": []}}),
        "info: Expected `int | float | str`, got `array` - at `$.resources[...]`",
    ),
    "a price": (secret("one", INFO | {"price": -1}), "price: expected 0 to 1e+09, got -1.0"),
}


@pytest.mark.parametrize("fact", WRONG)
def test_what_is_wrong_names_the_key(fact: str) -> None:
    found, message = WRONG[fact]
    with pytest.raises(UsageError) as told:
        said(_decoded(found))
    assert str(told.value).startswith(message)


def test_a_secret_without_a_kubeconfig_describes_a_cluster_that_is_peered_with_already() -> None:
    assert said(_decoded(secret("one", kubeconfig=b""))).kubeconfig is None


def test_a_namespace_that_is_none_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="--namespace 'a/b': expected the name of a namespace"):
        resource("a/b", "")


@pytest.mark.parametrize(
    "selector",
    [
        "",
        "autoscaling",
        "!autoscaling",
        "autoscaling=true",
        "a in ()",
        " a == b , c!= , d in(e,,f) , g notin ( h ) , ! i ",
        "example.com/prefix=",
        "in=notin",
        "size>5,size < 10",
    ],
)
def test_a_selector_is_what_the_api_server_takes_for_one(selector: str) -> None:
    assert resource("demo", selector).selector == selector


@pytest.mark.parametrize(
    "selector",
    [
        "a b",
        "a=b c",
        "a=b,",
        ",a=b",
        "a==b==c",
        "a in (b",
        "a in b",
        "ain (b)",
        "(a)",
        "a=-b",
        "a>x",
        "a>-5",
        "A/b=c",
        "a..b/c=d",
        "/a=b",
        "é=a",
        "a" * 64,
    ],
)
def test_a_selector_that_is_none_is_wrong_use(selector: str) -> None:
    with pytest.raises(UsageError, match=r"--secret-selector '.*': expected labels as kubectl takes them, such as "):
        resource("demo", selector)
