"""VolumeBinding: volumes to be provisioned. The expected results are those of the scheduler."""

from typing import Final

import pytest

from tests.conformance.builders import claim, node, volume
from tests.conformance.generate.world import Json
from tests.predicates.asking import load
from tests.predicates.binding import AFFINITY, GONE, LOCAL, NONE, PROVISIONED, SPACE, on, spec
from tests.predicates.volumes import CSI, ZONE, accessible_from, local, mounting, with_metadata, zoned


def _topologies(*terms: dict[str, list[str]]) -> Json:
    return {
        **PROVISIONED,
        "allowedTopologies": [
            {"matchLabelExpressions": [{"key": key, "values": values} for key, values in term.items()]}
            for term in terms
        ],
    }


TOPOLOGIES: dict[str, tuple[Json, str]] = {
    "anywhere": (PROVISIONED, ""),
    "no allowed topologies": (_topologies(), ""),
    "allowed zone": (_topologies({ZONE: ["b", "a"]}), ""),
    "other zone": (_topologies({ZONE: ["b"]}), NONE),
    "second allowed topology": (_topologies({ZONE: ["b"]}, {ZONE: ["a"]}), ""),
    "allowed zone, other disk type": (_topologies({ZONE: ["a"], "disk": ["ssd"]}), NONE),
    "nowhere": (_topologies({}), NONE),
    "empty topology term": (_topologies({ZONE: []}), NONE),
    "no provisioner": ({**PROVISIONED, "provisioner": "kubernetes.io/no-provisioner"}, NONE),
    "empty provisioner": ({**PROVISIONED, "provisioner": ""}, NONE),
}


@pytest.mark.parametrize(("of", "expected"), TOPOLOGIES.values(), ids=TOPOLOGIES)
def test_allowed_topologies_restrict_provisioning(of: Json, expected: str) -> None:
    assert on(load(zoned("n", "a"), of, claim("c", "made"), mounting("c"))) == {"n": expected}


def test_claim_with_a_selected_node_fits_only_that_node() -> None:
    for chosen, expected in (
        ("n", {"n": "", "m": NONE}),
        ("gone", {"n": NONE, "m": NONE}),
        ("", {"n": NONE, "m": NONE}),
    ):
        pvc = with_metadata(claim("c", "made"), annotations={"volume.kubernetes.io/selected-node": chosen})
        assert on(load(node("n"), node("m"), PROVISIONED, pvc, mounting("c"))) == expected


def test_selected_node_must_still_allow_provisioning() -> None:
    pvc = with_metadata(claim("c", "local"), annotations={"volume.kubernetes.io/selected-node": "n"})
    assert on(load(node("n"), LOCAL, local("v", "n"), pvc, mounting("c"))) == {"n": NONE}


def _room(name: str = "r", selector: Json | None = None, **amounts: str) -> Json:
    topology = {} if selector is None else {"nodeTopology": selector}
    return {
        "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "kube-system"},
        "storageClassName": "made",
        **topology,
        **amounts,
    }


IN_ZONE_A: Final = {"matchLabels": {ZONE: "a"}}
ROOM: dict[str, tuple[list[Json], str]] = {
    "no capacity reported": ([], SPACE),
    "enough": ([_room(selector=IN_ZONE_A, capacity="1Gi")], ""),
    "not enough": ([_room(selector=IN_ZONE_A, capacity="1023Mi")], SPACE),
    "enough in another zone": ([_room(selector={"matchLabels": {ZONE: "b"}}, capacity="1Gi")], SPACE),
    "enough in all zones": ([_room(selector={}, capacity="1Gi")], ""),
    "enough, no topology": ([_room(capacity="1Gi")], SPACE),
    "enough, invalid topology": (
        [_room(selector={"matchExpressions": [{"key": ZONE, "operator": "Exists", "values": ["a"]}]}, capacity="1Gi")],
        SPACE,
    ),
    "enough, above the maximum volume size": (
        [_room(selector=IN_ZONE_A, capacity="9Gi", maximumVolumeSize="1M")],
        SPACE,
    ),
    "within the maximum volume size": ([_room(selector=IN_ZONE_A, maximumVolumeSize="1Gi")], ""),
    "enough for another storage class": (
        [{**_room(selector=IN_ZONE_A, capacity="1Gi"), "storageClassName": "x"}],
        SPACE,
    ),
    "enough in the second": (
        [_room(selector=IN_ZONE_A, capacity="1"), _room("s", selector=IN_ZONE_A, capacity="2Gi")],
        "",
    ),
}


@pytest.mark.parametrize(("reported", "expected"), ROOM.values(), ids=ROOM)
def test_provisioning_needs_enough_storage_capacity(reported: list[Json], expected: str) -> None:
    driver = {"kind": "CSIDriver", "metadata": {"name": CSI}, "spec": {"storageCapacity": True}}
    objects = (zoned("n", "a"), PROVISIONED, *reported, claim("c", "made"), mounting("c"))
    assert on(load(*objects, driver)) == {"n": expected}
    assert on(load(*objects, {**driver, "spec": {"storageCapacity": False}})) == {"n": ""}
    assert on(load(*objects)) == {"n": ""}


def test_claim_without_a_size_needs_no_capacity() -> None:
    driver = {"kind": "CSIDriver", "metadata": {"name": CSI}, "spec": {"storageCapacity": True}}
    pvc = spec(claim("c", "made"), resources={})
    assert on(load(node("n"), PROVISIONED, driver, pvc, mounting("c"))) == {"n": ""}


def test_all_reasons_of_a_node_are_reported() -> None:
    reach = accessible_from(volume("v"), ZONE, "b")
    table = load(zoned("n", "a"), reach, claim("c", volume="v"), LOCAL, claim("d", "local"), mounting("c", "d"))
    assert on(table) == {"n": f"{AFFINITY}, {NONE}"}
    table = load(zoned("n", "a"), claim("c", volume="v"), LOCAL, claim("d", "local"), mounting("c", "d"))
    assert on(table) == {"n": f"{NONE}, {GONE}"}


def test_changed_node_labels_are_used_for_volumes() -> None:
    table = load(zoned("n", "a"), _topologies({ZONE: ["b"]}), claim("c", "made"), LOCAL, mounting("c"))
    assert on(table) == {"n": NONE}
    table.upsert("Node", next(iter(load(zoned("n", "b")).nodes)))
    assert on(table) == {"n": ""}
