"""Tests of what to buy: which types and zones are offered, and that the best purchase is found."""

import random
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import pytest

from predicates.nodes import PODS
from predicates.snapshot import Snapshot
from rescheduler.planning.money.commitments import Commitment
from rescheduler.planning.money.prices import HOURS_PER_MONTH, PriceKey, PriceList
from rescheduler.planning.money.worth import summed
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy, Survive
from rescheduler.planning.room.additions import Additions
from rescheduler.planning.room.purchases import Purchases, PurchaseSearch, offered
from rescheduler.planning.what_if.added_spot import AddSpot, add_spot
from rescheduler.planning.what_if.comparison import added_nodes, what_if
from rescheduler.planning.what_if.overview import worths_of
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, ZONE, Manifest, node, pod, repels, snapshot

TYPE: Final = "node.kubernetes.io/instance-type"


def of_type(name: str, kind: str, role: str = "node-role.kubernetes.io/spot-worker", **fields: Any) -> Manifest:
    labels = {TYPE: kind} | fields.pop("labels", {})
    return node(name, role, labels=labels, **fields)


def priced(on_demand: str = "0.2", **spot: str) -> PriceList:
    """Return prices of the on-demand type ``od``, and of spot types; ``c_b`` is the type ``c`` in zone ``b``."""
    by_type: dict[PriceKey, Decimal] = {("od", "", False): Decimal(on_demand)}
    for name, price in spot.items():
        kind, _, zone = name.partition("_")
        by_type[kind, zone, True] = Decimal(price)
    return PriceList(by_type)


def bought(
    objects: Iterable[Manifest], prices: PriceList, policy: Policy | None = None, survive: Survive = Survive.OFF
) -> Purchases:
    cluster, policy = snapshot(objects), policy or Policy()
    before = dict(cluster.pods), list(cluster.nodes.row), cluster.changes
    base = Planner(cluster, policy).plan_all(CIRCUMSTANCES)
    found = PurchaseSearch(Additions(cluster, policy, CIRCUMSTANCES), base, prices, lambda: False).run(5, survive)
    assert (dict(cluster.pods), list(cluster.nodes.row), cluster.changes) == before
    return found


def first(found: Purchases) -> Any:
    """Return what the best purchase adds, and what it frees; None if there is none."""
    return (found.best[0].changes, found.best[0].frees) if found.best else None


ARCH: Final = "kubernetes.io/arch"
GPU: Final = "nvidia.com/gpu"
TAINT: Final = {"key": "special", "effect": "NoSchedule"}

#: A full spot node of each of two types, in two zones.
SMALL: Final = [of_type("small", "small", cpu="2", zone="a"), pod("full-1", "small", cpu="2")]
LARGE: Final = [of_type("large", "large", cpu="8", zone="b"), pod("full-2", "large", cpu="8")]
OD: Final = of_type("od", "od", ON_DEMAND)
BOTH: Final = priced(small="0.02", large="0.06")

