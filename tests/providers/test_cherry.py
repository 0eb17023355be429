"""Cherry Servers' backend against the stand-in: requests, and interpretation of responses."""

import base64
import datetime as dt
import json
import logging
from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from devcluster.standin.faults import Fault
from rescheduler import errors
from rescheduler.errors import AuthError, BackendUnavailable, ConfigError, RateLimited
from rescheduler.providers.base import (
    Accepted,
    AlreadyGone,
    BelowMinimum,
    Deleted,
    Failed,
    Instance,
    InstanceError,
    InstanceState,
    NodeRef,
    NodeTemplate,
    NotInGroup,
    NotSupported,
    Refusal,
    Refused,
)
from rescheduler.providers.cherryservers.client import error_text, notice
from tests.providers.cherry import CLUSTER, ENVIRONMENT, POOL, PROJECT, TOKEN, add, node_of, pool, providing, serving
from tests.providers.clocks import START, StepClock

MINUTES = 600.0
HOUR = dt.timedelta(hours=1)


def test_servers_are_listed_page_by_page() -> None:
    """A page has 100 servers; the 101st must also be found."""
    clock = StepClock()
    with serving(clock) as server, providing(server, clock, pool(maximum=500)) as provider:
        for _ in range(205):
            add(server)
        assert provider.target_size(POOL, deadline=MINUTES) == 205
        assert len(server.faulty_app.requests) == 3


def test_a_server_that_moves_to_an_earlier_page_is_not_missed() -> None:
    clock = StepClock()
    with serving(clock) as server, providing(server, clock) as provider:
        created = [add(server) for _ in range(150)]
        documents = [item.document(clock.now()) for item in created]
        path = f"/v1/projects/{PROJECT}/servers"
        body, headers = json.dumps(documents[:100]), {"x-total-count": "150"}
        server.faulty_app.inject(Fault(method="GET", path=path, status=200, headers=headers, body=body))
        server.cloud.end(created[0].id)  # between two pages: the 101st becomes the 100th
        instances = provider.instances(POOL, deadline=MINUTES)
        assert {item.id for item in instances} >= {f"cherryservers://{item.id}" for item in created[1:]}


def test_an_api_without_paging_gets_no_third_request() -> None:
    clock = StepClock()
    with serving(clock) as server, providing(server, clock, pool(maximum=500)) as provider:
        body = json.dumps([add(server).document(clock.now()) for _ in range(130)])
        path = f"/v1/projects/{PROJECT}/servers"
        server.faulty_app.inject(Fault(method="GET", path=path, status=200, body=body, times=50))
        assert provider.target_size(POOL, deadline=MINUTES) == 130
        assert len(server.faulty_app.requests) == 2


def test_members_have_both_tags() -> None:
    clock = StepClock()
    with serving(clock) as server, providing(server, clock) as provider:
        add(server, cluster="cluster2")
        add(server, name="")
        add(server, project=10002)
        member = add(server)
        assert [instance.id for instance in provider.instances(POOL, deadline=MINUTES)] == [
            f"cherryservers://{member.id}"
        ]


def test_each_pool_can_have_its_own_project() -> None:
    clock = StepClock()
    pools = (pool("pool1"), pool("pool2", project_id=10002))
    with serving(clock) as server, providing(server, clock, *pools) as provider:
        add(server, name="pool1")
        add(server, name="pool2", project=10002)
        add(server, name="pool2", project=10002)
        sizes = [provider.target_size(name, deadline=MINUTES) for name in ("pool1", "pool2")]
        assert sizes == [1, 2]


def test_a_server_in_the_project_of_another_pool_is_not_a_member() -> None:
    clock = StepClock()
    pools = (pool("pool1"), pool("pool2", project_id=10002))
    with serving(clock) as server, providing(server, clock, *pools) as provider:
        node = node_of(add(server, name="pool1", project=10002))
        assert provider.group_for(node, deadline=MINUTES) is None
        assert provider.target_size("pool1", deadline=MINUTES) == 0


