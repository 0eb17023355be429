"""NodePorts, and its index under placements, evictions and trials."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predicates.indexes.by_node import PortsIndex
from predicates.objects import Pod
from predicates.plugins import nodes as plugins_nodes
from predicates.snapshot import Snapshot
from predicates.wire import Decoder, Interner
from tests.conformance.builders import node, pod
from tests.conformance.generate.world import Json
from tests.predicates.asking import load, reasons

CONFLICT = "node(s) didn't have free ports for the requested pod ports"


def _port(number: int, ip: str | None = None, protocol: str | None = None) -> Json:
    given_ = {"hostIP": ip, "protocol": protocol}
    return {"containerPort": 80, "hostPort": number, **{key: item for key, item in given_.items() if item is not None}}


def _open(name: str, *ports: Json, on: str = "", init: Json | None = None) -> Json:
    spec: Any = {"containers": [{"name": "c", "ports": list(ports)}]}
    if init is not None:
        spec["initContainers"] = [init]
    return pod(name, on, **spec)


CASES: dict[str, tuple[Json, Json, str]] = {
    "same port": (_port(80), _port(80), CONFLICT),
    "different port": (_port(80), _port(81), ""),
    "different protocol": (_port(80, protocol="TCP"), _port(80, protocol="UDP"), ""),
    "the default protocol is TCP": (_port(80, protocol=""), _port(80, protocol="TCP"), CONFLICT),
    "different address": (_port(80, "10.0.0.1"), _port(80, "10.0.0.2"), ""),
    "same address": (_port(80, "10.0.0.1"), _port(80, "10.0.0.1"), CONFLICT),
    "wildcard address in use": (_port(80, "0.0.0.0"), _port(80, "10.0.0.1"), CONFLICT),
    "wildcard address requested": (_port(80, "10.0.0.1"), _port(80), CONFLICT),
    "the default address is the wildcard": (_port(80, ""), _port(80, "0.0.0.0"), CONFLICT),
    "the IPv6 wildcard is not a wildcard": (_port(80, "::"), _port(80, "::1"), ""),
    "container port without a host port": ({"containerPort": 80}, _port(80), ""),
    "port 0": (_port(0), _port(0), ""),
    "negative port": (_port(-1), _port(-1), ""),
}


@pytest.mark.parametrize(("used", "requested", "expected"), CASES.values(), ids=CASES)
def test_ports_conflict_by_number_protocol_and_address(used: Json, requested: Json, expected: str) -> None:
    table = load(node("a"), node("b"), _open("q", used, on="a"), _open("p", requested))
    assert reasons(plugins_nodes.NODE_PORTS, table.pods["default/p"].cls, table) == {"a": expected, "b": ""}


def test_sidecars_use_host_ports_and_other_init_containers_do_not() -> None:
    sidecar = {"name": "s", "ports": [_port(80)], "restartPolicy": "Always"}
    starter = {"name": "s", "ports": [_port(80)]}
    table = load(
        node("a"), node("b"), _open("q", on="a", init=sidecar), _open("r", on="b", init=starter), _open("p", _port(80))
    )
    assert reasons(plugins_nodes.NODE_PORTS, table.pods["default/p"].cls, table) == {"a": CONFLICT, "b": ""}


def test_port_used_by_two_pods_is_free_after_both_are_deleted() -> None:
    table = load(node("a"), _open("q", _port(80), on="a"), _open("r", _port(80), on="a"))
    cls, actual = table.pods["default/q"].cls, []
    with table.trial() as trial:
        for name in ("default/q", "default/r"):
            actual.append(reasons(plugins_nodes.NODE_PORTS, cls, table)["a"])
            trial.evict(table.pods[name])
        actual.append(reasons(plugins_nodes.NODE_PORTS, cls, table)["a"])
    assert (actual, reasons(plugins_nodes.NODE_PORTS, cls, table)) == ([CONFLICT, CONFLICT, ""], {"a": CONFLICT})


def test_a_pod_does_not_conflict_with_itself() -> None:
    table = load(node("a"), _open("p", _port(80), _port(80, "10.0.0.1"), _port(80)))
    assert reasons(plugins_nodes.NODE_PORTS, table.pods["default/p"].cls, table) == {"a": ""}


def test_many_rows_give_the_same_result_as_few() -> None:
    nodes = [node(f"n{number}") for number in range(100)]
    table = load(*nodes, *(_open(f"q{number}", _port(80), on=f"n{number}") for number in range(0, 100, 7)))
    actual = reasons(plugins_nodes.NODE_PORTS, table.pods["default/q0"].cls, table)
    assert {name for name, why in actual.items() if why} == {f"n{number}" for number in range(0, 100, 7)}


# After any sequence of changes, the index equals one that is built from scratch.

_PORTS = st.lists(
    st.builds(_port, st.sampled_from([0, 80, 81]), st.sampled_from([None, "", "10.0.0.1"]), st.just("TCP")), max_size=2
)
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pod", "gone", "node", "node gone", "place", "evict", "keep", "back"]),
        st.integers(0, 3),
        st.sampled_from(["a", "b", "c", ""]),
        _PORTS,
    ),
    max_size=20,
)


class _PortScenario:
    """A snapshot whose index exists from the first step on."""

    def __init__(self) -> None:
        self.table, self.decoder = Snapshot(), Decoder(Interner())
        self.index = self.table.index(PortsIndex)

    def do(self, action: str, number: int, on: str, ports: list[Json]) -> None:
        if action == "pod":
            self.put(_open(f"p{number}", *ports, on=on))
        elif action == "gone":
            self.table.delete("Pod", f"default/p{number}")
        elif action == "node" and on:
            self.put(node(on))
        elif action == "node gone":
            self.table.delete("Node", on)

    def put(self, obj: Json) -> None:
        self.table.upsert(obj["kind"], self.decoder.decode(obj["kind"], msgspec.json.encode(obj)))

    def expected(self) -> dict[Any, int]:
        """Count the ports from the pods."""
        result: dict[Any, int] = {}
        for item in self.table.pods.values():
            if (row := self.table.nodes.row.get(item.node_name)) is not None:
                for port in item.cls.ports:
                    result[port, row] = result.get((port, row), 0) + 1
        return result


@settings(max_examples=200)
@given(_STEPS, _STEPS)
def test_index_is_correct_after_events_and_trials(
    before: list[tuple[str, int, str, list[Json]]], tried: list[tuple[str, int, str, list[Json]]]
) -> None:
    cluster = _PortScenario()
    for step in before:
        cluster.do(*step)
    expected = cluster.expected()
    assert cluster.index.counts() == expected
    gone: set[str] = set()
    with cluster.table.trial() as trial:
        for action, number, on, _ in tried:
            obj: Pod | None = cluster.table.pods.get(f"default/p{number}")
            if (
                action == "evict"
                and obj is not None
                and obj.key not in gone
                and obj.node_name in cluster.table.nodes.row
            ):
                gone.add(obj.key)
                trial.evict(obj)
            elif action == "place" and obj is not None and (row := cluster.table.nodes.row.get(on)) is not None:
                trial.place(obj.cls, row)
            elif action == "keep":
                trial.keep()
    assert cluster.index.counts() == expected
