"""StackPointCloud's backend against the stand-in: protected nodes, both generations, confirmation of deletions."""

import datetime as dt
import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from devcluster.standin.faults import Fault
from rescheduler import errors
from rescheduler.errors import AuthError
from rescheduler.providers.base import (
    Accepted,
    AlreadyGone,
    Deleted,
    Instance,
    InstanceError,
    InstanceState,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    NotSupported,
    Refusal,
    Refused,
    UnknownGroup,
)
from rescheduler.providers.stackpoint import StackpointGroup, group_of
from rescheduler.providers.stackpoint.client import ClusterNode
from tests.providers.clocks import START, StepClock
from tests.providers.stackpoints import FIRST, ROOT, SECOND, TOKEN, node_of, pool, providing, serving

MINUTES = 600.0
REASON = "Node is a member of the etcd cluster and cannot be deleted"
SPEC = "0:10:t2.medium:od"


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


#: fact: (the API's attributes of a node of the group, reason of the refusal)
PROTECTED: dict[str, tuple[dict[str, Any], Refusal, str]] = {
    "a master": ({"role": "master"}, Refusal.CONTROL_PLANE, "StackPointCloud's role of the node is master"),
    "a node without a role": ({"role": ""}, Refusal.CONTROL_PLANE, "StackPointCloud's role of the node is unknown"),
    "a member of etcd": ({"etcd_state": "kube_etcd"}, Refusal.CONTROL_PLANE, "the node is a member of etcd: kube_etcd"),
    "a node that can_delete rejects": (
        {"eligible": False},
        Refusal.PROTECTED,
        f"stackpoint: GET {ROOT}/nodes/41/can_delete: 400 Bad Request: {REASON}",
    ),
}


@pytest.mark.parametrize("fact", PROTECTED)
def test_protected_nodes_are_rejected_as_forecast(fact: str, clock: StepClock) -> None:
    """The Node's labels declare a worker of the group; the API contradicts and takes precedence."""
    word, reason, message = PROTECTED[fact]
    with serving(clock) as server, providing(server, clock, SPEC) as provider:
        node = node_of(server.cloud.add(group_name=FIRST, **word))
        node = NodeRef(node.name, node.provider_id, {**node.labels, "stackpoint.io/role": "worker"})
        foretold = provider.refusals(FIRST, [node], deadline=MINUTES)
        assert provider.delete_nodes(FIRST, [node], deadline=MINUTES) == foretold
        assert foretold == {node.name: Refused(reason, message)}
        assert not [request for request in server.faulty_app.requests if request.method == "DELETE"]
        group = provider.group_for(node, deadline=MINUTES)
        assert (group is None) == (reason is Refusal.CONTROL_PLANE)


@pytest.mark.parametrize("sign", [{"role": "master"}, {"etcd_state": "kube_etcd"}])
def test_masters_and_etcd_members_do_not_count_for_the_minimum(sign: dict[str, str], clock: StepClock) -> None:
    with serving(clock) as server, providing(server, clock, "1:5:t2.medium:od") as provider:
        worker = node_of(server.cloud.add(group_name=FIRST))
        server.cloud.add(group_name=FIRST, **sign)
        assert provider.target_size(FIRST, deadline=MINUTES) == 1
        assert len(provider.instances(FIRST, deadline=MINUTES)) == 1
        (outcome,) = provider.delete_nodes(FIRST, [worker], deadline=MINUTES).values()
        assert outcome == Refused(Refusal.BELOW_MINIMUM, f"group {FIRST} must keep 1, 0 would be left")


