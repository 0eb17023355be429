"""Volumes that must be attached: claims that pods share, and volumes that cannot follow their pods to spot nodes."""

from typing import Any, Final

import pytest

from rescheduler.planning.outcome import Plan, Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, budget, node, pod, short, snapshot
from tests.predicates.volumes import attachment, limited

SHARED: Final[dict[str, Any]] = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def claim(*modes: str, **volume: Any) -> list[Manifest]:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"}
    return [
        {
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "default", "annotations": annotations},
            "spec": {"volumeName": "disk", "accessModes": list(modes)},
            "status": {"phase": "Bound"},
        },
        {
            "kind": "PersistentVolume",
            "metadata": {"name": "disk"},
            "spec": {"accessModes": list(modes), **volume},
            "status": {"phase": "Bound"},
        },
    ]


CSI: Final[dict[str, Any]] = {"csi": {"driver": "disk.example.com", "volumeHandle": "h"}}
NO_ATTACH: Final[Manifest] = {
    "kind": "CSIDriver",
    "metadata": {"name": "disk.example.com"},
    "spec": {"attachRequired": False},
}
RWO: Final = "ReadWriteOnce"

SHARING: dict[str, tuple[list[Manifest], list[str]]] = {
    "two pods of the node": (
        [pod("a-1", "od", **SHARED), pod("b-1", "od", **SHARED), *claim(RWO), node("s"), node("t")],
        ["shared-volume", "shared-volume"],
    ),
    "a pod that stays elsewhere": (
        [pod("a-1", "od", **SHARED), pod("b-1", "t", **SHARED), *claim(RWO), node("s"), node("t")],
        ["shared-volume"],
    ),
    "one pod alone": ([pod("a-1", "od", **SHARED), *claim(RWO), node("s"), node("t")], []),
    "a volume for many nodes": (
        [pod("a-1", "od", **SHARED), pod("b-1", "od", **SHARED), *claim("ReadWriteMany"), node("s"), node("t")],
        [],
    ),
    "a volume that both attach and mount modes allow on many nodes": (
        [pod("a-1", "od", **SHARED), pod("b-1", "od", **SHARED), *claim(RWO, "ReadOnlyMany"), node("s"), node("t")],
        [],
    ),
    "a driver that does not attach": (
        [pod("a-1", "od", **SHARED), pod("b-1", "od", **SHARED), *claim(RWO, **CSI), NO_ATTACH, node("s"), node("t")],
        [],
    ),
    "only one node can run them": (
        [
            pod("a-1", "od", **SHARED, nodeSelector={"disk": "s"}),
            pod("b-1", "od", **SHARED, nodeSelector={"disk": "s"}),
            *claim(RWO),
            node("s", labels={"disk": "s"}),
            node("t"),
        ],
        [],
    ),
    "only one node can run them, and a budget allows both at once": (
        [
            *(pod(f"a-{n}", "od", **SHARED, nodeSelector={"disk": "s"}) for n in (1, 2)),
            budget("a", "a", allowed=2),
            *claim(RWO),
            node("s", labels={"disk": "s"}),
            node("t"),
        ],
        [],
    ),
    "only one node can run them, but a budget allows one at a time": (
        [
            *(pod(f"a-{n}", "od", **SHARED, nodeSelector={"disk": "s"}) for n in (1, 2)),
            budget("a", "a", allowed=1),
            *claim(RWO),
            node("s", labels={"disk": "s"}),
            node("t"),
        ],
        ["pod-disruption-budget"],
    ),
    "only one node can run them, but a pod of a DaemonSet keeps the volume on the drained node": (
        [
            pod("a-1", "od", **SHARED, nodeSelector={"disk": "s"}),
            pod("agent-1", "od", owner="DaemonSet", **SHARED),
            *claim(RWO),
            node("s", labels={"disk": "s"}),
            node("t"),
        ],
        ["shared-volume"],
    ),
    "a pending pod shares it": (
        [pod("a-1", "od", **SHARED), pod("b-1", **SHARED, cpu="64"), *claim(RWO), node("s"), node("t")],
        ["shared-volume"],
    ),
    "the pending pod uses another claim of this name in another namespace": (
        [pod("a-1", "od", **SHARED), pod("other/b-1", **SHARED, cpu="64"), *claim(RWO), node("s"), node("t")],
        [],
    ),
    "only one node can run them, but one already runs elsewhere": (
        [
            pod("a-1", "od", **SHARED, nodeSelector={"disk": "s"}),
            pod("b-1", "t", **SHARED),
            *claim(RWO),
            node("s", labels={"disk": "s"}),
            node("t"),
        ],
        ["shared-volume"],
    ),
}


@pytest.mark.parametrize(("objects", "reasons"), SHARING.values(), ids=SHARING)
def test_pods_that_share_a_volume_stay_together(objects: list[Manifest], reasons: list[str]) -> None:
    [verdict] = Planner(snapshot([node("od", ON_DEMAND), *objects]), Policy()).plan_each(CIRCUMSTANCES).verdicts
    assert isinstance(verdict, Rejected if reasons else Plan)
    assert (short(verdict) if reasons else []) == reasons


