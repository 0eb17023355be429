"""VolumeBinding: volumes that are to be made; the verdicts are the scheduler's."""

from typing import Final

import pytest

from tests.conformance.builders import claim, node, volume
from tests.conformance.generate.world import Json
from tests.predicates.asking import load
from tests.predicates.binding import AFFINITY, GONE, LOCAL, MADE, NONE, SPACE, on, spec
from tests.predicates.volumes import CSI, ZONE, about, local, mounting, reaching, zoned


def _topologies(*terms: dict[str, list[str]]) -> Json:
    return {
        **MADE,
        "allowedTopologies": [
            {"matchLabelExpressions": [{"key": key, "values": values} for key, values in term.items()]}
            for term in terms
        ],
    }


TOPOLOGIES: dict[str, tuple[Json, str]] = {
    "anywhere": (MADE, ""),
    "in no list of places": (_topologies(), ""),
    "in its zone": (_topologies({ZONE: ["b", "a"]}), ""),
    "in another": (_topologies({ZONE: ["b"]}), NONE),
    "in the second place": (_topologies({ZONE: ["b"]}, {ZONE: ["a"]}), ""),
    "in its zone, on other disks": (_topologies({ZONE: ["a"], "disk": ["ssd"]}), NONE),
    "nowhere": (_topologies({}), NONE),
    "in a place without a name": (_topologies({ZONE: []}), NONE),
    "by nobody": ({**MADE, "provisioner": "kubernetes.io/no-provisioner"}, NONE),
    "by a provisioner without a name": ({**MADE, "provisioner": ""}, NONE),
}


@pytest.mark.parametrize(("of", "expected"), TOPOLOGIES.values(), ids=TOPOLOGIES)
def test_a_volume_can_be_made(of: Json, expected: str) -> None:
    assert on(load(zoned("n", "a"), of, claim("c", "made"), mounting("c"))) == {"n": expected}


def test_a_chosen_node_is_the_only_one() -> None:
    for chosen, expected in (
        ("n", {"n": "", "m": NONE}),
        ("gone", {"n": NONE, "m": NONE}),
        ("", {"n": NONE, "m": NONE}),
    ):
        wanted = about(claim("c", "made"), annotations={"volume.kubernetes.io/selected-node": chosen})
        assert on(load(node("n"), node("m"), MADE, wanted, mounting("c"))) == expected


def test_a_chosen_node_must_still_be_able_to_make_it() -> None:
    wanted = about(claim("c", "local"), annotations={"volume.kubernetes.io/selected-node": "n"})
    assert on(load(node("n"), LOCAL, local("v", "n"), wanted, mounting("c"))) == {"n": NONE}


def _room(name: str = "r", selector: Json | None = None, **amounts: str) -> Json:
    topology = {} if selector is None else {"nodeTopology": selector}
    return {
        "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "kube-system"},
        "storageClassName": "made",
        **topology,
        **amounts,
    }


HERE: Final = {"matchLabels": {ZONE: "a"}}
ROOM: dict[str, tuple[list[Json], str]] = {
    "nothing reported": ([], SPACE),
    "enough": ([_room(selector=HERE, capacity="1Gi")], ""),
    "too little": ([_room(selector=HERE, capacity="1023Mi")], SPACE),
    "enough elsewhere": ([_room(selector={"matchLabels": {ZONE: "b"}}, capacity="1Gi")], SPACE),
    "enough everywhere": ([_room(selector={}, capacity="1Gi")], ""),
    "enough, in no place": ([_room(capacity="1Gi")], SPACE),
    "enough in a place that cannot be read": (
        [_room(selector={"matchExpressions": [{"key": ZONE, "operator": "Exists", "values": ["a"]}]}, capacity="1Gi")],
        SPACE,
    ),
    "enough, but not for one volume": ([_room(selector=HERE, capacity="9Gi", maximumVolumeSize="1M")], SPACE),
    "enough for one volume": ([_room(selector=HERE, maximumVolumeSize="1Gi")], ""),
    "enough for another class": ([{**_room(selector=HERE, capacity="1Gi"), "storageClassName": "x"}], SPACE),
    "enough in the second": ([_room(selector=HERE, capacity="1"), _room("s", selector=HERE, capacity="2Gi")], ""),
}


@pytest.mark.parametrize(("reported", "expected"), ROOM.values(), ids=ROOM)
def test_room_for_a_volume_is(reported: list[Json], expected: str) -> None:
    driver = {"kind": "CSIDriver", "metadata": {"name": CSI}, "spec": {"storageCapacity": True}}
    objects = (zoned("n", "a"), MADE, *reported, claim("c", "made"), mounting("c"))
    assert on(load(*objects, driver)) == {"n": expected}
    assert on(load(*objects, {**driver, "spec": {"storageCapacity": False}})) == {"n": ""}
    assert on(load(*objects)) == {"n": ""}


def test_a_claim_without_a_size_needs_no_room() -> None:
    driver = {"kind": "CSIDriver", "metadata": {"name": CSI}, "spec": {"storageCapacity": True}}
    wanted = spec(claim("c", "made"), resources={})
    assert on(load(node("n"), MADE, driver, wanted, mounting("c"))) == {"n": ""}


def test_all_reasons_of_a_node_are_named() -> None:
    reach = reaching(volume("v"), ZONE, "b")
    table = load(zoned("n", "a"), reach, claim("c", volume="v"), LOCAL, claim("d", "local"), mounting("c", "d"))
    assert on(table) == {"n": f"{AFFINITY}, {NONE}"}
    table = load(zoned("n", "a"), claim("c", volume="v"), LOCAL, claim("d", "local"), mounting("c", "d"))
    assert on(table) == {"n": f"{NONE}, {GONE}"}


def test_a_change_of_labels_is_seen() -> None:
    table = load(zoned("n", "a"), _topologies({ZONE: ["b"]}), claim("c", "made"), LOCAL, mounting("c"))
    assert on(table) == {"n": NONE}
    table.upsert("Node", next(iter(load(zoned("n", "b")).nodes)))
    assert on(table) == {"n": ""}
