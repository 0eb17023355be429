"""A tenant who may edit one namespace attacks for 24 or 72 hours of frozen time. Others' nodes are drained.

Each hour, an on-demand node with two pods of the other namespace appears. The tenant's nodes are emptier, so that they
come first. Beside the drains without him, at least 80 % must take place, and no other pod may be evicted.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from itertools import count
from typing import Any, Final

import pytest

from predicates.objects import Pod
from rescheduler.draining.events import EvictionRefused
from rescheduler.errors import InputError
from rescheduler.execution import drain_execution
from rescheduler.execution.landings import Landings
from rescheduler.observe.events import DrainEnded, Held, Waiting
from rescheduler.settings import Timing
from tests.housekeeping.world import LoopWorld, Replacement, world
from tests.planning.builders import HOST, ON_DEMAND, budget, node, pod, snapshot

HOUR: Final = 3600.0
LONG: Final = 72
SHORT: Final = int(os.environ.get("TENANT_HOURS", "24"))  #: nightly runs play each attack for 72 hours
SHARE: Final = 0.8
TIMING: Final = Timing(housekeeping_interval=timedelta(minutes=10))
POLL_SECONDS: Final = 5.0  #: of a running drain; each step takes processor time
SPOT_NODES: Final = 4
HIS_NODES: Final = 3
SLOW_PODS: Final = 20  #: on each of his nodes, with an owner whose pods are slow to run


@dataclass
class Tenant:
    """What the tenant does, with the names of his objects."""

    here: LoopWorld
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def every(self, seconds: float, act: Callable[[], object]) -> None:
        """Act now, and then again and again."""

        def again() -> None:
            act()
            self.here.at(self.here.now + seconds, again)

        again()

    def settle(self, app: str, on: str, **fields: Any) -> None:
        """Let a pod of *app* run on *on*, unless one runs there, or the node has a taint that he does not tolerate."""
        tainted = any(taint.effect == "NoSchedule" for taint in self.here.node(on).spec.taints)
        tolerating = fields.pop("tolerating", False)
        if tainted and not tolerating:
            return
        if not any(_app(known) == app for known in self.here.cluster.pods_on[on].values()):
            fields.setdefault("cpu", "100m")
            self.here.add(pod(f"tenant/{app}-{next(self.numbers)}", on, created=self.here.time(), **fields))

    def nodes(self, app: str = "evil", **fields: Any) -> None:
        """Keep a pod of *app* on each of his nodes, and none elsewhere for longer than that."""
        self.leave(app)
        for number in range(1, HIS_NODES + 1):
            self.settle(app, f"his-{number}", **fields)

    def leave(self, app: str = "", *, everywhere: bool = False) -> None:
        """Delete his pods that are not on his nodes, or all; of one *app* if it is given."""
        for known in list(self.here.cluster.pods.values()):
            his = known.namespace == "tenant" and app in ("", _app(known))
            if his and (everywhere or not known.node_name.startswith("his-")):
                self.here.cluster.delete("Pod", known.key)


def _app(pod: Pod) -> str:
    return pod.name.partition("-")[0]


def shop(here: LoopWorld, hours: int) -> None:
    """Let an on-demand node with two pods of the other namespace appear each hour. Older pods end."""
    for number in range(hours):
        here.at(number * HOUR, lambda number=number: _new_node(here, number))  # type: ignore[misc]


def _new_node(here: LoopWorld, number: int) -> None:
    here.add(node(f"shop-{number}", ON_DEMAND), *(pod(f"shop/web{number}-{n}", f"shop-{number}") for n in (1, 2)))
    for known in list(here.cluster.pods.values()):
        if known.namespace == "shop" and known.owner and known.owner.name == f"web{number - 5}":
            here.cluster.delete("Pod", known.key)
    if number >= 5 and not here.cluster.pods_on[f"shop-{number - 5}"]:
        here.cluster.delete("Node", f"shop-{number - 5}")


@dataclass(frozen=True)
class Outcome:
    drained: tuple[str, ...]  #: nodes of the other namespace that were drained
    in_time: int  #: of these, in the hour in which they appeared
    touched: tuple[str, ...]  #: pods of the other namespace that were evicted
    tried: int  #: drains of his nodes, also those that failed
    evicted: int  #: requests to evict his pods


Attack = Callable[[Tenant], object]


def played(attack: Attack, hours: int, *, soft_taint: bool = False) -> tuple[Outcome, LoopWorld]:
    spot = [node(f"spot-{n}", cpu="64", pods=1600) for n in range(1, SPOT_NODES + 1)]
    his = [node(f"his-{n}", ON_DEMAND) for n in range(1, HIS_NODES + 1)]
    with pytest.MonkeyPatch.context() as patch, world(*spot, *his) as here:
        patch.setattr(drain_execution, "POLL_SECONDS", POLL_SECONDS)
        shop(here, hours)
        here.at(0, lambda: attack(Tenant(here)))
        here.stop_at(hours * HOUR)
        here.pass_time(0)
        here.stores_settings = True
        here.loop(TIMING, soft_taint=soft_taint).run()
        ended = here.of(DrainEnded)
        evicted = [name for act, name in here.writes if act == "evict"]
        touched = sorted(name for name in evicted if name.startswith("web"))
        succeeded = [
            (at, event.node.name) for at, event in here.reported if isinstance(event, DrainEnded) and not event.failure
        ]
        drained = {name: at for at, name in succeeded if name.startswith("shop")}
        return Outcome(
            tuple(drained),
            sum(at < HOUR * (int(name.partition("-")[2]) + 1) for name, at in drained.items()),
            tuple(touched),
            sum(event.node.name.startswith("his") for event in ended),
            len(evicted) - len(touched),
        ), here


def held_too_long(here: LoopWorld) -> list[float]:
    """Return when drains waited for missing pods although the landing timeout has passed since the last drain.

    This is the tenth invariant: debts of one namespace hold no node without its pods for longer than that.
    """
    ends = here.times(DrainEnded)
    patience = TIMING.landing_timeout.total_seconds()
    waits = [(at, event.waiting) for at, event in here.reported if isinstance(event, Held)]
    return [
        at
        for at, waiting in waits
        if waiting is Waiting.FAILURE_PAUSE
        or (waiting is Waiting.LANDING_PENDING and at > max(end for end in ends if end <= at) + patience)
    ]


@cache
def without_him(hours: int) -> Outcome:
    return played(lambda _: None, hours)[0]


# The attacks


def unreplaced(tenant: Tenant) -> None:
    """An owner that cannot be read ends, and its pods do not come back."""
    tenant.here.replacements["evil"] = Replacement.LATE
    tenant.here.controller_errors["evil"] = InputError("get widgets tenant/evil: not allowed (403)")
    tenant.every(1200, lambda: tenant.nodes(owner="example.com/v1/Widget"))


def under(behavior: Replacement, **fields: Any) -> Attack:
    """Return an attack with replacement pods of this *behavior*. They are deleted and start again on his nodes."""

    def attack(tenant: Tenant) -> None:
        tenant.here.replacements["evil"] = behavior
        tenant.every(1200, lambda: tenant.nodes(**fields))

    return attack


def new_names(behavior: Replacement) -> Attack:
    """Return an attack with a new workload each time."""

    def attack(tenant: Tenant) -> None:
        def again() -> None:
            app = f"evil{next(tenant.numbers)}"
            tenant.here.replacements[app] = behavior
            tenant.leave(everywhere=True)
            tenant.nodes(app)

        tenant.every(1200, again)

    return attack


def turns(behavior: Replacement) -> Attack:
    """Return an attack in which his pods run again after each second drain, so that waits end."""

    def attack(tenant: Tenant) -> None:
        def ended() -> None:
            name = "evil"
            bad = tenant.here.replacements.get(name) is behavior
            tenant.here.replacements[name] = Replacement.READY if bad else behavior

        tenant.here.replacements["evil"] = behavior
        tenant.every(1500, ended)
        tenant.every(1200, tenant.nodes)

    return attack


def scaled_in_mid_drain(tenant: Tenant) -> None:
    here = tenant.here
    here.replacements["evil"] = Replacement.REFUSED
    here.on_evicted = lambda: here.controllers["evil"].update(wanted=1)

    def again() -> None:
        here.controllers["evil"].update(wanted=HIS_NODES)
        tenant.nodes()

    tenant.every(1200, again)


def flapping(tenant: Tenant) -> None:
    """A Deployment that is scaled between 0 and 50."""
    here = tenant.here

    def flap() -> None:
        up = here.controllers["evil"].get("wanted") == 50
        here.controllers["evil"]["wanted"] = 0 if up else 50
        if up:
            tenant.leave(everywhere=True)
        else:
            tenant.nodes()
            here.add(*(pod(f"tenant/evil-s{n}", f"spot-{1 + n % SPOT_NODES}", cpu="10m") for n in range(47)))

    tenant.every(151, flap)


def closing_budget(tenant: Tenant) -> None:
    """Dry runs are permitted, and evictions are not."""
    refused = EvictionRefused("", "Cannot evict pod as it would violate the pod's disruption budget.", retry_after=1.0)
    tenant.every(1200, tenant.nodes)

    def close() -> None:
        for known in tenant.here.cluster.pods.values():
            if known.namespace == "tenant":
                tenant.here.answers[known.key] = [refused]

    tenant.every(60, close)


def endless(tenant: Tenant) -> None:
    """Finalizers and long grace periods: his pods never terminate, and are started again under other names."""

    def again() -> None:
        for known in list(tenant.here.cluster.pods.values()):
            if known.namespace == "tenant" and known.key in tenant.here.endless:
                tenant.here.cluster.delete("Pod", known.key)
        tenant.nodes()
        tenant.here.endless |= {key for key, known in tenant.here.cluster.pods.items() if known.namespace == "tenant"}

    tenant.every(1200, again)


def returning(tenant: Tenant) -> None:
    """His pods prefer on-demand nodes: they leave the spot nodes shortly after each drain."""
    tenant.every(60, tenant.nodes)


def budgets_over_others(tenant: Tenant) -> None:
    others = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["evil"]}]}
    fields: dict[str, Any] = {"allowed": 0, "maxUnavailable": 0, "namespace": "tenant"}
    objects = [budget(f"web{n}", f"web{n}", **fields) for n in range(LONG)]
    objects += [budget("others", "", selector=others, **fields)]
    for built in snapshot(objects).objects["PodDisruptionBudget"].values():
        tenant.here.cluster.upsert("PodDisruptionBudget", built)
    tenant.every(1200, tenant.nodes)


def empty_selector(tenant: Tenant) -> None:
    """A budget that selects all pods of a namespace, and allows an eviction now and then."""
    tenant.every(1200, tenant.nodes)
    numbers = count()

    def change() -> None:
        allowed = next(numbers) % 2
        fields: dict[str, Any] = {"allowed": allowed, "maxUnavailable": allowed, "namespace": "tenant"}
        built = snapshot([budget("all", "", selector={}, **fields)]).objects["PodDisruptionBudget"]
        tenant.here.cluster.upsert("PodDisruptionBudget", next(iter(built.values())))

    tenant.every(130, change)


def huge(tenant: Tenant) -> None:
    """Pods with hundreds of tolerations, terms and selectors, never twice the same."""

    def again() -> None:
        number = next(tenant.numbers)
        values = [str(value) for value in range(50)]
        selector = {"matchExpressions": [{"key": f"k{n}", "operator": "NotIn", "values": values} for n in range(20)]}
        terms = [{"topologyKey": f"example.com/{number}-{n}", "labelSelector": selector} for n in range(10)]
        tolerations = [{"key": f"example.com/{number}-{n}", "operator": "Exists"} for n in range(500)]
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        tenant.leave(everywhere=True)
        tenant.nodes(affinity=affinity, tolerations=tolerations)

    tenant.every(1200, again)


def borrowed_group(tenant: Tenant) -> None:
    """Pods that say that they belong to groups with the names of the other team's controllers, with a huge minimum."""

    def again() -> None:
        tenant.leave(everywhere=True)
        group = {"pod-group.scheduling.sigs.k8s.io/name": f"web{int(tenant.here.now // HOUR)}"}
        tenant.nodes(labels=group | {"pod-group.scheduling.sigs.k8s.io/min-available": "2147483647"})

    tenant.every(1200, again)


