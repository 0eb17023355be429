"""VolumeBinding: bound volumes, static ones that wait, volumes to be made; the verdicts are the scheduler's."""

from typing import Any, Final

import pytest

from predicates.csi_translation import EBS, GCE_PD
from predicates.plugins import volume_binding
from predicates.snapshot import Snapshot
from tests.conformance.builders import claim, node, storage_class, volume
from tests.conformance.generate.world import Json
from tests.predicates.asking import load, reasons
from tests.predicates.volumes import CSI, ZONE, about, limited, local, mounting, reaching, with_volumes, zoned

AFFINITY: Final = "node(s) didn't match PersistentVolume's node affinity"
NONE: Final = "node(s) didn't find available persistent volumes to bind"
SPACE: Final = "node(s) did not have enough free storage"
GONE: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
LOCAL: Final = storage_class("local", provisioner="kubernetes.io/no-provisioner")
MADE: Final = storage_class("made")


def _on(table: Snapshot, pod: str = "p") -> dict[str, str]:
    return reasons(volume_binding.PLUGIN, table.pods[f"default/{pod}"].cls, table)


def _spec(one: Json, **spec: Any) -> Json:
    return {**one, "spec": {**one["spec"], **spec}}


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
        [_spec(claim("c", "made"), volumeName="v"), MADE, volume("v", "made")],
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
    refusal = volume_binding.PLUGIN.refuse(table.pods["default/p"].cls, table, slice(0, 1))
    assert refusal is not None
    assert (refusal.prefilter, refusal.sentences(int(refusal.codes[0]))) == (True, (expected,))


def test_an_ephemeral_volume_waits_for_its_claim_and_then_has_somebody_else_s() -> None:
    ephemeral = with_volumes({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}})
    waiting = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v0"'
    assert _on(load(node("a"), ephemeral)) == {"a": waiting}
    strange = "PVC default/p-v0 was not created for pod default/p (pod is not owner)"
    assert _on(load(node("a"), ephemeral, claim("p-v0", "made"), MADE)) == {"a": strange}


# Bound claims


def _affine(*terms: Json) -> Json:
    return _spec(volume("v"), nodeAffinity={"required": {"nodeSelectorTerms": list(terms)}})


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
    assert _on(table) == {"n": expected}


def test_of_several_bound_claims_the_first_that_fails_is_named() -> None:
    reach = [reaching(volume(f"v{zone}"), ZONE, zone) for zone in "ab"]
    claims = [claim(f"c{zone}", volume=f"v{zone}") for zone in ("a", "b", "gone")]
    nodes = [zoned("a", "a"), zoned("b", "b")]
    assert _on(load(*nodes, *reach, *claims, mounting("ca", "cgone"))) == {"a": GONE, "b": AFFINITY}
    assert _on(load(*nodes, *reach, *claims, mounting("cgone", "ca"))) == {"a": GONE, "b": GONE}
    assert _on(load(*nodes, *reach, *claims, mounting("ca", "cb"))) == {"a": AFFINITY, "b": AFFINITY}


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
    assert _on(table) == {"n": expected}


def test_a_migrated_volume_without_affinity_is_where_its_label_says() -> None:
    bound = volume("v", labels={ZONE: "a__b"}, gcePersistentDisk={"pdName": "d"})
    nodes = [node(zone, labels={"topology.gke.io/zone": zone}) for zone in ("eu-w-a", "c")]
    fine = about(bound, labels={ZONE: "eu-w-a__eu-w-b"})
    marked = [limited("eu-w-a", {}, GCE_PD), limited("c", {}, f"{EBS},{GCE_PD}")]
    assert _on(load(*nodes, *marked, fine, claim("c", volume="v"), mounting("c"))) == {"eu-w-a": "", "c": AFFINITY}
    assert _on(load(*nodes, marked[0], fine, claim("c", volume="v"), mounting("c"))) == {"eu-w-a": "", "c": ""}
    failed = (
        'running "VolumeBinding" filter plugin: could not translate pv: failed to get region from zones: '
        "zone in unexpected format, expected: {locale}-{region}-{zone}, got: a"
    )
    assert _on(load(*nodes, marked[0], bound, claim("c", volume="v"), mounting("c"))) == {"eu-w-a": failed, "c": ""}