@pytest.mark.parametrize(("state", "counts"), [("running", True), ("provisioned", False), ("failed", False)])
def test_only_failed_builds_do_not_count_for_the_minimum(state: str, counts: bool, clock: StepClock) -> None:
    with serving(clock) as server, providing(server, clock, "1:5:t2.medium:od") as provider:
        created = server.cloud.add(group_name=FIRST)
        document = {"pk": created.pk, "instance_id": created.instance_id, "role": "worker", "group_name": FIRST}
        body = json.dumps([document | {"state": state, "is_failed": True}])
        server.faulty_app.inject(Fault(method="GET", path=f"{ROOT}/nodes", status=200, body=body, times=9))
        refused = provider.refusals(FIRST, [node_of(created)], deadline=MINUTES)
        assert [outcome.reason for outcome in refused.values()] == [Refusal.BELOW_MINIMUM] * counts


def test_a_node_with_a_master_label_is_refused(clock: StepClock) -> None:
    with serving(clock) as server, providing(server, clock, SPEC) as provider:
        node = node_of(server.cloud.add(group_name=FIRST))
        node = NodeRef(node.name, node.provider_id, {**node.labels, "stackpoint.io/role": "master"})
        outcomes = provider.delete_nodes(FIRST, [node], deadline=MINUTES)
        assert outcomes == {node.name: Refused(Refusal.CONTROL_PLANE, "the node belongs to the control plane")}


def test_a_deletion_is_awaited(clock: StepClock) -> None:
    """The node is not gone while it is `deleting`. One DELETE is sufficient."""
    with serving(clock, deleting=100.0) as server, providing(server, clock, SPEC) as provider:
        node = node_of(server.cloud.add(group_name=FIRST))
        assert provider.delete_nodes(FIRST, [node], deadline=MINUTES) == {node.name: Deleted("gone")}
        assert 100 <= clock.monotonic() < 130
        assert len([request for request in server.faulty_app.requests if request.method == "DELETE"]) == 1


def test_a_node_missing_in_the_list_is_deleted(clock: StepClock) -> None:
    with serving(clock, deleting=10.0, forgetting=0.0) as server, providing(server, clock, SPEC) as provider:
        node = node_of(server.cloud.add(group_name=FIRST))
        assert provider.delete_nodes(FIRST, [node], deadline=MINUTES) == {node.name: Deleted("no longer there")}


def test_an_unfinished_deletion_is_accepted_and_can_be_repeated(clock: StepClock) -> None:
    with serving(clock, forgetting=1000.0) as server, providing(server, clock, SPEC) as provider:
        node = node_of(server.cloud.add(group_name=FIRST, sticky=True))
        outcomes = provider.delete_nodes(FIRST, [node], deadline=60)
        assert outcomes == {node.name: Accepted("the system accepted the order; listed as deleting")}
        assert provider.target_size(FIRST, deadline=MINUTES) == 0
        server.cloud.change(41, sticky=False)
        assert provider.delete_nodes(FIRST, [node], deadline=MINUTES) == {node.name: Deleted("gone")}


def test_a_deletion_by_another_client_is_awaited_and_not_ordered(clock: StepClock) -> None:
    with serving(clock, deleting=40.0) as server, providing(server, clock, SPEC) as provider:
        node = node_of(server.cloud.add(group_name=FIRST))
        server.cloud.end(41)
        assert provider.delete_nodes(FIRST, [node], deadline=MINUTES) == {node.name: AlreadyGone("gone")}
        assert not [request for request in server.faulty_app.requests if request.method == "DELETE"]


#: fact: (changes of the Node, its group)
NODES: dict[str, tuple[dict[str, Any], str | None]] = {
    "by the label": ({}, FIRST),
    "by the address if it has neither label nor provider ID": ({"labels": {}, "provider_id": ""}, FIRST),
    "not without the label if it has a provider ID": ({"labels": {}}, None),
    "not with an empty label": ({"labels": {"stackpoint.io/instance_id": ""}}, None),
    "not with another group's label": (
        {"labels": {"stackpoint.io/instance_id": "spcstand-worker-41", "stackpoint.io/node_group": "mine"}},
        None,
    ),
    "not with an unknown id": ({"labels": {"stackpoint.io/instance_id": "spcstand-worker-9"}}, None),
}


