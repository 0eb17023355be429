"""NodeVolumeLimits: limits of CSI volumes per node. The expected results are those of the scheduler."""

from typing import Any, Final

import pytest

from predicates.csi import CINDER, DRIVERS, EBS, GCE_PD, PORTWORX
from predicates.plugins import volumes
from predicates.plugins.volumes import REASON
from predicates.snapshot import Snapshot
from tests.conformance.builders import claim, node, storage_class, volume
from tests.conformance.generate.world import Json
from tests.predicates.asking import load, reasons
from tests.predicates.volumes import CSI, attachment, limited, mounting, with_metadata, with_volumes

EBS_DRIVER, GCE_DRIVER = DRIVERS[EBS], DRIVERS[GCE_PD]
BOUND: Final = [item for name in "abc" for item in (volume(f"v{name}"), claim(name, volume=f"v{name}"))]


def _judged(*objects: Json) -> str:
    table = load(node("n"), *objects)
    return _on(table)


def _on(table: Snapshot) -> str:
    return reasons(volumes.NODE_VOLUME_LIMITS, table.pods["default/p"].cls, table)["n"]


COUNTS: dict[str, tuple[list[Json], str]] = {
    "no CSINode": ([mounting("a")], ""),
    "no limit": ([limited("n", {CSI: None}), mounting("a")], ""),
    "a limit of another driver": ([limited("n", {"other": 0}), mounting("a")], ""),
    "limit allows one": ([limited("n", {CSI: 1}), mounting("a")], ""),
    "limit reached": ([limited("n", {CSI: 0}), mounting("a")], REASON),
    "two volumes, limit allows one": ([limited("n", {CSI: 1}), mounting("a", "b")], REASON),
    "same volume twice": ([limited("n", {CSI: 1}), mounting("a", "a")], ""),
    "limit of 1 reached by another pod": (
        [limited("n", {CSI: 1}), mounting("a", name="q", on="n"), mounting("b")],
        REASON,
    ),
    "same volume already in use on the node": (
        [limited("n", {CSI: 1}), mounting("a", name="q", on="n"), mounting("a")],
        "",
    ),
    "same volume in use on another node": (
        [limited("n", {CSI: 1}), mounting("a", name="q", on="gone"), mounting("b")],
        "",
    ),
    "over the limit without new volumes": (
        [limited("n", {CSI: 0}), mounting("a", name="q", on="n"), mounting("a")],
        "",
    ),
    "missing claims of placed pods": (
        [limited("n", {CSI: 1}), mounting("gone", name="q", on="n"), mounting("a")],
        "",
    ),
    "VolumeAttachment counts": ([limited("n", {CSI: 1}), attachment("x", "n", "vb"), mounting("a")], REASON),
    "attached and in use counts once": (
        [limited("n", {CSI: 2}), attachment("x", "n", "vb"), mounting("b", name="q", on="n"), mounting("a")],
        "",
    ),
    "own volume attached but not in use counts twice": (
        [limited("n", {CSI: 1}), attachment("x", "n", "va"), mounting("a")],
        REASON,
    ),
    "VolumeAttachment of another node": ([limited("n", {CSI: 1}), attachment("x", "m", "vb"), mounting("a")], ""),
    "VolumeAttachment without a volume": ([limited("n", {CSI: 1}), attachment("x", "n", None), mounting("a")], ""),
    "VolumeAttachment without an attacher": (
        [limited("n", {CSI: 1}), attachment("x", "n", "vb", attacher=""), mounting("a")],
        "",
    ),
    "inline CSI volume": (
        [limited("n", {CSI: 0}), with_volumes({"csi": {"driver": CSI}})],
        "",
    ),
}


@pytest.mark.parametrize(("objects", "expected"), COUNTS.values(), ids=COUNTS)
def test_volumes_are_counted_by_driver(objects: list[Json], expected: str) -> None:
    assert _judged(*BOUND, *objects) == expected


def _in_tree(name: str, **source: Any) -> list[Json]:
    return [volume(f"v{name}", **source), claim(name, volume=f"v{name}")]


