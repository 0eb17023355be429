"""VolumeZone: zone labels of volumes and nodes. The expected results are those of the scheduler."""

import pytest

from predicates.plugins import volumes
from predicates.plugins.volumes import VOLUME_ZONE_REASON
from tests.conformance.builders import claim, node, storage_class, volume
from tests.conformance.generate.world import Json
from tests.predicates.asking import load, reasons
from tests.predicates.volumes import mounting, with_volumes

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"

LABELS: dict[str, tuple[Json, Json, str]] = {
    "same zone": ({ZONE: "a"}, {ZONE: "a"}, ""),
    "different zone": ({ZONE: "a"}, {ZONE: "b"}, VOLUME_ZONE_REASON),
    "one of its zones": ({ZONE: "a__b"}, {ZONE: "b"}, ""),
    "none of its zones": ({ZONE: "a__b"}, {ZONE: "c"}, VOLUME_ZONE_REASON),
    "list with an empty zone is ignored": ({ZONE: "a__"}, {ZONE: "b"}, ""),
    "empty zone is ignored": ({ZONE: ""}, {ZONE: "b"}, ""),
    "node without zone and region": ({ZONE: "a"}, {}, ""),
    "node with a region only": ({ZONE: "a"}, {REGION: "r"}, VOLUME_ZONE_REASON),
    "same zone, different region": ({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "s"}, VOLUME_ZONE_REASON),
    "same zone and region": ({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "r"}, ""),
    "volume with beta label, node with GA label": ({BETA_ZONE: "a"}, {ZONE: "a"}, ""),
    "volume with beta label, node with different GA label": ({BETA_ZONE: "a"}, {ZONE: "b"}, VOLUME_ZONE_REASON),
    "the node's beta label takes precedence": ({BETA_ZONE: "a"}, {BETA_ZONE: "b", ZONE: "a"}, VOLUME_ZONE_REASON),
    "volume with GA label, node with beta label": ({ZONE: "a"}, {BETA_ZONE: "a"}, VOLUME_ZONE_REASON),
    "beta region label": ({BETA_REGION: "r"}, {REGION: "r"}, ""),
    "volume without labels": ({}, {ZONE: "a"}, ""),
}


@pytest.mark.parametrize(("volume_labels", "node_labels", "expected"), LABELS.values(), ids=LABELS)
def test_the_zone_of_the_volume_must_match_the_node(volume_labels: Json, node_labels: Json, expected: str) -> None:
    table = load(
        node("n", labels=node_labels), volume("v", labels=volume_labels), claim("c", volume="v"), mounting("c")
    )
    assert reasons(volumes.VOLUME_ZONE, table.pods["default/p"].cls, table) == {"n": expected}


def test_a_volume_in_a_zone_without_nodes_rejects_the_pod() -> None:
    table = load(node("n", labels={ZONE: "a"}), volume("v", labels={ZONE: "x"}), claim("c", volume="v"), mounting("c"))
    assert reasons(volumes.VOLUME_ZONE, table.pods["default/p"].cls, table) == {"n": VOLUME_ZONE_REASON}


def test_all_volumes_of_a_pod_must_match() -> None:
    table = load(
        *(node(zone, labels={ZONE: zone}) for zone in "ab"),
        *(volume(f"v{zone}", labels={ZONE: zone}) for zone in "ab"),
        *(claim(f"c{zone}", volume=f"v{zone}") for zone in "ab"),
        mounting("ca", "cb"),
    )
    assert reasons(volumes.VOLUME_ZONE, table.pods["default/p"].cls, table) == {
        "a": VOLUME_ZONE_REASON,
        "b": VOLUME_ZONE_REASON,
    }


def _unset(name: str) -> Json:
    obj = storage_class(name)
    del obj["volumeBindingMode"]
    return obj


CLAIMS: dict[str, tuple[list[Json], str]] = {
    "missing claim": ([], 'persistentvolumeclaim "c" not found'),
    "missing volume": ([claim("c", volume="v")], 'persistentvolume "v" not found'),
    "unbound, no storage class": ([claim("c", "")], "PersistentVolumeClaim had no pv name and storageClass name"),
    "unbound, storage class does not exist": ([claim("c", "s")], 'storageclass.storage.k8s.io "s" not found'),
    "unbound, storage class without a binding mode": (
        [claim("c", "s"), _unset("s")],
        'VolumeBindingMode not set for StorageClass "s"',
    ),
    "unbound, immediate binding": ([claim("c", "s"), storage_class("s", "Immediate")], "PersistentVolume had no name"),
    "unbound, waits for its first consumer": ([claim("c", "s"), storage_class("s")], ""),
}


@pytest.mark.parametrize(("objects", "expected"), CLAIMS.values(), ids=CLAIMS)
def test_a_claim_without_a_bound_volume_rejects_the_pod(objects: list[Json], expected: str) -> None:
    table = load(node("n", labels={ZONE: "a"}), *objects, mounting("c"))
    pod = table.pods["default/p"].cls
    assert reasons(volumes.VOLUME_ZONE, pod, table) == {"n": expected}
    refusal = volumes.VOLUME_ZONE.filter(pod, table, slice(None))
    assert (refusal is not None and refusal.prefilter) == bool(expected)


def test_a_claim_without_a_name_rejects_the_pod() -> None:
    table = load(node("n"), mounting(""))
    expected = {"n": "PersistentVolumeClaim had no name"}
    assert reasons(volumes.VOLUME_ZONE, table.pods["default/p"].cls, table) == expected


def test_ephemeral_volumes_are_ignored() -> None:
    table = load(node("n", labels={ZONE: "a"}), with_volumes({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}))
    assert reasons(volumes.VOLUME_ZONE, table.pods["default/p"].cls, table) == {"n": ""}