CASES: dict[str, tuple[list[Manifest], PriceList, Any]] = {
    "the cheaper of two types": (
        [OD, *SMALL, *LARGE, pod("web-1", "od", cpu="1")], BOTH, (("add-spot 1 like small",), ("od",)),
    ),
    "a type that costs nothing": (
        [OD, *SMALL, *LARGE, pod("web-1", "od", cpu="1")], priced(small="0.02", large="0"),
        (("add-spot 1 like large",), ("od",)),
    ),
    "a type that costs nothing in the other zone": (
        [OD, *SMALL, *LARGE, pod("web-1", "od", cpu="1")], priced(small="0.02", small_b="0", large="0.06"),
        (("add-spot 1 type=small,zone=b",), ("od",)),
    ),
    "all types cost nothing": (
        [OD, *SMALL, pod("web-1", "od", cpu="1")], priced(small="0"), (("add-spot 1 like small",), ("od",)),
    ),
    "vCPUs that cost nothing": (
        [OD, *SMALL, pod("web-1", "od", cpu="1")], replace(priced(), spot_per_vcpu=Decimal(0)),
        (("add-spot 1 like small",), ("od",)),
    ),
    "the on-demand nodes cost nothing": ([OD, *SMALL, pod("web-1", "od", cpu="1")], priced("0", small="0"), None),
    "the other zone is cheaper": (
        [OD, *SMALL, *LARGE, pod("web-1", "od", cpu="1")],
        priced(small="0.02", small_b="0.01", large="0.06"),
        (("add-spot 1 type=small,zone=b",), ("od",)),
    ),
    "one large node for several": (
        [
            *(of_type(f"od-{number}", "od", ON_DEMAND) for number in range(4)), *SMALL, *LARGE,
            *(pod(f"web-{number}", f"od-{number}", cpu="1900m") for number in range(4)),
        ],
        BOTH,
        (("add-spot 1 like large",), ("od-0", "od-1", "od-2", "od-3")),
    ),
    "a type of an on-demand node": (
        [of_type("od", "od", ON_DEMAND, zone="a"), *SMALL, pod("web-1", "od", cpu="3")],
        priced(small="0.02", od="0.05"),
        (("add-spot 1 type=od,zone=a",), ("od",)),
    ),
    "no spot node at all": (
        [of_type("od", "od", ON_DEMAND, zone="a"), pod("web-1", "od", cpu="3")],
        priced(od="0.05"),
        (("add-spot 1 type=od,zone=a",), ("od",)),
    ),
    "what a new node runs anyway counts": (
        [OD, *SMALL, pod("agent-1", "small", cpu="1500m", owner="DaemonSet"), pod("web-1", "od", cpu="1")],
        BOTH,
        None,
    ),
    "the number of pods on a node": (
        [OD, of_type("s", "small", cpu="4", pods=2), pod("a", "s"), pod("b", "s"),
         *(pod(f"web-{number}", "od", cpu="100m") for number in range(4))],
        priced(small="0.02"),
        (("add-spot 2 like s",), ("od",)),
    ),
    "pods that repel each other": (
        [OD, *SMALL, *(pod(f"web-{number}", "od", cpu="100m", affinity=repels("web")) for number in range(3))],
        BOTH,
        (("add-spot 3 like small",), ("od",)),
    ),
    "another architecture": (
        [
            of_type("od", "od", ON_DEMAND, zone="a"), *SMALL, *LARGE,
            of_type("arm", "arm", cpu="4", zone="a", labels={"kubernetes.io/arch": "arm64"}),
            pod("full-3", "arm", cpu="4"),
            pod("web-1", "od", cpu="1", nodeSelector={"kubernetes.io/arch": "arm64"}),
        ],
        priced(small="0.01", large="0.01", arm="0.09"),
        (("add-spot 1 like arm",), ("od",)),
    ),
    "a zone without a spot node": (
        [OD, of_type("od-b", "od", ON_DEMAND, zone="b"), *SMALL,
         pod("web-1", "od-b", cpu="1", nodeSelector={ZONE: "b"})],
        BOTH,
        (("add-spot 1 type=small,zone=b",), ("od-b",)),
    ),
    "it does not pay": ([OD, *LARGE, pod("web-1", "od", cpu="1")], priced("0.05", large="0.06"), None),
    "no price of what fits": ([OD, *SMALL, *LARGE, pod("web-1", "od", cpu="3")], priced(small="0.02"), None),
    "another obstacle": ([OD, *SMALL, pod("web-1", "od", cpu="1", owner=None)], BOTH, None),
    "a commitment pays for the node anyway": (
        [OD, *SMALL, pod("web-1", "od", cpu="1")],
        replace(BOTH, commitments=(Commitment(nodes=1, of_each_type=True),)),
        None,
    ),
    "nothing lacks room": ([OD, of_type("s", "small"), pod("web-1", "od", cpu="1")], BOTH, None),
}  # fmt: skip


@pytest.mark.parametrize(("objects", "prices", "expected"), CASES.values(), ids=CASES)
def test_the_best_purchase(objects: list[Manifest], prices: PriceList, expected: Any) -> None:
    assert first(bought(objects, prices)) == expected


PINS: Final = {
    "node-role.kubernetes.io/worker": "",
    "eks.amazonaws.com/nodegroup": "db",
    "cloud.google.com/gke-nodepool": "default",
    "pool": "od",
}


@pytest.mark.parametrize("others", [[], SMALL], ids=["no spot node", "a full spot node of another type"])
@pytest.mark.parametrize(("key", "value"), PINS.items(), ids=PINS)
def test_pods_that_on_demand_nodes_of_a_type_hold_by_a_label_are_no_reason_to_buy_it(
    key: str, value: str, others: list[Manifest]
) -> None:
    """The label of the on-demand nodes does not follow from their type, so new spot nodes do not have it."""
    nodes = [of_type(name, "od", ON_DEMAND, labels={key: value}, zone="a") for name in ("od-1", "od-2")]
    pods = [
        pod("web-1", "od-1", cpu="1"),
        *(pod(f"db-{name}", f"od-{name}", nodeSelector={key: value}) for name in "12"),
    ]
    found = bought([*nodes, *others, *pods], priced(od="0.05", small="0.02"))
    assert (first(found), found.lacking) == (None, ())


