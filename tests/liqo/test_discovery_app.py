"""The routes of discovery over mutual TLS: what is listed, who may say what, and what is refused."""

import contextlib
import datetime as dt
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rescheduler.backends.config import Endpoint
from rescheduler.clock import SystemClock
from rescheduler.errors import ReschedulerError
from rescheduler.liqo.discovery.app import Access, Updates, discovery
from rescheduler.liqo.discovery.messages import Said
from rescheduler.liqo.discovery.store import SECRET, Store, Word
from rescheduler.liqo.nodemanager import catalog
from rescheduler.liqo.serving import Face, serving
from rescheduler.settings import Address
from tests.backends.clocks import StepClock
from tests.liqo.kubeconfigs import kubeconfig

TURIN = {"name": "turin", "resources": {"cpu": 4, "nvidia.com/gpu": "0"}, "labels": {"country": "it"}, "hasNat": True}
LISTED = {
    "name": "turin",
    "kubeconfig": "",
    "resources": {"cpu": "4", "nvidia.com/gpu": "0"},
    "labels": {"country": "it"},
    "hasNat": True,
    "price": None,
    "free": None,
    "lastSeen": "2024-05-01T12:00:00Z",
}

MakeDiscovery = Callable[..., "Discovery"]


class Discovery:
    """A discovery of its own, and its client, whose certificate bears the name *client*."""

    def __init__(self, store: Store, clock: StepClock, http: httpx.Client) -> None:
        self.store, self.clock, self.http = store, clock, http

    def list(self) -> Any:
        answer = self.http.get("/list")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        return answer.json()

    def update(self, *clusters: dict[str, Any], deleted: tuple[str, ...] = ()) -> httpx.Response:
        return self.http.post("/update", json={"clusters": clusters, "deleted": deleted})


@pytest.fixture
def make(pems: Path) -> Iterator[MakeDiscovery]:
    with contextlib.ExitStack() as stack:

        def making(*, readers: tuple[str, ...] = (), updaters: tuple[str, ...] = ()) -> Discovery:
            store, clock = Store(":memory:"), StepClock()
            stack.callback(store.close)
            access = Access(frozenset(readers), frozenset(updaters))
            app = discovery(store, Updates(store, clock, dt.timedelta(minutes=5)), access, clock)
            face = Face(Address("127.0.0.1", 0), pems / "server.crt", pems / "server.key", pems / "ca.pem")
            address = stack.enter_context(serving(app, face, "discovery"))
            context = ssl.create_default_context(cafile=pems / "ca.pem")
            context.load_cert_chain(pems / "client.pem")
            http = stack.enter_context(httpx.Client(base_url=f"https://{address}", verify=context, timeout=60))
            return Discovery(store, clock, http)

        yield making


def test_the_list_is_an_array_also_when_it_is_empty(make: MakeDiscovery) -> None:
    one = make()
    answer = one.http.get("/list")
    assert (answer.status_code, answer.content, answer.headers["cache-control"]) == (200, b"[]", "no-store")


def test_what_an_agent_says_is_listed_until_it_expires(make: MakeDiscovery) -> None:
    one = make()
    assert one.update(TURIN).json() == {"updated": 1, "deleted": 0}
    assert one.list() == [LISTED]
    one.clock.advance(299)
    assert one.list() == [LISTED]
    one.clock.advance(1)
    assert one.list() == []


def test_a_refusal_is_told_by_the_node_manager_in_discoverys_words(make: MakeDiscovery, pems: Path) -> None:
    endpoint = Endpoint(
        url=str(make(readers=("somebody else",)).http.base_url),
        ca_file=str(pems / "ca.pem"),
        client_cert_file=str(pems / "client.pem"),
        client_key_file=str(pems / "client.key"),
    )
    with (
        contextlib.closing(catalog.Discovery(endpoint, SystemClock())) as asking,
        pytest.raises(ReschedulerError, match=r"^discovery: GET /list: 403 Forbidden: client may not list clusters$"),
    ):
        asking.clusters()


def test_an_update_says_for_how_long_it_holds(make: MakeDiscovery) -> None:
    one = make()
    one.update(TURIN | {"ttl": "1h30m"})
    one.clock.advance(5399)
    assert [each["name"] for each in one.list()] == ["turin"]
    one.clock.advance(1)
    assert one.list() == []


def test_what_an_update_leaves_out_stays_and_null_is_not_known(make: MakeDiscovery) -> None:
    one = make()
    one.update(TURIN | {"kubeconfig": kubeconfig(), "price": 2, "free": {"cpu": "3"}})
    one.update({"name": "turin", "price": 1.5, "free": None})
    assert one.list() == [LISTED | {"kubeconfig": kubeconfig(), "price": 1.5}]
    one.clock.advance(300)
    one.update({"name": "turin", "price": 1})
    assert one.list() == [
        LISTED | {"resources": {}, "labels": {}, "hasNat": False, "price": 1.0, "lastSeen": "2024-05-01T12:05:00Z"}
    ]