def test_servers_have_states_errors_and_termination_notices() -> None:
    clock = StepClock()
    end = START + dt.timedelta(minutes=2)
    with serving(clock, provisioning=10.0, deploying=10.0, terminating=600.0) as server:
        deploying = add(server, provisioning=0.0, deploying=50.0)
        failed = add(server, provisioning=0.0, fails=True)
        leaving = add(server, provisioning=0.0, deploying=0.0)
        server.cloud.end(leaving.id)
        spot = add(server, provisioning=0.0, deploying=0.0, spot=True)
        server.cloud.change(spot.id, notice=end)
        young = add(server)
        with providing(server, clock) as provider:
            instances = provider.instances(POOL, deadline=MINUTES)
            size = provider.target_size(POOL, deadline=MINUTES)
            nodes = [NodeRef(str(item.id), f"cherryservers://{item.id}") for item in (spot, young)]
            notices = provider.notices([*nodes, NodeRef("elsewhere", "cherryservers://1")], deadline=MINUTES)
    error = InstanceError("FAILED_DEPLOYMENT", "the deployment of the server failed")
    assert list(instances) == [
        Instance(f"cherryservers://{deploying.id}", InstanceState.CREATING, spot=False),
        Instance(f"cherryservers://{failed.id}", InstanceState.CREATING, error, spot=False),
        Instance(f"cherryservers://{leaving.id}", InstanceState.DELETING, spot=False),
        Instance(f"cherryservers://{spot.id}", InstanceState.RUNNING, spot=True, terminates_at=end),
        Instance(f"cherryservers://{young.id}", InstanceState.CREATING, spot=False),
    ]
    assert size == 4  # an ending server does not count
    assert notices == {str(spot.id): end}


@pytest.mark.parametrize("text", ["None", "", None, "soon"])
def test_texts_that_are_not_a_time_are_not_a_notice(text: str | None) -> None:
    assert notice(text) is None


def test_an_order_contains_the_definition_of_the_pool() -> None:
    clock = StepClock()
    options: dict[str, Any] = {"ssh_key_ids": (3, 4), "os_partition_size": 60, "spot_market": True}
    with serving(clock) as server, providing(server, clock, pool(**options)) as provider:
        provider.increase_size(POOL, 1, deadline=MINUTES)
        sent = [msgspec.json.decode(request.body) for request in server.faulty_app.requests if request.method == "POST"]
        (created,) = server.cloud.servers()
    hostname = sent[0].pop("hostname")
    user_data = base64.b64decode(sent[0].pop("user_data")).decode()
    assert sent == [
        {
            "project_id": PROJECT,
            "plan": "e5_1620v4",
            "image": "ubuntu_24_04",
            "region": "eu_nord_1",
            "tags": {"k8s-cluster": CLUSTER, "k8s-nodepool": POOL},
            "ssh_keys": [3, 4],
            "os_partition_size": 60,
            "spot_market": True,
        }
    ]
    assert user_data == "join abcdef.0123456789abcdef 10.0.0.1:6443 pool1"
    assert hostname.startswith("k8s-cluster1-pool1-")
    assert (len(hostname.rsplit("-", 1)[-1]), created.spot, created.hostname) == (8, True, hostname)


def test_all_orders_are_tried_and_the_error_counts_the_failures() -> None:
    """Completed orders remain and the target is their number, so nothing is rolled back."""
    clock = StepClock()
    with serving(clock) as server, providing(server, clock) as provider:
        path = f"/v1/projects/{PROJECT}/servers"
        server.faulty_app.inject(Fault(path=path, status=400, body='{"errors": ["no stock"], "error": "sorry"}'))
        with pytest.raises(errors.Permanent, match=r"1 of 3 servers were not ordered: .*400.*no stock; sorry"):
            provider.increase_size(POOL, 3, deadline=MINUTES)
        assert (len(server.cloud.servers()), provider.target_size(POOL, deadline=MINUTES)) == (2, 2)


def test_a_persistent_rate_limit_ends_the_orders() -> None:
    """Completed orders remain; the rest is reported as missing, with the pause that the API requested."""
    clock = StepClock()
    with serving(clock) as server, providing(server, clock) as provider:
        provider.increase_size(POOL, 1, deadline=MINUTES)
        path = f"/v1/projects/{PROJECT}/servers"
        server.faulty_app.inject(Fault(path=path, status=429, headers={"retry-after": "900"}))
        with pytest.raises(RateLimited, match="4 of 4 servers were not ordered") as caught:
            provider.increase_size(POOL, 4, deadline=MINUTES)
        assert (caught.value.retry_after, len(server.cloud.servers())) == (900, 1)