@pytest.mark.parametrize("fact", NODES)
def test_a_node_is_matched_to_its_group(fact: str, clock: StepClock) -> None:
    changes, group = NODES[fact]
    with serving(clock) as server, providing(server, clock, SPEC) as provider:
        node = node_of(server.cloud.add(group_name=FIRST), **changes)
        matched = provider.group_for(node, deadline=MINUTES)
        assert (matched.id if matched else None) == group
        (outcome,) = provider.delete_nodes(FIRST, [node], deadline=MINUTES).values()
        assert isinstance(outcome, Deleted) == (group is not None)


def test_the_provider_id_must_agree_with_the_label(clock: StepClock) -> None:
    with serving(clock) as server, providing(server, clock, SPEC) as provider:
        created = server.cloud.add(group_name=FIRST, provider_node_id="i-0abc")
        assert provider.group_for(node_of(created, labels={}, provider_id="aws:///z/i-0abc"), deadline=MINUTES)
        assert provider.group_for(node_of(created, provider_id="aws:///z/i-0abd"), deadline=MINUTES) is None


def test_instances_have_the_provider_ids_seen_in_the_cluster(clock: StepClock) -> None:
    with serving(clock) as server, providing(server, clock, SPEC) as provider:
        known, nameless, unknown = [server.cloud.add(group_name=FIRST) for _ in range(3)]
        provider.group_for(node_of(known), deadline=MINUTES)
        provider.group_for(node_of(nameless, provider_id=""), deadline=MINUTES)
        assert [instance.id for instance in provider.instances(FIRST, deadline=MINUTES)] == [
            "aws:///us-west-2a/i-00000029",
            "ip-42.us-west-2.compute.internal",
            f"spc://{unknown.instance_id}",
        ]


def test_failed_and_endless_builds_are_reported_as_errors(clock: StepClock) -> None:
    with serving(clock, building=400.0, deleting=9000.0) as server, providing(server, clock, SPEC) as provider:
        server.cloud.add(group_name=FIRST, building=0.0)
        server.cloud.add(group_name=FIRST, failed=True)
        server.cloud.add(group_name=FIRST, stuck=True)
        server.cloud.end(server.cloud.add(group_name=FIRST).pk)
        clock.advance(1201)
        server.cloud.add(group_name=FIRST)
        instances = provider.instances(FIRST, deadline=9999)
        size = provider.target_size(FIRST, deadline=9999)
    failed = InstanceError("BUILD_FAILED", "StackPointCloud could not build the node")
    stuck = InstanceError("BUILD_TIMEOUT", "the node has been draft for more than 1200 seconds")
    ids = [f"spc://spcstand-worker-{pk}" for pk in range(41, 46)]
    assert list(instances) == [
        Instance(ids[0], InstanceState.RUNNING),
        Instance(ids[1], InstanceState.CREATING, failed),
        Instance(ids[2], InstanceState.CREATING, stuck),
        Instance(ids[3], InstanceState.DELETING),
        Instance(ids[4], InstanceState.CREATING),
    ]
    assert size == 4  # count nodes being built, so that not too many are requested


@pytest.mark.parametrize("answers_all", [True, False])
def test_the_first_generation_adds_to_the_cluster(answers_all: bool, clock: StepClock) -> None:
    """The response may list the new nodes only, or the whole cluster including the master."""
    with serving(clock, answers_all=answers_all) as server, providing(server, clock, SPEC) as provider:
        server.cloud.add(role="master", etcd_state="kube_etcd")
        server.cloud.add(group_name=FIRST)
        provider.increase_size(FIRST, 2, deadline=MINUTES)
        (sent,) = [request for request in server.faulty_app.requests if request.method == "POST"]
        assert sent.path == f"{ROOT}/add_node"
        assert msgspec.json.decode(sent.body) == {"size": "t2.medium", "node_count": 2, "group": FIRST}
        assert provider.target_size(FIRST, deadline=MINUTES) == 3


