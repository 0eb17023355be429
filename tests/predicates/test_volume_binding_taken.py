"""VolumeBinding: what pods that a trial has placed have taken from others."""

import pytest

from predicates.plugins import volume_binding
from predicates.snapshot import Snapshot
from tests.conformance.builders import claim, node
from tests.conformance.generate.world import Json
from tests.predicates.asking import load, reasons
from tests.predicates.binding import LOCAL, MADE, NONE, spec
from tests.predicates.volumes import ZONE, local, mounting, reaching, zoned


def _taken(table: Snapshot, pod: str) -> dict[str, str]:
    return reasons(volume_binding.ASSUMED, table.pods[f"default/{pod}"].cls, table)


def _two_pods(*there: Json, of: Json = LOCAL, second: str = "d") -> Snapshot:
    nodes = [zoned("n", "a"), zoned("m", "a"), zoned("o", "b")]
    claims = [claim(name, of["metadata"]["name"]) for name in sorted({"c", second})]
    return load(*nodes, of, *there, *claims, mounting("c"), mounting(second, name="q"))


ASSUMED: dict[str, tuple[Snapshot, dict[str, str]]] = {
    "the only volume": (_two_pods(local("v", "n")), {"n": NONE}),
    "one of two": (_two_pods(local("v", "n"), local("w", "n")), {}),
    "one that another node has too": (_two_pods(local("v", "n", "m"), local("w", "o")), {"n": NONE, "m": NONE}),
    "one of a zone, another is elsewhere": (
        _two_pods(reaching(local("v"), ZONE, "a"), reaching(local("w"), ZONE, "b")),
        {"n": NONE, "m": NONE},
    ),
    "one, and another can be made": (_two_pods(local("v", "n", storage_class="made"), of=MADE), {}),
    "one that is too small for the second": (
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
        # The scheduler would give the small one to the first; we only know that it took one of this group.
        {"n": NONE},
    ),
    "a claim of both": (_two_pods(local("v", "n", "m"), second="c"), {"m": NONE, "o": NONE}),
    "a claim of both that is to be made": (_two_pods(of=MADE, second="c"), {"m": NONE, "o": NONE}),
}


@pytest.mark.parametrize(("table", "expected"), ASSUMED.values(), ids=ASSUMED)
def test_a_placed_pod_has_taken(table: Snapshot, expected: dict[str, str]) -> None:
    """No two pods of a plan are promised one volume, whichever of several the scheduler gives to the first."""
    nothing = dict.fromkeys(table.nodes.row, "")
    assert _taken(table, "q") == nothing
    with table.trial() as trial:
        trial.place(table.pods["default/p"].cls, table.nodes.row["n"])
        assert _taken(table, "q") == nothing | expected
        trial.unplace(table.pods["default/p"].cls, table.nodes.row["n"])
        assert _taken(table, "q") == nothing
    assert _taken(table, "q") == nothing


def test_a_volume_set_aside_cannot_be_taken_by_others() -> None:
    aside = spec(local("v", "n"), claimRef={"namespace": "default", "name": "d"})
    table = _two_pods(aside, local("w", "n"))
    with table.trial() as trial:
        trial.place(table.pods["default/p"].cls, table.nodes.row["n"])
        assert _taken(table, "q") == {"n": "", "m": "", "o": ""}


def test_a_pod_that_was_moved_away_keeps_what_its_claim_has_got() -> None:
    """Its twin, evicted from where it was placed, does not give back what the first has taken."""
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