def test_an_order_with_a_lost_response_is_not_repeated() -> None:
    clock = StepClock()
    with serving(clock) as server, providing(server, clock) as provider:
        path = f"/v1/projects/{PROJECT}/servers"
        server.faulty_app.inject(Fault(path=path, kind="reset", acted=True))
        with pytest.raises(BackendUnavailable):
            provider.increase_size(POOL, 1, deadline=MINUTES)
        assert (len(server.cloud.servers()), provider.target_size(POOL, deadline=MINUTES)) == (1, 1)


def test_orders_for_an_incomplete_pool_name_the_missing_keys() -> None:
    clock = StepClock()
    with serving(clock) as server, providing(server, clock, pool(region="", os="")) as provider:
        with pytest.raises(ConfigError, match="pool pool1: expected region, os in the cloud configuration"):
            provider.increase_size(POOL, 1, deadline=MINUTES)
        assert not server.cloud.servers()


def test_failed_servers_are_canceled_before_pending_ones() -> None:
    clock = StepClock()
    with serving(clock, provisioning=100.0) as server, providing(server, clock) as provider:
        young = add(server)
        failed = add(server, fails=True)
        provider.decrease_target_size(POOL, -1, deadline=MINUTES)
        assert [item.id for item in server.cloud.servers()] == [young.id]
        with pytest.raises(BelowMinimum):
            provider.decrease_target_size(POOL, -2, deadline=MINUTES)
        assert failed.id not in {item.id for item in server.cloud.servers()}


def test_requests_stay_below_the_rate_limit() -> None:
    """Four requests per second; the API never returns 429."""
    clock = StepClock()
    with serving(clock, per_second=4) as server, providing(server, clock) as provider:
        provider.increase_size(POOL, 9, deadline=MINUTES)
        assert len([request for request in server.faulty_app.requests if request.method == "POST"]) == 9
        assert clock.monotonic() >= 9 / 4


def test_retry_after_is_respected() -> None:
    clock = StepClock()
    with serving(clock) as server, providing(server, clock) as provider:
        path = f"/v1/projects/{PROJECT}/servers"
        server.faulty_app.inject(Fault(method="GET", path=path, status=429, headers={"retry-after": "17"}))
        assert provider.target_size(POOL, deadline=MINUTES) == 0
        assert 17 <= clock.monotonic() < 20


def test_a_failed_refresh_keeps_the_last_view_and_does_not_block() -> None:
    clock = StepClock()
    with serving(clock) as server, providing(server, clock) as provider:
        add(server)
        provider.refresh(deadline=MINUTES)
        clock.advance(60)
        server.faulty_app.inject(Fault(method="GET", path=f"/v1/projects/{PROJECT}/servers", status=400))
        with pytest.raises(errors.ReschedulerError):
            provider.refresh(deadline=MINUTES)
        provider.refresh(deadline=MINUTES)
        assert provider.target_size(POOL, deadline=MINUTES) == 1


def test_a_template_is_derived_from_the_plan() -> None:
    clock = StepClock()
    with serving(clock) as server, providing(server, clock) as provider:
        capacity = {"cpu": "4", "memory": str(32 << 30), "pods": "110"}
        assert provider.template(POOL, deadline=MINUTES) == NodeTemplate(
            {
                "pool": POOL,
                "node.kubernetes.io/instance-type": "e5_1620v4",
                "beta.kubernetes.io/instance-type": "e5_1620v4",
                "topology.kubernetes.io/region": "eu_nord_1",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
            },
            (),
            capacity,
            capacity,
        )
        provider.template(POOL, deadline=MINUTES)
        assert [request.path for request in server.faulty_app.requests].count("/v1/plans") == 1