def test_the_second_generation_adds_to_its_pool(clock: StepClock) -> None:
    with serving(clock, pools=(pool(),)) as server, providing(server, clock) as provider:
        provider.increase_size(SECOND, 2, deadline=MINUTES)
        (sent,) = [request for request in server.faulty_app.requests if request.method == "POST"]
        assert sent.path == f"{ROOT}/nodepools/1/add"
        assert msgspec.json.decode(sent.body) == {"size": "t2.medium", "node_count": 2, "node_pool": 1}
        assert provider.target_size(SECOND, deadline=MINUTES) == 2


def test_added_nodes_count_before_they_are_listed(clock: StepClock) -> None:
    with serving(clock) as server, providing(server, clock, SPEC) as provider:
        body = msgspec.json.encode([{"pk": 99, "instance_id": "spc-99", "group_name": FIRST}]).decode()
        server.faulty_app.inject(Fault(path=f"{ROOT}/add_node", status=201, body=body))
        provider.increase_size(FIRST, 1, deadline=MINUTES)
        assert provider.target_size(FIRST, deadline=MINUTES) == 1
        clock.advance(200)
        assert provider.target_size(FIRST, deadline=MINUTES) == 0


def test_only_autoscaled_pools_are_groups(clock: StepClock) -> None:
    pools = (
        pool(minimum=1, max_count=5),
        pool(pk=2, instance_id="p2", autoscaled=False),
        pool(pk=3, instance_id="p3", state="deleted"),
    )
    with serving(clock, pools=pools) as server, providing(server, clock) as provider:
        assert provider.groups(deadline=MINUTES) == [
            NodeGroup(SECOND, 1, 5, "StackPointCloud pool spcstand-pool-1"),
        ]


def test_mounted_pools_take_precedence_unless_invalid(tmp_path: Path, clock: StepClock) -> None:
    """The key of the ConfigMap is read at each refresh; without it or if it is not JSON, the API is used."""
    file, mounted = tmp_path / "spc.yaml", tmp_path / "nodepools"
    file.write_text("nodePoolsFile: nodepools\nrefreshInterval: 0s\n")
    mounted.write_bytes(msgspec.json.encode([pool(instance_id="mounted")]))
    with serving(clock, pools=(pool(),)) as server, providing(server, clock, file=file) as provider:

        def groups() -> list[str]:
            return [group.id for group in provider.groups(deadline=MINUTES)]

        seen = [groups()]
        mounted.write_text("[{")
        seen.append(groups())
        mounted.unlink()
        seen.append(groups())
    assert seen == [["autoscaling-mounted"], [SECOND], [SECOND]]


#: fact: (the node's attributes, its group given a pool with pk 1)
MEMBERS: dict[str, tuple[dict[str, Any], str]] = {
    "by the full name": ({"group_name": "autoscaling-p1"}, "autoscaling-p1"),
    "by the name without the prefix": ({"group_name": "p1"}, "autoscaling-p1"),
    "by the pool": ({"pool": 1}, "autoscaling-p1"),
    "by both": ({"pool": 1, "group_name": "p1"}, "autoscaling-p1"),
    "not if they disagree": ({"pool": 2, "group_name": "p1"}, ""),
    "not if the pool is not a group": ({"pool": 2}, ""),
    "not without either": ({}, ""),
}


@pytest.mark.parametrize("fact", MEMBERS)
def test_the_group_is_derived_from_the_fields_of_the_api(fact: str) -> None:
    fields, group = MEMBERS[fact]
    groups = {"autoscaling-p1": StackpointGroup(NodeGroup("autoscaling-p1", 0, 1), "t2.medium", 1)}
    assert group_of(ClusterNode(41, **fields), groups) == group


