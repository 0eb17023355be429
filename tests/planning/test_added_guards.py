"""Tests of nodes that are kept because of guards that k8s-spot-rescheduler does not have."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from rescheduler.planning.added_guards import Kept, kept_by_guards, original_policy
from rescheduler.planning.outcome import Reason
from rescheduler.planning.policy import Policy
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, node, pod, snapshot

CACHE: dict[str, Any] = {"volumes": [{"name": "cache", "emptyDir": {}}]}

#: Pod on the on-demand node → the guard that blocks the node, or None.
PODS: dict[str, tuple[dict[str, Any], str | None]] = {
    "an emptyDir": ({"name": "web-1", **CACHE}, "local-storage"),
    "a pod of kube-system": ({"name": "kube-system/dns-1"}, "kube-system-pod"),
    "a pod of another scheduler": ({"name": "web-1", "schedulerName": "mine"}, "other-scheduler"),
    "a pod that may move": ({"name": "web-1"}, None),
    "a pod without a controller": ({"name": "web", "owner": None}, None),
    "an emptyDir without room for the pod": ({"name": "web-1", "cpu": "8", **CACHE}, None),
}


@pytest.mark.parametrize(("fields", "guard"), PODS.values(), ids=PODS)
def test_a_node_kept_by_a_guard_is_counted_by_reason(fields: dict[str, Any], guard: str | None) -> None:
    cluster = snapshot([node("od", ON_DEMAND, cpu="16"), node("s"), pod(on="od", **fields)])
    expected = {} if guard is None else {Reason(guard): 1}
    assert kept_by_guards(cluster, Policy(), CIRCUMSTANCES, lambda: False) == Kept(expected, complete=True)
    original = original_policy(Policy())
    assert kept_by_guards(cluster, original, CIRCUMSTANCES, lambda: False) == Kept({}, complete=True)


def test_a_plan_whose_pods_would_return_to_on_demand_nodes_is_counted() -> None:
    """The forecast detects this."""
    nodes = [node("od", ON_DEMAND), node("stay", ON_DEMAND, cpu="32"), node("s", cpu="8"), pod("x", "s", cpu="4")]
    cluster = snapshot([*nodes, pod("web-1", "od"), pod("web-2", "od")])
    kept = kept_by_guards(cluster, Policy(), CIRCUMSTANCES, lambda: False)
    assert kept == Kept({Reason.RETURNS_TO_ON_DEMAND: 1}, complete=True)


def test_a_timeout_gives_a_partial_result() -> None:
    """All nodes are judged by their pods before any forecast. Without the forecasts the result is not complete."""
    cluster = snapshot(
        [node("a", ON_DEMAND), node("b", ON_DEMAND), node("s"), pod("web-1", on="a"), pod("dns-1", on="b", **CACHE)]
    )
    results = [kept_by_guards(cluster, Policy(), CIRCUMSTANCES, after(steps)) for steps in range(4)]
    dns = {Reason.LOCAL_STORAGE: 1}
    assert results == [Kept({}, False), Kept({}, False), Kept(dns, False), Kept(dns, True)]


def after(steps: int) -> Callable[[], bool]:
    """Return a function that returns False for the first *steps* calls, and then True."""
    answers = itertools.chain(itertools.repeat(False, steps), itertools.repeat(True))
    return lambda: next(answers)
