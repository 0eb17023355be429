"""StackPointCloud's backend against the stand-in: who is never deleted, both generations, ends that are awaited."""

import datetime as dt
import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deploy.local.cloudpool.faults import Fault
from rescheduler import errors
from rescheduler.backends.base import (
    Accepted,
    AlreadyGone,
    AuthError,
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
from rescheduler.backends.stackpoint.messages import Node
from rescheduler.backends.stackpoint.pools import Group, group_of
from tests.backends.clocks import START, StepClock
from tests.backends.stackpoints import FIRST, ROOT, SECOND, TOKEN, node_of, pool, providing, serving

MINUTES = 600.0
REASON = "Node is a member of the etcd cluster and cannot be deleted"
SPEC = "0:10:t2.medium:od"


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


#: fact: (the API's word on a node of the group, why it is refused)
PROTECTED: dict[str, tuple[dict[str, Any], Refusal, str]] = {
    "a master": ({"role": "master"}, Refusal.CONTROL_PLANE, "StackPointCloud's role of the node is master"),
    "a node without a role": ({"role": ""}, Refusal.CONTROL_PLANE, "StackPointCloud's role of the node is not told"),
    "a member of etcd": ({"etcd_state": "kube_etcd"}, Refusal.CONTROL_PLANE, "the node is a member of etcd: kube_etcd"),
    "what may not be deleted": (
        {"eligible": False},
        Refusal.PROTECTED,
        f"StackPointCloud: GET {ROOT}/nodes/41/can_delete: 400 Bad Request: {REASON}",
    ),
}


@pytest.mark.parametrize("fact", PROTECTED)
def test_never_deleted_and_foretold(fact: str, clock: StepClock) -> None:
    """The Node's labels say worker of the group; the API says otherwise and is believed."""
    word, reason, said = PROTECTED[fact]
    with serving(clock) as server, providing(server, clock, SPEC) as provider:
        node = node_of(server.cloud.add(group_name=FIRST, **word))
        node = NodeRef(node.name, node.provider_id, {**node.labels, "stackpoint.io/role": "worker"})
        foretold = provider.refusals(FIRST, [node], deadline=MINUTES)
        assert provider.delete_nodes(FIRST, [node], deadline=MINUTES) == foretold
        assert foretold == {node.name: Refused(reason, said)}
        assert not [one for one in server.face.requests if one.method == "DELETE"]
        group = provider.group_for(node, deadline=MINUTES)
        assert (group is None) == (reason is Refusal.CONTROL_PLANE)


@pytest.mark.parametrize("sign", [{"role": "master"}, {"etcd_state": "kube_etcd"}])
def test_masters_and_members_of_etcd_keep_no_minimum(sign: dict[str, str], clock: StepClock) -> None:
    with serving(clock) as server, providing(server, clock, "1:5:t2.medium:od") as provider:
        worker = node_of(server.cloud.add(group_name=FIRST))
        server.cloud.add(group_name=FIRST, **sign)
        assert provider.target_size(FIRST, deadline=MINUTES) == 1
        assert len(provider.instances(FIRST, deadline=MINUTES)) == 1
        (outcome,) = provider.delete_nodes(FIRST, [worker], deadline=MINUTES).values()
        assert outcome == Refused(Refusal.BELOW_MINIMUM, f"group {FIRST} must keep 1, 0 would be left")


@pytest.mark.parametrize(("state", "counts"), [("running", True), ("provisioned", False), ("failed", False)])
def test_only_a_build_that_failed_does_not_keep_the_minimum(state: str, counts: bool, clock: StepClock) -> None:
    with serving(clock) as server, providing(server, clock, "1:5:t2.medium:od") as provider:
        made = server.cloud.add(group_name=FIRST)
        document = {"pk": made.pk, "instance_id": made.instance_id, "role": "worker", "group_name": FIRST}
        body = json.dumps([document | {"state": state, "is_failed": True}])
        server.face.inject(Fault(method="GET", path=f"{ROOT}/nodes", status=200, body=body, times=9))
        refused = provider.refusals(FIRST, [node_of(made)], deadline=MINUTES)
        assert [one.reason for one in refused.values()] == [Refusal.BELOW_MINIMUM] * counts


def test_a_node_whose_label_says_master_is_refused(clock: StepClock) -> None:
    with serving(clock) as server, providing(server, clock, SPEC) as provider:
        node = node_of(server.cloud.add(group_name=FIRST))
        node = NodeRef(node.name, node.provider_id, {**node.labels, "stackpoint.io/role": "master"})
        outcomes = provider.delete_nodes(FIRST, [node], deadline=MINUTES)
        assert outcomes == {node.name: Refused(Refusal.CONTROL_PLANE, "the node belongs to the control plane")}


def test_an_order_is_followed_until_the_node_is_deleted(clock: StepClock) -> None:
    """`deleting` is not the end; one DELETE is enough."""
    with serving(clock, deleting=100.0) as server, providing(server, clock, SPEC) as provider:
        node = node_of(server.cloud.add(group_name=FIRST))
        assert provider.delete_nodes(FIRST, [node], deadline=MINUTES) == {node.name: Deleted("gone")}
        assert 100 <= clock.monotonic() < 130
        assert len([one for one in server.face.requests if one.method == "DELETE"]) == 1


def test_a_node_that_vanishes_from_the_list_is_deleted(clock: StepClock) -> None:
    with serving(clock, deleting=10.0, forgetting=0.0) as server, providing(server, clock, SPEC) as provider:
        node = node_of(server.cloud.add(group_name=FIRST))
        assert provider.delete_nodes(FIRST, [node], deadline=MINUTES) == {node.name: Deleted("no longer there")}


def test_a_deletion_that_does_not_end_is_accepted_and_asked_for_again(clock: StepClock) -> None:
    with serving(clock, forgetting=1000.0) as server, providing(server, clock, SPEC) as provider:
        node = node_of(server.cloud.add(group_name=FIRST, sticky=True))
        outcomes = provider.delete_nodes(FIRST, [node], deadline=60)
        assert outcomes == {node.name: Accepted("the system took the order; listed as deleting")}
        assert provider.target_size(FIRST, deadline=MINUTES) == 0
        server.cloud.change(41, sticky=False)
        assert provider.delete_nodes(FIRST, [node], deadline=MINUTES) == {node.name: Deleted("gone")}


def test_what_somebody_else_deletes_is_awaited_and_not_ordered(clock: StepClock) -> None:
    with serving(clock, deleting=40.0) as server, providing(server, clock, SPEC) as provider:
        node = node_of(server.cloud.add(group_name=FIRST))
        server.cloud.end(41)
        assert provider.delete_nodes(FIRST, [node], deadline=MINUTES) == {node.name: AlreadyGone("gone")}
        assert not [one for one in server.face.requests if one.method == "DELETE"]


#: fact: (changes of the Node, its group)
NODES: dict[str, tuple[dict[str, Any], str | None]] = {
    "by the label": ({}, FIRST),
    "by the address where it has neither label nor provider ID": ({"labels": {}, "provider_id": ""}, FIRST),
    "not without the label where it has a provider ID": ({"labels": {}}, None),
    "not with an empty label": ({"labels": {"stackpoint.io/instance_id": ""}}, None),
    "not with another group's label": (
        {"labels": {"stackpoint.io/instance_id": "spcstand-worker-41", "stackpoint.io/node_group": "mine"}},
        None,
    ),
    "not with the id of no node": ({"labels": {"stackpoint.io/instance_id": "spcstand-worker-9"}}, None),
}


@pytest.mark.parametrize("fact", NODES)
def test_whose_node_it_is(fact: str, clock: StepClock) -> None:
    changes, group = NODES[fact]
    with serving(clock) as server, providing(server, clock, SPEC) as provider:
        node = node_of(server.cloud.add(group_name=FIRST), **changes)
        found = provider.group_for(node, deadline=MINUTES)
        assert (found.id if found else None) == group
        (outcome,) = provider.delete_nodes(FIRST, [node], deadline=MINUTES).values()
        assert isinstance(outcome, Deleted) == (group is not None)


def test_the_id_at_the_cloud_names_the_node_and_must_agree_with_the_label(clock: StepClock) -> None:
    with serving(clock) as server, providing(server, clock, SPEC) as provider:
        made = server.cloud.add(group_name=FIRST, provider_node_id="i-0abc")
        assert provider.group_for(node_of(made, labels={}, provider_id="aws:///z/i-0abc"), deadline=MINUTES)
        assert provider.group_for(node_of(made, provider_id="aws:///z/i-0abd"), deadline=MINUTES) is None


def test_instances_bear_the_ids_that_the_cluster_was_seen_to_use(clock: StepClock) -> None:
    with serving(clock) as server, providing(server, clock, SPEC) as provider:
        known, nameless, unknown = [server.cloud.add(group_name=FIRST) for _ in range(3)]
        provider.group_for(node_of(known), deadline=MINUTES)
        provider.group_for(node_of(nameless, provider_id=""), deadline=MINUTES)
        assert [one.id for one in provider.instances(FIRST, deadline=MINUTES)] == [
            "aws:///us-west-2a/i-00000029",
            "ip-42.us-west-2.compute.internal",
            f"spc://{unknown.instance_id}",
        ]


def test_states_and_builds_that_fail_or_never_end(clock: StepClock) -> None:
    with serving(clock, building=400.0, deleting=9000.0) as server, providing(server, clock, SPEC) as provider:
        server.cloud.add(group_name=FIRST, building=0.0)
        server.cloud.add(group_name=FIRST, failed=True)
        server.cloud.add(group_name=FIRST, stuck=True)
        server.cloud.end(server.cloud.add(group_name=FIRST).pk)
        clock.advance(1201)
        server.cloud.add(group_name=FIRST)
        found = provider.instances(FIRST, deadline=9999)
        size = provider.target_size(FIRST, deadline=9999)
    failed = InstanceError("BUILD_FAILED", "StackPointCloud could not make the node")
    stuck = InstanceError("BUILD_TIMEOUT", "the node is draft for more than 1200 seconds")
    ids = [f"spc://spcstand-worker-{pk}" for pk in range(41, 46)]
    assert list(found) == [
        Instance(ids[0], InstanceState.RUNNING),
        Instance(ids[1], InstanceState.CREATING, failed),
        Instance(ids[2], InstanceState.CREATING, stuck),
        Instance(ids[3], InstanceState.DELETING),
        Instance(ids[4], InstanceState.CREATING),
    ]
    assert size == 4  # nodes that are being built count: else too many would be asked for


@pytest.mark.parametrize("answers_all", [True, False])
def test_the_first_generation_adds_to_the_cluster(answers_all: bool, clock: StepClock) -> None:
    """Whether the answer lists the new nodes only or the whole cluster, master included."""
    with serving(clock, answers_all=answers_all) as server, providing(server, clock, SPEC) as provider:
        server.cloud.add(role="master", etcd_state="kube_etcd")
        server.cloud.add(group_name=FIRST)
        provider.increase_size(FIRST, 2, deadline=MINUTES)
        (sent,) = [one for one in server.face.requests if one.method == "POST"]
        assert sent.path == f"{ROOT}/add_node"
        assert msgspec.json.decode(sent.body) == {"size": "t2.medium", "node_count": 2, "group": FIRST}
        assert provider.target_size(FIRST, deadline=MINUTES) == 3


def test_the_second_generation_adds_to_its_pool(clock: StepClock) -> None:
    with serving(clock, pools=(pool(),)) as server, providing(server, clock) as provider:
        provider.increase_size(SECOND, 2, deadline=MINUTES)
        (sent,) = [one for one in server.face.requests if one.method == "POST"]
        assert sent.path == f"{ROOT}/nodepools/1/add"
        assert msgspec.json.decode(sent.body) == {"size": "t2.medium", "node_count": 2, "node_pool": 1}
        assert provider.target_size(SECOND, deadline=MINUTES) == 2


def test_nodes_whose_answer_was_seen_but_that_are_not_listed_yet_count(clock: StepClock) -> None:
    with serving(clock) as server, providing(server, clock, SPEC) as provider:
        made = msgspec.json.encode([{"pk": 99, "instance_id": "spc-99", "group_name": FIRST}]).decode()
        server.face.inject(Fault(path=f"{ROOT}/add_node", status=201, body=made))
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


def test_the_mounted_pools_win_until_they_are_broken(tmp_path: Path, clock: StepClock) -> None:
    """The key of the ConfigMap is read at each look; the API is asked where it is missing or no JSON."""
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


#: fact: (the node's words, its group among a pool with pk 1)
MEMBERS: dict[str, tuple[dict[str, Any], str]] = {
    "by the full name": ({"group_name": "autoscaling-p1"}, "autoscaling-p1"),
    "by the name without the prefix": ({"group_name": "p1"}, "autoscaling-p1"),
    "by the pool": ({"pool": 1}, "autoscaling-p1"),
    "by both": ({"pool": 1, "group_name": "p1"}, "autoscaling-p1"),
    "not if they disagree": ({"pool": 2, "group_name": "p1"}, ""),
    "not if the pool is no group": ({"pool": 2}, ""),
    "not without either": ({}, ""),
}


@pytest.mark.parametrize("fact", MEMBERS)
def test_members(fact: str) -> None:
    words, group = MEMBERS[fact]
    groups = {"autoscaling-p1": Group(NodeGroup("autoscaling-p1", 0, 1), "t2.medium", 1)}
    assert group_of(Node(41, **words), groups) == group


def test_a_template_is_made_of_the_pool_or_of_the_size(clock: StepClock) -> None:
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
        with pytest.raises(NotSupported, match="group autoscaling-b: nothing is known about the size 'unheard-of'"):
            provider.template("autoscaling-b", deadline=MINUTES)
    with serving(clock, pools=(pool(cpu="8", memory="32000"),)) as server, providing(server, clock) as provider:
        found = provider.template(SECOND, deadline=MINUTES).capacity
        assert found == {"cpu": "8", "memory": "32000Mi", "pods": "110"}


def test_two_nodes_of_one_instance_id_are_both_left_alone(clock: StepClock) -> None:
    nodes = [
        {"pk": pk, "instance_id": "twin", "role": "worker", "group_name": FIRST, "state": "running"} for pk in (1, 2)
    ]
    with serving(clock) as server, providing(server, clock, SPEC) as provider:
        body = msgspec.json.encode(nodes).decode()
        server.face.inject(Fault(method="GET", path=f"{ROOT}/nodes", status=200, body=body, times=3))
        node = NodeRef("a", labels={"stackpoint.io/instance_id": "twin"})
        outcomes = provider.delete_nodes(FIRST, [node], deadline=MINUTES)
        assert outcomes == {"a": Refused(Refusal.AMBIGUOUS, "several nodes have the instance id twin")}


def test_refused_credentials_are_said_without_the_token(clock: StepClock) -> None:
    with serving(clock) as server, providing(server, clock, SPEC) as provider:
        server.face.inject(
            Fault(method="GET", path=f"{ROOT}/nodes", status=403, body=f'{{"detail": "no owner: {TOKEN}"}}')
        )
        with pytest.raises(AuthError) as caught:
            provider.refresh(deadline=MINUTES)
        assert str(caught.value) == f"StackPointCloud: GET {ROOT}/nodes: 403 Forbidden: no owner: ***"


def test_a_new_process_resumes_what_was_ordered_though_the_node_is_forgotten(clock: StepClock) -> None:
    with serving(clock, forgetting=0.0) as server, providing(server, clock, SPEC) as provider:
        node = node_of(server.cloud.add(group_name=FIRST))
        server.cloud.end(41)
        clock.advance(1)
        strange = provider.delete_nodes(FIRST, [node], deadline=MINUTES)
        resumed = NodeRef(node.name, node.provider_id, node.labels, ordered_at=START - dt.timedelta(minutes=1))
        assert strange == {node.name: Refused(Refusal.NOT_IN_GROUP, "no machine of the group is its machine")}
        assert provider.delete_nodes(FIRST, [resumed], deadline=MINUTES) == {node.name: AlreadyGone("no longer there")}


def test_pools_that_cannot_be_read_are_an_error_and_not_an_empty_cluster(clock: StepClock) -> None:
    with serving(clock, pools=(pool(),)) as server, providing(server, clock) as provider:
        server.face.inject(Fault(method="GET", path=f"{ROOT}/nodepools", status=503, times=100))
        with pytest.raises(errors.Retryable):
            provider.groups(deadline=30)


def test_a_pool_that_goes_while_its_node_does_hides_no_order(tmp_path: Path, clock: StepClock) -> None:
    """An exception would say that nothing was ordered."""
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


def test_the_log_of_changes(clock: StepClock, caplog: pytest.LogCaptureFixture) -> None:
    """At -v=4 and above: what the original's manager tells at -v=6, for each change once."""
    caplog.set_level(logging.DEBUG, "rescheduler.backends.stackpoint")

    def told() -> list[str]:
        lines = [record.getMessage().removeprefix("stackpoint: ") for record in caplog.records]
        caplog.clear()
        return lines

    update = "updating cluster info, organizationID 6, clusterID 810"
    with serving(clock, building=100.0, forgetting=0.0) as server, providing(server, clock, SPEC) as provider:
        provider.increase_size(FIRST, 1, deadline=MINUTES)
        assert told() == [
            update,
            "adding 1 nodes to group autoscaling-od",
            "AddNodes response {instance_id: spcstand-worker-41, state: draft}",
        ]
        clock.advance(150)
        provider.refresh(deadline=MINUTES)
        new = "new node found, nodeID spcstand-worker-41, newState building, group autoscaling-od"
        assert told() == [update, new]
        clock.advance(150)
        provider.refresh(deadline=MINUTES)
        assert told() == [update, "node state change, nodeID spcstand-worker-41, oldState building, newState running"]
        assert provider.group_for(NodeRef("first-worker"), deadline=MINUTES) is None
        assert told() == ["node not manageable first-worker: it is of no group"]
        clock.advance(100)
        provider.refresh(deadline=MINUTES)
        assert told() == [update]
        provider.delete_nodes(FIRST, [node_of(server.cloud.nodes()[0])], deadline=2 * MINUTES)
        [*_, gone] = told()
        assert gone == "node is not listed any more, nodeID spcstand-worker-41"


def test_a_node_that_is_added_to_another_group_is_told(clock: StepClock, caplog: pytest.LogCaptureFixture) -> None:
    with serving(clock) as server, providing(server, clock, SPEC) as provider:
        made = msgspec.json.encode([{"pk": 99, "instance_id": "spc-99", "role": "worker", "group_name": "x"}]).decode()
        server.face.inject(Fault(path=f"{ROOT}/add_node", status=201, body=made))
        provider.increase_size(FIRST, 1, deadline=MINUTES)
    assert [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING] == [
        "stackpoint: added node spc-99 is in group none, not autoscaling-od"
    ]


@pytest.mark.parametrize("text", [None, "cordonUntilRunning: false"])
def test_nodes_that_join_while_their_machine_is_built(text: str | None, tmp_path: Path, clock: StepClock) -> None:
    """Not those whose build has failed, and not those of other systems."""
    file = None
    if text is not None:
        file = tmp_path / "spc.yaml"
        file.write_text(text)
    with serving(clock, building=100.0) as server, providing(server, clock, SPEC, file=file) as provider:
        built = node_of(server.cloud.add(group_name=FIRST, building=0.0))
        made = node_of(server.cloud.add(group_name=FIRST))
        failed = node_of(server.cloud.add(group_name=FIRST, failed=True))
        nodes = [built, made, failed, NodeRef("elsewhere")]
        expected = {made.name} if text is None else set()
        assert provider.building(nodes, deadline=MINUTES) == expected
        clock.advance(300)
        assert provider.building(nodes, deadline=MINUTES) == set()
