"""VolumeRestrictions: disks that a node cannot share, claims for one pod; the verdicts are the scheduler's."""

import pytest

from predicates.plugins import volume_restrictions
from predicates.plugins.volume_restrictions import CLAIM_IN_USE, DISK_CONFLICT
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
    "one GCE disk for two writers": (GCE, GCE, DISK_CONFLICT),
    "one GCE disk for a reader and a writer": (GCE_READ, GCE, DISK_CONFLICT),
    "one GCE disk for a writer and a reader": (GCE, GCE_READ, DISK_CONFLICT),
    "one GCE disk for two readers": (GCE_READ, GCE_READ, ""),
    "two GCE disks": (GCE, {"gcePersistentDisk": {"pdName": "e"}}, ""),
    "one EBS volume, even for two readers": (EBS_READ, EBS_READ, DISK_CONFLICT),
    "two EBS volumes": (EBS, {"awsElasticBlockStore": {"volumeID": "vol-2"}}, ""),
    "one iSCSI name behind two portals": (ISCSI, {"iscsi": {"targetPortal": "b", "iqn": "iqn.x"}}, DISK_CONFLICT),
    "one RBD image with a monitor in common": (_rbd("m1", "m2"), _rbd("m2", "m3"), DISK_CONFLICT),
    "one RBD image behind other monitors": (_rbd("m1"), _rbd("m2"), ""),
    "one RBD image for two readers": (_rbd("m1", read_only=True), _rbd("m1", read_only=True), ""),
    "RBD images in two pools": (_rbd("m1"), _rbd("m1", pool="fast"), ""),
    "a disk of another kind with that name": (GCE, {"awsElasticBlockStore": {"volumeID": "d"}}, ""),
    "volumes that are no disks": ({"emptyDir": {}}, {"emptyDir": {}}, ""),
}


@pytest.mark.parametrize(("mine", "theirs", "expected"), PAIRS.values(), ids=PAIRS)
def test_disks_conflict_on_their_node_only(mine: Json, theirs: Json, expected: str) -> None:
    table = load(node("a"), node("b"), with_volumes(theirs, name="other", on="a"), with_volumes(mine))
    found = reasons(volume_restrictions.PLUGIN, table.pods["default/p"].cls, table)
    assert found == {"a": expected, "b": ""}


def test_one_writer_among_readers_is_enough() -> None:
    table = load(
        node("a"),
        with_volumes(GCE_READ, name="r", on="a"),
        with_volumes(GCE, name="w", on="a"),
        with_volumes(GCE_READ),
    )
    pod = table.pods["default/p"].cls
    assert reasons(volume_restrictions.PLUGIN, pod, table) == {"a": DISK_CONFLICT}
    table.delete("Pod", "default/w")
    assert reasons(volume_restrictions.PLUGIN, pod, table) == {"a": ""}


IN_USE: dict[str, tuple[tuple[str, ...], str, str]] = {
    "by one pod, and used": (("ReadWriteOncePod",), "a", CLAIM_IN_USE),
    "by one pod, used on a node that is not there": (("ReadWriteOncePod",), "gone", ""),
    "by one pod, wanted by one that has no node either": (("ReadWriteOncePod",), "", ""),
    "by one node, and used": (("ReadWriteOnce",), "a", ""),
    "in several ways, one pod among them": (("ReadWriteOnce", "ReadWriteOncePod"), "a", CLAIM_IN_USE),
}


@pytest.mark.parametrize(("modes", "user_on", "expected"), IN_USE.values(), ids=IN_USE)
def test_a_claim_to_be_used(modes: tuple[str, ...], user_on: str, expected: str) -> None:
    table = load(node("a"), node("b"), claim("c", modes=modes), mounting("c", name="user", on=user_on), mounting("c"))
    found = reasons(volume_restrictions.PLUGIN, table.pods["default/p"].cls, table)
    assert found == {"a": expected, "b": expected}


def test_the_disk_is_named_before_the_claim() -> None:
    table = load(
        node("a"),
        node("b"),
        claim("c", modes=("ReadWriteOncePod",)),
        with_volumes(GCE, {"persistentVolumeClaim": {"claimName": "c"}}, name="other", on="a"),
        with_volumes(GCE, {"persistentVolumeClaim": {"claimName": "c"}}),
    )
    found = reasons(volume_restrictions.PLUGIN, table.pods["default/p"].cls, table)
    assert found == {"a": DISK_CONFLICT, "b": CLAIM_IN_USE}


def test_a_claim_that_is_not_there_rejects_the_pod_itself() -> None:
    table = load(node("a"), mounting("c"))
    refusal = volume_restrictions.PLUGIN.filter(table.pods["default/p"].cls, table, slice(None))
    assert refusal is not None
    assert (refusal.prefilter, refusal.reasons(1)) == (True, ('persistentvolumeclaim "c" not found',))


def test_the_claim_of_an_ephemeral_volume_is_not_looked_at() -> None:
    table = load(node("a"), with_volumes({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}))
    assert reasons(volume_restrictions.PLUGIN, table.pods["default/p"].cls, table) == {"a": ""}


def test_a_moved_pod_takes_its_claim_along() -> None:
    table = load(
        node("a"), node("b"), claim("c", modes=("ReadWriteOncePod",)), mounting("c", name="user", on="a"), mounting("c")
    )
    user, pod = table.pods["default/user"], table.pods["default/p"].cls
    used = {"a": CLAIM_IN_USE, "b": CLAIM_IN_USE}
    with table.trial() as trial:
        trial.evict(user)
        assert reasons(volume_restrictions.PLUGIN, pod, table) == {"a": "", "b": ""}
        trial.place(user.cls, table.nodes.row["b"])
        assert reasons(volume_restrictions.PLUGIN, pod, table) == used
    assert reasons(volume_restrictions.PLUGIN, pod, table) == used