def test_many_nodes_share_new_ones() -> None:
    objects = [*SMALL, *LARGE]
    for number in range(24):
        objects += [of_type(f"od-{number}", "od", ON_DEMAND), pod(f"web-{number}", f"od-{number}", cpu="2")]
    [best, *others] = bought(objects, BOTH).best
    assert (best.changes, len(best.frees)) == (("add-spot 6 like large",), 24)
    assert [purchase.net_per_month for purchase in others] == sorted(
        (purchase.net_per_month for purchase in others), reverse=True
    )


def test_a_type_whose_size_is_not_known_is_named() -> None:
    found = bought([OD, *SMALL, pod("web-1", "od", cpu="3")], priced(small="0.02", m7="0.01", m8_b="0.01"))
    assert (found.best, found.unknown, found.lacking) == ((), ("m7", "m8"), ("od",))


def test_the_five_that_save_the_most_are_of_few_types_if_many_are_alike() -> None:
    """Six types are alike but for their prices. Large nodes have more room, and save less than three of these."""
    kinds = {f"t{number}": f"0.0{number}" for number in range(1, 7)}
    alike = [of_type(kind, kind, cpu="2", zone="a") for kind in kinds]
    full = [pod(f"full-{kind}", kind, cpu="2") for kind in kinds]
    found = bought([OD, *alike, *full, *LARGE, pod("web-1", "od", cpu="1")], priced(large="0.025", **kinds))
    assert [purchase.changes for purchase in found.best] == [
        ("add-spot 1 like t1",), ("add-spot 1 type=t1,zone=b",), ("add-spot 1 like t2",),
        ("add-spot 1 type=t2,zone=b",), ("add-spot 1 like large",),
    ]  # fmt: skip


def test_the_price_of_a_new_node_is_what_it_costs() -> None:
    """The provider prices each node: the price of a new one is the lowest of its type, in the row as in the sum."""
    of_zones = [of_type(f"s-{zone}", "m5", zone=zone) for zone in "ab"]
    objects = [*of_zones, of_type("od", "m7", ON_DEMAND, cpu="8"), pod("w-1", "od", cpu="3", nodeSelector={ZONE: "a"})]
    objects += [pod(f"f-{zone}", f"s-{zone}", cpu="4") for zone in "ab"]
    prices = PriceList(by_node={"s-a": Decimal("0.10"), "s-b": Decimal("0.05"), "od": Decimal(1)})
    [best, *_] = bought(objects, prices).best
    [(offer, number)] = best.parts
    assert (offer.price, number, best.cost_per_month) == (Decimal("0.05"), 1, Decimal("36.50"))


def test_what_spot_nodes_cost_more_than_the_freed_nodes_is_counted() -> None:
    """The pod of the cheap node pays more for its share of the new node than its node costs."""
    dear, cheap = of_type("od-1", "dear", ON_DEMAND, cpu="4"), of_type("od-2", "cheap", ON_DEMAND, cpu="4")
    objects = [dear, cheap, *LARGE, pod("web-1", "od-1", cpu="2"), pod("web-2", "od-2", cpu="3")]
    by_type = {
        ("dear", "", False): Decimal(1),
        ("cheap", "", False): Decimal("0.05"),
        ("large", "", True): Decimal("0.5"),
    }
    [best, *_] = bought(objects, PriceList(by_type)).best
    assert (best.frees, best.net_per_month) == (("od-1", "od-2"), Decimal("0.55") * HOURS_PER_MONTH)


def machine_set(annotations: Manifest, kind: str = "m6", labels: Manifest | None = None) -> Manifest:
    machine = {"instanceType": kind, "placement": {"availabilityZone": "a"}}
    spec = {"metadata": {"labels": labels or {}}, "providerSpec": {"value": machine}}
    meta = {"name": "spot-a", "namespace": "machines", "annotations": annotations}
    return {"kind": "MachineSet", "metadata": meta, "spec": {"template": {"spec": spec}}}


