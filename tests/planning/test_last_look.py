"""Table of the last look: what keeps a machine that is about to be ordered away."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace as structs_replace

from predicates.objects import Node, Pod
from predicates.snapshot import DRAIN_TAINT
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import Debt, Replicas
from rescheduler.planning.last_look import Ground, NodeLease, OrderTerms, Seen, objection, why_at_risk
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.pod_traits import ends_with_node
from tests.planning.builders import ON_DEMAND, SPOT, Manifest, node, pod, snapshot
from tests.proxy.planning import POLICY

TAINT: Final = {"key": DRAIN_TAINT.key, "effect": "NoSchedule"}
WEB: Final = Controller("default", "Deployment", "web", "u")
OWED: Final = (Debt(WEB, ready=2, bound=2),)
TWO: Final = OrderTerms(Policy(min_on_demand_nodes=2), keeping=frozenset({"od-1", "od-2", "od-3"}))


def node_of(manifest: Manifest) -> Node:
    [decoded] = snapshot([manifest]).nodes
    return decoded


def pods_of(*manifests: Manifest) -> list[Pod]:
    return list(snapshot([node("od", ON_DEMAND), *manifests]).pods.values())


def od(name: str = "od", **fields: Any) -> Node:
    return node_of(node(name, ON_DEMAND, **fields))


def running(ready: int, wanted: int | None = 2) -> dict[str, Any]:
    return {
        "states": {WEB: ControllerState(WEB, frozenset({"u"}), wanted=wanted)},
        "replicas": {WEB: Replicas(live=2, bound=2, ready=ready)},
    }


CREATED: Final = "2026-01-01T10:00:00Z"
LATER: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
BEFORE: Final = od()
EMPTY: Final = od(taints=[TAINT])
MASTER: Final = od(labels={"node-role.kubernetes.io/control-plane": ""}, taints=[TAINT])
OTHERS: Final = [od("od-1"), od("od-2"), od("od-3")]

#: Terms, what is seen, and the ground of the objection.
LOOKS: dict[str, tuple[OrderTerms, Seen, Ground | None]] = {
    "an empty node": (OrderTerms(Policy()), Seen(EMPTY), None),
    "somebody removed the taint": (OrderTerms(Policy()), Seen(od()), Ground.TAINT),
    "somebody changed the effect of the taint": (
        OrderTerms(Policy()),
        Seen(od(taints=[TAINT | {"effect": "PreferNoSchedule"}])),
        Ground.TAINT,
    ),
    "the node is a spot node now": (
        OrderTerms(Policy()),
        Seen(node_of(node("od", SPOT, taints=[TAINT]))),
        Ground.NOT_ON_DEMAND,
    ),
    "the node has both labels": (
        OrderTerms(Policy()),
        Seen(od(labels={SPOT: ""}, taints=[TAINT])),
        Ground.NOT_ON_DEMAND,
    ),
    "somebody keeps the node": (
        OrderTerms(Policy()),
        Seen(od(annotations={"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}, taints=[TAINT])),
        Ground.KEPT,
    ),
    "somebody keeps the node until a time that has not come": (
        OrderTerms(Policy()),
        Seen(od(annotations={"spot-rescheduler/do-not-drain": "1h"}, created=CREATED, taints=[TAINT])),
        Ground.KEPT,
    ),
    "the time until which somebody kept the node is over": (
        OrderTerms(Policy()),
        Seen(od(annotations={"spot-rescheduler/do-not-drain": "1h"}, created=CREATED, taints=[TAINT]), now=LATER),
        None,
    ),
    "it belongs to the control plane now": (OrderTerms(Policy()), Seen(MASTER), Ground.KEPT),
    "it belongs to the control plane now, which may be drained, but not removed": (
        OrderTerms(Policy(allow_control_plane=True)),
        Seen(MASTER),
        Ground.KEPT,
    ),
    "a node of a proxy belongs to the control plane now": (OrderTerms(), Seen(MASTER), Ground.KEPT),
    "Cluster Autoscaler removes the node": (
        OrderTerms(Policy()),
        Seen(od(taints=[TAINT, {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}])),
        Ground.KEPT,
    ),
    "an empty node that is not Ready": (OrderTerms(Policy()), Seen(od(taints=[TAINT], ready="Unknown")), None),
    "a proxy does not read labels": (OrderTerms(), Seen(node_of(node("od", SPOT, taints=[TAINT]))), None),
    "another Node of its machine has a pod": (
        OrderTerms(Policy()),
        Seen(EMPTY, mates=[(od("old", ready="Unknown"), pods_of(pod("w", "od")))]),
        Ground.KEPT,
    ),
    "another Node of its machine accepts pods": (OrderTerms(), Seen(EMPTY, mates=[(od("old"), [])]), Ground.KEPT),
    "another Node of its machine is left over": (
        OrderTerms(Policy()),
        Seen(EMPTY, mates=[(od("old", ready="Unknown"), pods_of(pod("w", "od", deleted=True)))]),
        None,
    ),
    "a pod": (OrderTerms(Policy()), Seen(EMPTY, pods_of(pod("late", "od"))), Ground.PODS),
    "a pod that terminates": (
        OrderTerms(Policy()),
        Seen(EMPTY, pods_of(pod("late", "od", deleted=True))),
        Ground.PODS,
    ),
    "a pod that terminates without a kubelet": (
        OrderTerms(Policy()),
        Seen(od(taints=[TAINT], ready="Unknown"), pods_of(pod("late", "od", deleted=True))),
        None,
    ),
    "a pod of kube-system, which a proxy leaves on its node": (
        OrderTerms(stays=lambda pod: ends_with_node(pod, POLICY)),
        Seen(EMPTY, pods_of(pod("kube-system/dns", "od"))),
        None,
    ),
    "a pod of kube-system, which the daemon moves": (
        OrderTerms(Policy()),
        Seen(EMPTY, pods_of(pod("kube-system/dns", "od"))),
        Ground.PODS,
    ),
    "pods of DaemonSets": (OrderTerms(Policy()), Seen(EMPTY, pods_of(pod("ds", "od", owner="DaemonSet"))), None),
    "more nodes than the minimum": (TWO, Seen(EMPTY, nodes=OTHERS), None),
    "one of the others is not Ready": (
        replace(TWO, keeping=frozenset({"od-1", "od-2"})),
        Seen(EMPTY, nodes=[od("od-1"), od("od-2", ready="False")]),
        Ground.MINIMUM,
    ),
    "one of the others is drained": (
        replace(TWO, keeping=frozenset({"od-1", "od-2"})),
        Seen(EMPTY, nodes=[od("od-1"), od("od-2", taints=[TAINT])]),
        Ground.MINIMUM,
    ),
    "one of the others keeps no pods, or may be ordered away": (
        replace(TWO, keeping=frozenset({"od-1"})),
        Seen(EMPTY, nodes=OTHERS),
        Ground.MINIMUM,
    ),
    "too few others, but the node had no pods when its drain began": (
        replace(TWO, keeping=frozenset({"od-1"}), in_use=False),
        Seen(EMPTY, nodes=OTHERS),
        None,
    ),
    "the moved pods are Ready": (OrderTerms(Policy(), OWED), Seen(EMPTY, **running(2)), None),
    "a moved pod was lost": (OrderTerms(Policy(), OWED), Seen(EMPTY, **running(1)), Ground.OWED),
    "a moved pod is only bound, which is enough": (
        OrderTerms(Policy(), OWED, ready=False),
        Seen(EMPTY, **running(1)),
        None,
    ),
    "a moved pod may not stay": (
        OrderTerms(Policy(), OWED),
        Seen(EMPTY, states=running(2)["states"], replicas={WEB: Replicas(2, 2, 2, unsettled=1)}),
        Ground.OWED,
    ),
    "an earlier drain of the node is owed more": (
        OrderTerms(Policy(), (Debt(WEB, ready=1, bound=1), *OWED)),
        Seen(EMPTY, **running(1)),
        Ground.OWED,
    ),
    "the controller wants less": (OrderTerms(Policy(), OWED), Seen(EMPTY, **running(1, wanted=1)), None),
}


@pytest.mark.parametrize(("terms", "seen", "ground"), LOOKS.values(), ids=LOOKS)
def test_what_keeps_a_machine(terms: OrderTerms, seen: Seen, ground: Ground | None) -> None:
    found = objection(BEFORE, terms, seen)
    assert (found.ground if found is not None else None) is ground


def test_another_machine_with_the_same_node_is_kept() -> None:
    before = replace_provider(BEFORE, "cloud://1")
    found = objection(before, OrderTerms(), Seen(replace_provider(EMPTY, "cloud://2")))
    assert found is not None
    assert (found.ground, found.why) == (
        Ground.NOT_ON_DEMAND,
        "its provider ID was cloud://1 and is now cloud://2",
    )


def replace_provider(known: Node, provider_id: str) -> Node:
    return structs_replace(known, spec=structs_replace(known.spec, provider_id=provider_id))


def test_debts_that_arise_after_the_order_began_count() -> None:
    later = Debt(Controller("other", "ReplicaSet", "low", "v"), ready=1, bound=1)
    terms = OrderTerms(debts=OWED, preempted=lambda: (later, replace_ready(OWED[0])))
    assert terms.at_present().debts == (*OWED, later)


def replace_ready(debt: Debt) -> Debt:
    return structs_replace(debt, ready=0)


def lease(age: float, duration: float = 40) -> dict[str, NodeLease]:
    return {"s": NodeLease(LATER - timedelta(seconds=age), timedelta(seconds=duration))}


TAKEN: Final = [{"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}]

LEAVING: Final = node("s", SPOT)
LEAVING["metadata"]["deletionTimestamp"] = CREATED

#: The terms, the Leases and the Node of a moved pod, and why it may soon have no place.
PLACES: Final[dict[str, tuple[OrderTerms, dict[str, NodeLease], Node, str]]] = {
    "a node that stays": (OrderTerms(), lease(9), node_of(node("s", SPOT)), ""),
    "a node without a Lease": (OrderTerms(), {}, node_of(node("s", SPOT)), ""),
    "the Lease was renewed in time": (OrderTerms(), lease(19), node_of(node("s", SPOT)), ""),
    "two renewals are missing": (
        OrderTerms(),
        lease(20),
        node_of(node("s", SPOT)),
        "its kubelet last renewed its Lease 20 s ago",
    ),
    "a long Lease": (OrderTerms(), lease(39, 300), node_of(node("s", SPOT)), ""),
    "a long Lease that was not renewed": (
        OrderTerms(),
        lease(40, 300),
        node_of(node("s", SPOT)),
        "its kubelet last renewed its Lease 40 s ago",
    ),
    "a clock that is ahead": (OrderTerms(), lease(-5), node_of(node("s", SPOT)), ""),
    "the cloud takes the machine": (
        OrderTerms(),
        lease(1),
        node_of(node("s", SPOT, taints=TAKEN)),
        "it will be removed soon (taint aws-node-termination-handler of AWS Node Termination Handler)",
    ),
    "the provider takes the machine": (
        OrderTerms(ending=frozenset({"s"})),
        lease(1),
        node_of(node("s", SPOT)),
        "the provider will reclaim it soon",
    ),
    "the pods have another place when the provider takes the machine": (
        OrderTerms(ending=frozenset({"s"}), with_other_places=frozenset({"s"})),
        lease(1),
        node_of(node("s", SPOT)),
        "",
    ),
    "the pods have another place then": (
        OrderTerms(with_other_places=frozenset({"s"})),
        lease(1),
        node_of(node("s", SPOT, taints=TAKEN)),
        "",
    ),
    "another place does not help if the kubelet is dead": (
        OrderTerms(with_other_places=frozenset({"s"})),
        lease(50),
        node_of(node("s", SPOT, taints=TAKEN)),
        "its kubelet last renewed its Lease 50 s ago",
    ),
    "cordoned": (OrderTerms(), {}, node_of(node("s", SPOT, unschedulable=True)), "it is cordoned"),
    "a finalizer keeps its Node, which is being deleted": (OrderTerms(), {}, node_of(LEAVING), "it is being deleted"),
}


@pytest.mark.parametrize(("terms", "leases", "on", "why"), PLACES.values(), ids=PLACES)
def test_a_pod_may_soon_have_no_place(terms: OrderTerms, leases: dict[str, NodeLease], on: Node, why: str) -> None:
    [moved] = pods_of(pod("web-1", "s"))
    expected = f"node s of pod default/web-1: {why}" if why else ""
    assert why_at_risk(terms, leases, LATER, moved, on) == expected
