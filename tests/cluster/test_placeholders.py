"""Placeholders on a real API server, in a namespace with the restricted PodSecurity standard."""

from datetime import UTC, datetime

import pytest

from devcluster.manifests import node, pod
from devcluster.plane import ControlPlane
from predicates.snapshot import ROOM_NAMESPACE, Snapshot
from rescheduler.clock import SystemClock
from rescheduler.errors import NotFound
from rescheduler.kube.client import Client
from rescheduler.kube.cluster import PlaceholderPods
from rescheduler.kube.state import read_cluster
from rescheduler.planning.outcome import PodRef
from rescheduler.planning.policy import SPOT_LABEL
from rescheduler.planning.room.manifests import Manifest, PlaceholderTerms, label_keys_of, manifest, volume_terms
from rescheduler.planning.room.placeholders import read
from tests.cluster.autoscaling import PODS, SETUP
from tests.cluster.rich import RICH

UNTIL = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def api(cluster: ControlPlane, client: Client) -> PlaceholderPods:
    cluster.apply(SETUP)
    return PlaceholderPods(client)


def manifests(cluster: ControlPlane, watched: Snapshot) -> list[Manifest]:
    """Return the placeholders for all pods of *watched*."""
    namespace = cluster.api.get(f"/api/v1/namespaces/{ROOM_NAMESPACE}")["metadata"]["uid"]
    terms = PlaceholderTerms("ns/lease", SPOT_LABEL, UNTIL, "uid-node", namespace, "pause:1", 3600)
    keys = label_keys_of(pod.cls for pod in watched.pods.values())
    return [manifest(each, terms, volume_terms(watched, each), keys) for each in watched.pods.values()]


def test_placeholders_for_pods_with_every_field_are_accepted_and_read_apart(
    cluster: ControlPlane, client: Client, api: PlaceholderPods
) -> None:
    cluster.apply(RICH)
    watched = read_cluster(client, SystemClock())
    for each in manifests(cluster, watched):
        api.create(each)
        api.create(each)  # it exists
    names = {item["metadata"]["name"] for item in cluster.api.items(PODS)}
    assert names == {f"room-{each.uid}" for each in watched.pods.values()}
    after = read_cluster(client, SystemClock())
    assert after.pods.keys() == watched.pods.keys()
    placeholders = {read(each).for_pod: read(each) for each in after.placeholders.values()}
    assert placeholders.keys() == watched.pods.keys()
    assert {(each.installation, each.until, each.running) for each in placeholders.values()} == {
        ("ns/lease", UNTIL, False)
    }


def test_only_the_placeholder_with_the_uid_is_deleted(
    cluster: ControlPlane, client: Client, api: PlaceholderPods
) -> None:
    cluster.apply([node("n1", ready=False), pod("web", nodeName="n1")])
    [each] = manifests(cluster, read_cluster(client, SystemClock()))
    api.create(each)
    [created] = [item["metadata"] for item in cluster.api.items(PODS)]
    api.delete(PodRef(ROOM_NAMESPACE, created["name"], "another-uid"))
    assert [item["metadata"]["uid"] for item in cluster.api.items(PODS)] == [created["uid"]]
    api.delete(PodRef(ROOM_NAMESPACE, created["name"], created["uid"]))
    assert cluster.api.items(PODS) == []
    api.delete(PodRef(ROOM_NAMESPACE, created["name"], created["uid"]))  # it is gone


def test_a_missing_namespace_is_an_error(client: Client) -> None:
    with pytest.raises(NotFound, match='create placeholder room-x: namespaces "spot-rescheduler-room" not found'):
        PlaceholderPods(client).create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "room-x"}})