OF_CLUSTER_API: Final = {
    "capacity.cluster-autoscaler.kubernetes.io/cpu": "4",
    "capacity.cluster-autoscaler.kubernetes.io/memory": "16Gi",
    "capacity.cluster-autoscaler.kubernetes.io/maxPods": "9",
}
OF_OPENSHIFT: Final = {"machine.openshift.io/vCPU": "4", "machine.openshift.io/memoryMb": "16384"}

#: By name: a MachineSet, and the size of the node that it adds: CPU in cores, memory in GiB, pods; None without one.
MACHINE_SETS: Final[dict[str, tuple[Manifest, tuple[float, float, int] | None]]] = {
    "of Cluster API": (machine_set(OF_CLUSTER_API), (3.8, 16, 9)),
    "of OpenShift": (machine_set(OF_OPENSHIFT), (3.8, 16, 110)),
    "the type as a label of its nodes": (machine_set(OF_OPENSHIFT, "", {TYPE: "m6"}), (3.8, 16, 110)),
    "the type as a label in the annotation": (
        machine_set(OF_CLUSTER_API | {"capacity.cluster-autoscaler.kubernetes.io/labels": f"a=b,{TYPE}=m6"}, ""),
        (3.8, 16, 9),
    ),
    "no capacity": (machine_set({}), None),
    "an amount that is not valid": (machine_set(OF_CLUSTER_API | {next(iter(OF_CLUSTER_API)): "four"}), None),
    "no type": (machine_set(OF_OPENSHIFT, ""), None),
}


@pytest.mark.parametrize(("manifest", "size"), MACHINE_SETS.values(), ids=MACHINE_SETS)
def test_a_machine_set_tells_the_size_of_a_type_without_nodes(
    manifest: Manifest, size: tuple[float, float, int] | None
) -> None:
    """Other nodes reserve a twentieth of their CPU. The DaemonSet pod of the first spot node runs on new nodes."""
    reserving = of_type("od", "od", ON_DEMAND, cpu="3800m", zone="a")
    reserving["status"]["capacity"] = {"cpu": "4", "memory": "16Gi"}
    agent = pod("agent-1", "small", cpu="100m", owner="DaemonSet")
    found = bought([reserving, *SMALL, agent, pod("web-1", "od", cpu="3"), manifest], priced(m6="0.05"))
    if size is None:
        assert (first(found), found.unknown) == (None, ("m6",))
        return
    assert (first(found), found.unknown) == ((("add-spot 1 type=m6,zone=a",), ("od",)), ())
    [(offer, _)] = found.best[0].parts
    cluster = snapshot([reserving, *SMALL, agent, manifest])
    [name] = add_spot(cluster, Policy(), offer.change)
    row = cluster.nodes.row[name]
    assert (offer.facts.cpu / 1000, offer.facts.memory / (1 << 30), cluster.nodes.allocatable[row, PODS]) == size
    assert [*cluster.pods_on[name]] == [f"default/agent-1-{name}"]


def test_spread_over_pools_if_their_loss_must_be_survived() -> None:
    """Two nodes of one pool would be lost together; the on-demand node that stays has no room."""
    objects = [
        of_type("od-1", "od", ON_DEMAND, cpu="4", zone="a"), of_type("od-2", "od", ON_DEMAND, cpu="4", zone="b"),
        *SMALL, *LARGE, *(pod(f"web-{number}", f"od-{number}", cpu="2") for number in (1, 2)),
    ]  # fmt: skip
    prices = priced(small="0.02", small_b="0.02")
    alone = bought(objects, prices)
    spread = bought(objects, prices, Policy(survive=Survive.POOL), Survive.POOL)
    assert len(alone.best[0].parts) == 1
    survived = spread.best[0].survival
    assert survived is not None
    before = Planner(snapshot(objects), Policy()).certificate(CIRCUMSTANCES, Survive.POOL)
    assert {pool.pool for pool in survived.worst} <= {pool.pool for pool in before.worst}
    assert any(len(purchase.parts) > 1 for purchase in spread.best)


