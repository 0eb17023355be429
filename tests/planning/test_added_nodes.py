"""``--fallback-nodes-per-minute``: nodes that an autoscaler adds are places for the pods of a lost pool."""

from collections.abc import Iterable
from typing import Any

import pytest

from rescheduler.planning.outcome import Reason
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy, Survive
from rescheduler.planning.survival import Certificate
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
