"""Arbitrary responses of a system and arbitrary files cause a result or one of our errors, and no other exception."""

import contextlib
import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devcluster.standin.faults import Fault
from rescheduler import errors
from rescheduler.errors import ConfigError
from rescheduler.providers.base import GroupFlags, NodeRef
from rescheduler.providers.cherryservers import config as cherry
from rescheduler.providers.stackpoint import config as stackpoint
from tests.providers import cherry as cherry_tests
from tests.providers import stackpoints
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


@SLOW
@given(body=SERVERS.map(json.dumps) | BODIES)
def test_any_list_of_servers_is_read_or_an_error(body: str) -> None:
    clock = StepClock()
    with cherry_tests.serving(clock) as server, cherry_tests.providing(server, clock) as provider:
        path = f"/v1/projects/{cherry_tests.PROJECT}/servers"
        server.faulty_app.inject(Fault(method="GET", path=path, status=200, body=body, times=50))
        for node in (NodeRef("a", "cherryservers://1"), NodeRef("b", internal_ips=("10.0.0.1",))):
            with contextlib.suppress(errors.ReschedulerError):
                provider.group_for(node, deadline=600)
                provider.instances(cherry_tests.POOL, deadline=600)
                provider.refusals(cherry_tests.POOL, [node], deadline=600)


@SLOW
@given(body=NODES.map(json.dumps) | BODIES)
def test_any_list_of_nodes_is_read_or_an_error(body: str) -> None:
    clock = StepClock()
    with (
        stackpoints.serving(clock) as server,
        stackpoints.providing(server, clock, "0:3:t2.medium:od") as provider,
    ):
        server.faulty_app.inject(Fault(method="GET", path=f"{stackpoints.ROOT}/nodes", status=200, body=body, times=50))
        node = NodeRef("a", labels={"stackpoint.io/instance_id": ""}, internal_ips=("10.0.0.1",))
        with contextlib.suppress(errors.ReschedulerError):
            provider.group_for(node, deadline=600)
            provider.instances(stackpoints.FIRST, deadline=600)
            provider.delete_nodes(stackpoints.FIRST, [node], deadline=600)


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