def random_cluster(rng: random.Random) -> tuple[list[Manifest], PriceList]:
    """Return a small cluster with full spot nodes of up to eight types in three zones, and prices.

    Types differ in CPU, memory and architecture; some have GPUs or a taint.
    """
    zones, objects = ("a", "b", "c")[: rng.randint(1, 3)], list[Manifest]()
    prices: dict[PriceKey, Decimal] = {("od", "", False): Decimal("0.2"), ("od", "", True): Decimal("0.08")}
    for number in range(rng.randint(1, 8)):
        cpu, gpus, kind = rng.choice((2, 4, 8, 16)), rng.choice((0, 0, 0, 1)), f"t{number}"
        special: dict[str, Any] = {"taints": [TAINT]} if rng.random() < 0.2 else {}
        special |= {"labels": {ARCH: "arm64"}} if rng.random() < 0.3 else {"labels": {ARCH: "amd64"}}
        spot = of_type(f"s-{number}", kind, cpu=str(cpu), zone=rng.choice(zones), **special)
        spot["status"]["allocatable"] |= {"memory": f"{cpu * rng.choice((2, 4))}Gi"} | ({GPU: "1"} if gpus else {})
        objects.append(spot)
        objects.append(pod(f"full-{number}", f"s-{number}", cpu=f"{cpu * 1000 - rng.randint(0, 1200)}m"))
        prices[kind, "", True] = Decimal(cpu * (1 + 2 * gpus)) * rng.randint(7, 20) / 1000
        if rng.random() < 0.3:
            prices[kind, rng.choice(zones), True] = Decimal(cpu) * rng.randint(7, 20) / 1000
    for number in range(rng.randint(1, 6)):
        objects.append(of_type(f"od-{number}", "od", ON_DEMAND, cpu="4", zone=rng.choice(zones)))
        objects[-1]["status"]["allocatable"] |= {GPU: "1"}
        for each in range(rng.randint(1, 5)):
            rules: dict[str, Any] = {"nodeSelector": {ZONE: rng.choice(zones)}} if rng.random() < 0.2 else {}
            rules |= {"nodeSelector": {ARCH: rng.choice(("amd64", "arm64"))}} if rng.random() < 0.1 else {}
            rules |= {"affinity": repels("web")} if rng.random() < 0.1 else {}
            rules |= {"tolerations": [{"key": "special", "operator": "Exists"}]} if rng.random() < 0.5 else {}
            web = pod(
                f"web-{number}{each}", f"od-{number}", cpu=f"{rng.choice((100, 300, 500, 900, 1500, 2500))}m", **rules
            )
            asked = web["spec"]["containers"][0]["resources"]["requests"]
            asked |= {"memory": f"{rng.choice((100, 1000, 3000))}Mi"} | ({GPU: "1"} if rng.random() < 0.05 else {})
            objects.append(web)
    return objects, PriceList(prices)


def net_of(cluster: Snapshot, prices: PriceList, *changes: AddSpot) -> Decimal:
    """Return what ``--what-if`` says that *changes* save per month."""
    planning = Planner(cluster, Policy()).plan_all(CIRCUMSTANCES)
    outcome = what_if(cluster, Policy(), CIRCUMSTANCES, changes)
    known, added = added_nodes(cluster, Policy(), outcome, prices)
    today = CIRCUMSTANCES.now.date()
    before, after = (
        summed(worths_of(each, nodes, prices, today).values()).balance_per_month or Decimal(0)
        for each, nodes in ((planning, cluster), (outcome.planning, outcome.snapshot))
    )
    assert added is not None
    net = added.net_change_per_month(before, after)
    assert net is not None
    assert known.by_type == prices.by_type
    return net


@pytest.mark.parametrize("seed", range(10))
def test_the_best_purchase_saves_at_least_97_percent_of_what_exhaustive_search_finds(seed: int) -> None:
    objects, prices = random_cluster(random.Random(seed))
    cluster = snapshot(objects)
    changes = [offer.change for offer in offered(Additions(cluster, Policy(), CIRCUMSTANCES), prices)]
    best = max(
        (net_of(cluster, prices, replace(change, count=number)) for change in changes for number in range(1, 7)),
        default=Decimal(0),
    )
    found = bought(objects, prices)
    saved = found.best[0].net_per_month if found.best else Decimal(0)
    assert saved >= Decimal("0.97") * best
    for purchase in found.best:
        parts = [replace(offer.change, count=number) for offer, number in purchase.parts]
        assert purchase.net_per_month == net_of(cluster, prices, *parts)


def test_purchases_are_those_of_the_time_that_is_left() -> None:
    cluster = snapshot([OD, *SMALL, pod("web-1", "od", cpu="1")])
    base = Planner(cluster, Policy()).plan_all(CIRCUMSTANCES)
    found = PurchaseSearch(Additions(cluster, Policy(), CIRCUMSTANCES), base, BOTH, lambda: True).run(5, Survive.OFF)
    assert (found.best, found.complete, found.lacking) == ((), False, ("od",))
