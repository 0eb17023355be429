"""VolumeBinding: unbound claims and existing volumes. The expected results are those of the scheduler."""

import pytest

from tests.conformance.builders import claim, node, storage_class
from tests.conformance.generate.world import Json
from tests.predicates.asking import load
from tests.predicates.binding import LOCAL, NONE, on, spec
from tests.predicates.volumes import local, mounting, with_metadata

SUITS: dict[str, tuple[Json, Json, str]] = {
    "large enough": ({}, {}, ""),
    "equal size": ({"capacity": {"storage": "1024Mi"}}, {}, ""),
    "too small": ({"capacity": {"storage": "1023Mi"}}, {}, NONE),
    "missing access mode": ({"accessModes": ["ReadOnlyMany"]}, {}, NONE),
    "additional access modes": ({"accessModes": ["ReadOnlyMany", "ReadWriteOnce"]}, {}, ""),
    "other storage class": ({"storageClassName": "other"}, {}, NONE),
    "block volume for a filesystem claim": ({"volumeMode": "Block"}, {}, NONE),
    "block volume for a block claim": ({"volumeMode": "Block"}, {"volumeMode": "Block"}, ""),
    "no volume mode for a filesystem claim": ({}, {"volumeMode": "Filesystem"}, ""),
    "other attributes class": ({"volumeAttributesClassName": "gold"}, {}, NONE),
    "same attributes class": (
        {"volumeAttributesClassName": "gold"},
        {"volumeAttributesClassName": "gold"},
        "",
    ),
    "matching label": ({}, {"selector": {"matchLabels": {"tier": "gold"}}}, ""),
    "missing label": ({}, {"selector": {"matchLabels": {"tier": "iron"}}}, NONE),
    "empty selector": ({}, {"selector": {}}, ""),
    "pre-bound to another claim": ({"claimRef": {"namespace": "default", "name": "other"}}, {}, NONE),
    "pre-bound": ({"claimRef": {"namespace": "default", "name": "c"}}, {}, ""),
    "pre-bound to an older claim with the same name": (
        {"claimRef": {"namespace": "default", "name": "c", "uid": "old"}},
        {},
        NONE,
    ),
    "pre-bound, missing access mode": (
        {"claimRef": {"namespace": "default", "name": "c", "uid": "uid-c"}, "accessModes": []},
        {},
        "",
    ),
    "pre-bound, too small": (
        {"claimRef": {"namespace": "default", "name": "c"}, "capacity": {"storage": "1M"}},
        {},
        NONE,
    ),
}


@pytest.mark.parametrize(("of_volume", "of_claim", "expected"), SUITS.values(), ids=SUITS)
def test_a_claim_needs_a_matching_volume(of_volume: Json, of_claim: Json, expected: str) -> None:
    there = spec(with_metadata(local("v", "n"), labels={"tier": "gold"}), **of_volume)
    table = load(node("n"), node("m"), LOCAL, there, spec(claim("c", "local"), **of_claim), mounting("c"))
    assert on(table) == {"n": expected, "m": NONE}


@pytest.mark.parametrize("phase", ["Pending", "Bound", "Released", "Failed", ""])
def test_only_available_volumes_match(phase: str) -> None:
    there = {**local("v", "n"), "status": {"phase": phase}}
    assert on(load(node("n"), LOCAL, there, claim("c", "local"), mounting("c"))) == {"n": NONE}


def test_volume_being_deleted_does_not_match() -> None:
    there = with_metadata(local("v", "n"), deletionTimestamp="2024-03-01T10:00:00Z")
    assert on(load(node("n"), LOCAL, there, claim("c", "local"), mounting("c"))) == {"n": NONE}


def test_pre_bound_volume_excludes_all_others() -> None:
    aside = spec(local("v", "n"), claimRef={"namespace": "default", "name": "c"})
    table = load(node("n"), node("m"), LOCAL, aside, local("w", "m"), claim("c", "local"), mounting("c"))
    assert on(table) == {"n": "", "m": NONE}


def test_beta_annotation_sets_the_storage_class() -> None:
    beta = {"volume.beta.kubernetes.io/storage-class": "local"}
    existing, pvc = (
        with_metadata(local("v", "n", storage_class="x"), annotations=beta),
        with_metadata(claim("c"), annotations=beta),
    )
    assert on(load(node("n"), LOCAL, existing, pvc, mounting("c"))) == {"n": ""}


COMPETING: dict[str, tuple[list[Json], list[Json], str]] = {
    "two volumes for two claims": ([local("v", "n"), local("w", "n")], [claim("c", "local"), claim("d", "local")], ""),
    "one volume for two claims": ([local("v", "n")], [claim("c", "local"), claim("d", "local")], NONE),
    "the small claim leaves the large volume": (
        [local("v", "n", size="1Gi"), local("w", "n", size="3Gi")],
        [spec(claim("c", "local"), resources={"requests": {"storage": "2Gi"}}), claim("d", "local")],
        "",
    ),
    "the smaller claim takes the only volume that the other can use": (
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
    "storage classes do not compete": (
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


def test_claim_mounted_twice_needs_two_volumes() -> None:
    """As in the scheduler, which matches a volume for each mount."""
    objects = (node("n"), LOCAL, local("v", "n"), claim("c", "local"), mounting("c", "c"))
    assert on(load(*objects)) == {"n": NONE}
    assert on(load(*objects, local("w", "n"))) == {"n": ""}


def test_invalid_claim_selector_is_an_error() -> None:
    broken = spec(claim("c", "local"), selector={"matchExpressions": [{"key": "x", "operator": "Is"}]})
    text = 'error creating internal label selector for claim: default/c: "Is" is not a valid label selector operator'
    assert on(load(node("n"), LOCAL, broken, mounting("c"))) == {"n": f'running "VolumeBinding" filter plugin: {text}'}
