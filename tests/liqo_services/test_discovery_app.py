"""Discovery's routes over mutual TLS: the list, authorization, and rejected requests."""

import contextlib
import datetime as dt
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rescheduler.clock import SystemClock
from rescheduler.errors import ReschedulerError
from rescheduler.liqo.discovery.app import SECRET, AgentUpdates, ClientAccess, ClusterStore, DatedDescription, discovery
from rescheduler.liqo.discovery.messages import Description
from rescheduler.liqo.node_manager import catalog
from rescheduler.liqo.serving import HttpsListener, serving
from rescheduler.net.config_files import Endpoint
from rescheduler.settings import ListenAddress
from tests.liqo_services.kubeconfigs import kubeconfig
from tests.providers.clocks import StepClock

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
    """A discovery service, and a client whose certificate has the name *client*."""

    def __init__(self, store: ClusterStore, clock: StepClock, http: httpx2.Client) -> None:
        self.store, self.clock, self.http = store, clock, http

    def list(self) -> Any:
        response = self.http.get("/list")
        assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
        return response.json()

    def update(self, *clusters: dict[str, Any], deleted: tuple[str, ...] = ()) -> httpx2.Response:
        return self.http.post("/update", json={"clusters": clusters, "deleted": deleted})


@pytest.fixture
def make(pems: Path) -> Iterator[MakeDiscovery]:
    with contextlib.ExitStack() as stack:

        def making(*, readers: tuple[str, ...] = (), updaters: tuple[str, ...] = ()) -> Discovery:
            store, clock = ClusterStore(":memory:"), StepClock()
            stack.callback(store.close)
            access = ClientAccess(frozenset(readers), frozenset(updaters))
            app = discovery(store, AgentUpdates(store, clock, dt.timedelta(minutes=5)), access, clock)
            listener = HttpsListener(
                ListenAddress("127.0.0.1", 0), pems / "server.crt", pems / "server.key", pems / "ca.pem"
            )
            address = stack.enter_context(serving(app, listener, "discovery"))
            context = ssl.create_default_context(cafile=pems / "ca.pem")
            context.load_cert_chain(pems / "client.pem")
            http = stack.enter_context(httpx2.Client(base_url=f"https://{address}", verify=context, timeout=60))
            return Discovery(store, clock, http)

        yield making


def test_an_empty_list_is_an_array(make: MakeDiscovery) -> None:
    service = make()
    response = service.http.get("/list")
    assert (response.status_code, response.content, response.headers["cache-control"]) == (200, b"[]", "no-store")


def test_an_agents_update_is_listed_until_it_expires(make: MakeDiscovery) -> None:
    service = make()
    assert service.update(TURIN).json() == {"updated": 1, "deleted": 0}
    assert service.list() == [LISTED]
    service.clock.advance(299)
    assert service.list() == [LISTED]
    service.clock.advance(1)
    assert service.list() == []


def test_the_node_manager_reports_discoverys_error_message(make: MakeDiscovery, pems: Path) -> None:
    endpoint = Endpoint(
        url=str(make(readers=("somebody else",)).http.base_url),
        ca_file=str(pems / "ca.pem"),
        client_cert_file=str(pems / "client.pem"),
        client_key_file=str(pems / "client.key"),
    )
    with (
        contextlib.closing(catalog.DiscoveryClient(endpoint, SystemClock())) as asking,
        pytest.raises(ReschedulerError, match=r"^discovery: GET /list: 403 Forbidden: client may not list clusters$"),
    ):
        asking.clusters()


def test_an_update_sets_its_ttl(make: MakeDiscovery) -> None:
    service = make()
    service.update(TURIN | {"ttl": "1h30m"})
    service.clock.advance(5399)
    assert [each["name"] for each in service.list()] == ["turin"]
    service.clock.advance(1)
    assert service.list() == []


