"""``--fallback-nodes-per-minute``: nodes that an autoscaler adds are places for the pods of a lost pool."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from rescheduler.planning.answers.survival import Certificate
from rescheduler.planning.outcome import Reason
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy, Survive
from tests.planning.builders import CIRCUMSTANCES, HOST, ON_DEMAND, ZONE, Manifest, node, pod, repels, snapshot, summary

TYPE = "node.kubernetes.io/instance-type"
TAINT = {"key": "example.com/team", "value": "a", "effect": "NoSchedule"}
TOLERATION = {"key": "example.com/team", "operator": "Exists"}


def spot(name: str, zone: str = "a", **fields: Any) -> Manifest:
    return node(name, zone=zone, labels={TYPE: "m"}, **fields)


def certified(objects: Iterable[Manifest], number: int) -> Certificate:
    planner = Planner(snapshot(objects), Policy(fallback_nodes_per_minute=number))
    return planner.certificate(CIRCUMSTANCES, Survive.POOL)


def full(**fields: Any) -> list[Manifest]:
    """Return a full on-demand node, which is the template, and a small one."""
    return [
        node("o", ON_DEMAND, **fields),
        node("small", ON_DEMAND, cpu="100m"),
        pod("x", "o", cpu="4"),
        spot("s1", cpu="16"),
    ]


#: case: the template and pods of the lost pool → how many nodes must be added, None: it is not survived with 3
CASES: dict[str, tuple[list[Manifest], int | None]] = {
    "one pod": ([*full(), pod("p", "s1", cpu="3")], 1),
    "two pods on one node": ([*full(), *(pod(f"p-{n}", "s1", cpu="2") for n in range(2))], 1),
    "a node for each": ([*full(), *(pod(f"p-{n}", "s1", cpu="3") for n in range(3))], 3),
    "one too many": ([*full(), *(pod(f"p-{n}", "s1", cpu="3") for n in range(4))], None),
    "larger than a node": ([*full(), pod("p", "s1", cpu="5")], None),
    "DaemonSets take a part of each": (
        [
            *full(),
            pod("d", "o", cpu="500m", owner="apps/v1/DaemonSet"),
            *(pod(f"p-{n}", "s1", cpu="2") for n in (1, 2)),
        ],
        2,
    ),
    "a taint": ([*full(taints=[TAINT]), pod("p", "s1", cpu="3")], None),
    "a tolerated taint": ([*full(taints=[TAINT]), pod("p", "s1", cpu="3", tolerations=[TOLERATION])], 1),
    "a label of the template": ([*full(labels={"disk": "ssd"}), pod("p", "s1", nodeSelector={"disk": "ssd"})], 1),
    "a label that it does not have": ([*full(), pod("p", "s1", nodeSelector={"disk": "ssd"})], None),
    "a label of template and spot node": (
        [*full(), pod("p", "s1", cpu="3", nodeSelector={ZONE: "a"})],
        1,
    ),
    "another zone": ([*full(), spot("s2", "b"), pod("p", "s2", cpu="3", nodeSelector={ZONE: "b"})], None),
    "the name of the template": ([*full(), pod("p", "s1", cpu="3", nodeSelector={HOST: "o"})], None),
    "anti-affinity": (
        [*full(), *(pod(f"p-{n}", "s1", cpu="3", affinity=repels(f"p-{n}")) for n in (1, 2))],
        None,
    ),
    "a host port": (
        [
            *full(),
            pod(
                "p",
                "s1",
                containers=[
                    {
                        "name": "m",
                        "image": "i",
                        "ports": [{"containerPort": 80, "hostPort": 80}],
                        "resources": {"requests": {"cpu": "1"}},
                    }
                ],
            ),
        ],
        None,
    ),
    "no template, because it is cordoned": ([*full(unschedulable=True)[:1], spot("s1"), pod("p", "s1")], None),
    "no on-demand node": ([spot("s1"), pod("p", "s1")], None),
    "nothing is needed": ([*full(), spot("s2", "b"), pod("p", "s1", cpu="3")], 0),
}


@pytest.mark.parametrize("case", CASES)
def test_pods_on_added_nodes(case: str) -> None:
    objects, added = CASES[case]
    certificate = certified(objects, 3)
    lost = max(certificate.pools, key=lambda pool: pool.pods)
    assert (lost.survived, lost.added) == ((True, added) if added is not None else (False, 0))
    if added:
        assert not certified(objects, added - 1).holds
        assert certified(objects, added).holds


#: Its pods and those of s2 do not fit one pool, and the drained node is not there any more.
DRAINED = [node("o", ON_DEMAND), spot("s1"), spot("s2", "b"), pod("p", "o", cpu="3"), pod("q", "s2", cpu="2")]
STAYS = [node("stays", ON_DEMAND), pod("x", "stays", cpu="4", owner=None)]


def test_a_plan_may_count_on_added_nodes() -> None:
    """Without the autoscaler, the drain would break the certificate."""
    for number, expected in ((0, [Reason.WOULD_NOT_SURVIVE]), (1, {"p": "s1"})):
        policy = Policy(survive=Survive.POOL, fallback_nodes_per_minute=number)
        planner = Planner(snapshot([*DRAINED, *STAYS]), policy)
        assert summary(planner.plan_each(CIRCUMSTANCES))["o"] == expected
        assert summary(planner.plan_all(CIRCUMSTANCES))["o"] == expected


def test_a_node_that_the_plan_drains_is_no_template() -> None:
    """Nothing shows then which nodes an autoscaler would add."""
    planner = Planner(snapshot(DRAINED), Policy(survive=Survive.POOL, fallback_nodes_per_minute=3))
    assert summary(planner.plan_each(CIRCUMSTANCES)) == {"o": [Reason.WOULD_NOT_SURVIVE]}


# Groups of nodes: each adds nodes like its largest, up to its maximum.

POOL = "karpenter.sh/nodepool"


def node_pool(name: str = "np", **spec: Any) -> Manifest:
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def pooled(name: str, cpu: str = "4", pool: str = "np", **fields: Any) -> Manifest:
    """Return a full on-demand node of a NodePool, whose capacity is more than what pods can use of it."""
    labels = {POOL: pool, **fields.pop("labels", {})}
    made = node(name, ON_DEMAND, cpu=cpu, labels=labels, **fields)
    made["status"]["capacity"] = {**made["status"]["allocatable"], "cpu": f"{int(cpu) + 1}"}
    return made


FULL = pod("x", "o", cpu="4")
LOST = [spot("s1", cpu="16"), *(pod(f"p-{n}", "s1", cpu="3") for n in range(2))]

#: case: the cluster with two lost pods that need a node each → how many nodes must be added; None: it is not survived
GROUPS: dict[str, tuple[list[Manifest], int | None]] = {
    "no limits": ([pooled("o"), FULL, node_pool(), *LOST], 2),
    "limits of what pods cannot use either": ([pooled("o"), FULL, node_pool(limits={"cpu": "15"}), *LOST], 2),
    "limits with room for one": ([pooled("o"), FULL, node_pool(limits={"cpu": "14999m"}), *LOST], None),
    "a limit on the number": ([pooled("o"), FULL, node_pool(limits={"nodes": "3"}), *LOST], 2),
    "a lower limit on the number": ([pooled("o"), FULL, node_pool(limits={"nodes": 2}), *LOST], None),
    "a limit that is exceeded": ([pooled("o"), FULL, node_pool(limits={"cpu": "1"}), *LOST], None),
    "a limit of another resource": ([pooled("o"), FULL, node_pool(limits={"example.com/gpu": "0"}), *LOST], 2),
    "a limit that cannot be read": ([pooled("o"), FULL, node_pool(limits={"cpu": "many"}), *LOST], None),
    "lost nodes of the NodePool leave room for others": (
        [
            pooled("o"),
            FULL,
            node_pool(limits={"nodes": "3"}),
            node("s1", zone="a", labels={TYPE: "m", POOL: "np"}, cpu="16"),
            *LOST[1:],
        ],
        2,
    ),
    "static capacity": ([pooled("o"), FULL, node_pool(replicas=1), *LOST], None),
    "static capacity that is not complete": ([pooled("o"), FULL, node_pool(replicas=3), *LOST], 2),
    "a NodePool that is not known": ([pooled("o"), FULL, *LOST], 2),
    "one of each of two NodePools": (
        [
            pooled("o"),
            FULL,
            pooled("other", pool="b"),
            pod("y", "other", cpu="4"),
            node_pool(limits={"nodes": "2"}),
            node_pool("b", limits={"nodes": "2"}),
            *LOST,
        ],
        2,
    ),
    "the other NodePool has a taint": (
        [
            pooled("o"),
            FULL,
            pooled("other", pool="b", taints=[TAINT]),
            node_pool(limits={"nodes": "2"}),
            node_pool("b"),
            *LOST,
        ],
        None,
    ),
    "one pod tolerates the taint of the other NodePool": (
        [
            pooled("o"),
            FULL,
            pooled("other", pool="b", taints=[TAINT]),
            pod("y", "other", cpu="4", tolerations=[TOLERATION]),
            node_pool(limits={"nodes": "2"}),
            node_pool("b"),
            *LOST[:2],
            pod("p-1", "s1", cpu="3", tolerations=[TOLERATION]),
        ],
        2,
    ),
    "nodes of a smaller NodePool": (
        [
            pooled("o"),
            FULL,
            pooled("other", "3", pool="b"),
            pod("y", "other", cpu="3"),
            node_pool(limits={"nodes": 1}),
            node_pool("b"),
            *LOST,
        ],
        2,
    ),
}


@pytest.mark.parametrize("case", GROUPS)
def test_groups_add_nodes_up_to_their_maximum(case: str) -> None:
    objects, added = GROUPS[case]
    certificate = certified(objects, 3)
    lost = max(certificate.pools, key=lambda pool: pool.pods)
    assert (lost.survived, lost.added) == ((True, added) if added is not None else (False, 0))


@pytest.mark.parametrize(
    ("growth", "added"),
    [
        ({}, 2),
        ({"o": ("g", 2)}, 2),
        ({"o": ("g", 0)}, 2),  # nothing limits nodes like o2
        ({"o": ("g", 1), "o2": ("g", 0)}, None),
        ({"o": ("g", 1), "o2": ("h", 1)}, 2),
        ({"o": ("g", 1), "o2": ("g", 1)}, None),
    ],
)
def test_groups_of_the_provider_add_nodes_up_to_their_maximum(
    growth: Mapping[str, tuple[str, int]], added: int | None
) -> None:
    objects = [node("o", ON_DEMAND), node("o2", ON_DEMAND), FULL, pod("y", "o2", cpu="4"), *LOST]
    planner = Planner(snapshot(objects), Policy(fallback_nodes_per_minute=3))
    for repeated in range(2):  # the certificate of the first round is not kept for other maximums
        none = replace(CIRCUMSTANCES, growth={"o": ("g", 0), "o2": ("g", 0)})
        assert not planner.certificate(none, Survive.POOL).holds, repeated
        (lost,) = planner.certificate(replace(CIRCUMSTANCES, growth=growth), Survive.POOL).pools
        assert (lost.survived, lost.added) == (added is not None, added or 0)