def test_a_template_is_derived_from_the_pool_or_the_size(clock: StepClock) -> None:
    specs = ("0:1:n1-standard-2:a", "0:1:unheard-of:b")
    with serving(clock) as server, providing(server, clock, *specs) as provider:
        capacity = {"cpu": "2", "memory": "7500Mi", "pods": "110"}
        labels = {
            "stackpoint.io/node_group": "autoscaling-a",
            "stackpoint.io/role": "worker",
            "node.kubernetes.io/instance-type": "n1-standard-2",
            "kubernetes.io/os": "linux",
        }
        assert provider.template("autoscaling-a", deadline=MINUTES) == NodeTemplate(labels, (), capacity, capacity)
        with pytest.raises(NotSupported, match="group autoscaling-b: the size 'unheard-of' is unknown"):
            provider.template("autoscaling-b", deadline=MINUTES)
    with serving(clock, pools=(pool(cpu="8", memory="32000"),)) as server, providing(server, clock) as provider:
        resources = provider.template(SECOND, deadline=MINUTES).capacity
        assert resources == {"cpu": "8", "memory": "32000Mi", "pods": "110"}


def test_two_nodes_with_the_same_instance_id_are_not_deleted(clock: StepClock) -> None:
    nodes = [
        {"pk": pk, "instance_id": "twin", "role": "worker", "group_name": FIRST, "state": "running"} for pk in (1, 2)
    ]
    with serving(clock) as server, providing(server, clock, SPEC) as provider:
        body = msgspec.json.encode(nodes).decode()
        server.faulty_app.inject(Fault(method="GET", path=f"{ROOT}/nodes", status=200, body=body, times=3))
        node = NodeRef("a", labels={"stackpoint.io/instance_id": "twin"})
        outcomes = provider.delete_nodes(FIRST, [node], deadline=MINUTES)
        assert outcomes == {"a": Refused(Refusal.AMBIGUOUS, "several nodes have the instance id twin")}


def test_rejected_credentials_are_reported_without_the_token(clock: StepClock) -> None:
    with serving(clock) as server, providing(server, clock, SPEC) as provider:
        server.faulty_app.inject(
            Fault(method="GET", path=f"{ROOT}/nodes", status=403, body=f'{{"detail": "no owner: {TOKEN}"}}')
        )
        with pytest.raises(AuthError) as caught:
            provider.refresh(deadline=MINUTES)
        assert str(caught.value) == f"stackpoint: GET {ROOT}/nodes: 403 Forbidden: no owner: ***"


def test_a_new_process_resumes_an_order_for_an_unlisted_node(clock: StepClock) -> None:
    with serving(clock, forgetting=0.0) as server, providing(server, clock, SPEC) as provider:
        node = node_of(server.cloud.add(group_name=FIRST))
        server.cloud.end(41)
        clock.advance(1)
        strange = provider.delete_nodes(FIRST, [node], deadline=MINUTES)
        resumed = NodeRef(node.name, node.provider_id, node.labels, ordered_at=START - dt.timedelta(minutes=1))
        assert strange == {node.name: Refused(Refusal.NOT_IN_GROUP, "the group has no machine for this node")}
        assert provider.delete_nodes(FIRST, [resumed], deadline=MINUTES) == {node.name: AlreadyGone("no longer there")}


def test_unreadable_pools_are_an_error_and_not_an_empty_cluster(clock: StepClock) -> None:
    with serving(clock, pools=(pool(),)) as server, providing(server, clock) as provider:
        server.faulty_app.inject(Fault(method="GET", path=f"{ROOT}/nodepools", status=503, times=100))
        with pytest.raises(errors.Retryable):
            provider.groups(deadline=30)


