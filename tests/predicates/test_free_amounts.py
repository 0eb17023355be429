"""Free resources are always allocatable minus the requests of the pods, in 64 bits, after any sequence of changes."""

from typing import Final

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from predicates.objects import Pod, PodClass
from predicates.plugins import resources
from predicates.snapshot import Snapshot
from predicates.wire import Decoder, Interner
from tests.conformance.builders import node, pod
from tests.conformance.generate.world import Json
from tests.predicates.asking import reasons

NODES: Final = ("a", "b")
_AMOUNT: Final = st.sampled_from(("0", "1", "2", "3", "9223372036854775807"))
_OFFER: Final = st.dictionaries(st.sampled_from(("cpu", "memory", "pods", "b.c/d", "b.c/e")), _AMOUNT)
_REQUEST: Final = st.dictionaries(st.sampled_from(("cpu", "memory", "b.c/d", "b.c/f")), _AMOUNT)
_STEP: Final = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(NODES), _OFFER),
    st.tuples(st.just("pod"), st.integers(0, 5), st.sampled_from((*NODES, "")), _REQUEST),
    st.tuples(st.just("no node"), st.sampled_from(NODES)),
    st.tuples(st.just("no pod"), st.integers(0, 5)),
)


@given(st.lists(_STEP, max_size=12), st.lists(_REQUEST, min_size=1, max_size=3))
def test_free_is_allocatable_minus_requested(steps: list[tuple[object, ...]], requested: list[Json]) -> None:
    table, decoder = Snapshot(), Decoder(Interner())
    for step in steps:
        _do(step, table, decoder)
    waiting = [_pod(decoder, f"requested-{number}", "", requests) for number, requests in enumerate(requested)]
    for placed in waiting:
        table.upsert("Pod", placed)
    classes = [placed.cls for placed in waiting]
    _check(table, classes)
    with table.trial() as trial:
        for placed in table.pods.values():
            if placed.node_name in table.nodes.row:
                trial.evict(placed)
        for cls in classes:
            for row in table.nodes.row.values():
                trial.place(cls, row)
        for cls in classes:
            reasons(resources.NODE_RESOURCES_FIT, cls, table)  # all rows at once give the same result as single rows
    _check(table, classes)


def _do(step: tuple[object, ...], table: Snapshot, decoder: Decoder) -> None:
    match step:
        case ("node", str(name), dict(offer)):
            table.upsert("Node", decoder.decode("Node", msgspec.json.encode(node(name, allocatable=offer))))
        case ("pod", int(number), str(on), dict(requests)):
            table.upsert("Pod", _pod(decoder, f"p{number}", on, requests))
        case ("no node", str(name)):
            table.delete("Node", name)
        case ("no pod", int(number)):
            table.delete("Pod", f"default/p{number}")


def _check(table: Snapshot, classes: list[PodClass]) -> None:
    for cls in classes:
        result = reasons(resources.NODE_RESOURCES_FIT, cls, table)
        assert {name: bool(why) for name, why in result.items()} == {name: _short(table, name, cls) for name in result}


def _short(table: Snapshot, name: str, cls: PodClass) -> bool:
    row = table.nodes.row[name]
    here = [dict(table.load_of(placed).amounts) for placed in table.pods_on[name].values()]
    free = {
        resource: int(table.nodes.allocatable[row, column]) - sum(placed.get(resource, 0) for placed in here)
        for resource, column in table.nodes.resources.items()
    }
    if free["pods"] - len(here) < 1:
        return True
    return any(amount > 0 and _wrapped(free.get(resource, 0)) < amount for resource, amount in cls.requests)


def _wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def _pod(decoder: Decoder, name: str, on: str, requests: Json) -> Pod:
    result = decoder.decode("Pod", msgspec.json.encode(pod(name, on, requests=requests)))
    assert isinstance(result, Pod)
    return result
