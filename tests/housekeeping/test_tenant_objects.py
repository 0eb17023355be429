"""What a tenant may write into his objects, in frozen time: odd owners, annotations, priorities, amounts, endless ends.

As in `test_tenants.py`, most drains of others must take place, here in the hour in which they are possible.
"""

from collections.abc import Callable
from itertools import count
from typing import Any, Final

import pytest

from rescheduler.observe.events import DrainEnded, Held
from tests.housekeeping.test_tenants import (
    HIS_NODES,
    SHARE,
    SPOT_NODES,
    Attack,
    Tenant,
    held_too_long,
    played,
    without_him,
)
from tests.planning.builders import Manifest, pod, snapshot

HOURS: Final = 6

#: Annotations of this program, and of others that it reads.
READ: Final = (
    *(f"spot-rescheduler/{name}" for name in ("do-not-evict", "surge", "max-share-per-spot-pool", "drain", "paused")),
    *(f"spot-rescheduler/{name}" for name in ("min-on-demand-replicas", "placeholder-for-node", "placeholder-until")),
    *(f"karpenter.sh/{name}" for name in ("do-not-disrupt", "do-not-evict")),
    *(f"cluster-autoscaler.kubernetes.io/{name}" for name in ("safe-to-evict", "daemonset-pod")),
    *("gang.scheduling.koordinator.sh/name", "gang.scheduling.koordinator.sh/min-available"),
    *("scheduling.k8s.io/group-name", "kubernetes.io/config.mirror"),
)

VALUES: Final = (
    "true",
    "",
    "-1",
    "0",
    "1000000",
    "9" * 5000,
    "1e999999999",
    "NaN",
    "%",
    "999999h",
    "\x1b[31m\u202e",
    "{",
)

REFERENCE: Final = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "evil", "uid": "uid-of-evil"}
CONTROLLER: Final = REFERENCE | {"controller": True}
CONFIG_MAP: Final = {"apiVersion": "v1", "kind": "ConfigMap", "uid": "u"}

#: Owner references of a pod.
OWNERS: Final[tuple[list[Manifest], ...]] = (
    [*(CONFIG_MAP | {"name": f"c{n}"} for n in range(50)), CONTROLLER],
    [CONTROLLER, CONTROLLER | {"name": "other", "uid": "other"}],
    [REFERENCE],  # no controller
    [CONTROLLER | {"apiVersion": "no.api/v1/v2"}],
    [CONTROLLER | {"apiVersion": "v1", "kind": "Node", "name": "shop-1"}],
    [CONTROLLER | {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "admin"}],
    [CONTROLLER | {"apiVersion": "v1", "kind": "Pod", "name": "evil-1", "uid": "uid-evil-1"}],
)


def change(tenant: Tenant, write: Callable[[Manifest], object], seconds: float = 900, **fields: Any) -> None:
    """Keep a pod on each of his nodes that *write* has changed, a new one each time."""
    here = tenant.here

    def again() -> None:
        tenant.leave(everywhere=True)
        for n in range(1, HIS_NODES + 1):
            manifest = pod(f"tenant/evil-{next(tenant.numbers)}", f"his-{n}", cpu="100m", created=here.time(), **fields)
            write(manifest)
            here.add(manifest)

    tenant.every(seconds, again)


def odd_owners(tenant: Tenant) -> None:
    turns = count()
    change(tenant, lambda raw: raw["metadata"].update(ownerReferences=OWNERS[next(turns) % len(OWNERS)]))


