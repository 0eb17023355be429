"""The stand-in for AWS over HTTP for tests, with a controllable clock."""

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import botocore.loaders
import botocore.session
import pytest

from devcluster.aws.app import KEY, application, failure
from devcluster.aws.cloud import REGION, AwsCloud, AwsCloudSettings, Ec2Instance, provider_id
from devcluster.standin.faults import Fault
from devcluster.standin.server import StandinServer
from rescheduler.clock import Clock
from rescheduler.net.config_files import Endpoint
from rescheduler.providers.aws import AwsProvider
from rescheduler.providers.aws.client import AwsClient
from rescheduler.providers.aws.config import AwsSettings
from rescheduler.providers.base import CloudProvider, NodeRef
from tests.providers.clocks import StepClock
from tests.providers.failing import FailingDeletions

GROUP: Final = "on-demand"
SECRET, TOKEN = "aws-secret-access-key", "aws-session-token"
TERMINATE: Final = "Action=TerminateInstanceInAutoScalingGroup"
#: Reads the descriptions of AWS' services once for all clients of a process.
LOADER: Final = botocore.loaders.create_loader()


@contextlib.contextmanager
def credentials() -> Iterator[None]:
    """Set credentials in the environment, and nothing else that botocore reads."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_CA_BUNDLE"):
            patch.delenv(name, raising=False)
        for name, value in {"ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "SESSION_TOKEN": TOKEN}.items():
            patch.setenv(f"AWS_{name}", value)
        for name in ("CONFIG_FILE", "SHARED_CREDENTIALS_FILE"):
            patch.setenv(f"AWS_{name}", "/dev/null")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setattr(botocore.session, "create_loader", lambda *_: LOADER)
        yield


@contextlib.contextmanager
def serving(clock: Clock, **settings: Any) -> Iterator[StandinServer[AwsCloud]]:
    cloud = AwsCloud(AwsCloudSettings(**settings), clock)
    with credentials(), StandinServer(cloud, application(cloud)).running() as server:
        yield server


def provider_of(url: str, clock: Clock, **changes: Any) -> AwsProvider:
    values: dict[str, Any] = {"region": REGION, "endpoint": Endpoint(url=url)} | changes
    chosen = AwsSettings(**values)
    return AwsProvider(chosen, AwsClient(chosen, clock), clock)


def node_of(instance: Ec2Instance, **changes: Any) -> NodeRef:
    """Return the Node of the instance as the daemon sees it."""
    values = {"provider_id": provider_id(instance), "labels": {"eks.amazonaws.com/capacityType": "ON_DEMAND"}}
    return NodeRef(f"ip-{instance.id}.{REGION}.compute.internal", **values | changes)


class AwsWorld(FailingDeletions):
    """World of the conformance table (see `conformance`)."""

    group = GROUP

    def __init__(self, server: StandinServer[AwsCloud], clock: StepClock) -> None:
        self.server, self.clock, self.cloud = server, clock, server.cloud
        self._opened: list[CloudProvider] = []
        self.restart()

    def restart(self) -> None:
        self.provider = provider_of(self.server.url, self.clock)
        self._opened.append(self.provider)

    def close(self) -> None:
        for provider in self._opened:
            provider.close()

    def nodes(self) -> list[NodeRef]:
        return [node_of(instance) for instance in self.cloud.alive(GROUP)]

    def foreign(self) -> NodeRef:
        """Return the Node of an instance of a group that is not tagged."""
        self.cloud.add_group("other", 1, tags={})
        return node_of(self.cloud.alive("other")[0])

    def placeholder(self) -> NodeRef:
        machine = provider_id(self.cloud.alive(GROUP)[0])
        return NodeRef(machine, machine)

    def runs(self, node: NodeRef) -> bool:
        return self.cloud.runs(self.cloud.instances[node.provider_id.rpartition("/")[2]])

    def target(self) -> int:
        return self.cloud.groups[GROUP].desired

    def _inject(self, **fault: Any) -> None:
        values: dict[str, Any] = {"status": 400, "body": failure("Throttling", "Rate exceeded")} | fault
        self.server.faulty_app.inject(Fault(path="/", sends=TERMINATE, **values))

    def go_down(self) -> None:
        self.server.faulty_app.inject(
            Fault(path="/", status=503, body=failure("ServiceUnavailable", "try later"), times=1000)
        )


@contextlib.contextmanager
def aws_world(machines: int, minimum: int) -> Iterator[AwsWorld]:
    clock = StepClock()
    with serving(clock, lag=3.0, hook=20.0, unlisted=True) as server:
        server.cloud.add_group(GROUP, machines, min_size=minimum)
        world = AwsWorld(server, clock)
        try:
            yield world
        finally:
            world.close()
