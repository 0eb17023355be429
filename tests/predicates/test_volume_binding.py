"""VolumeBinding: PreFilter rejections and bound volumes. The expected results are those of the scheduler."""

import pytest

from predicates.csi import EBS, GCE_PD
from predicates.plugins import volumes
from tests.conformance.builders import claim, node, storage_class, volume
from tests.conformance.generate.world import Json
from tests.predicates.asking import load
from tests.predicates.binding import AFFINITY, GONE, PROVISIONED, on, spec
from tests.predicates.volumes import ZONE, accessible_from, limited, mounting, with_metadata, with_volumes, zoned

# PreFilter rejections

REJECTED: dict[str, tuple[list[Json], str]] = {
    "missing claim": ([], 'persistentvolumeclaim "c" not found'),
    "lost claim": (
        [{**claim("c", volume="v"), "status": {"phase": "Lost"}}],
        'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
    ),
    "claim being deleted": (
        [with_metadata(claim("c", "made"), deletionTimestamp="2024-03-01T10:00:00Z"), PROVISIONED],
        'persistentvolumeclaim "c" is being deleted',
    ),
    "unbound, no storage class": ([claim("c")], "pod has unbound immediate PersistentVolumeClaims"),
    "unbound, storage class does not exist": (
        [claim("c", "gone")],
        "pod has unbound immediate PersistentVolumeClaims",
    ),
    "unbound, immediate binding": (
        [claim("c", "now"), storage_class("now", "Immediate")],
        "pod has unbound immediate PersistentVolumeClaims",
    ),
    "unbound, names a volume": (
        [spec(claim("c", "made"), volumeName="v"), PROVISIONED, volume("v", "made")],
        "pod has unbound immediate PersistentVolumeClaims",
    ),
    "storage class without a binding mode": (
        [claim("c", "odd"), {k: v for k, v in storage_class("odd").items() if k != "volumeBindingMode"}],
        'running PreFilter plugin "VolumeBinding": VolumeBindingMode not set for StorageClass "odd"',
    ),
}


@pytest.mark.parametrize(("objects", "expected"), REJECTED.values(), ids=REJECTED)
def test_pre_filter_rejects_the_pod_on_all_nodes(objects: list[Json], expected: str) -> None:
    table = load(node("a"), *objects, mounting("c"))
    refusal = volumes.VOLUME_BINDING.filter(table.pods["default/p"].cls, table, slice(0, 1))
    assert refusal is not None
    assert (refusal.prefilter, refusal.reasons(int(refusal.codes[0]))) == (True, (expected,))


def test_an_ephemeral_volume_needs_a_claim_that_its_pod_owns() -> None:
    ephemeral = with_volumes({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}})
    waiting = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v0"'
    assert on(load(node("a"), ephemeral)) == {"a": waiting}
    strange = "PVC default/p-v0 was not created for pod default/p (pod is not owner)"
    assert on(load(node("a"), ephemeral, claim("p-v0", "made"), PROVISIONED)) == {"a": strange}


# Bound claims


def _affine(*terms: Json) -> Json:
    return spec(volume("v"), nodeAffinity={"required": {"nodeSelectorTerms": list(terms)}})


def _expression(key: str, operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


AFFINITIES: dict[str, tuple[Json, str]] = {
    "none": (volume("v"), ""),
    "same zone": (_affine(_expression(ZONE, "In", "a")), ""),
    "different zone": (_affine(_expression(ZONE, "In", "b")), AFFINITY),
    "one of two terms": (_affine(_expression(ZONE, "In", "b"), _expression(ZONE, "Exists")), ""),
    "no terms": (_affine(), AFFINITY),
    "an empty term": (_affine({}), AFFINITY),
    "numeric comparison": (_affine(_expression("rack", "Gt", "6")), ""),
    "invalid requirement": (_affine(_expression(ZONE, "Is", "a")), AFFINITY),
    "field, ignored": (
        _affine({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]}),
        "",
    ),
    "field and label": (
        _affine({"matchFields": [{"key": "x", "operator": "In", "values": ["y"]}], **_expression(ZONE, "In", "b")}),
        AFFINITY,
    ),
    "invalid field": (
        _affine({"matchFields": [{"key": "x", "operator": "Exists"}], **_expression(ZONE, "In", "a")}),
        AFFINITY,
    ),
}


@pytest.mark.parametrize(("bound", "expected"), AFFINITIES.values(), ids=AFFINITIES)
def test_the_node_affinity_of_bound_volumes_must_match(bound: Json, expected: str) -> None:
    table = load(zoned("n", "a", rack="7"), bound, claim("c", volume="v"), mounting("c"))
    assert on(table) == {"n": expected}


def test_first_failing_bound_claim_is_reported() -> None:
    reach = [accessible_from(volume(f"v{zone}"), ZONE, zone) for zone in "ab"]
    claims = [claim(f"c{zone}", volume=f"v{zone}") for zone in ("a", "b", "gone")]
    nodes = [zoned("a", "a"), zoned("b", "b")]
    assert on(load(*nodes, *reach, *claims, mounting("ca", "cgone"))) == {"a": GONE, "b": AFFINITY}
    assert on(load(*nodes, *reach, *claims, mounting("cgone", "ca"))) == {"a": GONE, "b": GONE}
    assert on(load(*nodes, *reach, *claims, mounting("ca", "cb"))) == {"a": AFFINITY, "b": AFFINITY}


MIGRATED_ZONES: dict[str, tuple[Json, Json, str]] = {
    "zone, node with the driver's label": (
        {"nodeAffinity": {"required": {"nodeSelectorTerms": [_expression(ZONE, "In", "a")]}}},
        {"topology.ebs.csi.aws.com/zone": "a"},
        "",
    ),
    "zone, node with the generic label only": (
        {"nodeAffinity": {"required": {"nodeSelectorTerms": [_expression(ZONE, "In", "a")]}}},
        {ZONE: "a"},
        AFFINITY,
    ),
    "no label": ({}, {}, ""),
}


@pytest.mark.parametrize(("spec", "labels", "expected"), MIGRATED_ZONES.values(), ids=MIGRATED_ZONES)
def test_migrated_volumes_use_the_labels_of_the_driver(spec: Json, labels: Json, expected: str) -> None:
    bound = volume("v", awsElasticBlockStore={"volumeID": "vol-1"}, **spec)
    table = load(node("n", labels=labels), limited("n", {}, EBS), bound, claim("c", volume="v"), mounting("c"))
    assert on(table) == {"n": expected}


def test_migrated_volume_without_affinity_uses_its_zone_label() -> None:
    bound = volume("v", labels={ZONE: "a__b"}, gcePersistentDisk={"pdName": "d"})
    nodes = [node(zone, labels={"topology.gke.io/zone": zone}) for zone in ("eu-w-a", "c")]
    fine = with_metadata(bound, labels={ZONE: "eu-w-a__eu-w-b"})
    marked = [limited("eu-w-a", {}, GCE_PD), limited("c", {}, f"{EBS},{GCE_PD}")]
    assert on(load(*nodes, *marked, fine, claim("c", volume="v"), mounting("c"))) == {"eu-w-a": "", "c": AFFINITY}
    assert on(load(*nodes, marked[0], fine, claim("c", volume="v"), mounting("c"))) == {"eu-w-a": "", "c": ""}
    failed = (
        'running "VolumeBinding" filter plugin: could not translate pv: failed to get region from zones: '
        "zone in unexpected format, expected: {locale}-{region}-{zone}, got: a"
    )
    assert on(load(*nodes, marked[0], bound, claim("c", volume="v"), mounting("c"))) == {"eu-w-a": failed, "c": ""}
