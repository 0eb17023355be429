"""The wire protocol of AWS: the provider against moto's server, over real connections. moto enforces no minimum."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest

from devcluster.aws.cloud import REGION
from rescheduler.providers.aws import AwsProvider
from rescheduler.providers.base import Deleted, InstanceState, NodeRef, Refusal, Refused
from tests.providers.awses import credentials, provider_of
from tests.providers.clocks import StepClock


class Moto:
    """boto3's clients of a running server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.scaling, self.ec2 = (boto3.client(name, REGION, endpoint_url=url) for name in ("autoscaling", "ec2"))

    def group(self, name: str) -> Any:
        return self.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"][0]

    @contextmanager
    def provider(self, name: str, minimum: int) -> Iterator[tuple[AwsProvider, StepClock]]:
        """Add the group *name* with three instances; yield a provider for it, and its clock."""
        clock = StepClock()
        self.scaling.create_auto_scaling_group(
            AutoScalingGroupName=name, LaunchConfigurationName="c", MinSize=minimum, MaxSize=6, DesiredCapacity=3,
            AvailabilityZones=[f"{REGION}a"], Tags=[{"Key": name, "Value": "true", "PropagateAtLaunch": False}],
        )  # fmt: skip
        provider = provider_of(self.url, clock, tags={name: ""})
        yield provider, clock
        provider.close()


@pytest.fixture(scope="module")
def moto() -> Iterator[Moto]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has only the services that are used here
        from moto.server import ThreadedMotoServer  # noqa: PLC0415
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    with credentials():
        server.start()
        host, port = server.get_host_and_port()
        running = Moto(f"http://{host}:{port}")
        image = running.ec2.describe_images(MaxResults=5)["Images"][0]["ImageId"]
        running.scaling.create_launch_configuration(LaunchConfigurationName="c", ImageId=image, InstanceType="m5.large")
        yield running
        for client in (running.scaling, running.ec2):
            client.close()
        boto3.DEFAULT_SESSION = None
        server.stop()


def test_machines_end_down_to_the_minimum(moto: Moto) -> None:
    with moto.provider("deletions", 2) as (provider, clock):
        instances = provider.instances("deletions", deadline=600)
        assert [each.state for each in instances] == [InstanceState.RUNNING] * 3
        nodes = [NodeRef(each.id, each.id) for each in instances]
        first, *others = provider.delete_nodes("deletions", nodes, deadline=clock.monotonic() + 600).values()
        assert isinstance(first, Deleted)
        assert [outcome.reason for outcome in others if isinstance(outcome, Refused)] == [Refusal.BELOW_MINIMUM] * 2
        group = moto.group("deletions")
        assert (group["DesiredCapacity"], len(group["Instances"])) == (2, 2)
        [found] = moto.ec2.describe_instances(InstanceIds=[nodes[0].provider_id.rpartition("/")[2]])["Reservations"]
        assert found["Instances"][0]["State"]["Name"] == "terminated"


def test_a_suspended_process(moto: Moto) -> None:
    with moto.provider("suspended", 0) as (provider, _):
        moto.scaling.suspend_processes(AutoScalingGroupName="suspended", ScalingProcesses=["Terminate"])
        [instance, *_] = provider.instances("suspended", deadline=600)
        refused = provider.refusal_without_group(NodeRef(instance.id, instance.id), deadline=600)
        assert refused == Refused(Refusal.PROTECTED, "Auto Scaling group suspended has suspended the process Terminate")


def test_room_is_ordered(moto: Moto) -> None:
    with moto.provider("room", 0) as (provider, _):
        provider.increase_size("room", 2, deadline=600)
        group = moto.group("room")
        assert (group["DesiredCapacity"], len(group["Instances"])) == (5, 5)
