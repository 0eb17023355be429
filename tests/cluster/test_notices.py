"""Spot servers whose end the cloud has announced: no drain counts on their Nodes."""

import datetime as dt
from pathlib import Path

import pytest

from deploy.local.cherry import app as cherry_app
from deploy.local.cherry.cloud import Cloud, Settings
from deploy.local.cherry.nodes import node_of
from deploy.local.manifests import ON_DEMAND, SPOT, deployment
from deploy.local.plane import ControlPlane
from deploy.local.standin.nodes import Nodes
from deploy.local.standin.server import Server
from rescheduler.clock import SystemClock
from tests.cluster.daemon import NO_DELAY, Daemon, Look

ORDER = {"plan": "e5_1620v4", "region": "eu_nord_1", "image": "ubuntu_24_04"}


def order(pool: str, name: str, **more: object) -> dict[str, object]:
    return {**ORDER, "tags": {"k8s-cluster": "c1", "k8s-nodepool": pool}, "hostname": name, **more}


def test_pods_are_meant_for_the_server_that_stays(
    cluster: ControlPlane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By name the one that goes would be the first choice."""
    clock, look = SystemClock(), Look(cluster)
    config = tmp_path / "cloud-config"
    config.write_text("[global]\ncluster-name = c1\nproject-id = 7\n")
    cloud = Cloud(Settings(terminating=2), clock)
    cloud.create(7, order("od", "od-1"))
    kubeconfig = str(cluster.kubeconfig)
    labels = {True: {SPOT: "true"}, False: {ON_DEMAND: "true"}}
    nodes = Nodes(kubeconfig, lambda: {one.hostname: node_of(one, labels[one.spot]) for one in cloud.servers()}, clock)
    with Server(cloud, cherry_app.application(cloud, per_second=4), path="/v1").running() as server:
        monkeypatch.setenv("CHERRY_AUTH_TOKEN", "token")
        monkeypatch.setenv("CHERRY_API_URL", server.url)
        nodes.start()
        try:
            cluster.apply([deployment("web", 1)])
            look.running(1)
            going = cloud.create(7, order("cheap", "a-goes", spot_market=True))
            cloud.change(going.id, notice=cloud.now() + dt.timedelta(hours=1))
            cloud.create(7, order("cheap", "b-stays", spot_market=True))
            look.eventually(lambda: len(cluster.api.items("/api/v1/nodes")) == 3, "the spot servers' Nodes")
            flags = (
                "--cloud-provider=cherryservers",
                f"--cloud-config={config}",
                "--nodes=0:3:od",
                "--nodes=0:3:cheap",
            )
            with Daemon(cluster, NO_DELAY, *flags) as daemon:
                look.eventually(
                    lambda: [one.hostname for one in cloud.servers()] == ["a-goes", "b-stays"], "od-1 to end"
                )
                assert daemon.told("spot nodes that are about to be reclaimed: a-goes at ")
                look.eventually(lambda: len(cluster.api.items("/api/v1/nodes")) == 2, "its Node to go")
                (drain,) = daemon.told("draining, 1 pods move")
                assert drain["message"].endswith(" to b-stays")
        finally:
            nodes.close()
    look.running(1)
    assert look.marks() == {}
