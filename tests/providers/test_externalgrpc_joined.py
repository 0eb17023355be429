"""Nodes whose provider ID differs from their instance's: Cluster Autoscaler would have their machines deleted."""

from collections.abc import Iterator

import pytest

from rescheduler.grpc_service.service import MEMORY
from rescheduler.providers.externalgrpc import wire
from tests.providers.clocks import StepClock
from tests.providers.externalgrpcs import offered
from tests.providers.shelf import Caller, Shelf

INSTANCE = "shelf://1"


class JoinedWorld:
    """A machine listed as INSTANCE, and a caller."""

    def __init__(self, call: Caller, shelf: Shelf, clock: StepClock) -> None:
        self.call, self.shelf, self.clock = call, shelf, clock
        shelf.listed = {"n": INSTANCE, INSTANCE: INSTANCE, "shelf://ONE": INSTANCE}

    def group_of(self, name: str, provider_id: str) -> str:
        node = wire.ExternalGrpcNode(name=name, providerID=provider_id)
        response = self.call("NodeGroupForNode", wire.NodeGroupForNodeRequest(node=node))
        return str(response.nodeGroup.id)

    def instances(self) -> list[str]:
        return [instance.id for instance in self.call("NodeGroupNodes", wire.NodeGroupNodesRequest(id="g")).instances]

    def deletion(self, *names: str) -> wire.NodeGroupDeleteNodesRequest:
        nodes = [wire.ExternalGrpcNode(name=name, providerID=name) for name in names]
        return wire.NodeGroupDeleteNodesRequest(id="g", nodes=nodes)

    def deleted(self) -> list[str]:
        return [node.name for asked in self.shelf.asked if asked[0] == "g" for node in asked[1:]]


@pytest.fixture
def world() -> Iterator[JoinedWorld]:
    shelf, clock = Shelf(), StepClock()
    with offered(shelf, clock) as address:
        caller = Caller(address)
        yield JoinedWorld(caller, shelf, clock)
        caller.channel.close()


def test_a_machine_whose_node_has_no_provider_id_is_kept(world: JoinedWorld) -> None:
    world.shelf.owned = True
    assert world.group_of("n", "") == "g"
    assert world.group_of(INSTANCE, INSTANCE) == ""
    status, message = world.call.failure("NodeGroupDeleteNodes", world.deletion(INSTANCE))
    assert status == "FAILED_PRECONDITION"
    assert message == "1 of 1 nodes are not deleted: node shelf://1: the machine has joined as node n"
    assert (world.deleted(), world.instances()[0]) == ([], INSTANCE)


def test_only_placeholders_of_machines_without_nodes_are_deleted(world: JoinedWorld) -> None:
    assert world.group_of("n", "shelf://ONE") == "g"
    status, message = world.call.failure("NodeGroupDeleteNodes", world.deletion(INSTANCE, "shelf://2"))
    assert (status, message.partition(":")[0]) == ("FAILED_PRECONDITION", "1 of 2 nodes are not deleted")
    assert world.deleted() == ["shelf://2"]


def test_a_machine_is_listed_with_the_provider_id_of_its_node(world: JoinedWorld) -> None:
    assert world.instances()[0] == INSTANCE
    world.group_of("n", "shelf://ONE")
    assert world.instances()[0] == "shelf://ONE"


def test_a_node_with_its_instances_id_may_leave_a_machine_behind(world: JoinedWorld) -> None:
    """A caller requests the deletion of a placeholder only after the Node is gone."""
    world.group_of("n", "shelf://ONE")
    world.group_of("n", INSTANCE)
    assert (world.group_of(INSTANCE, INSTANCE), world.instances()[0]) == ("g", INSTANCE)
    world.call("NodeGroupDeleteNodes", world.deletion(INSTANCE))
    assert world.deleted() == [INSTANCE]


def test_a_node_without_further_queries_is_gone(world: JoinedWorld) -> None:
    world.group_of("n", "shelf://ONE")
    world.clock.advance(MEMORY - 1)
    assert world.group_of(INSTANCE, INSTANCE) == ""
    world.clock.advance(2)
    assert (world.group_of(INSTANCE, INSTANCE), world.instances()[0]) == ("g", INSTANCE)
    world.call("NodeGroupDeleteNodes", world.deletion(INSTANCE))
    assert world.deleted() == [INSTANCE]
