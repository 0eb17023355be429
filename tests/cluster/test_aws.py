"""The daemon with --cloud-provider=aws, and a stand-in for AWS whose instances are local nodes."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from devcluster import manifests
from devcluster.aws.app import application
from devcluster.aws.cloud import AwsCloud, AwsCloudSettings, Ec2Instance, members, provider_id
from devcluster.manifests import ON_DEMAND, SPOT, deployment
from devcluster.plane import ControlPlane
from devcluster.standin.nodes import Nodes
from devcluster.standin.server import StandinServer
from rescheduler.clock import SystemClock
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import SOFT, Daemon
from tests.cluster.observer import Observer
from tests.providers.awses import GROUP, TERMINATE, credentials

#: Seconds of a lifecycle hook, and until EC2 has terminated an instance.
SETTINGS: Final = AwsCloudSettings(lag=1.0, hook=3.0, terminating=3.0)


def name_of(instance: Ec2Instance) -> str:
    return f"{'od' if instance.group == GROUP else 'spot'}-{int(instance.id.removeprefix('i-'), 16)}"


def nodes(cloud: AwsCloud) -> Mapping[str, dict[str, Any]]:
    soft = [{"key": ON_DEMAND, "value": "true", "effect": SOFT}]
    kinds = {GROUP: ({ON_DEMAND: "true"}, soft), "spot": ({SPOT: "true"}, [])}
    return {
        name_of(each): manifests.node(name_of(each), labels=labels, taints=taints, providerID=provider_id(each))
        for group, (labels, taints) in kinds.items()
        for each in members(cloud, group)
    }


@contextlib.contextmanager
def account(observer: Observer, folder: Path) -> Iterator[tuple[StandinServer[AwsCloud], tuple[str, ...]]]:
    """Run a group with the nodes od-0, od-1 and od-2, of which one must stay, and a spot group with spot-3 and spot-4.

    Yield the server and the flags of the daemon.
    """
    clock = SystemClock()
    cloud = AwsCloud(SETTINGS, clock)
    cloud.add_group(GROUP, 3, min_size=1)
    cloud.add_group("spot", 2, spot=True)
    config = folder / "aws.json"
    with credentials(), StandinServer(cloud, application(cloud)).running() as server:
        config.write_text(json.dumps({"region": "eu-west-1", "endpoint": {"url": server.url}}))
        controller = Nodes(str(observer.plane.kubeconfig), lambda: nodes(cloud), clock)
        controller.start()
        try:
            observer.nodes_ready(5)
            yield server, ("--cloud-provider=aws", f"--cloud-config={config}")
        finally:
            controller.close()


def test_emptied_instances_end_down_to_the_minimum_and_a_kill_repeats_no_order(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    with account(observer, tmp_path) as (server, flags):
        cloud = server.cloud
        for number, app in enumerate(("web", "api", "db")):
            observer.start_on(f"od-{number}", deployment(app, number + 1), pods=number + 1)
        observer.running(6)
        observer.open_all()
        with Daemon(cluster, *FLAGS, *flags) as daemon:
            observer.eventually(lambda: cloud.ended, "the first order")
            daemon.kill()
        with Daemon(cluster, *FLAGS, *flags):
            observer.eventually(lambda: len(observer.node_names()) == 3, "the end of two nodes", seconds=120)
            observer.wait_told("od-2", "DrainBlocked", "below-minimum")
            observer.stays(lambda: len(cloud.ended), 2, seconds=3)
        assert [by_aws for _, by_aws in cloud.ended] == [False, False]
        assert sum(TERMINATE.encode() in request.body for request in server.faulty_app.requests) == 2
        assert (cloud.groups[GROUP].desired, observer.kinds()) == (1, {"spot": 3, "od": 3})
        assert observer.evicted() == {"default/web": 1, "default/api": 2}