def test_prices_are_hourly_prices_of_the_plan_and_market() -> None:
    clock = StepClock()
    with serving(clock) as server, providing(server, clock) as provider:
        plain, spot, small = add(server), add(server, spot=True), add(server, spot=True)
        server.cloud.change(small.id, plan="cloud_vps_2")
        prices = [
            provider.node_price(node_of(item), START, START + 2 * HOUR, deadline=MINUTES) for item in (plain, spot)
        ]
        assert prices == pytest.approx([0.418, 0.168])
        with pytest.raises(NotSupported, match="the plan cloud_vps_2 has no hourly spot price"):
            provider.node_price(node_of(small), START, START + HOUR, deadline=MINUTES)
        coming = NodeRef(f"template-node-for-{POOL}-7", labels=provider.template(POOL, deadline=MINUTES).labels)
        assert provider.node_price(coming, START, START + HOUR, deadline=MINUTES) == pytest.approx(0.209)
        with pytest.raises(NotInGroup):
            provider.node_price(replace(coming, name="elsewhere"), START, START + HOUR, deadline=MINUTES)
        half = {"cpu": Decimal(2), "memory": Decimal(16 << 30)}
        assert provider.pod_price(half, START, START + HOUR, deadline=MINUTES) == pytest.approx(0.209 / 2)


#: fact: (changes of a Node, whether it belongs to the server)
MATCHES: dict[str, tuple[dict[str, Any], bool]] = {
    "by the provider ID, with any name": ({"internal_ips": ()}, True),
    "by the id without prefix": ({"provider_id": "{id}", "internal_ips": ()}, True),
    "by its private address if it has no provider ID": ({"provider_id": ""}, True),
    "not by its address if it is in another cloud": ({"provider_id": "aws:///z/i-0"}, False),
    "not by the pool label": ({"provider_id": "", "internal_ips": (), "labels": {"pool": POOL}}, False),
}


@pytest.mark.parametrize("fact", MATCHES)
def test_a_node_is_matched_to_its_server(fact: str) -> None:
    changes, is_its = MATCHES[fact]
    clock = StepClock()
    with serving(clock) as server, providing(server, clock) as provider:
        created = add(server)
        changes = {
            key: value.format(id=created.id) if isinstance(value, str) else value for key, value in changes.items()
        }
        node = NodeRef("some-name", **({"provider_id": f"cherryservers://{created.id}",
                                        "internal_ips": (created.private_ip,)} | changes))  # fmt: skip
        assert (provider.group_for(node, deadline=MINUTES) is not None) == is_its
        (outcome,) = provider.delete_nodes(POOL, [node], deadline=MINUTES).values()
        assert isinstance(outcome, Deleted) == is_its


def test_two_servers_with_the_same_hostname_are_not_deleted() -> None:
    clock = StepClock()
    with serving(clock) as server, providing(server, clock) as provider:
        for _ in range(2):
            server.cloud.change(add(server).id, hostname="twin")
        (outcome,) = provider.delete_nodes(POOL, [NodeRef("twin")], deadline=MINUTES).values()
        assert outcome == Refused(Refusal.AMBIGUOUS, "several machines match the node: 400001, 400002")
        assert len(server.cloud.servers()) == 2


def test_a_server_claimed_by_two_nodes_without_its_id_is_not_deleted() -> None:
    clock = StepClock()
    with serving(clock) as server, providing(server, clock) as provider:
        created = add(server)
        nodes = [NodeRef(name, internal_ips=(created.private_ip,)) for name in ("a", "b")]
        refused = Refused(Refusal.AMBIGUOUS, "machine 400001 could be that of a, b")
        assert provider.delete_nodes(POOL, nodes, deadline=MINUTES) == {"a": refused, "b": refused}
        assert server.cloud.servers() == [created]


def test_a_server_missing_in_a_list_is_not_gone() -> None:
    """Servers move between pages, so the server itself is read before it counts as gone."""
    clock = StepClock()
    with serving(clock) as server, providing(server, clock) as provider:
        created = add(server)
        server.faulty_app.inject(Fault(method="DELETE", path=f"/v1/servers/{created.id}", status=204, body=""))
        ordered = provider.delete_nodes(POOL, [node_of(created)], deadline=1)
        server.faulty_app.inject(Fault(method="GET", path=f"/v1/projects/{PROJECT}/servers", status=200, body="[]"))
        missed = provider.delete_nodes(POOL, [node_of(created)], deadline=2)
        assert [*ordered.values(), *missed.values()] == [
            Accepted("the system accepted the order; listed as running"),
            Accepted("the system accepted the order; not listed"),
        ]
        ended = provider.delete_nodes(POOL, [node_of(created)], deadline=MINUTES)
        assert ended == {created.hostname: Deleted("no longer there")}
        assert server.cloud.servers() == []


