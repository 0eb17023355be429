"""Watches through the proxy, with and without faults, on the real API server."""

import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from devcluster.api import Json
from devcluster.faults.frames import whole_frames
from devcluster.faults.injected import ChangedEvents, HalfBody, InjectedFault, Reset, SilentWatch, WatchError
from devcluster.faults.proxy import FaultProxy, before_api_server, redirected
from devcluster.faults.rules import FaultRule
from devcluster.plane import ControlPlane
from predicates.wire import Interner
from rescheduler.clock import SystemClock
from rescheduler.errors import Expired
from rescheduler.kube.client import Client
from rescheduler.kube.codec import JsonCodec
from rescheduler.kube.connection import source

pytestmark = pytest.mark.cluster

RANGES = "/api/v1/namespaces/default/limitranges"
WATCH = "watch limitranges by metadata.namespace"
NAMES = ("a", "b", "c", "d")


@pytest.fixture
def proxy(cluster: ControlPlane) -> Iterator[FaultProxy]:
    with before_api_server(cluster) as fault_proxy:
        yield fault_proxy


@pytest.fixture
def client(cluster: ControlPlane, proxy: FaultProxy) -> Iterator[httpx2.Client]:
    trusted = ssl.create_default_context(cafile=cluster.ca)
    headers = {"authorization": f"Bearer {cluster.token}"}
    with httpx2.Client(base_url=proxy.url, verify=trusted, headers=headers, timeout=60, trust_env=False) as http_client:
        yield http_client


def limit_range(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": name}, "spec": {"limits": []}}


def watched(client: httpx2.Client, plane: ControlPlane) -> Iterator[bytes]:
    """Return the frames of a watch during which the limit ranges NAMES are created."""
    version = client.get(RANGES).json()["metadata"]["resourceVersion"]
    plane.apply(limit_range(name) for name in NAMES)
    query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "2"}
    with client.stream("GET", RANGES, params=query) as response:
        assert response.status_code == 200
        yield from whole_frames(response.iter_raw())


def names_of(frames: Iterator[bytes]) -> list[str]:
    events = [json.loads(frame) for frame in frames]
    return [
        str(event["object"]["code"]) if event["type"] == "ERROR" else event["object"]["metadata"]["name"]
        for event in events
    ]


FAULTS: dict[str, tuple[InjectedFault | None, list[str]]] = {
    "none": (None, ["a", "b", "c", "d"]),
    "repeated": (ChangedEvents("repeat"), ["a", "a", "b", "b", "c", "c", "d", "d"]),
    "reordered": (ChangedEvents("reorder"), ["b", "a", "d", "c"]),
    "410 at once": (WatchError(410), ["410"]),
    "410 in the middle": (WatchError(410, after=2), ["a", "b", "410"]),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_changes_the_events_as_documented(
    cluster: ControlPlane, proxy: FaultProxy, client: httpx2.Client, name: str
) -> None:
    fault, expected = FAULTS[name]
    if fault:
        proxy.rules.add(FaultRule(WATCH, fault))
    assert names_of(watched(client, cluster)) == expected


@pytest.mark.parametrize("fault", [HalfBody(), SilentWatch(0.5), Reset(arrived=True)])
def test_watches_that_break_off_before_an_event(
    cluster: ControlPlane, proxy: FaultProxy, client: httpx2.Client, fault: InjectedFault
) -> None:
    proxy.rules.add(FaultRule(WATCH, fault))
    with pytest.raises(httpx2.RemoteProtocolError):  # under TLS, Python reports a reset as a closed connection
        next(watched(client, cluster))


def test_the_client_of_the_daemon_recognizes_error_events(
    cluster: ControlPlane, proxy: FaultProxy, tmp_path: Path
) -> None:
    proxy.rules.add(FaultRule("watch nodes", WatchError(410)))
    kubeconfig = redirected(cluster.kubeconfig, proxy, tmp_path / "kubeconfig")
    client = Client(source(str(kubeconfig)), SystemClock())
    nodes = JsonCodec("Node", Interner())
    query = {"watch": "true", "resourceVersion": "0"}
    stream = client.stream("watch nodes", "/api/v1/nodes", query=query, idle_seconds=30)
    with pytest.raises(Expired):
        list(nodes.changes(stream.chunks()))
    stream.close()


def test_events_are_passed_without_delay(cluster: ControlPlane, client: httpx2.Client) -> None:
    """The first event must arrive before the second one is caused."""
    query = {"watch": "true", "timeoutSeconds": "60", "resourceVersion": _version(client)}
    with client.stream("GET", RANGES, params=query) as response:
        frames = whole_frames(response.iter_raw())
        for name in NAMES:
            cluster.apply([limit_range(name)])
            assert json.loads(next(frames))["object"]["metadata"]["name"] == name


def _version(client: httpx2.Client) -> str:
    version: str = client.get(RANGES).json()["metadata"]["resourceVersion"]
    return version


def test_credentials_pass_through(cluster: ControlPlane, client: httpx2.Client) -> None:
    assert client.get("/api/v1/nodes", headers={"authorization": "Bearer wrong"}).status_code == 401
    review: Callable[..., Any] = client.post
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    assert review(path, json=body).json()["status"]["userInfo"]["username"] == "local-admin"