def our_annotations(tenant: Tenant) -> None:
    turns = count()

    def write(raw: Manifest) -> None:
        number = next(turns)
        raw["metadata"]["annotations"] = {READ[number % len(READ)]: VALUES[number // len(READ) % len(VALUES)]}

    change(tenant, write, 450)


def all_annotations(tenant: Tenant) -> None:
    turns = count()
    change(
        tenant, lambda raw: raw["metadata"].update(annotations=dict.fromkeys(READ, VALUES[next(turns) % len(VALUES)]))
    )


def important(tenant: Tenant) -> None:
    """Pods of the highest priority that the scheduler leaves pending although they fit, again and again."""

    def again() -> None:
        tenant.leave("pending", everywhere=True)
        tenant.here.add(*(pending(tenant, priority=2_000_000_000, cpu="60") for _ in range(2 * SPOT_NODES)))

    tenant.every(470, again)
    tenant.every(1200, tenant.nodes)


def pending(tenant: Tenant, **fields: Any) -> Manifest:
    return pod(f"tenant/pending-{next(tenant.numbers)}", created=tenant.here.time(), **fields)


def churn(tenant: Tenant) -> None:
    """Pods of kinds that never existed before, pending and running, created and deleted again and again."""

    def again() -> None:
        tenant.leave(everywhere=True)
        for n in range(50):
            number = next(tenant.numbers)
            labels, on = {"app": f"x{number}"}, f"spot-{1 + n % SPOT_NODES}" if n % 2 else ""
            fields: dict[str, Any] = {"labels": labels, "cpu": "1m", "created": tenant.here.time()}
            tenant.here.add(pod(f"tenant/x{number}-1", on, **fields))
        tenant.nodes()

    tenant.every(120, again)


def ending_in_a_year(tenant: Tenant) -> None:
    """He deletes his own pods with a grace period of a year, on his nodes and on spot nodes."""

    def again() -> None:
        tenant.leave(everywhere=True)
        for on in (*(f"his-{n}" for n in range(1, HIS_NODES + 1)), "spot-1"):
            fields: dict[str, Any] = {"terminationGracePeriodSeconds": 31_536_000, "created": tenant.here.time()}
            tenant.here.add(pod(f"tenant/evil-{next(tenant.numbers)}", on, deleted="2027-01-01T12:00:00Z", **fields))

    tenant.every(1200, again)


def patient(tenant: Tenant) -> None:
    """Pods with a grace period of a year that nobody has deleted."""
    change(tenant, lambda raw: raw["spec"].update(terminationGracePeriodSeconds=31_536_000))


def occupying(tenant: Tenant) -> None:
    """Pods that may not be evicted, with hundreds of tolerations, on half of the room of the spot nodes."""
    tolerations = [{"key": f"example.com/{n}", "operator": "Exists"} for n in range(500)]
    fields: dict[str, Any] = {"tolerations": tolerations, "annotations": {"karpenter.sh/do-not-disrupt": "true"}}
    for n in range(SPOT_NODES):
        tenant.here.add(*(pod(f"tenant/stay-{n}-{m}", f"spot-{n + 1}", **fields) for m in range(32)))
    tenant.every(1200, tenant.nodes)


def absurd_amounts(tenant: Tenant) -> None:
    """VerticalPodAutoscalers and LimitRanges with absurd amounts, which change again and again."""
    turns, here = count(), tenant.here
    template = {"metadata": {"labels": {"app": "evil"}}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}}
    meta = {"name": "evil", "namespace": "tenant", "uid": "uid-of-evil"}
    here.templates.append({"kind": "ReplicaSet", "metadata": meta, "spec": {"template": template}})

    def again() -> None:
        amount = ("1e18", "-5", "0", "1e-9", "9" * 60, "much", "1e999999999")[next(turns) % 7]
        amounts = {"cpu": amount, "memory": amount}
        target = {"kind": "ReplicaSet", "name": "evil"}
        recommended = {"containerRecommendations": [{"containerName": "main", "target": amounts}]}
        vpa = {"spec": {"targetRef": target}, "status": {"recommendation": recommended}}
        ranges = {"spec": {"limits": [{"type": "Container", "default": amounts, "defaultRequest": amounts}]}}
        for kind, content in (("VerticalPodAutoscaler", vpa), ("LimitRange", ranges)):
            built = snapshot([{"kind": kind, "metadata": meta, **content}]).of(kind)
            here.cluster.upsert(kind, next(iter(built.values())))

    tenant.every(130, again)
    tenant.every(1200, tenant.nodes)


def huge_gangs(tenant: Tenant) -> None:
    """Groups of a million, with and without an object, also under names of the other team."""
    turns = count()

    def write(raw: Manifest) -> None:
        number = next(turns)
        group = f"web{number % 9}"
        raw["metadata"]["labels"] |= {"scheduling.x-k8s.io/pod-group": group}
        raw["metadata"]["annotations"] = {"gang.scheduling.koordinator.sh/min-available": "1000000"}
        raw["spec"]["workloadRef"] = {"name": group, "podGroup": "a" * (number % 300)} if number % 2 else None

    change(tenant, write)


ATTACKS: Final[dict[str, Attack]] = {
    "odd owners": odd_owners,
    "one annotation that this program reads": our_annotations,
    "all annotations that this program reads": all_annotations,
    "pending pods of the highest priority": important,
    "new kinds of pods": churn,
    "pods that end in a year": ending_in_a_year,
    "a grace period of a year": patient,
    "pods that stay on spot nodes": occupying,
    "absurd amounts": absurd_amounts,
    "huge groups": huge_gangs,
}


#: Without the soft taint, the scheduler's scores would bring the pods back from spot nodes that are half full.
WITH_SOFT_TAINT: Final = frozenset({"pods that stay on spot nodes", "pending pods of the highest priority"})


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_what_he_writes_keeps_only_his_nodes(name: str) -> None:
    outcome, here = played(ATTACKS[name], HOURS, soft_taint=name in WITH_SOFT_TAINT)
    calm = without_him(HOURS)
    assert outcome.in_time >= SHARE * calm.in_time, [str(event.waiting) for event in here.of(Held)]
    assert held_too_long(here) == []
    assert set(outcome.touched) <= set(calm.touched)
    assert max((event.seconds for event in here.of(DrainEnded)), default=0) < 3 * 600 + 600
