"""VolumeBinding: claims that wait, for volumes that are there; the verdicts are the scheduler's."""

import pytest

from tests.conformance.builders import claim, node, storage_class
from tests.conformance.generate.world import Json
from tests.predicates.asking import load
from tests.predicates.binding import LOCAL, NONE, on, spec
from tests.predicates.volumes import about, local, mounting

SUITS: dict[str, tuple[Json, Json, str]] = {
    "one that is large enough": ({}, {}, ""),
    "one just as large": ({"capacity": {"storage": "1024Mi"}}, {}, ""),
    "one that is too small": ({"capacity": {"storage": "1023Mi"}}, {}, NONE),
    "one without the access mode": ({"accessModes": ["ReadOnlyMany"]}, {}, NONE),
    "one with more access modes": ({"accessModes": ["ReadOnlyMany", "ReadWriteOnce"]}, {}, ""),
    "one of another class": ({"storageClassName": "other"}, {}, NONE),
    "a block device for a file system": ({"volumeMode": "Block"}, {}, NONE),
    "a block device for a block device": ({"volumeMode": "Block"}, {"volumeMode": "Block"}, ""),
    "no mode for a file system": ({}, {"volumeMode": "Filesystem"}, ""),
    "one of another attributes class": ({"volumeAttributesClassName": "gold"}, {}, NONE),
    "one of its attributes class": (
        {"volumeAttributesClassName": "gold"},
        {"volumeAttributesClassName": "gold"},
        "",
    ),
    "one with the label": ({}, {"selector": {"matchLabels": {"tier": "gold"}}}, ""),
    "one without the label": ({}, {"selector": {"matchLabels": {"tier": "iron"}}}, NONE),
    "any, for an empty selector": ({}, {"selector": {}}, ""),
    "one of another claim": ({"claimRef": {"namespace": "default", "name": "other"}}, {}, NONE),
    "one set aside for the claim": ({"claimRef": {"namespace": "default", "name": "c"}}, {}, ""),
    "one set aside for an older claim of the name": (
        {"claimRef": {"namespace": "default", "name": "c", "uid": "old"}},
        {},
        NONE,
    ),
    "one set aside, without the access mode": (
        {"claimRef": {"namespace": "default", "name": "c", "uid": "uid-c"}, "accessModes": []},
        {},
        "",
    ),
    "one set aside, too small": (
        {"claimRef": {"namespace": "default", "name": "c"}, "capacity": {"storage": "1M"}},
        {},
        NONE,
    ),
}


@pytest.mark.parametrize(("of_volume", "of_claim", "expected"), SUITS.values(), ids=SUITS)
def test_a_claim_finds(of_volume: Json, of_claim: Json, expected: str) -> None:
    there = spec(about(local("v", "n"), labels={"tier": "gold"}), **of_volume)
    table = load(node("n"), node("m"), LOCAL, there, spec(claim("c", "local"), **of_claim), mounting("c"))
    assert on(table) == {"n": expected, "m": NONE}


@pytest.mark.parametrize("phase", ["Pending", "Bound", "Released", "Failed", ""])
def test_only_available_volumes_are_found(phase: str) -> None:
    there = {**local("v", "n"), "status": {"phase": phase}}
    assert on(load(node("n"), LOCAL, there, claim("c", "local"), mounting("c"))) == {"n": NONE}


def test_a_volume_that_is_being_deleted_is_not_found() -> None:
    there = about(local("v", "n"), deletionTimestamp="2024-03-01T10:00:00Z")
    assert on(load(node("n"), LOCAL, there, claim("c", "local"), mounting("c"))) == {"n": NONE}


def test_a_volume_set_aside_rules_out_all_others() -> None:
    aside = spec(local("v", "n"), claimRef={"namespace": "default", "name": "c"})
    table = load(node("n"), node("m"), LOCAL, aside, local("w", "m"), claim("c", "local"), mounting("c"))
    assert on(table) == {"n": "", "m": NONE}


def test_the_beta_annotation_names_the_class() -> None:
    beta = {"volume.beta.kubernetes.io/storage-class": "local"}
    there, wanted = about(local("v", "n", storage_class="x"), annotations=beta), about(claim("c"), annotations=beta)
    assert on(load(node("n"), LOCAL, there, wanted, mounting("c"))) == {"n": ""}


COMPETING: dict[str, tuple[list[Json], list[Json], str]] = {
    "two for two": ([local("v", "n"), local("w", "n")], [claim("c", "local"), claim("d", "local")], ""),
    "two for one": ([local("v", "n")], [claim("c", "local"), claim("d", "local")], NONE),
    "the small one leaves the large one": (
        [local("v", "n", size="1Gi"), local("w", "n", size="3Gi")],
        [spec(claim("c", "local"), resources={"requests": {"storage": "2Gi"}}), claim("d", "local")],
        "",
    ),
    "the smallest goes to who asks for less, though another needs it": (
        [local("v", "n", size="1Gi", labels={"x": "y"}), local("w", "n", size="3Gi")],
        [
            claim("c", "local"),
            spec(
                claim("d", "local"),
                resources={"requests": {"storage": "1025Mi"}},
                selector={"matchLabels": {"x": "y"}},
            ),
        ],
        NONE,
    ),
    "classes do not compete": (
        [local("v", "n"), local("w", "n", storage_class="disks")],
        [claim("c", "local"), claim("d", "disks")],
        "",
    ),
}


@pytest.mark.parametrize(("there", "claims", "expected"), COMPETING.values(), ids=COMPETING)
def test_claims_of_one_pod_compete(there: list[Json], claims: list[Json], expected: str) -> None:
    disks = storage_class("disks", provisioner="kubernetes.io/no-provisioner")
    table = load(node("n"), node("m"), LOCAL, disks, *there, *claims, mounting("c", "d"))
    assert on(table) == {"n": expected, "m": NONE}


def test_one_claim_mounted_twice_wants_two_volumes() -> None:
    """As in the scheduler, which looks for a volume by mount."""
    objects = (node("n"), LOCAL, local("v", "n"), claim("c", "local"), mounting("c", "c"))
    assert on(load(*objects)) == {"n": NONE}
    assert on(load(*objects, local("w", "n"))) == {"n": ""}


def test_a_broken_selector_fails_the_scheduler() -> None:
    broken = spec(claim("c", "local"), selector={"matchExpressions": [{"key": "x", "operator": "Is"}]})
    text = 'error creating internal label selector for claim: default/c: "Is" is not a valid label selector operator'
    assert on(load(node("n"), LOCAL, broken, mounting("c"))) == {"n": f'running "VolumeBinding" filter plugin: {text}'}
