"""Secrets as a source, from an API server with lists, watches and faults."""

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
from rescheduler.liqo.discovery.app import AGENT, SECRET, ClusterStore, DatedDescription
from rescheduler.liqo.discovery.messages import Description
from rescheduler.liqo.discovery.run import Secret, Secrets, description_of, first_read, reflector, resource
from tests.kube.conftest import HastyClock, eventually
from tests.kube.conftest import kubeconfig as server_config
from tests.kube.edge import Reply, ResetReply, ScriptedApiServer, WatchReply, serving, status
from tests.liqo_services.kubeconfigs import kubeconfig

SECRETS = resource("demo", "autoscaling=true")
INFO = {"resources": {"cpu": "8", "memory": "16Gi"}, "labels": {"country": "it", "hasGPU": "false"}, "hasNat": True}
DESCRIPTION = Description(
    kubeconfig=kubeconfig(),
    resources={"cpu": "8", "memory": "16Gi"},
    labels={"country": "it", "hasGPU": "false"},
    has_nat=True,
)


def secret(name: str, info: object = INFO, version: str = "1", **fields: bytes) -> dict[str, Any]:
    data = {"info": info if isinstance(info, bytes) else msgspec.json.encode(info), "kubeconfig": kubeconfig().encode()}
    encoded = {key: base64.b64encode(value).decode() for key, value in (data | fields).items()}
    return {"metadata": {"name": name, "namespace": "demo", "resourceVersion": version}, "data": encoded}


def page(*secrets: dict[str, Any], version: str = "10") -> Reply:
    return Reply({"metadata": {"resourceVersion": version}, "items": list(secrets)})


def event(kind: str, obj: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": obj}


def gone() -> dict[str, Any]:
    return {"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": 410, "message": "too old"}}


@pytest.fixture
def edge() -> Iterator[ScriptedApiServer]:
    with serving() as server:
        yield server


@pytest.fixture
def store() -> Iterator[ClusterStore]:
    opened = ClusterStore(":memory:")
    yield opened
    opened.close()


@pytest.fixture
def clock() -> HastyClock:
    return HastyClock()


@pytest.fixture
def client(edge: ScriptedApiServer, clock: Clock, tmp_path: Path) -> Client:
    return Client(Kubeconfig(str(server_config(tmp_path, edge.url))), clock)


@contextmanager
def watching(client: Client, clock: Clock, store: ClusterStore) -> Iterator[Secrets]:
    secrets = Secrets(store, clock, "demo")
    reflector_ = reflector(client, clock, SECRETS, secrets)
    reflector_.start()
    try:
        yield secrets
    finally:
        reflector_.stop()
        reflector_.join(60)


def becomes(store: ClusterStore, clock: Clock, expected: set[str]) -> None:
    eventually(lambda: {cluster.name for cluster in store.clusters(clock.now())} == expected, 60)


def test_secrets_are_listed_and_watched(
    edge: ScriptedApiServer, client: Client, clock: HastyClock, store: ClusterStore
) -> None:
    edge.on("GET", SECRETS.path, page(secret("one"), secret("two")))
    cheaper = INFO | {"price": 0.25, "free": {"cpu": 2}}
    edge.on_watch(
        SECRETS.path,
        WatchReply((event("ADDED", secret("three", version="11")), event("MODIFIED", secret("one", cheaper, "12")))),
        WatchReply((event("DELETED", secret("two", version="13")),), end="hang"),
    )
    with watching(client, clock, store) as secrets:
        becomes(store, clock, {"one", "three"})
        assert secrets.read
    request = store.description(SECRET, "one", clock.now())
    assert request == msgspec.structs.replace(DESCRIPTION, price=0.25, free={"cpu": "2"})
    assert store.description(SECRET, "three", clock.now()) == DESCRIPTION
    queries = [request.query for request in (*edge.seen(), *edge.seen(watch=True))]
    assert {query["labelSelector"] for query in queries} == {"autoscaling=true"}
    assert [query["resourceVersion"] for query in queries if "watch" in query] == ["10", "12"]


@pytest.mark.parametrize("end", ["close", "truncate"])
def test_an_ended_watch_is_resumed(
    edge: ScriptedApiServer, client: Client, clock: HastyClock, store: ClusterStore, end: str
) -> None:
    edge.on("GET", SECRETS.path, page(secret("one")))
    edge.on_watch(
        SECRETS.path,
        WatchReply((event("ADDED", secret("two", version="11")),), end=end),
        WatchReply((event("ADDED", secret("three", version="12")),), end="hang"),
    )
    with watching(client, clock, store):
        becomes(store, clock, {"one", "two", "three"})