def test_a_pool_deleted_with_its_node_does_not_hide_the_order(tmp_path: Path, clock: StepClock) -> None:
    """An exception would mean that nothing was ordered."""
    file, mounted = tmp_path / "spc.yaml", tmp_path / "nodepools"
    file.write_text("nodePoolsFile: nodepools\n")
    mounted.write_bytes(msgspec.json.encode([pool()]))
    with serving(clock, pools=(pool(),)) as server, providing(server, clock, file=file) as provider:
        node = node_of(server.cloud.add(group_name=SECOND, pool=1, sticky=True))
        first = provider.delete_nodes(SECOND, [node], deadline=20)
        mounted.write_text("[]")
        second = provider.delete_nodes(SECOND, [node], deadline=60)
        assert [type(outcome) for outcome in (*first.values(), *second.values())] == [Accepted, Accepted]
        with pytest.raises(UnknownGroup):
            provider.delete_nodes(SECOND, [node_of(server.cloud.add(group_name=SECOND))], deadline=MINUTES)


def test_changes_are_logged_once(clock: StepClock, caplog: pytest.LogCaptureFixture) -> None:
    """At -v=4 and above: the messages that the original's manager writes at -v=6, once per change."""
    caplog.set_level(logging.DEBUG, "rescheduler.providers.stackpoint")

    def messages() -> list[str]:
        lines = [record.getMessage().removeprefix("stackpoint: ") for record in caplog.records]
        caplog.clear()
        return lines

    update = "updating cluster info, organizationID 6, clusterID 810"
    with serving(clock, building=100.0, forgetting=0.0) as server, providing(server, clock, SPEC) as provider:
        provider.increase_size(FIRST, 1, deadline=MINUTES)
        assert messages() == [
            update,
            "adding 1 nodes to group autoscaling-od",
            "AddNodes response {instance_id: spcstand-worker-41, state: draft}",
        ]
        clock.advance(150)
        provider.refresh(deadline=MINUTES)
        new = "new node found, nodeID spcstand-worker-41, newState building, group autoscaling-od"
        assert messages() == [update, new]
        clock.advance(150)
        provider.refresh(deadline=MINUTES)
        assert messages() == [
            update,
            "node state change, nodeID spcstand-worker-41, oldState building, newState running",
        ]
        assert provider.group_for(NodeRef("first-worker"), deadline=MINUTES) is None
        assert messages() == ["node not manageable first-worker: it belongs to no group"]
        clock.advance(100)
        provider.refresh(deadline=MINUTES)
        assert messages() == [update]
        provider.delete_nodes(FIRST, [node_of(server.cloud.nodes()[0])], deadline=2 * MINUTES)
        [*_, gone] = messages()
        assert gone == "node is no longer listed, nodeID spcstand-worker-41"


def test_a_node_added_to_another_group_is_logged(clock: StepClock, caplog: pytest.LogCaptureFixture) -> None:
    with serving(clock) as server, providing(server, clock, SPEC) as provider:
        body = msgspec.json.encode([{"pk": 99, "instance_id": "spc-99", "role": "worker", "group_name": "x"}]).decode()
        server.faulty_app.inject(Fault(path=f"{ROOT}/add_node", status=201, body=body))
        provider.increase_size(FIRST, 1, deadline=MINUTES)
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "stackpoint: added node spc-99 is in group none, not autoscaling-od"
    ]


@pytest.mark.parametrize("text", [None, "cordonUntilRunning: false"])
def test_nodes_whose_machine_is_being_built_are_reported(text: str | None, tmp_path: Path, clock: StepClock) -> None:
    """Nodes whose build failed and nodes of other systems are not reported."""
    file = None
    if text is not None:
        file = tmp_path / "spc.yaml"
        file.write_text(text)
    with serving(clock, building=100.0) as server, providing(server, clock, SPEC, file=file) as provider:
        built = node_of(server.cloud.add(group_name=FIRST, building=0.0))
        joined = node_of(server.cloud.add(group_name=FIRST))
        failed = node_of(server.cloud.add(group_name=FIRST, failed=True))
        nodes = [built, joined, failed, NodeRef("elsewhere")]
        expected = {joined.name} if text is None else set()
        assert provider.building(nodes, deadline=MINUTES) == expected
        clock.advance(300)
        assert provider.building(nodes, deadline=MINUTES) == set()