def test_an_agent_adds_to_what_a_secret_says(make: MakeDiscovery) -> None:
    one = make()
    one.store.change(SECRET, {"turin": Word(Said(kubeconfig="k", resources={"cpu": "4"}))}, (), one.clock.now())
    one.update({"name": "turin", "price": 0.5})
    found = one.list()
    assert [(each["kubeconfig"], each["resources"], each["price"]) for each in found] == [("k", {"cpu": "4"}, 0.5)]
    assert one.update(deleted=("turin",)).json() == {"updated": 0, "deleted": 1}
    assert [(each["kubeconfig"], each["price"]) for each in one.list()] == [("k", None)]


def test_a_cluster_that_withdraws_is_gone_at_once(make: MakeDiscovery) -> None:
    one = make()
    one.update(TURIN, TURIN | {"name": "milan"})
    assert one.update(TURIN | {"name": "rome"}, deleted=("turin", "unknown")).json() == {"updated": 1, "deleted": 1}
    assert [each["name"] for each in one.list()] == ["milan", "rome"]


def test_only_readers_see_the_list(make: MakeDiscovery) -> None:
    refused = make(readers=("node-manager",)).http.get("/list")
    assert (refused.status_code, refused.json()) == (403, {"error": "client may not list clusters"})
    assert make(readers=("node-manager", "client")).list() == []


def test_whoever_is_no_updater_speaks_of_its_own_cluster_only(make: MakeDiscovery) -> None:
    one = make(updaters=("operator",))
    refused = one.update(TURIN | {"name": "client"}, TURIN)
    assert (refused.status_code, refused.json()) == (403, {"error": "client may not update cluster turin"})
    assert one.update(deleted=("turin",)).status_code == 403
    assert one.list() == []
    assert one.update(TURIN | {"name": "client"}).is_success
    assert [each["name"] for each in one.list()] == ["client"]
    assert make(updaters=("client",)).update(TURIN).is_success


WRONG: dict[str, tuple[Any, str]] = {
    "no object": ([], "body: Expected `object`, got `array`"),
    "an unknown key": ({"cluster": []}, "body: Object contains unknown field `cluster`"),
    "no name": ({"clusters": [{}]}, "body: Object missing required field `name` - at `$.clusters[0]`"),
    "a name": (
        {"clusters": [{"name": "A"}]},
        "name 'A': expected a cluster ID: at most 63 of a-z, 0-9 and -",
    ),
    "an amount": (
        {"clusters": [TURIN | {"resources": {"cpu": "x"}}]},
        "cluster turin: resources.cpu: quantity 'x': expected a number such as 250m, 1.5Gi or 1e3",
    ),
    "a ttl": (
        {"clusters": [TURIN | {"ttl": 5}]},
        'body: expected a duration such as "90s" or "1m35s", got 5 - at `$.clusters[0].ttl`',
    ),
    "no ttl at all": ({"clusters": [TURIN | {"ttl": "0s"}]}, "cluster turin: ttl: expected more than 0s"),
    "a price": ({"clusters": [TURIN | {"price": -1}]}, "cluster turin: price: expected 0 to 1e+09, got -1.0"),
    "a kubeconfig": (
        {"clusters": [TURIN | {"kubeconfig": kubeconfig(user={"exec": {"command": "sh"}})}]},
        "cluster turin: kubeconfig.users[0].user.exec: this field is not allowed",
    ),
    "a cluster twice": (
        {"clusters": [TURIN], "deleted": ["turin"]},
        "clusters, deleted: expected each cluster once, and at most 1000",
    ),
}


@pytest.mark.parametrize("fact", WRONG)
def test_what_is_wrong_is_one_line_and_changes_nothing(make: MakeDiscovery, fact: str) -> None:
    body, message = WRONG[fact]
    one = make()
    refused = one.http.post("/update", json=body)
    assert (refused.status_code, refused.json()) == (400, {"error": message})
    assert one.list() == []


def test_an_update_is_taken_as_a_whole_or_not_at_all(make: MakeDiscovery) -> None:
    one = make()
    one.update(TURIN)
    assert one.update(TURIN | {"name": "milan"}, {"name": "rome", "price": -1}, deleted=("turin",)).status_code == 400
    assert [each["name"] for each in one.list()] == ["turin"]


def test_what_is_no_json_is_refused(make: MakeDiscovery) -> None:
    refused = make().http.post("/update", content=b"\xff{")
    assert refused.status_code == 400
    assert refused.json()["error"].startswith("body: ")


def test_other_methods_and_paths_are_refused(make: MakeDiscovery) -> None:
    http = make().http
    assert [http.get("/update").status_code, http.post("/list").status_code, http.get("/").status_code] == [
        405,
        405,
        404,
    ]
