"""Arbitrary responses of a system and arbitrary files cause a result or one of our errors, and no other exception."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devcluster.aws.app import described
from devcluster.aws.cloud import AwsCloud
from devcluster.cherry.cloud import CherryCloud
from devcluster.stackpoint.cloud import StackpointCloud
from devcluster.standin.faults import Fault
from devcluster.standin.server import StandinServer
from rescheduler import errors
from rescheduler.errors import ConfigError
from rescheduler.providers.base import GroupFlags, NodeRef
from rescheduler.providers.cherryservers import config as cherry
from rescheduler.providers.stackpoint import config as stackpoint
from tests.providers import awses, stackpoints
from tests.providers import cherry as cherry_tests
from tests.providers.clocks import StepClock

SLOW = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def documents(*keys: str) -> st.SearchStrategy[Any]:
    """Return a strategy for lists of objects with these keys and arbitrary values, and for other documents."""
    named = st.fixed_dictionaries({}, optional=dict.fromkeys(keys, VALUES))
    return (
        st.lists(st.builds(lambda fields, number: {**fields, "id": number, "pk": number}, named, st.integers()))
        | VALUES
    )


SERVERS = documents("hostname", "state", "status", "tags", "plan", "ip_addresses", "termination_date", "spot_instance")
NODES = documents("instance_id", "role", "group_name", "state", "created", "pool", "etcd_state", "private_ip")
BODIES = st.binary(max_size=60).map(lambda body: body.decode("utf-8", "surrogateescape"))


@pytest.fixture(scope="module")
def clock() -> StepClock:
    return StepClock()


@pytest.fixture(scope="module")
def cherry_server(clock: StepClock) -> Iterator[StandinServer[CherryCloud]]:
    with cherry_tests.serving(clock) as server:
        yield server


@pytest.fixture(scope="module")
def stackpoint_server(clock: StepClock) -> Iterator[StandinServer[StackpointCloud]]:
    with stackpoints.serving(clock) as server:
        yield server


@pytest.fixture(scope="module")
def aws_server(clock: StepClock) -> Iterator[StandinServer[AwsCloud]]:
    with awses.serving(clock) as server:
        yield server


@SLOW
@given(body=SERVERS.map(json.dumps) | BODIES)
def test_any_list_of_servers_is_read_or_an_error(
    body: str, cherry_server: StandinServer[CherryCloud], clock: StepClock
) -> None:
    cherry_server.faulty_app.forget()
    path, deadline = f"/v1/projects/{cherry_tests.PROJECT}/servers", clock.monotonic() + 600
    cherry_server.faulty_app.inject(Fault(method="GET", path=path, status=200, body=body, times=50))
    with cherry_tests.providing(cherry_server, clock) as provider:
        for node in (NodeRef("a", "cherryservers://1"), NodeRef("b", internal_ips=("10.0.0.1",))):
            with contextlib.suppress(errors.ReschedulerError):
                provider.group_for(node, deadline=deadline)
                provider.instances(cherry_tests.POOL, deadline=deadline)
                provider.refusals(cherry_tests.POOL, [node], deadline=deadline)


@SLOW
@given(body=NODES.map(json.dumps) | BODIES)
def test_any_list_of_nodes_is_read_or_an_error(
    body: str, stackpoint_server: StandinServer[StackpointCloud], clock: StepClock
) -> None:
    stackpoint_server.faulty_app.forget()
    path, deadline = f"{stackpoints.ROOT}/nodes", clock.monotonic() + 600
    stackpoint_server.faulty_app.inject(Fault(method="GET", path=path, status=200, body=body, times=50))
    node = NodeRef("a", labels={"stackpoint.io/instance_id": ""}, internal_ips=("10.0.0.1",))
    providing = stackpoints.providing(stackpoint_server, clock, "0:3:t2.medium:od")
    with contextlib.suppress(errors.ReschedulerError), providing as provider:
        provider.group_for(node, deadline=deadline)
        provider.instances(stackpoints.FIRST, deadline=deadline)
        provider.delete_nodes(stackpoints.FIRST, [node], deadline=deadline)


GROUPS = st.fixed_dictionaries(
    {"AutoScalingGroupName": st.just(awses.GROUP)},
    optional=dict.fromkeys(
        ("MinSize", "MaxSize", "DesiredCapacity", "Instances", "AvailabilityZones", "SuspendedProcesses", "Status"),
        VALUES,
    ),
)
TEXTS = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=60)


@SLOW
@given(result=st.lists(GROUPS, max_size=2).map(lambda groups: described({"AutoScalingGroups": groups})) | TEXTS)
def test_any_list_of_auto_scaling_groups_is_read_or_an_error(
    result: str, aws_server: StandinServer[AwsCloud], clock: StepClock
) -> None:
    aws_server.faulty_app.forget()
    aws_server.faulty_app.inject(Fault(path="/", status=200, body=result, times=50))
    provider, deadline = awses.provider_of(aws_server.url, clock), clock.monotonic() + 600
    node = NodeRef("a", "aws:///eu-west-1a/i-00000000")
    with contextlib.suppress(errors.ReschedulerError):
        provider.group_for(node, deadline=deadline)
        provider.refusal_without_group(node, deadline=deadline)
        provider.instances(awses.GROUP, deadline=deadline)
        provider.refusals(awses.GROUP, [node], deadline=deadline)
    provider.close()


INI = st.lists(
    st.sampled_from(
        ["[global]", '[nodegroupdef "p"]', "plan = x", "ssh-key-ids = 1", "cloudinit = e3sufX0=", "\\", '"']
    )
    | st.text(max_size=20),
    max_size=8,
).map("\n".join)


@SLOW
@given(text=INI)
def test_any_file_is_read_or_rejected(text: str, tmp_path: Path) -> None:
    file = tmp_path / "cloud-config"
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    with contextlib.suppress(ConfigError):
        cherry.settings(file, GroupFlags(("0:1:p",), "c"), cherry_tests.ENVIRONMENT)


@SLOW
@given(spec=st.text(max_size=12) | st.from_regex(r"[0-9-]{0,3}:[0-9]{0,25}:[a-z:]{0,5}", fullmatch=True))
def test_any_group_spec_is_read_or_an_error(spec: str) -> None:
    for reader in (cherry.node_groups, stackpoint.group_specs):
        with contextlib.suppress(ConfigError):
            reader([spec])