def test_events_that_could_not_be_stored_are_requested_again(
    edge: ScriptedApiServer, client: Client, clock: HastyClock, store: ClusterStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [InputError("the disk is full")]

    def change(source: str, clusters: Any, *arguments: Any) -> int:
        if clusters and failures:
            raise failures.pop()
        return ClusterStore.change(store, source, clusters, *arguments)

    monkeypatch.setattr(store, "change", change)
    edge.on("GET", SECRETS.path, page())
    two = event("ADDED", secret("two", version="11"))
    edge.on_watch(SECRETS.path, WatchReply((two,), end="hang"), WatchReply((two,), end="hang"))
    with watching(client, clock, store):
        becomes(store, clock, {"two"})
    assert [request.query["resourceVersion"] for request in edge.seen(watch=True)][:2] == ["10", "10"]


def test_deletions_between_watches_are_detected_by_the_next_list(
    edge: ScriptedApiServer, client: Client, clock: HastyClock, store: ClusterStore
) -> None:
    store.change(SECRET, {"of-the-last-run": DatedDescription(DESCRIPTION)}, (), clock.now())
    store.change(AGENT, {"of-an-agent": DatedDescription(DESCRIPTION)}, (), clock.now())
    edge.on("GET", SECRETS.path, page(secret("one"), secret("two")), page(secret("one"), version="20"))
    edge.on_watch(SECRETS.path, WatchReply((gone(),)), WatchReply(end="hang"))
    with watching(client, clock, store):
        becomes(store, clock, {"one", "of-an-agent"})


def test_failures_of_the_api_server_remove_no_clusters(
    edge: ScriptedApiServer, client: Client, clock: HastyClock, store: ClusterStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.change(SECRET, {"of-the-last-run": DatedDescription(DESCRIPTION)}, (), clock.now())
    edge.on("GET", SECRETS.path, *[status(500, "etcd is away")] * 4, ResetReply(), page(secret("one")))
    with caplog.at_level(logging.WARNING, logger="rescheduler"), watching(client, clock, store) as secrets:
        eventually(lambda: "etcd is away" in caplog.text, 60)
        becomes(store, clock, {"one"})
        eventually(lambda: "are read again" in caplog.text, 60)
        assert secrets.read


def test_an_invalid_secret_is_skipped_and_logged(
    edge: ScriptedApiServer, client: Client, clock: HastyClock, store: ClusterStore, caplog: pytest.LogCaptureFixture
) -> None:
    undecodable = secret("coded") | {"data": {"info": "&"}}
    edge.on("GET", SECRETS.path, page(secret("one"), secret("two", b"{"), undecodable))
    edge.on_watch(SECRETS.path, WatchReply((event("MODIFIED", secret("one", {"labels": {}}, "11")),), end="hang"))
    with caplog.at_level(logging.WARNING, logger="rescheduler"), watching(client, clock, store) as secrets:
        eventually(lambda: secrets.unreadable.keys() == {"one", "two", "coded"}, 60)
        becomes(store, clock, set())
    assert "Secret demo/one is ignored: info: Object missing required field `resources`" in caplog.text
    assert "Secret demo/two is ignored: info: Input data was truncated" in caplog.text
    assert "sesame" not in caplog.text


def test_the_first_list_reports_permanent_errors(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", SECRETS.path, status(403, "secrets is forbidden"), status(500, "away"), page())
    with pytest.raises(Forbidden):
        first_read(client, SECRETS)
    first_read(client, SECRETS)
    first_read(client, SECRETS)


def _decoded(obj: dict[str, Any]) -> Secret:
    return msgspec.convert(obj, Secret)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no info": (
        {"metadata": {"name": "one"}},
        "info: expected JSON with resources, labels and hasNat under this key",
    ),
    "another name": (
        secret("my.cluster"),
        "name 'my.cluster': expected a cluster ID: at most 63 of a-z, 0-9 and -",
    ),
    "not UTF-8": (secret("one", b"\xff"), "info: "),
    "deep nesting": (
        secret("one", b'{"resources": {}, "x": ' + b"[" * 100_000),
        "info: maximum recursion depth exceeded",
    ),
    "a kubeconfig that is not UTF-8": (secret("one", kubeconfig=b"\xff"), "kubeconfig: expected UTF-8"),
    "amounts": (
        secret("one", INFO | {"resources": {"cpu": []}}),
        "info: Expected `int | float | str`, got `array` - at `$.resources[...]`",
    ),
    "a price": (secret("one", INFO | {"price": -1}), "price: expected 0 to 1e+09, got -1.0"),
}


@pytest.mark.parametrize("fact", WRONG)
def test_errors_name_the_key(fact: str) -> None:
    obj, message = WRONG[fact]
    with pytest.raises(UsageError) as caught:
        description_of(_decoded(obj))
    assert str(caught.value).startswith(message)


def test_a_secret_without_a_kubeconfig_describes_a_peered_cluster() -> None:
    assert description_of(_decoded(secret("one", kubeconfig=b""))).kubeconfig is None


def test_an_invalid_namespace_is_a_usage_error() -> None:
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
def test_valid_selectors_are_those_of_the_api_server(selector: str) -> None:
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
def test_an_invalid_selector_is_a_usage_error(selector: str) -> None:
    with pytest.raises(UsageError, match=r"--secret-selector '.*': expected a label selector as for kubectl, such as "):
        resource("demo", selector)
