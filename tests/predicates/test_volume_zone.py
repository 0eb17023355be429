"""VolumeZone: labels of volumes and of nodes; the verdicts are the scheduler's."""

import pytest

from predicates.plugins import volume_zone
from predicates.plugins.volume_zone import REASON
from tests.conformance.builders import claim, node, storage_class, volume
from tests.conformance.generate.world import Json
from tests.predicates.asking import load, reasons
from tests.predicates.volumes import mounting, with_volumes

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"

LABELS: dict[str, tuple[Json, Json, str]] = {
    "the same zone": ({ZONE: "a"}, {ZONE: "a"}, ""),
    "another zone": ({ZONE: "a"}, {ZONE: "b"}, REASON),
    "one of its zones": ({ZONE: "a__b"}, {ZONE: "b"}, ""),
    "none of its zones": ({ZONE: "a__b"}, {ZONE: "c"}, REASON),
    "zones with a gap are passed over": ({ZONE: "a__"}, {ZONE: "b"}, ""),
    "an empty zone is passed over": ({ZONE: ""}, {ZONE: "b"}, ""),
    "a node without any zone": ({ZONE: "a"}, {}, ""),
    "a node with a region alone": ({ZONE: "a"}, {REGION: "r"}, REASON),
    "zone right, region wrong": ({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "s"}, REASON),
    "zone and region right": ({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "r"}, ""),
    "an old volume on a node with new labels": ({BETA_ZONE: "a"}, {ZONE: "a"}, ""),
    "an old volume on a node with other new labels": ({BETA_ZONE: "a"}, {ZONE: "b"}, REASON),
    "an old volume reads the node's old label first": ({BETA_ZONE: "a"}, {BETA_ZONE: "b", ZONE: "a"}, REASON),
    "a new volume on a node with old labels": ({ZONE: "a"}, {BETA_ZONE: "a"}, REASON),
    "an old region": ({BETA_REGION: "r"}, {REGION: "r"}, ""),
    "a volume without labels": ({}, {ZONE: "a"}, ""),
}


@pytest.mark.parametrize(("volume_labels", "node_labels", "expected"), LABELS.values(), ids=LABELS)
def test_a_node_must_be_where_the_volume_is(volume_labels: Json, node_labels: Json, expected: str) -> None:
    table = load(
        node("n", labels=node_labels), volume("v", labels=volume_labels), claim("c", volume="v"), mounting("c")
    )
    assert reasons(volume_zone.PLUGIN, table.pods["default/p"].cls, table) == {"n": expected}


def test_a_zone_that_no_node_has() -> None:
    table = load(node("n", labels={ZONE: "a"}), volume("v", labels={ZONE: "x"}), claim("c", volume="v"), mounting("c"))
    assert reasons(volume_zone.PLUGIN, table.pods["default/p"].cls, table) == {"n": REASON}


def test_all_volumes_count() -> None:
    table = load(
        *(node(zone, labels={ZONE: zone}) for zone in "ab"),
        *(volume(f"v{zone}", labels={ZONE: zone}) for zone in "ab"),
        *(claim(f"c{zone}", volume=f"v{zone}") for zone in "ab"),
        mounting("ca", "cb"),
    )
    assert reasons(volume_zone.PLUGIN, table.pods["default/p"].cls, table) == {"a": REASON, "b": REASON}


def _unset(name: str) -> Json:
    one = storage_class(name)
    del one["volumeBindingMode"]
    return one


CLAIMS: dict[str, tuple[list[Json], str]] = {
    "not there": ([], 'persistentvolumeclaim "c" not found'),
    "its volume not there": ([claim("c", volume="v")], 'persistentvolume "v" not found'),
    "unbound, of no class": ([claim("c", "")], "PersistentVolumeClaim had no pv name and storageClass name"),
    "unbound, of a class that is not there": ([claim("c", "s")], 'storageclass.storage.k8s.io "s" not found'),
    "unbound, of a class without a mode": (
        [claim("c", "s"), _unset("s")],
        'VolumeBindingMode not set for StorageClass "s"',
    ),
    "unbound at once": ([claim("c", "s"), storage_class("s", "Immediate")], "PersistentVolume had no name"),
    "waiting for its first consumer": ([claim("c", "s"), storage_class("s")], ""),
}


@pytest.mark.parametrize(("objects", "expected"), CLAIMS.values(), ids=CLAIMS)
def test_a_claim(objects: list[Json], expected: str) -> None:
    table = load(node("n", labels={ZONE: "a"}), *objects, mounting("c"))
    pod = table.pods["default/p"].cls
    assert reasons(volume_zone.PLUGIN, pod, table) == {"n": expected}
    refusal = volume_zone.PLUGIN.filter(pod, table, slice(None))
    assert (refusal is not None and refusal.prefilter) == bool(expected)


def test_a_claim_without_a_name() -> None:
    table = load(node("n"), mounting(""))
    expected = {"n": "PersistentVolumeClaim had no name"}
    assert reasons(volume_zone.PLUGIN, table.pods["default/p"].cls, table) == expected


def test_ephemeral_volumes_are_not_looked_at() -> None:
    table = load(node("n", labels={ZONE: "a"}), with_volumes({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}))
    assert reasons(volume_zone.PLUGIN, table.pods["default/p"].cls, table) == {"n": ""}