#: As ReadWriteOnce; the driver is on the on-demand node and on both spot nodes.
EVERYWHERE: Final = [limited(name, {"disk.example.com": None}) for name in ("od", "s", "t")]
DISK: Final = claim(RWO, **CSI)
MOUNTS: Final = pod("a-1", "od", **SHARED)
PREVENTED: Final[Manifest] = {
    "kind": "CSIDriver",
    "metadata": {"name": "disk.example.com"},
    "spec": {"preventPodSchedulingIfMissing": True},
}
FAILED: Final[Manifest] = {"status": {"attached": True, "detachError": {"message": "the cloud says no"}}}


def attached(on: str, of: str = "disk", **fields: Any) -> Manifest:
    return attachment(f"{of}-{on}", on, of, "disk.example.com") | fields


BEFORE: Final = " be attached to a spot node before it is detached there"
MISSING: Final = (
    "the CSI driver disk.example.com of its volume disk is missing on 1 of 2 spot nodes where the scheduler may place "
    "it, such as t"
)
ATTACHMENTS: dict[str, tuple[list[Manifest], str]] = {
    "attached to its node": ([MOUNTS, *DISK, attached("od"), node("s"), node("t")], ""),
    "attached to another node": (
        [MOUNTS, *DISK, attached("gone"), node("s"), node("t")],
        "its volume disk is still attached to node gone: it cannot" + BEFORE,
    ),
    "attached to another node, which fails to detach it": (
        [MOUNTS, *DISK, attached("od"), attached("t", **FAILED), node("s"), node("t")],
        "its volume disk is still attached to node t (the cloud says no): it cannot" + BEFORE,
    ),
    "the detach from its node failed": (
        [MOUNTS, *DISK, attached("od", **FAILED), node("s"), node("t")],
        "its volume disk cannot be detached from node od (the cloud says no)",
    ),
    "another volume is attached elsewhere": ([MOUNTS, *DISK, attached("t", "other"), node("s"), node("t")], ""),
    "a volume for many nodes is attached elsewhere": (
        [MOUNTS, *claim("ReadWriteMany", **CSI), attached("t"), node("s"), node("t")],
        "",
    ),
    "the driver is on all nodes": ([MOUNTS, *DISK, *EVERYWHERE, node("s"), node("t")], ""),
    "the driver is missing on a spot node": (
        [MOUNTS, *DISK, *EVERYWHERE[:2], node("s"), node("t")],
        MISSING,
    ),
    "the driver of a volume for many nodes is missing on a spot node": (
        [MOUNTS, *claim("ReadOnlyMany", **CSI), *EVERYWHERE[:2], node("s"), node("t")],
        MISSING,
    ),
    "the driver is missing on a spot node that the pod cannot use": (
        [
            pod("a-1", "od", **SHARED, nodeSelector={"disk": "s"}),
            *DISK,
            *EVERYWHERE[:2],
            node("s", labels={"disk": "s"}),
            node("t"),
        ],
        "",
    ),
    "the driver is missing, and the scheduler knows": (
        [MOUNTS, *DISK, PREVENTED, *EVERYWHERE[:2], node("s"), node("t")],
        "",
    ),
    "no node registers its drivers": ([MOUNTS, *DISK, node("s"), node("t")], ""),
}


@pytest.mark.parametrize(("objects", "why"), ATTACHMENTS.values(), ids=ATTACHMENTS)
def test_a_volume_must_be_attachable_where_its_pod_goes(objects: list[Manifest], why: str) -> None:
    cluster = snapshot([node("od", ON_DEMAND), *objects])
    [verdict] = Planner(cluster, Policy()).plan_each(CIRCUMSTANCES).verdicts
    blockers = verdict.blockers if isinstance(verdict, Rejected) else ()
    assert [(each.reason, each.detail) for each in blockers] == ([("volume-attachment", why)] if why else [])


def test_a_driver_is_missing_and_no_node_accepts_the_pod() -> None:
    pinned = pod("a-1", "od", **SHARED, nodeSelector={"disk": "gone"})
    cluster = snapshot([node("od", ON_DEMAND), pinned, *DISK, *EVERYWHERE[:2], node("s"), node("t")])
    [verdict] = Planner(cluster, Policy()).plan_each(CIRCUMSTANCES).verdicts
    assert "volume-attachment" not in short(verdict)
    assert isinstance(verdict, Rejected)


def test_pods_that_share_volumes_leave_in_one_step() -> None:
    """Two claims join three pods: a-1 and b-1 share one, b-1 and c-1 the other."""
    both: dict[str, Any] = {
        "volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("data", "more")]
    }
    more = [
        each | {"metadata": each["metadata"] | {"name": name}}
        for each, name in zip(claim(RWO), ("more", "disk-2"), strict=True)
    ]
    more[0]["spec"] = more[0]["spec"] | {"volumeName": "disk-2"}
    cluster = snapshot(
        [
            node("od", ON_DEMAND),
            node("s"),
            pod("a-1", "od", **SHARED),
            pod("b-1", "od", **both),
            pod("c-1", "od", volumes=both["volumes"][1:]),
            pod("d-1", "od"),
            *claim(RWO),
            *more,
        ]
    )
    [plan] = Planner(cluster, Policy()).plan_each(CIRCUMSTANCES).verdicts
    assert isinstance(plan, Plan)
    groups = {placement.pod.name: placement.together for placement in plan.placements}
    assert groups.pop("d-1") == ""
    assert len(set(groups.values())) == 1
    assert "" not in groups.values()