def test_a_server_that_must_not_be_read_is_not_gone() -> None:
    clock = StepClock()
    with serving(clock) as server, providing(server, clock) as provider:
        created = add(server)
        server.faulty_app.inject(
            Fault(method="DELETE", path=f"/v1/servers/{created.id}", status=204, body=""),
            Fault(method="GET", path=f"/v1/servers/{created.id}", status=403, body="{}", times=999),
        )
        provider.delete_nodes(POOL, [node_of(created)], deadline=1)
        server.faulty_app.inject(
            Fault(method="GET", path=f"/v1/projects/{PROJECT}/servers", status=200, body="[]", times=999)
        )
        (outcome,) = provider.delete_nodes(POOL, [node_of(created)], deadline=MINUTES).values()
        assert isinstance(outcome, Accepted)
        assert "403 Forbidden" in outcome.detail
        stranger = NodeRef("b", "cherryservers://9")
        server.faulty_app.inject(Fault(method="GET", path="/v1/servers/9", status=403, body="{}", times=999))
        assert provider.has_instance(stranger, deadline=MINUTES * 2) is None
        (refused,) = provider.delete_nodes(POOL, [stranger], deadline=MINUTES * 2).values()
        assert isinstance(refused, Refused)


def test_the_configured_label_marks_the_control_plane() -> None:
    clock = StepClock()
    with serving(clock) as server, providing(server, clock, label="example.com/controller") as provider:
        node = node_of(add(server), labels={"example.com/controller": ""})
        assert provider.group_for(node, deadline=MINUTES) is None
        (outcome,) = provider.delete_nodes(POOL, [node], deadline=MINUTES).values()
        assert outcome == Refused(Refusal.CONTROL_PLANE, "the node belongs to the control plane")


def test_a_server_unknown_to_the_api_is_gone() -> None:
    """A new process gets a node whose machine another process deleted: no order and no error."""
    clock = StepClock()
    with serving(clock) as server, providing(server, clock) as provider:
        node = node_of(add(server))
        server.cloud.end(400001)
        outcomes = provider.delete_nodes(POOL, [node], deadline=MINUTES)
        assert outcomes == {node.name: AlreadyGone("no longer there")}
        assert not [request for request in server.faulty_app.requests if request.method == "DELETE"]


def test_a_rejected_deletion_is_not_retryable() -> None:
    clock = StepClock()
    with serving(clock) as server, providing(server, clock) as provider:
        node = node_of(add(server))
        body = '{"code": 409, "message": "Server is locked"}'
        server.faulty_app.inject(Fault(method="DELETE", path="/v1/servers/400001", status=409, body=body))
        (outcome,) = provider.delete_nodes(POOL, [node], deadline=MINUTES).values()
        message = "cherryservers: DELETE /servers/400001: 409 Conflict: Server is locked"
        assert outcome == Failed(message, retryable=False)
        assert provider.target_size(POOL, deadline=MINUTES + clock.monotonic()) == 1


def test_a_refusal_does_not_hide_a_pending_order() -> None:
    """The first response is lost; the second one reports that the server is already terminating."""
    clock = StepClock()
    with serving(clock) as server, providing(server, clock) as provider:
        node = node_of(add(server))
        lost = Fault(method="DELETE", path="/v1/servers/400001", kind="reset")
        body = '{"message": "is terminating"}'
        server.faulty_app.inject(
            lost, Fault(method="DELETE", path="/v1/servers/400001", status=409, body=body, times=99)
        )
        (outcome,) = provider.delete_nodes(POOL, [node], deadline=60.0).values()
        assert isinstance(outcome, Accepted)
        clock.advance(120.0)  # a completed order would be visible by now
        (outcome,) = provider.delete_nodes(POOL, [node], deadline=clock.monotonic() + 60.0).values()
        message = "cherryservers: DELETE /servers/400001: 409 Conflict: is terminating"
        assert outcome == Failed(message, retryable=False)


