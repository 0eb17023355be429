"""Matching of machines and Nodes, for the ids of every cloud; ambiguous ones are left alone."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rescheduler.cloudpool import matching
from rescheduler.cloudpool.matching import Machine, MachineIndex
from rescheduler.providers.base import NodeRef

GCE = "https://www.googleapis.com/compute/v1/projects/p/zones/z/instances/n-1"
ARM = "/subscriptions/S-1/resourceGroups/RG/providers/Microsoft.Compute/virtualMachines/vm-1"
UUID = "1b4f0e98-51b7-4c0f-9c2b-3f1c8a9d2e10"


def machine(name: str = "i-0abc1234", state: str = "RUNNING", **fields: Any) -> Machine:
    return Machine(id=name, machine_state=state, **fields)


def node(provider_id: str = "", *ips: str, name: str = "n1") -> NodeRef:
    return NodeRef(name, provider_id, internal_ips=ips)


def spot(instance: object, **fields: Any) -> Machine:
    return machine("sir-abcd1234", metadata={"request": {"state": "active"}, "instance": instance}, **fields)


#: fact: (machine, node) that match.
MATCHING: dict[str, tuple[Machine, NodeRef]] = {
    "EC2": (machine(), node("aws:///eu-north-1a/i-0abc1234")),
    "EC2, another zone in the Node": (machine(region="eu-north-1"), node("aws:///eu-north-1b/i-0abc1234")),
    "EC2, no zone in the Node": (machine(), node("aws:///i-0abc1234")),
    "a spot request with its instance": (spot({"instanceId": "i-0abc1234"}), node("aws:///z/i-0abc1234")),
    "a spot request, as another SDK writes it": (spot({"InstanceId": "i-0abc1234"}), node("aws:///z/i-0abc1234")),
    "a spot request, in snake case": (spot({"instance_id": "i-0abc1234"}), node("aws:///z/i-0abc1234")),
    "a spot request with an instance id field": (
        machine("sir-abcd1234", metadata={"request": {"instanceId": "i-0abc1234"}}),
        node("aws:///z/i-0abc1234"),
    ),
    "a spot request without metadata, by address": (
        machine("sir-abcd1234", private_ips=["10.0.0.7"]),
        node("aws:///z/i-0abc1234", "10.0.0.7"),
    ),
    "GCE": (machine(GCE), node("gce://p/z/n-1")),
    "GCE, beta link": (machine(GCE.replace("v1", "beta")), node("gce://p/z/n-1")),
    "Azure": (machine(ARM), node(f"azure://{ARM}")),
    "Azure, in another case": (machine(ARM), node(f"azure://{ARM.lower()}")),
    "OpenStack": (machine(UUID), node(f"openstack:///{UUID}")),
    "OpenStack with a region": (machine(UUID), node(f"openstack://RegionOne/{UUID}")),
    "OpenStack without dashes": (machine(UUID.replace("-", "")), node(f"openstack:///{UUID}")),
    "an id that is a provider ID": (machine("cherryservers://17"), node("cherryservers://17")),
    "a placeholder for a request": (machine("i-requested7", "REQUESTED"), node("i-requested7", name="i-requested7")),
    "a placeholder for a request at GCE": (
        machine("requested-pool-1", "REQUESTED"),
        node("requested-pool-1", name="requested-pool-1"),
    ),
    "an ended machine is still matched by its provider ID": (
        machine(state="TERMINATED"),
        node("aws:///z/i-0abc1234"),
    ),
    "an internal address of a Node without a provider ID": (machine(private_ips=["10.0.0.7"]), node("", "10.0.0.7")),
    "an internal address of a Node with a provider ID of another form": (
        machine(private_ips=["10.0.0.7"]),
        node("k3s://n1", "10.0.0.7"),
    ),
    "one of several addresses": (machine(private_ips=["10.9.9.9", "10.0.0.7"]), node("", "10.0.0.7", "fd00::7")),
    "a name": (machine("n1"), node()),
    "the last part of a link as name": (machine(GCE), node(name="n-1")),
    "the hostname label": (machine("host-1"), NodeRef("x", labels={"kubernetes.io/hostname": "host-1"})),
    "the name in OpenStack's metadata": (machine(UUID, metadata={"name": "n1"}), node()),
    "the private DNS name of EC2": (machine(metadata={"privateDnsName": "N1"}), node()),
}

#: fact: (machine, node) that do not match, without ambiguity.
DIFFERENT: dict[str, tuple[Machine, NodeRef]] = {
    "another instance": (machine(), node("aws:///z/i-0abc12345")),
    "another instance, though the address is the same": (
        machine(private_ips=["10.0.0.7"]),
        node("aws:///z/i-0fff1234", "10.0.0.7"),
    ),
    "another instance, though the name is the same": (machine(metadata={"name": "n1"}), node("aws:///z/i-0fff1234")),
    "another cloud, though the address is the same": (
        machine(private_ips=["10.0.0.7"]),
        node("gce://p/z/n1", "10.0.0.7"),
    ),
    "another project": (machine(GCE), node("gce://q/z/n-1")),
    "another zone": (machine(GCE), node("gce://p/y/n-1")),
    "an address of an ended machine": (machine(private_ips=["10.0.0.7"], state="TERMINATED"), node("", "10.0.0.7")),
    "a name of an ended machine": (machine("n1", state="TERMINATING"), node()),
    "a public address": (machine(public_ips=["10.0.0.7"]), node("", "10.0.0.7")),
    "no evidence": (machine(), node()),
    "a spot request without an instance": (machine("sir-abcd1234", "REQUESTED"), node("aws:///z/i-0abc1234")),
    "odd metadata": (machine("sir-abcd1234", metadata=[1, "x"]), node("aws:///z/i-0abc1234")),
    "odd addresses": (machine(private_ips={"a": 1}), node("", "10.0.0.7")),
    "null addresses": (machine(private_ips=None), node("", "10.0.0.7")),
    "empty strings": (machine("", private_ips=[""]), node("", "")),
    "an empty provider ID of a cloud": (machine(), node("aws:///")),
}


@pytest.mark.parametrize("fact", MATCHING)
def test_a_machine_and_its_node_are_matched(fact: str) -> None:
    machine_, other = MATCHING[fact]
    matched = MachineIndex([machine_]).match([other])
    assert (matched.machines, matched.ambiguous) == ({other.name: machine_}, {})
    assert matched.claimed == {0: (other.name,)}


@pytest.mark.parametrize("fact", DIFFERENT)
def test_a_machine_and_the_node_of_another_are_not_matched(fact: str) -> None:
    machine_, other = DIFFERENT[fact]
    matched = MachineIndex([machine_]).match([other])
    assert (matched.machines, matched.ambiguous, matched.claimed) == ({}, {}, {})


#: fact: (machines, nodes, matches, ambiguous nodes)
SEVERAL: dict[str, tuple[list[Machine], list[NodeRef], dict[str, str], dict[str, str]]] = {
    "an address of two machines": (
        [machine("sir-1", private_ips=["10.0.0.7"]), machine("sir-2", private_ips=["10.0.0.7"])],
        [node("", "10.0.0.7")],
        {},
        {"n1": "several machines have its internal address: sir-1, sir-2"},
    ),
    "an address of two nodes": (
        [machine(private_ips=["10.0.0.7"])],
        [node("", "10.0.0.7", name="a"), node("", "10.0.0.7", name="b")],
        {},
        {
            "a": "other nodes also have the internal address of machine i-0abc1234: b",
            "b": "other nodes also have the internal address of machine i-0abc1234: a",
        },
    ),
    "an id that is listed twice": (
        [machine(), machine(state="PENDING")],
        [node("aws:///z/i-0abc1234")],
        {},
        {"n1": "several machines have its provider ID: i-0abc1234, i-0abc1234"},
    ),
    "an instance and its spot request": (
        [machine(), spot({"instanceId": "i-0abc1234"})],
        [node("aws:///z/i-0abc1234")],
        {},
        {"n1": "several machines have its provider ID: i-0abc1234, sir-abcd1234"},
    ),
    "a node that is named twice": (
        [machine(), machine("i-0fff1234")],
        [node("aws:///z/i-0abc1234"), node("aws:///z/i-0fff1234")],
        {},
        {"n1": "the node is listed twice"},
    ),
    "a provider ID is stronger than an address": (
        [machine(private_ips=["10.0.0.7"])],
        [node("aws:///z/i-0abc1234", name="a"), node("", "10.0.0.7", name="b")],
        {"a": "i-0abc1234"},
        {},
    ),
    "an address is stronger than a name": (
        [machine("b", private_ips=["10.0.0.7"])],
        [node("", "10.0.0.7", name="a"), node(name="b")],
        {"a": "b"},
        {},
    ),
    "an address that an ended machine had before": (
        [machine("i-0aaa1111", "TERMINATED", private_ips=["10.0.0.7"]), machine(private_ips=["10.0.0.7"])],
        [node("", "10.0.0.7")],
        {"n1": "i-0abc1234"},
        {},
    ),
}


@pytest.mark.parametrize("fact", SEVERAL)
def test_several_machines_and_nodes_are_matched_only_with_certainty(fact: str) -> None:
    machines, nodes, sure, ambiguous = SEVERAL[fact]
    for order in (1, -1):
        matched = MachineIndex(machines[::order]).match(nodes[::order])
        assert ({name: machine_.id for name, machine_ in matched.machines.items()}, matched.ambiguous) == (
            sure,
            ambiguous,
        )


#: fact: attributes of the node and its rival; the rival is not queried, but its claim counts
RIVALS: dict[str, tuple[NodeRef, NodeRef, str]] = {
    "an address": (node("", "10.0.0.7"), node("", "10.0.0.7", name="old"), "internal address"),
    "a provider ID in another case": (
        node("azure:///subscriptions/s/A"),
        node("azure:///subscriptions/s/a", name="old"),
        "provider ID",
    ),
    "a hostname": (node(name="vm-1"), NodeRef("old", labels={"kubernetes.io/hostname": "vm-1"}), "name"),
}


@pytest.mark.parametrize("fact", RIVALS)
def test_a_machine_that_a_rival_claims_is_not_matched(fact: str) -> None:
    asked, rival, sign = RIVALS[fact]
    machines = MachineIndex([machine("/subscriptions/s/a", private_ips=["10.0.0.7"], metadata={"name": "vm-1"})])
    why = f"other nodes also have the {sign} of machine /subscriptions/s/a: old"
    assert machines.match([asked]).ambiguous == {}
    assert machines.match([replace(asked, rivals=(rival,))]).ambiguous == {asked.name: why}


def test_a_rival_with_a_different_instance_is_ignored() -> None:
    stale = node("aws:///z/i-0fff1234", "10.0.0.7", name="old")
    asked = replace(node("aws:///z/i-0abc1234", "10.0.0.7"), rivals=(stale,))
    assert list(MachineIndex([machine(private_ips=["10.0.0.7"])]).match([asked]).machines) == ["n1"]


addresses = st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3"])
ids = st.sampled_from(["i-0aaa1111", "i-0bbb1111", "sir-1", "n1", "n2"])
machines_drawn = st.lists(
    st.builds(machine, ids, st.sampled_from(["RUNNING", "TERMINATED"]), private_ips=st.lists(addresses, max_size=2))
)
nodes_drawn = st.lists(
    st.builds(
        NodeRef,
        st.sampled_from(["n1", "n2", "n3"]),
        st.sampled_from(["", "aws:///z/i-0aaa1111", "aws:///z/i-0bbb1111", "k3s://n1"]),
        internal_ips=st.lists(addresses, max_size=2).map(tuple),
    )
)


@given(machines=machines_drawn, nodes=nodes_drawn)
def test_no_machine_is_matched_twice_or_to_an_ambiguous_node(machines: list[Machine], nodes: list[NodeRef]) -> None:
    matched = MachineIndex(machines).match(nodes)
    given_away = [id(machine) for machine in matched.machines.values()]
    assert len(given_away) == len(set(given_away))
    assert not set(matched.machines) & set(matched.ambiguous)


@given(machines=machines_drawn, nodes=nodes_drawn)
def test_a_provider_id_is_never_contradicted(machines: list[Machine], nodes: list[NodeRef]) -> None:
    matched = MachineIndex(machines).match(nodes)
    for node in nodes:
        if node.name in matched.machines and node.provider_id.startswith("aws://"):
            known = matching.machine_identity(matched.machines[node.name])
            assert known in {None, matching.of_provider_id(node.provider_id)}


#: fact: (machine, provider ID of its Node)
PROVIDER_IDS: dict[str, tuple[Machine, str]] = {
    "EC2 by its region": (machine(region="eu-north-1a"), "aws:///eu-north-1a/i-0abc1234"),
    "EC2 by its placement": (
        machine(region="eu-north-1", metadata={"placement": {"availabilityZone": "eu-north-1b"}}),
        "aws:///eu-north-1b/i-0abc1234",
    ),
    "a spot request": (spot({"instanceId": "i-0abc1234"}, region="z"), "aws:///z/i-0abc1234"),
    "a spot request without an instance": (machine("sir-abcd1234"), "sir-abcd1234"),
    "GCE": (machine(GCE), "gce://p/z/n-1"),
    "Azure": (machine(ARM), f"azure://{ARM}"),
    "OpenStack": (machine(UUID), f"openstack:///{UUID}"),
    "a placeholder": (machine("i-requested7"), "i-requested7"),
    "an id that is a provider ID": (machine("cherryservers://17"), "cherryservers://17"),
}


@pytest.mark.parametrize("fact", PROVIDER_IDS)
def test_the_future_provider_id_of_a_node_is_derived_from_its_machine(fact: str) -> None:
    machine_, expected = PROVIDER_IDS[fact]
    assert matching.provider_id(machine_) == expected