def repelling(tenant: Tenant) -> None:
    """Anti-affinity to all pods of all namespaces, on his nodes and on one spot node."""
    term = {"topologyKey": HOST, "labelSelector": {}, "namespaceSelector": {}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    tenant.settle("lonely", "spot-4", affinity=affinity)
    tenant.every(1200, lambda: tenant.nodes(affinity=affinity))


def tiny(tenant: Tenant) -> None:
    """Many pods without requests: the scheduler's scores make other nodes look better, unless they have a taint."""
    pods = (pod(f"tenant/tiny-{n}", f"spot-{1 + n % SPOT_NODES}", cpu="1m") for n in range(5000))
    tenant.here.add(*pods)
    tenant.every(1200, tenant.nodes)


def forged_owner(tenant: Tenant) -> None:
    """His pods name the other team's controllers, and do not come back, or come back elsewhere."""
    here = tenant.here

    def again() -> None:
        number = int(here.now // HOUR)
        tenant.leave("forged", everywhere=True)
        for n in range(1, HIS_NODES + 1):
            name = f"forged-{next(tenant.numbers)}"
            manifest = pod(f"tenant/{name}", f"his-{n}", cpu="100m", owner="example.com/v1/Widget", created=here.time())
            reference = manifest["metadata"]["ownerReferences"][0]
            reference |= {"uid": f"uid-of-web{number}", "name": "forged"}
            here.add(manifest)

    here.replacements["forged"] = Replacement.LATE
    here.controller_errors["forged"] = InputError("get widgets tenant/forged: not allowed (403)")
    tenant.every(900, again)


def refusing_quota(tenant: Tenant) -> None:
    """A quota that is full while pods move, and not afterwards."""
    here = tenant.here

    def flap() -> None:
        closed = here.replacements["evil"] is Replacement.REFUSED
        here.replacements["evil"] = Replacement.READY if closed else Replacement.REFUSED

    tenant.every(130, flap)
    tenant.every(1200, tenant.nodes)


def slow_operator(tenant: Tenant) -> None:
    """The operator creates the pod 25 s after the eviction."""
    here = tenant.here
    here.replacements["evil"] = Replacement.LATE

    def late() -> None:
        here.at(here.now + 25, lambda: tenant.settle("evil", "spot-1"))

    here.on_evicted = late
    tenant.every(1800, tenant.nodes)


def slow_set(owner: str) -> Attack:
    """Return an attack with sets of pods that move one at a time, each Ready shortly before the landing timeout."""

    def attack(tenant: Tenant) -> None:
        here = tenant.here
        here.replacements["evil"] = Replacement.LATE
        here.controllers["evil"] = {"wanted": SLOW_PODS * HIS_NODES}

        def create(node: str) -> None:
            name = f"tenant/evil-{next(tenant.numbers)}"
            here.add(pod(name, node, cpu="10m", created=here.time(), owner=owner))

        def again() -> None:
            his = [here.node(f"his-{n}") for n in range(1, HIS_NODES + 1)]
            if any(known.spec.taints for known in his):
                return  # one of them is drained
            tenant.leave()
            for known in his:
                for _ in range(SLOW_PODS - len(here.cluster.pods_on[known.name])):
                    create(known.name)

        here.on_evicted = lambda: here.at(here.now + 580, lambda: create("spot-1"))
        tenant.every(1200, again)

    return attack


def vanishing_group(tenant: Tenant) -> None:
    """The eviction of one pod makes its operator delete the whole group."""
    here = tenant.here
    here.replacements["evil"] = Replacement.LATE

    here.on_evicted = lambda: tenant.leave(everywhere=True)
    tenant.every(900, tenant.nodes)


def hostile_texts(tenant: Tenant) -> None:
    """Long and unprintable texts in each free field."""
    long, colored = "x" * 120_000, "\x1b[31m\u202eevil\n"

    def again() -> None:
        tenant.leave(everywhere=True)
        for n in range(1, HIS_NODES + 1):
            manifest = pod(f"tenant/long-{next(tenant.numbers)}", f"his-{n}", cpu="100m", owner="example.com/v1/Widget")
            manifest["metadata"]["ownerReferences"][0] |= {"uid": f"{long}{n}", "name": colored, "kind": colored}
            manifest["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "1h" * 1000, long: long}
            tenant.here.add(manifest)

    tenant.here.replacements[colored] = Replacement.LATE
    tenant.every(2 * HOUR, again)


def alone(tenant: Tenant) -> None:
    """Pods without a controller, which say that they may be evicted, on nodes that are emptier than all others."""
    annotations = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    tenant.every(600, lambda: tenant.nodes(owner=None, annotations=annotations))


def by_hand(tenant: Tenant) -> None:
    """Pods that he binds to his nodes, also while these are drained."""
    tenant.every(60, lambda: tenant.nodes(tolerating=True))


ATTACKS: dict[str, Attack] = {
    "pods that an unreadable owner does not replace": unreplaced,
    "an owner that is scaled down in mid-drain": scaled_in_mid_drain,
    "a slow operator": slow_operator,
    "a StatefulSet of many pods that are slow to run": slow_set("StatefulSet"),
    "a custom owner of many ordinal pods that are slow to run": slow_set("example.com/v1/Widget"),
    "a group that is deleted with its first pod": vanishing_group,
    "replacements that are never Ready": under(Replacement.UNREADY),
    "replacements that are not created": under(Replacement.LATE),
    "replacements that fit no node": under(Replacement.UNSCHEDULABLE),
    "replacements that no scheduler handles": under(Replacement.UNBOUND),
    "replacements that are refused": under(Replacement.REFUSED),
    "StatefulSets that are never Ready": under(Replacement.UNREADY, owner="StatefulSet"),
    "a new workload each time, never Ready": new_names(Replacement.UNREADY),
    "a new workload each time, unschedulable": new_names(Replacement.UNSCHEDULABLE),
    "a new workload each time, that moves": new_names(Replacement.READY),
    "pods without a controller": alone,
    "good and bad in turns": turns(Replacement.UNREADY),
    "good and refused in turns": turns(Replacement.REFUSED),
    "a quota that changes": refusing_quota,
    "a budget that closes after the dry run": closing_budget,
    "pods that never terminate": endless,
    "pods that return at once": returning,
    "budgets over the labels of others": budgets_over_others,
    "a budget over everybody": empty_selector,
    "anti-affinity to everybody": repelling,
    "pods with thousands of terms": huge,
    "groups with the names of others": borrowed_group,
    "a Deployment scaled between 0 and 50": flapping,
    "tiny pods": tiny,
    "owners of the other team": forged_owner,
    "hostile texts": hostile_texts,
    "pods bound by hand": by_hand,
}


#: What shows its effect only after waits and records of moves have expired is played for longer.
LONG_ATTACKS: Final = frozenset(
    {"pods without a controller", "a new workload each time, that moves", "good and bad in turns"}
)

#: Attacks that make single drains long, so that the hour in which nodes of others are drained is compared as well.
SLOW_ATTACKS: Final = frozenset(name for name in ATTACKS if "slow to run" in name)

#: Without the soft taint, the scheduler's scores would bring these pods back, and his nodes are left alone.
WITH_SOFT_TAINT: Final = frozenset({"a Deployment scaled between 0 and 50", "tiny pods"})


#: His nodes are blocked, and never tried: the owners of these pods cannot be read, their groups are too small, or
#: their terms are too many to judge.
BLOCKING: Final = frozenset({"hostile texts", "groups with the names of others", "pods with thousands of terms"})


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_a_tenant_cannot_hold_back_the_nodes_of_others(name: str) -> None:
    hours = LONG if name in LONG_ATTACKS else SHORT
    outcome, here = played(ATTACKS[name], hours, soft_taint=name in WITH_SOFT_TAINT)
    assert bool(outcome.tried) == (name not in BLOCKING)
    assert bool(outcome.evicted) == (name not in BLOCKING)
    calm = without_him(hours)
    assert len(calm.drained) >= hours - 1
    waits = Counter(str(event.waiting) for event in here.of(Held))
    assert len(outcome.drained) >= SHARE * len(calm.drained), waits
    if name in SLOW_ATTACKS:
        assert outcome.in_time >= SHARE * calm.in_time, waits
    assert held_too_long(here) == []
    assert set(outcome.touched) <= set(calm.touched)
    assert len(outcome.touched) == len(set(outcome.touched))


def test_debts_that_never_become_old_would_hold_back_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tenth invariant can fail: each debt keeps all nodes from being drained until it is paid."""
    monkeypatch.setattr(Landings, "_age", lambda *_: timedelta())

    def once(tenant: Tenant) -> None:
        tenant.here.replacements["evil"] = Replacement.LATE
        tenant.nodes()

    outcome, here = played(once, 6)
    assert held_too_long(here)
    assert len(outcome.drained) < SHARE * 6