def test_a_refusal_does_not_hide_the_order_of_an_earlier_process() -> None:
    clock = StepClock()
    with serving(clock) as server, providing(server, clock) as provider:
        created = add(server)
        server.faulty_app.inject(Fault(method="DELETE", path=f"/v1/servers/{created.id}", status=409, times=99))
        for seconds, kind in ((10, Accepted), (10_000, Failed)):
            ordered_at = clock.now() - dt.timedelta(seconds=seconds)
            node = node_of(created, ordered_at=ordered_at)
            (outcome,) = provider.delete_nodes(POOL, [node], deadline=clock.monotonic() + 60.0).values()
            assert isinstance(outcome, kind)
            clock.advance(300.0)


def test_failed_servers_do_not_count_for_the_minimum() -> None:
    clock = StepClock()
    with serving(clock) as server, providing(server, clock, pool(minimum=1)) as provider:
        sound, failed = node_of(add(server)), node_of(add(server, fails=True))
        refused = Refused(Refusal.BELOW_MINIMUM, "group pool1 must keep 1, 0 would be left")
        assert provider.refusals(POOL, [sound, failed], deadline=MINUTES) == {sound.name: refused}
        outcomes = provider.delete_nodes(POOL, [sound, failed], deadline=MINUTES)
        assert (outcomes[sound.name], type(outcomes[failed.name])) == (refused, Deleted)


def test_numbers_can_be_strings() -> None:
    clock = StepClock()
    tags = {"k8s-cluster": CLUSTER, "k8s-nodepool": POOL}
    listed = [{"id": "400007", "spot_instance": 1, "state": "active", "tags": tags, "unknown": [None]}]
    body = json.dumps(listed)
    with serving(clock) as server, providing(server, clock) as provider:
        server.faulty_app.inject(Fault(method="GET", path=f"/v1/projects/{PROJECT}/servers", status=200, body=body))
        (instance,) = provider.instances(POOL, deadline=MINUTES)
        assert instance == Instance("cherryservers://400007", InstanceState.RUNNING, spot=True)


@pytest.mark.parametrize(
    "specs",
    [None, {}, {"cpus": {"cores": 4}}, {"cpus": {"cores": -4}, "memory": {"total": 1, "unit": "GB"}},
     {"cpus": {"cores": 4}, "memory": {"total": 1e300, "unit": "TB"}}],
)  # fmt: skip
def test_a_plan_without_a_size_has_no_template(specs: Any) -> None:
    clock = StepClock()
    body = json.dumps([{"slug": "e5_1620v4", "specs": specs}])
    with serving(clock) as server, providing(server, clock) as provider:
        server.faulty_app.inject(Fault(method="GET", path="/v1/plans", status=200, body=body))
        with pytest.raises(NotSupported, match="the plan e5_1620v4 has no cores or no memory"):
            provider.template(POOL, deadline=MINUTES)


def test_secrets_are_in_no_error_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """The API echoes the token and the user data; no error and no DEBUG log line may contain them."""
    caplog.set_level(logging.DEBUG)
    clock = StepClock()
    secret = ENVIRONMENT["BOOTSTRAP_TOKEN_SECRET"]
    user_data = base64.b64encode(f"join abcdef.{secret} 10.0.0.1:6443 pool1 and so on and on".encode()).decode()
    with serving(clock) as server, providing(server, clock) as provider:
        body = msgspec.json.encode(
            {"code": 401, "message": f"bad token {TOKEN}, sent {user_data}, so {secret}"}
        ).decode()
        server.faulty_app.inject(Fault(method="GET", path=f"/v1/projects/{PROJECT}/servers", status=401, body=body))
        with pytest.raises(AuthError) as caught:
            provider.refresh(deadline=MINUTES)
        provider.increase_size(POOL, 1, deadline=MINUTES)
    texts = [str(caught.value), repr(provider), caplog.text]
    assert [secret for secret in (TOKEN, user_data, secret) if any(secret in text for text in texts)] == []
    assert "bad token ***, sent ***, so ***" in texts[0]


#: body of an error: text for people
MESSAGES = {
    b'{"errors": ["a", "b"], "error": "c"}': "a; b; c",
    b'{"code": 404, "message": "not here"}': "not here",
    b"<html>down</html>": "<html>down</html>",
    b'{"error": null}': "",
}


@pytest.mark.parametrize("body", MESSAGES)
def test_messages_of_error_bodies_are_read(body: bytes) -> None:
    assert error_text(body) == MESSAGES[body]
