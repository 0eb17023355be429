"""A tenant with the ClusterRole `edit` in one namespace attacks with his own token. The nodes of others are drained.

`tests/housekeeping/test_tenants.py` plays attacks for days in frozen time, one by one. Here, several run at once,
with real controllers, a real scheduler and the shipped permissions. All times are shorter by the same factor.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from devcluster.errors import ApiError
from devcluster.manifests import deployment, namespace, pod
from devcluster.plane import INSTALLATION, ControlPlane
from tests.cluster import attacks as by
from tests.cluster.attacks import TENANT, Attack, Tenant
from tests.cluster.daemon import NO_DELAY, Daemon, prefers
from tests.cluster.observer import Observer
from tests.cluster.rendering import kustomization
from tests.cluster.rights import Granted
from tests.cluster.test_least_privilege import forget
from tests.cluster.waiting import repeating

SHOP: Final = "shop"
SHOP_NODES: Final = 3
SPOT_NODES: Final = 3
SHARE: Final = 0.8
SECONDS: Final = 300.0  #: a bound for all drains of a scene

FLAGS: Final = (
    f"--namespace={INSTALLATION}",
    NO_DELAY,
    "--landing-timeout=15s",
    "--failure-pause=15s",
    "--failure-pause-max=20m",
    "--node-cooldown=15s",
    "--node-cooldown-max=10m",
    "--pod-eviction-timeout=5s",
)

COLORED: Final = "\x1b[31m\u202eevil\n"

#: Attacks that run at the same time, beside the drains without any.
SCENES: Final[dict[str, dict[str, Attack]]] = {
    "owners": {
        "pods that an undefined owner does not replace": by.unreplaced,
        "an owner called .": by.owner_with(name="."),
        "an owner with a long UID": by.owner_with(uid="x" * 120_000),
        "an owner with colors": by.owner_with(name=COLORED, kind=COLORED),
        "a cycle of owners": by.cycle,
        "a slow operator": by.slow_operator,
        "an owner of the other team": by.forged_owner,
    },
    "replacements": {
        "never Ready": by.never_ready,
        "a quota that changes": by.changing_quota,
        "pending pods": by.pending,
        "a long annotation": by.long_annotation,
        "budgets over the labels of others": by.budgets_over_others,
    },
    "terms": {
        "pods with thousands of terms": by.huge,
        "other pods of the same namespace": by.never_ready,
    },
    "changes": {
        "a broken image": by.broken_image,
        "pods that never terminate": by.endless,
        "forged events": by.forged_events,
        "a Deployment scaled between 0 and 20": by.flapping,
        "the daemon's names": by.our_names,
    },
}


#: A scene in which the namespace of the tenant has too many terms to judge: it keeps all nodes of its pods.
TOO_MANY: Final = "terms"

#: Nodes that are never tried.
BLOCKED: Final = frozenset(
    {
        *("an owner called .", "an owner with a long UID", "an owner with colors"),
        "pods that an undefined owner does not replace",
    }
)


@pytest.fixture
def shipped(cluster: ControlPlane) -> Iterator[Path]:
    """Return the credentials of the daemon's account with the shipped permissions."""
    forget(cluster)
    with Granted(cluster, kustomization("base")):
        yield cluster.service_account_kubeconfig("spot-rescheduler", INSTALLATION)
    forget(cluster)


@pytest.mark.parametrize("scene", SCENES)
def test_the_nodes_of_others_are_drained(cluster: ControlPlane, observer: Observer, shipped: Path, scene: str) -> None:
    attacks = SCENES[scene]
    homes = {name: f"on-demand-{number}" for number, name in enumerate(attacks, 1)}
    shop_nodes = [f"on-demand-{len(attacks) + number}" for number in range(1, SHOP_NODES + 1)]
    observer.nodes(len(attacks) + SHOP_NODES, SPOT_NODES)
    cluster.apply([namespace(SHOP)])
    apps = {f"web{n}": node for n, node in enumerate(shop_nodes)}
    for app, node in apps.items():
        cluster.apply([deployment(app, 2, namespace=SHOP, cpu="700m", affinity=prefers(node))])
    for app in apps:
        observer.running(2, app)
    others = cluster.api.items(f"/apis/apps/v1/namespaces/{SHOP}/replicasets")
    assert {app: observer.places(app) for app in apps} == {app: {node: 2} for app, node in apps.items()}
    with by.client(cluster) as api:
        tenant = Tenant(api, cluster.api, others)
        steps = [attack(tenant, homes[name]) for name, attack in attacks.items()]
        observer.open_spot()

        def attack_again() -> None:
            for step in steps:
                tenant.attempt(step)

        with repeating(attack_again), Daemon(cluster, *FLAGS, kubeconfig=shipped) as daemon:
            observer.eventually(lambda: most_drained(observer, shop_nodes), "most drains", seconds=SECONDS)
            assert daemon.running
    assert tenant.denied == []
    tried = {name for name, home in homes.items() if home in {marking.node for marking in observer.markings()}}
    assert bool(tried) == (scene != TOO_MANY)  # the others may be blocked, or set aside before it is their turn
    assert not tried & BLOCKED
    touched = {name: number for name, number in observer.evicted().items() if not name.startswith(TENANT)}
    assert touched.items() <= {f"{SHOP}/{app}": 2 for app in apps}.items()


def most_drained(observer: Observer, nodes: list[str]) -> bool:
    return sum("NodeDrained" in observer.events(node) for node in nodes) >= SHARE * len(nodes)


#: What would change the plans of others: nobody with the ClusterRole `edit` in a namespace may write it.
DENIED: Final = (
    ("patch", "", "pods/status"),  # nominatedNodeName takes the room of a node
    ("update", "", "pods/ephemeralcontainers"),
    ("create", "", "pods/binding"),
    ("create", "", "resourcequotas"),
    ("create", "", "limitranges"),
    ("patch", "", "nodes"),
    ("create", "scheduling.k8s.io", "priorityclasses"),
    ("create", "admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("create", "storage.k8s.io", "volumeattachments"),
    ("patch", "policy", "poddisruptionbudgets/status"),
)


def test_what_he_may_not_write(cluster: ControlPlane) -> None:
    """A pod that he creates with a nominated node does not keep it, and its priority is that of its class."""
    with by.client(cluster) as api:
        tenant = Tenant(api, cluster.api, [])
        cluster.wait_for(lambda: by.may(tenant, "create", "", "pods"), "the permissions of the ClusterRole edit")
        allowed = [f"{verb} {resource}" for verb, group, resource in DENIED if by.may(tenant, verb, group, resource)]
        manifest = pod("nominated", namespace=TENANT, cpu="1", nodeSelector={"example.com/none": ""})
        stored = api.post(by.POD, manifest | {"status": {"nominatedNodeName": "shop-1", "phase": "Running"}})
        with pytest.raises(ApiError, match="priority"):
            api.post(by.POD, pod("important", namespace=TENANT, cpu="1", priority=1_000_000_000))
    assert allowed == []
    assert stored["status"] == {"phase": "Pending", "qosClass": stored["status"]["qosClass"]}
