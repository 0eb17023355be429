"""VolumeBinding: what rejects a pod, and bound volumes; the verdicts are the scheduler's."""

import pytest

from predicates.csi_translation import EBS, GCE_PD
from predicates.plugins import volume_binding
from tests.conformance.builders import claim, node, storage_class, volume
from tests.conformance.generate.world import Json
from tests.predicates.asking import load
from tests.predicates.binding import AFFINITY, GONE, MADE, on, spec
from tests.predicates.volumes import ZONE, about, limited, mounting, reaching, with_volumes, zoned

# What rejects the pod itself

REJECTED: dict[str, tuple[list[Json], str]] = {
    "no claim": ([], 'persistentvolumeclaim "c" not found'),
    "a lost claim": (
        [{**claim("c", volume="v"), "status": {"phase": "Lost"}}],
        'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
    ),
    "a claim that is being deleted": (
        [about(claim("c", "made"), deletionTimestamp="2024-03-01T10:00:00Z"), MADE],
        'persistentvolumeclaim "c" is being deleted',
    ),
    "an unbound claim of no class": ([claim("c")], "pod has unbound immediate PersistentVolumeClaims"),
    "an unbound claim of a class that is gone": (
        [claim("c", "gone")],
        "pod has unbound immediate PersistentVolumeClaims",
    ),
    "a claim to be bound at once": (
        [claim("c", "now"), storage_class("now", "Immediate")],
        "pod has unbound immediate PersistentVolumeClaims",
    ),
    "a claim that names its volume and is not bound": (
        [spec(claim("c", "made"), volumeName="v"), MADE, volume("v", "made")],
        "pod has unbound immediate PersistentVolumeClaims",
    ),
    "a class without a mode": (
        [claim("c", "odd"), {k: v for k, v in storage_class("odd").items() if k != "volumeBindingMode"}],
        'running PreFilter plugin "VolumeBinding": VolumeBindingMode not set for StorageClass "odd"',
    ),
}


@pytest.mark.parametrize(("objects", "expected"), REJECTED.values(), ids=REJECTED)
def test_a_pod_is_refused_before_any_node_is_looked_at_for(objects: list[Json], expected: str) -> None:
    table = load(node("a"), *objects, mounting("c"))
    refusal = volume_binding.PLUGIN.filter(table.pods["default/p"].cls, table, slice(0, 1))
    assert refusal is not None
    assert (refusal.prefilter, refusal.reasons(int(refusal.codes[0]))) == (True, (expected,))


def test_an_ephemeral_volume_waits_for_its_claim_and_then_has_somebody_else_s() -> None:
    ephemeral = with_volumes({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}})
    waiting = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v0"'
    assert on(load(node("a"), ephemeral)) == {"a": waiting}
    strange = "PVC default/p-v0 was not created for pod default/p (pod is not owner)"
    assert on(load(node("a"), ephemeral, claim("p-v0", "made"), MADE)) == {"a": strange}


# Bound claims


def _affine(*terms: Json) -> Json:
    return spec(volume("v"), nodeAffinity={"required": {"nodeSelectorTerms": list(terms)}})


def _expression(key: str, operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


AFFINITIES: dict[str, tuple[Json, str]] = {
    "none": (volume("v"), ""),
    "its zone": (_affine(_expression(ZONE, "In", "a")), ""),
    "another zone": (_affine(_expression(ZONE, "In", "b")), AFFINITY),
    "one of two": (_affine(_expression(ZONE, "In", "b"), _expression(ZONE, "Exists")), ""),
    "no terms": (_affine(), AFFINITY),
    "an empty term": (_affine({}), AFFINITY),
    "a number": (_affine(_expression("rack", "Gt", "6")), ""),
    "a broken requirement": (_affine(_expression(ZONE, "Is", "a")), AFFINITY),
    "a field, which holds of every node": (
        _affine({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]}),
        "",
    ),
    "a field beside a label": (
        _affine({"matchFields": [{"key": "x", "operator": "In", "values": ["y"]}], **_expression(ZONE, "In", "b")}),
        AFFINITY,
    ),
    "a broken field": (
        _affine({"matchFields": [{"key": "x", "operator": "Exists"}], **_expression(ZONE, "In", "a")}),
        AFFINITY,
    ),
}


@pytest.mark.parametrize(("bound", "expected"), AFFINITIES.values(), ids=AFFINITIES)
def test_a_bound_volume_must_be_in_reach_by(bound: Json, expected: str) -> None:
    table = load(zoned("n", "a", rack="7"), bound, claim("c", volume="v"), mounting("c"))
    assert on(table) == {"n": expected}


def test_of_several_bound_claims_the_first_that_fails_is_named() -> None:
    reach = [reaching(volume(f"v{zone}"), ZONE, zone) for zone in "ab"]
    claims = [claim(f"c{zone}", volume=f"v{zone}") for zone in ("a", "b", "gone")]
    nodes = [zoned("a", "a"), zoned("b", "b")]
    assert on(load(*nodes, *reach, *claims, mounting("ca", "cgone"))) == {"a": GONE, "b": AFFINITY}
    assert on(load(*nodes, *reach, *claims, mounting("cgone", "ca"))) == {"a": GONE, "b": GONE}
    assert on(load(*nodes, *reach, *claims, mounting("ca", "cb"))) == {"a": AFFINITY, "b": AFFINITY}


MIGRATED_ZONES: dict[str, tuple[Json, Json, str]] = {
    "a zone, on a node with the driver's label": (
        {"nodeAffinity": {"required": {"nodeSelectorTerms": [_expression(ZONE, "In", "a")]}}},
        {"topology.ebs.csi.aws.com/zone": "a"},
        "",
    ),
    "a zone, on a node with the old label alone": (
        {"nodeAffinity": {"required": {"nodeSelectorTerms": [_expression(ZONE, "In", "a")]}}},
        {ZONE: "a"},
        AFFINITY,
    ),
    "nothing, on any node": ({}, {}, ""),
}


@pytest.mark.parametrize(("spec", "labels", "expected"), MIGRATED_ZONES.values(), ids=MIGRATED_ZONES)
def test_a_migrated_volume_is_in_reach_by_its_driver_s_labels(spec: Json, labels: Json, expected: str) -> None:
    bound = volume("v", awsElasticBlockStore={"volumeID": "vol-1"}, **spec)
    table = load(node("n", labels=labels), limited("n", {}, EBS), bound, claim("c", volume="v"), mounting("c"))
    assert on(table) == {"n": expected}


def test_a_migrated_volume_without_affinity_is_where_its_label_says() -> None:
    bound = volume("v", labels={ZONE: "a__b"}, gcePersistentDisk={"pdName": "d"})
    nodes = [node(zone, labels={"topology.gke.io/zone": zone}) for zone in ("eu-w-a", "c")]
    fine = about(bound, labels={ZONE: "eu-w-a__eu-w-b"})
    marked = [limited("eu-w-a", {}, GCE_PD), limited("c", {}, f"{EBS},{GCE_PD}")]
    assert on(load(*nodes, *marked, fine, claim("c", volume="v"), mounting("c"))) == {"eu-w-a": "", "c": AFFINITY}
    assert on(load(*nodes, marked[0], fine, claim("c", volume="v"), mounting("c"))) == {"eu-w-a": "", "c": ""}
    failed = (
        'running "VolumeBinding" filter plugin: could not translate pv: failed to get region from zones: '
        "zone in unexpected format, expected: {locale}-{region}-{zone}, got: a"
    )
    assert on(load(*nodes, marked[0], bound, claim("c", volume="v"), mounting("c"))) == {"eu-w-a": failed, "c": ""}
