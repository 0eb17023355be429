"""VolumeRestrictions: disk conflicts and ReadWriteOncePod claims. The expected results are those of the scheduler."""

import pytest

from predicates.plugins import volumes
from predicates.plugins.volumes import CLAIM_IN_USE, DISK_CONFLICT
from tests.conformance.builders import claim, node
from tests.conformance.generate.world import Json
from tests.predicates.asking import load, reasons
from tests.predicates.volumes import mounting, with_volumes

GCE = {"gcePersistentDisk": {"pdName": "d"}}
GCE_READ = {"gcePersistentDisk": {"pdName": "d", "readOnly": True}}
EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
EBS_READ = {"awsElasticBlockStore": {"volumeID": "vol-1", "readOnly": True}}
ISCSI = {"iscsi": {"targetPortal": "a", "iqn": "iqn.x"}}


def _rbd(*monitors: str, image: str = "i", pool: str = "rbd", read_only: bool = False) -> Json:
    return {"rbd": {"monitors": list(monitors), "image": image, "pool": pool, "readOnly": read_only}}


PAIRS: dict[str, tuple[Json, Json, str]] = {
    "GCE disk, two writers": (GCE, GCE, DISK_CONFLICT),
    "GCE disk, reader and writer": (GCE_READ, GCE, DISK_CONFLICT),
    "GCE disk, writer and reader": (GCE, GCE_READ, DISK_CONFLICT),
    "GCE disk, two readers": (GCE_READ, GCE_READ, ""),
    "two GCE disks": (GCE, {"gcePersistentDisk": {"pdName": "e"}}, ""),
    "EBS volume, two readers": (EBS_READ, EBS_READ, DISK_CONFLICT),
    "two EBS volumes": (EBS, {"awsElasticBlockStore": {"volumeID": "vol-2"}}, ""),
    "iSCSI name with two portals": (ISCSI, {"iscsi": {"targetPortal": "b", "iqn": "iqn.x"}}, DISK_CONFLICT),
    "RBD image with a common monitor": (_rbd("m1", "m2"), _rbd("m2", "m3"), DISK_CONFLICT),
    "RBD image with different monitors": (_rbd("m1"), _rbd("m2"), ""),
    "RBD image, two readers": (_rbd("m1", read_only=True), _rbd("m1", read_only=True), ""),
    "RBD images in two pools": (_rbd("m1"), _rbd("m1", pool="fast"), ""),
    "disk of another type with the same name": (GCE, {"awsElasticBlockStore": {"volumeID": "d"}}, ""),
    "volumes without disks": ({"emptyDir": {}}, {"emptyDir": {}}, ""),
}


@pytest.mark.parametrize(("mine", "other", "expected"), PAIRS.values(), ids=PAIRS)
def test_disks_conflict_on_their_node_only(mine: Json, other: Json, expected: str) -> None:
    table = load(node("a"), node("b"), with_volumes(other, name="other", on="a"), with_volumes(mine))
    actual = reasons(volumes.VOLUME_RESTRICTIONS, table.pods["default/p"].cls, table)
    assert actual == {"a": expected, "b": ""}


def test_one_writer_among_readers_conflicts() -> None:
    table = load(
        node("a"),
        with_volumes(GCE_READ, name="r", on="a"),
        with_volumes(GCE, name="w", on="a"),
        with_volumes(GCE_READ),
    )
    pod = table.pods["default/p"].cls
    assert reasons(volumes.VOLUME_RESTRICTIONS, pod, table) == {"a": DISK_CONFLICT}
    table.delete("Pod", "default/w")
    assert reasons(volumes.VOLUME_RESTRICTIONS, pod, table) == {"a": ""}


IN_USE: dict[str, tuple[tuple[str, ...], str, str]] = {
    "ReadWriteOncePod, in use": (("ReadWriteOncePod",), "a", CLAIM_IN_USE),
    "ReadWriteOncePod, in use on an unknown node": (("ReadWriteOncePod",), "gone", ""),
    "ReadWriteOncePod, used by another unbound pod": (("ReadWriteOncePod",), "", ""),
    "ReadWriteOnce, in use": (("ReadWriteOnce",), "a", ""),
    "several access modes with ReadWriteOncePod": (("ReadWriteOnce", "ReadWriteOncePod"), "a", CLAIM_IN_USE),
}


@pytest.mark.parametrize(("modes", "user_on", "expected"), IN_USE.values(), ids=IN_USE)
def test_a_read_write_once_pod_claim_in_use_rejects_the_pod(
    modes: tuple[str, ...], user_on: str, expected: str
) -> None:
    table = load(node("a"), node("b"), claim("c", modes=modes), mounting("c", name="user", on=user_on), mounting("c"))
    actual = reasons(volumes.VOLUME_RESTRICTIONS, table.pods["default/p"].cls, table)
    assert actual == {"a": expected, "b": expected}


def test_disk_conflict_is_reported_before_the_claim() -> None:
    table = load(
        node("a"),
        node("b"),
        claim("c", modes=("ReadWriteOncePod",)),
        with_volumes(GCE, {"persistentVolumeClaim": {"claimName": "c"}}, name="other", on="a"),
        with_volumes(GCE, {"persistentVolumeClaim": {"claimName": "c"}}),
    )
    actual = reasons(volumes.VOLUME_RESTRICTIONS, table.pods["default/p"].cls, table)
    assert actual == {"a": DISK_CONFLICT, "b": CLAIM_IN_USE}


def test_missing_claim_rejects_the_pod() -> None:
    table = load(node("a"), mounting("c"))
    refusal = volumes.VOLUME_RESTRICTIONS.filter(table.pods["default/p"].cls, table, slice(None))
    assert refusal is not None
    assert (refusal.prefilter, refusal.reasons(1)) == (True, ('persistentvolumeclaim "c" not found',))


def test_claims_of_ephemeral_volumes_are_ignored() -> None:
    table = load(node("a"), with_volumes({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}))
    assert reasons(volumes.VOLUME_RESTRICTIONS, table.pods["default/p"].cls, table) == {"a": ""}


def test_claim_is_free_after_its_pod_was_evicted() -> None:
    table = load(
        node("a"), node("b"), claim("c", modes=("ReadWriteOncePod",)), mounting("c", name="user", on="a"), mounting("c")
    )
    user, pod = table.pods["default/user"], table.pods["default/p"].cls
    used = {"a": CLAIM_IN_USE, "b": CLAIM_IN_USE}
    with table.trial() as trial:
        trial.evict(user)
        assert reasons(volumes.VOLUME_RESTRICTIONS, pod, table) == {"a": "", "b": ""}
        trial.place(user.cls, table.nodes.row["b"])
        assert reasons(volumes.VOLUME_RESTRICTIONS, pod, table) == used
    assert reasons(volumes.VOLUME_RESTRICTIONS, pod, table) == used