MIGRATED: dict[str, tuple[list[Json], str]] = {
    "claim on EBS": ([*_in_tree("a", awsElasticBlockStore={"volumeID": "vol-1"}), mounting("a")], EBS),
    "claim on Cinder": ([*_in_tree("a", cinder={"volumeID": "x"}), mounting("a")], CINDER),
    "claim on Portworx": ([*_in_tree("a", portworxVolume={"volumeID": "x"}), mounting("a")], PORTWORX),
    "inline EBS volume": ([with_volumes({"awsElasticBlockStore": {"volumeID": "vol-1"}})], EBS),
    "inline GCE disk": ([with_volumes({"gcePersistentDisk": {"pdName": "d"}})], GCE_PD),
    "claim that EBS will be provisioned for": (
        [storage_class("s", provisioner=EBS), claim("a", "s"), mounting("a")],
        EBS,
    ),
}


@pytest.mark.parametrize(("objects", "plugin"), MIGRATED.values(), ids=MIGRATED)
def test_in_tree_volumes_count_for_their_csi_driver(objects: list[Json], plugin: str) -> None:
    assert _judged(*objects, limited("n", {DRIVERS[plugin]: 0})) == REASON
    assert _judged(*objects, limited("n", {DRIVERS[plugin]: 1})) == ""


@pytest.mark.parametrize("plugin", ["azure-file", "vsphere-volume"])
def test_plugins_that_are_not_migrated_do_not_count(plugin: str) -> None:
    in_tree = storage_class("s", provisioner=f"kubernetes.io/{plugin}")
    drivers: dict[str, int | None] = {
        "file.csi.azure.com": 0,
        "csi.vsphere.vmware.com": 0,
        f"kubernetes.io/{plugin}": 0,
    }
    assert _judged(in_tree, claim("a", "s"), mounting("a"), limited("n", dict.fromkeys(drivers, 0))) == ""


SAME_DISK: dict[str, tuple[Json, Json, str]] = {
    "EBS volume ID and URL": (
        {"awsElasticBlockStore": {"volumeID": "vol-1"}},
        {"awsElasticBlockStore": {"volumeID": "aws://eu-1a/vol-1"}},
        EBS_DRIVER,
    ),
    "EBS with an escaped name": (
        {"awsElasticBlockStore": {"volumeID": "vol-1"}},
        {"awsElasticBlockStore": {"volumeID": "aws:///vol%2D1/"}},
        EBS_DRIVER,
    ),
    "GCE": ({"gcePersistentDisk": {"pdName": "d"}}, {"gcePersistentDisk": {"pdName": "d"}}, GCE_DRIVER),
}


@pytest.mark.parametrize(("mine", "other", "driver"), SAME_DISK.values(), ids=SAME_DISK)
def test_one_disk_counts_once_with_different_identifiers(mine: Json, other: Json, driver: str) -> None:
    objects = (with_volumes(other, name="q", on="n"), with_volumes(mine))
    assert _judged(*objects, limited("n", {driver: 1})) == ""


WAITING: dict[str, tuple[list[Json], str]] = {
    "volume to be provisioned": ([storage_class("s"), claim("a", "s")], REASON),
    "claim whose volume does not exist": ([storage_class("s"), with_metadata(claim("a", "s", volume="gone"))], REASON),
    "claim without a storage class": ([claim("a")], ""),
    "claim whose storage class does not exist": ([claim("a", "s")], ""),
}


@pytest.mark.parametrize(("objects", "expected"), WAITING.values(), ids=WAITING)
def test_unbound_claims_count_by_storage_class(objects: list[Json], expected: str) -> None:
    assert _judged(*objects, mounting("a"), limited("n", {CSI: 0})) == expected


def test_a_missing_claim_is_an_error() -> None:
    assert _judged(mounting("c")) == 'looking up PVC default/c: persistentvolumeclaim "c" not found'


FAILED = 'running "NodeVolumeLimits" filter plugin: '
BROKEN: dict[str, tuple[Json, str]] = {
    "EBS": (
        {"awsElasticBlockStore": {"volumeID": "aws://a/disk-1"}},
        "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://a/disk-1)",
    ),
    "Azure": (
        {"azureDisk": {"diskName": "d", "diskURI": "u", "kind": "Shared"}},
        "kind(Shared) is not supported in csi migration",
    ),
}


