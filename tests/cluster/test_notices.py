"""Spot servers with an announced termination are not used as drain targets."""

import datetime as dt
from pathlib import Path

import pytest

from devcluster.cherry import app as cherry_app
from devcluster.cherry.cloud import CherryCloud, CherryCloudSettings
from devcluster.cherry.nodes import node_of
from devcluster.manifests import ON_DEMAND, SPOT, deployment
from devcluster.plane import ControlPlane
from devcluster.standin.nodes import Nodes
from devcluster.standin.server import StandinServer
from rescheduler.clock import SystemClock
from tests.cluster.daemon import NO_DELAY, ClusterQueries, Daemon

ORDER = {"plan": "e5_1620v4", "region": "eu_nord_1", "image": "ubuntu_24_04"}


def order(pool: str, name: str, **fields: object) -> dict[str, object]:
    return {**ORDER, "tags": {"k8s-cluster": "c1", "k8s-nodepool": pool}, "hostname": name, **fields}


def test_pods_are_planned_on_the_server_without_a_notice(
    cluster: ControlPlane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without the notice, the server to be terminated would be chosen by its name."""
    clock, queries = SystemClock(), ClusterQueries(cluster)
    config = tmp_path / "cloud-config"
    config.write_text("[global]\ncluster-name = c1\nproject-id = 7\n")
    cloud = CherryCloud(CherryCloudSettings(terminating=2), clock)
    cloud.create(7, order("od", "od-1"))
    kubeconfig = str(cluster.kubeconfig)
    labels = {True: {SPOT: "true"}, False: {ON_DEMAND: "true"}}
    nodes = Nodes(
        kubeconfig, lambda: {server.hostname: node_of(server, labels[server.spot]) for server in cloud.servers()}, clock
    )
    with StandinServer(cloud, cherry_app.application(cloud, per_second=4), path="/v1").running() as server:
        monkeypatch.setenv("CHERRY_AUTH_TOKEN", "token")
        monkeypatch.setenv("CHERRY_API_URL", server.url)
        nodes.start()
        try:
            cluster.apply([deployment("web", 1)])
            queries.running(1)
            going = cloud.create(7, order("cheap", "a-goes", spot_market=True))
            cloud.change(going.id, notice=cloud.now() + dt.timedelta(hours=1))
            cloud.create(7, order("cheap", "b-stays", spot_market=True))
            queries.eventually(lambda: len(cluster.api.items("/api/v1/nodes")) == 3, "the spot servers' Nodes")
            flags = (
                "--cloud-provider=cherryservers",
                f"--cloud-config={config}",
                "--nodes=0:3:od",
                "--nodes=0:3:cheap",
            )
            with Daemon(cluster, NO_DELAY, *flags) as daemon:
                queries.eventually(
                    lambda: [server.hostname for server in cloud.servers()] == ["a-goes", "b-stays"],
                    "the termination of od-1",
                )
                assert daemon.logged("spot nodes that are about to be reclaimed: a-goes at ")
                queries.eventually(lambda: len(cluster.api.items("/api/v1/nodes")) == 2, "the deletion of its Node")
                (drain,) = daemon.logged("draining; moving 1 pod")
                assert drain["message"].endswith(" to b-stays")
        finally:
            nodes.close()
    queries.running(1)
    assert queries.marks() == {}
