"""VolumeBinding: volumes that placements in a trial have taken."""

import pytest

from predicates.plugins import volumes
from predicates.snapshot import Snapshot
from tests.conformance.builders import claim, node
from tests.conformance.generate.world import Json
from tests.predicates.asking import load, reasons
from tests.predicates.binding import LOCAL, NONE, PROVISIONED, spec
from tests.predicates.volumes import ZONE, accessible_from, local, mounting, zoned


def _taken(table: Snapshot, pod: str) -> dict[str, str]:
    return reasons(volumes.ASSUMED, table.pods[f"default/{pod}"].cls, table)


def _two_pods(*there: Json, of: Json = LOCAL, second: str = "d") -> Snapshot:
    nodes = [zoned("n", "a"), zoned("m", "a"), zoned("o", "b")]
    claims = [claim(name, of["metadata"]["name"]) for name in sorted({"c", second})]
    return load(*nodes, of, *there, *claims, mounting("c"), mounting(second, name="q"))


ASSUMED: dict[str, tuple[Snapshot, dict[str, str]]] = {
    "the only volume": (_two_pods(local("v", "n")), {"n": NONE}),
    "one of two": (_two_pods(local("v", "n"), local("w", "n")), {}),
    "one that two nodes can access": (_two_pods(local("v", "n", "m"), local("w", "o")), {"n": NONE, "m": NONE}),
    "one in this zone, another elsewhere": (
        _two_pods(accessible_from(local("v"), ZONE, "a"), accessible_from(local("w"), ZONE, "b")),
        {"n": NONE, "m": NONE},
    ),
    "one, and another can be provisioned": (_two_pods(local("v", "n", storage_class="made"), of=PROVISIONED), {}),
    "too small for the second pod": (
        load(
            zoned("n", "a"),
            LOCAL,
            local("v", "n", size="1Gi"),
            local("w", "n", size="5Gi"),
            claim("c", "local"),
            spec(claim("d", "local"), resources={"requests": {"storage": "3Gi"}}),
            mounting("c"),
            mounting("d", name="q"),
        ),
        # The scheduler would choose the small volume for the first pod; we know only that it is one of this group.
        {"n": NONE},
    ),
    "shared claim": (_two_pods(local("v", "n", "m"), second="c"), {"m": NONE, "o": NONE}),
    "shared claim to be provisioned": (_two_pods(of=PROVISIONED, second="c"), {"m": NONE, "o": NONE}),
}


@pytest.mark.parametrize(("table", "expected"), ASSUMED.values(), ids=ASSUMED)
def test_placed_pod_takes_its_volume(table: Snapshot, expected: dict[str, str]) -> None:
    """A plan never assigns one volume to two pods, regardless of which one the scheduler chooses for the first."""
    nothing = dict.fromkeys(table.nodes.row, "")
    assert _taken(table, "q") == nothing
    with table.trial() as trial:
        trial.place(table.pods["default/p"].cls, table.nodes.row["n"])
        assert _taken(table, "q") == nothing | expected
        trial.unplace(table.pods["default/p"].cls, table.nodes.row["n"])
        assert _taken(table, "q") == nothing
    assert _taken(table, "q") == nothing


def test_pre_bound_volume_is_not_taken_by_others() -> None:
    aside = spec(local("v", "n"), claimRef={"namespace": "default", "name": "d"})
    table = _two_pods(aside, local("w", "n"))
    with table.trial() as trial:
        trial.place(table.pods["default/p"].cls, table.nodes.row["n"])
        assert _taken(table, "q") == {"n": "", "m": "", "o": ""}


def test_unplaced_pod_does_not_release_the_volume_of_another() -> None:
    """The eviction of a placed pod of the same class does not release the volume of the first."""
    table = load(
        *(node(name) for name in "nm"),
        LOCAL,
        local("v", "n", "m"),
        *(claim(name, "local") for name in "cd"),
        mounting("d", name="q"),
        mounting("c", name="twin-1", on="m"),
        mounting("c", name="twin-2", on="n"),
    )
    first, second = table.pods["default/twin-1"], table.pods["default/twin-2"]
    with table.trial() as trial:
        trial.evict(first)
        trial.place(first.cls, table.nodes.row["n"])
        trial.evict(second)
        assert _taken(table, "q") == {"n": NONE, "m": NONE}