@pytest.mark.parametrize(("source", "why"), BROKEN.values(), ids=BROKEN)
def test_a_disk_that_cannot_be_translated_fails_the_plugin(source: Json, why: str) -> None:
    """The plugin fails on nodes with a CSINode: for the incoming pod, and for placed pods if the node has limits."""
    text = f"{FAILED}converting volume(v0) from inline to csi: {why}"
    assert _judged(with_volumes(source)) == ""
    assert _judged(with_volumes(source), limited("n", {})) == text
    others = (*BOUND, with_volumes(source, name="q", on="n"), mounting("a"))
    assert _judged(*others, limited("n", {CSI: None})) == ""
    assert _judged(*others, limited("n", {"other": 3})) == text


def _owned(uid: str, pod: str = "q") -> Json:
    owner = {"kind": "Pod", "name": pod, "uid": uid, "controller": True}
    return with_metadata(claim(f"{pod}-v0", "s"), ownerReferences=[owner])


def test_ephemeral_volume_counts_if_the_pod_owns_the_claim() -> None:
    ephemeral = with_volumes({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}, name="q", on="n")
    objects = (*BOUND, storage_class("s"), ephemeral, mounting("a"))
    assert _judged(*objects, _owned("uid-q"), limited("n", {CSI: 1})) == REASON
    assert _judged(*objects, _owned("uid-q"), limited("n", {CSI: 2})) == ""
    strange = f"{FAILED}PVC default/q-v0 was not created for pod default/q (pod is not owner)"
    assert _judged(*objects, _owned("another"), limited("n", {CSI: 2})) == strange


def test_new_pod_does_not_own_existing_claims() -> None:
    ephemeral = with_volumes({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}})
    text = f"{FAILED}PVC default/p-v0 was not created for pod default/p (pod is not owner)"
    assert _judged(ephemeral, _owned("uid-p", "p")) == text


def test_limits_and_attachments_are_updated() -> None:
    table = load(node("n"), *BOUND, mounting("a"), limited("n", {CSI: 0}))
    assert _on(table) == REASON
    for obj, expected in ((limited("n", {CSI: 1}), ""), (attachment("x", "n", "vb"), REASON)):
        again = load(obj)
        table.upsert(obj["kind"], next(iter(again.of(obj["kind"]).values())))
        assert _on(table) == expected
    table.delete("CSINode", "n")
    assert _on(table) == ""


def test_a_node_that_is_added_again_has_its_attachments() -> None:
    table = load(node("n"), node("m"), *BOUND, mounting("a"), limited("n", {CSI: 1}), attachment("x", "n", "vb"))
    assert _on(table) == REASON
    again = next(item for item in table.nodes if item.name == "n")
    table.delete("Node", "n")
    table.upsert("Node", again)
    assert _on(table) == REASON


def test_placements_change_the_attached_volumes() -> None:
    table = load(node("n"), *BOUND, limited("n", {CSI: 1}), mounting("b", name="q", on="n"), mounting("a"))
    other, pod = table.pods["default/q"], table.pods["default/p"].cls
    with table.trial() as trial:
        assert _on(table) == REASON
        trial.evict(other)
        assert _on(table) == ""
        trial.place(pod, table.nodes.row["n"])
        assert _on(table) == ""
        assert reasons(volumes.NODE_VOLUME_LIMITS, other.cls, table) == {"n": REASON}
    assert _on(table) == REASON


@pytest.mark.parametrize("limits", [None, {}, {CSI: None}, {"other": 0}])
def test_node_that_reuses_a_row_has_its_own_limits(limits: Json | None) -> None:
    own = [] if limits is None else [limited("m", limits)]
    table = load(node("n"), *BOUND, mounting("a"), limited("n", {CSI: 0}), *own)
    assert _on(table) == REASON
    table.delete("Node", "n")
    table.upsert("Node", next(iter(load(node("m")).nodes)))
    assert reasons(volumes.NODE_VOLUME_LIMITS, table.pods["default/p"].cls, table) == {"m": ""}