# Claims that wait, and volumes that are there


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
    there = _spec(about(local("v", "n"), labels={"tier": "gold"}), **of_volume)
    table = load(node("n"), node("m"), LOCAL, there, _spec(claim("c", "local"), **of_claim), mounting("c"))
    assert _on(table) == {"n": expected, "m": NONE}


@pytest.mark.parametrize("phase", ["Pending", "Bound", "Released", "Failed", ""])
def test_only_available_volumes_are_found(phase: str) -> None:
    there = {**local("v", "n"), "status": {"phase": phase}}
    assert _on(load(node("n"), LOCAL, there, claim("c", "local"), mounting("c"))) == {"n": NONE}


def test_a_volume_that_is_being_deleted_is_not_found() -> None:
    there = about(local("v", "n"), deletionTimestamp="2024-03-01T10:00:00Z")
    assert _on(load(node("n"), LOCAL, there, claim("c", "local"), mounting("c"))) == {"n": NONE}


def test_a_volume_set_aside_rules_out_all_others() -> None:
    aside = _spec(local("v", "n"), claimRef={"namespace": "default", "name": "c"})
    table = load(node("n"), node("m"), LOCAL, aside, local("w", "m"), claim("c", "local"), mounting("c"))
    assert _on(table) == {"n": "", "m": NONE}


def test_the_beta_annotation_names_the_class() -> None:
    beta = {"volume.beta.kubernetes.io/storage-class": "local"}
    there, wanted = about(local("v", "n", storage_class="x"), annotations=beta), about(claim("c"), annotations=beta)
    assert _on(load(node("n"), LOCAL, there, wanted, mounting("c"))) == {"n": ""}