def test_omitted_fields_are_kept_and_null_means_unknown(make: MakeDiscovery) -> None:
    service = make()
    service.update(TURIN | {"kubeconfig": kubeconfig(), "price": 2, "free": {"cpu": "3"}})
    service.update({"name": "turin", "price": 1.5, "free": None})
    assert service.list() == [LISTED | {"kubeconfig": kubeconfig(), "price": 1.5}]
    service.clock.advance(300)
    service.update({"name": "turin", "price": 1})
    assert service.list() == [
        LISTED | {"resources": {}, "labels": {}, "hasNat": False, "price": 1.0, "lastSeen": "2024-05-01T12:05:00Z"}
    ]


def test_an_agents_update_is_merged_with_a_secret(make: MakeDiscovery) -> None:
    service = make()
    service.store.change(
        SECRET,
        {"turin": DatedDescription(Description(kubeconfig="k", resources={"cpu": "4"}))},
        (),
        service.clock.now(),
    )
    service.update({"name": "turin", "price": 0.5})
    listed = service.list()
    assert [(each["kubeconfig"], each["resources"], each["price"]) for each in listed] == [("k", {"cpu": "4"}, 0.5)]
    assert service.update(deleted=("turin",)).json() == {"updated": 0, "deleted": 1}
    assert [(each["kubeconfig"], each["price"]) for each in service.list()] == [("k", None)]


def test_a_deleted_cluster_is_removed_at_once(make: MakeDiscovery) -> None:
    service = make()
    service.update(TURIN, TURIN | {"name": "milan"})
    assert service.update(TURIN | {"name": "rome"}, deleted=("turin", "unknown")).json() == {"updated": 1, "deleted": 1}
    assert [each["name"] for each in service.list()] == ["milan", "rome"]


def test_only_readers_see_the_list(make: MakeDiscovery) -> None:
    refused = make(readers=("node-manager",)).http.get("/list")
    assert (refused.status_code, refused.json()) == (403, {"error": "client may not list clusters"})
    assert make(readers=("node-manager", "client")).list() == []


def test_other_clients_may_update_only_their_own_cluster(make: MakeDiscovery) -> None:
    service = make(updaters=("operator",))
    refused = service.update(TURIN | {"name": "client"}, TURIN)
    assert (refused.status_code, refused.json()) == (403, {"error": "client may not update cluster turin"})
    assert service.update(deleted=("turin",)).status_code == 403
    assert service.list() == []
    assert service.update(TURIN | {"name": "client"}).is_success
    assert [each["name"] for each in service.list()] == ["client"]
    assert make(updaters=("client",)).update(TURIN).is_success


WRONG: dict[str, tuple[Any, str]] = {
    "not an object": ([], "body: Expected `object`, got `array`"),
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
    "a ttl of zero": ({"clusters": [TURIN | {"ttl": "0s"}]}, "cluster turin: ttl: expected more than 0s"),
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
def test_invalid_updates_give_one_line_and_have_no_effect(make: MakeDiscovery, fact: str) -> None:
    body, message = WRONG[fact]
    service = make()
    refused = service.http.post("/update", json=body)
    assert (refused.status_code, refused.json()) == (400, {"error": message})
    assert service.list() == []


def test_updates_are_atomic(make: MakeDiscovery) -> None:
    service = make()
    service.update(TURIN)
    assert (
        service.update(TURIN | {"name": "milan"}, {"name": "rome", "price": -1}, deleted=("turin",)).status_code == 400
    )
    assert [each["name"] for each in service.list()] == ["turin"]


def test_invalid_json_is_rejected(make: MakeDiscovery) -> None:
    refused = make().http.post("/update", content=b"\xff{", headers={"content-type": "application/json"})
    assert refused.status_code == 400
    assert refused.json()["error"].startswith("body: ")


def test_other_methods_and_paths_are_rejected(make: MakeDiscovery) -> None:
    http = make().http
    assert [http.get("/update").status_code, http.post("/list").status_code, http.get("/").status_code] == [
        405,
        405,
        404,
    ]
