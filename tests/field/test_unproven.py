"""Reports of pods that could not start, or lacked something, on nodes that accept them: what nothing proves is told."""

from typing import Any

import pytest

from rescheduler.planning.outcome import Plan
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from rescheduler.planning.unproven import unproven
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, node, pod, short, snapshot

ARCHITECTURE = "xelalexv/dregsy#115"
SYSCTL = "kubernetes/kubernetes#72593, #97541"
DAEMON_SET = "Azure/AKS#3153, Azure/aad-pod-identity#1042"

ARM, AMD = {"kubernetes.io/arch": "arm64"}, {"kubernetes.io/arch": "amd64"}
OLD, NEW = ({"node.kubernetes.io/windows-build": f"10.0.{build}"} for build in (17763, 20348))


def unsafe(*names: str) -> dict[str, Any]:
    return {"securityContext": {"sysctls": [{"name": name, "value": "1"} for name in names]}}


def daemon(name: str, on: str) -> Manifest:
    return pod(f"kube-system/{name}-{on}", on, owner="apps/v1/DaemonSet")


MOVES = "no pod of ReplicaSet default/a has run on {} here, and {} would go there: its image may not run"
SETS = (
    "pods of ReplicaSet default/a set the sysctl {}: whether the kubelet of s-1 allows it (--allowed-unsafe-sysctls) "
    "is not known"
)
LACKS = (
    "DaemonSet kube-system/log runs on the drained nodes, and does not run on the only target: pods that need it would "
    "lack it"
)

CASES: dict[str, tuple[list[Manifest], list[str], str]] = {
    "another architecture": (
        [node("od", ON_DEMAND, labels=AMD), node("s-1", labels=ARM), pod("a-1", "od"), pod("a-2", "od")],
        [MOVES.format("arm64", "2 pods")],
        ARCHITECTURE,
    ),
    "a replica runs there": (
        [node("od", ON_DEMAND, labels=AMD), node("s-1", labels=ARM), pod("a-1", "od"), pod("a-2", "s-1")],
        [],
        ARCHITECTURE,
    ),
    "the same architecture": (
        [node("od", ON_DEMAND, labels=AMD), node("s-1", labels=AMD), pod("a-1", "od")],
        [],
        ARCHITECTURE,
    ),
    "an architecture that is not known": (
        [node("od", ON_DEMAND, labels=AMD), node("s-1"), pod("a-1", "od")],
        [],
        ARCHITECTURE,
    ),
    "both, of which the known one is used": (
        [node("od", ON_DEMAND, labels=AMD), node("s-1", labels=ARM), node("s-2", labels=AMD), pod("a-1", "od")],
        [],
        ARCHITECTURE,
    ),
    "another build of Windows": (
        [node("od", ON_DEMAND, labels=AMD | OLD), node("s-1", labels=AMD | NEW), pod("a-1", "od")],
        [MOVES.format("amd64, Windows build 10.0.20348", "1 pod")],
        ARCHITECTURE,
    ),
    "an unsafe sysctl": (
        [node("od", ON_DEMAND), node("s-1"), pod("a-1", "od", **unsafe("net.core.somaxconn"))],
        [SETS.format("net.core.somaxconn")],
        SYSCTL,
    ),
    "a safe sysctl": (
        [node("od", ON_DEMAND), node("s-1"), pod("a-1", "od", **unsafe("net.ipv4.tcp_rmem"))],
        [],
        SYSCTL,
    ),
    "a safe sysctl with slashes": (
        [node("od", ON_DEMAND), node("s-1"), pod("a-1", "od", **unsafe("net/ipv4/tcp_syncookies"))],
        [],
        SYSCTL,
    ),
    "a sysctl that another pod there sets": (
        [
            node("od", ON_DEMAND),
            node("s-1"),
            pod("a-1", "od", **unsafe("kernel.msgmax")),
            pod("b-1", "s-1", **unsafe("kernel.msgmax")),
        ],
        [],
        SYSCTL,
    ),
    "a DaemonSet that does not run on the targets": (
        [
            node("od", ON_DEMAND),
            node("s-1"),
            pod("a-1", "od"),
            daemon("log", "od"),
            daemon("proxy", "od"),
            daemon("proxy", "s-1"),
        ],
        [LACKS],
        DAEMON_SET,
    ),
    "a DaemonSet of a node from which nothing moves": (
        [node("od", ON_DEMAND), node("s-1"), daemon("log", "od")],
        [],
        DAEMON_SET,
    ),
}


@pytest.mark.parametrize(("objects", "told", "source"), CASES.values(), ids=CASES)
def test_what_nothing_proves_is_told(objects: list[Manifest], told: list[str], source: str) -> None:
    assert source
    cluster = snapshot(objects)
    plans = Planner(cluster, Policy()).plan_all(CIRCUMSTANCES).plans
    assert len(plans) == 1
    assert list(unproven(cluster, plans)) == told


def test_spot_nodes_of_an_unknown_architecture_can_be_left_out() -> None:
    objects = [node("od", ON_DEMAND, labels=AMD), node("s-1", labels=ARM), pod("a-1", "od")]
    strict = Policy(require_known_architecture=True)
    assert isinstance(Planner(snapshot(objects), Policy()).plan_node("od", CIRCUMSTANCES), Plan)
    assert short(Planner(snapshot(objects), strict).plan_node("od", CIRCUMSTANCES)) == ["no-room-on-spot"]
    assert short(Planner(snapshot([*objects, node("s-2", labels=AMD)]), strict).plan_node("od", CIRCUMSTANCES)) == {
        "a-1": "s-2"
    }