COMPETING: dict[str, tuple[list[Json], list[Json], str]] = {
    "two for two": ([local("v", "n"), local("w", "n")], [claim("c", "local"), claim("d", "local")], ""),
    "two for one": ([local("v", "n")], [claim("c", "local"), claim("d", "local")], NONE),
    "the small one leaves the large one": (
        [local("v", "n", size="1Gi"), local("w", "n", size="3Gi")],
        [_spec(claim("c", "local"), resources={"requests": {"storage": "2Gi"}}), claim("d", "local")],
        "",
    ),
    "the smallest goes to who asks for less, though another needs it": (
        [local("v", "n", size="1Gi", labels={"x": "y"}), local("w", "n", size="3Gi")],
        [
            claim("c", "local"),
            _spec(
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
    assert _on(table) == {"n": expected, "m": NONE}


def test_one_claim_mounted_twice_wants_two_volumes() -> None:
    """As in the scheduler, which looks for a volume by mount."""
    objects = (node("n"), LOCAL, local("v", "n"), claim("c", "local"), mounting("c", "c"))
    assert _on(load(*objects)) == {"n": NONE}
    assert _on(load(*objects, local("w", "n"))) == {"n": ""}


def test_a_broken_selector_fails_the_scheduler() -> None:
    broken = _spec(claim("c", "local"), selector={"matchExpressions": [{"key": "x", "operator": "Is"}]})
    text = 'error creating internal label selector for claim: default/c: "Is" is not a valid label selector operator'
    assert _on(load(node("n"), LOCAL, broken, mounting("c"))) == {"n": f'running "VolumeBinding" filter plugin: {text}'}


# Volumes that are to be made


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
    assert _on(load(zoned("n", "a"), of, claim("c", "made"), mounting("c"))) == {"n": expected}


def test_a_chosen_node_is_the_only_one() -> None:
    for chosen, expected in (
        ("n", {"n": "", "m": NONE}),
        ("gone", {"n": NONE, "m": NONE}),
        ("", {"n": NONE, "m": NONE}),
    ):
        wanted = about(claim("c", "made"), annotations={"volume.kubernetes.io/selected-node": chosen})
        assert _on(load(node("n"), node("m"), MADE, wanted, mounting("c"))) == expected


def test_a_chosen_node_must_still_be_able_to_make_it() -> None:
    wanted = about(claim("c", "local"), annotations={"volume.kubernetes.io/selected-node": "n"})
    assert _on(load(node("n"), LOCAL, local("v", "n"), wanted, mounting("c"))) == {"n": NONE}


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
    assert _on(load(*objects, driver)) == {"n": expected}
    assert _on(load(*objects, {**driver, "spec": {"storageCapacity": False}})) == {"n": ""}
    assert _on(load(*objects)) == {"n": ""}


def test_a_claim_without_a_size_needs_no_room() -> None:
    driver = {"kind": "CSIDriver", "metadata": {"name": CSI}, "spec": {"storageCapacity": True}}
    wanted = _spec(claim("c", "made"), resources={})
    assert _on(load(node("n"), MADE, driver, wanted, mounting("c"))) == {"n": ""}


def test_all_reasons_of_a_node_are_named() -> None:
    reach = reaching(volume("v"), ZONE, "b")
    table = load(zoned("n", "a"), reach, claim("c", volume="v"), LOCAL, claim("d", "local"), mounting("c", "d"))
    assert _on(table) == {"n": f"{AFFINITY}, {NONE}"}
    table = load(zoned("n", "a"), claim("c", volume="v"), LOCAL, claim("d", "local"), mounting("c", "d"))
    assert _on(table) == {"n": f"{NONE}, {GONE}"}


def test_a_change_of_labels_is_seen() -> None:
    table = load(zoned("n", "a"), _topologies({ZONE: ["b"]}), claim("c", "made"), LOCAL, mounting("c"))
    assert _on(table) == {"n": NONE}
    table.upsert("Node", next(iter(load(zoned("n", "b")).nodes)))
    assert _on(table) == {"n": ""}


# What a trial has taken


def _taken(table: Snapshot, pod: str) -> dict[str, str]:
    return reasons(volume_binding.TAKEN, table.pods[f"default/{pod}"].cls, table)


def _two_pods(*there: Json, of: Json = LOCAL, second: str = "d") -> Snapshot:
    nodes = [zoned("n", "a"), zoned("m", "a"), zoned("o", "b")]
    claims = [claim(name, of["metadata"]["name"]) for name in sorted({"c", second})]
    return load(*nodes, of, *there, *claims, mounting("c"), mounting(second, name="q"))


TAKEN: dict[str, tuple[Snapshot, dict[str, str]]] = {
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
            _spec(claim("d", "local"), resources={"requests": {"storage": "3Gi"}}),
            mounting("c"),
            mounting("d", name="q"),
        ),
        # The scheduler would give the small one to the first; we only know that it took one of this group.
        {"n": NONE},
    ),
    "a claim of both": (_two_pods(local("v", "n", "m"), second="c"), {"m": NONE, "o": NONE}),
    "a claim of both that is to be made": (_two_pods(of=MADE, second="c"), {"m": NONE, "o": NONE}),
}


@pytest.mark.parametrize(("table", "expected"), TAKEN.values(), ids=TAKEN)
def test_a_placed_pod_has_taken(table: Snapshot, expected: dict[str, str]) -> None:
    """No two pods of a plan are promised one volume, whichever of several the scheduler gives to the first."""
    nothing = dict.fromkeys(table.nodes.row, "")
    assert _taken(table, "q") == nothing
    with table.trial() as trial:
        trial.place(table.pods["default/p"].cls, table.nodes.row["n"])
        assert _taken(table, "q") == nothing | expected
        trial.displace(table.pods["default/p"].cls, table.nodes.row["n"])
        assert _taken(table, "q") == nothing
    assert _taken(table, "q") == nothing


def test_a_volume_set_aside_cannot_be_taken_by_others() -> None:
    aside = _spec(local("v", "n"), claimRef={"namespace": "default", "name": "d"})
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
