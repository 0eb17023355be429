"""Nodes that stay for guards which k8s-spot-rescheduler does not have."""

from typing import Any

import pytest

from rescheduler.planning.original import kept_by_guards, original_policy
from rescheduler.planning.policy import Policy
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, node, pod, snapshot

CACHE = {"volumes": [{"name": "cache", "emptyDir": {}}]}

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
def test_a_node_stays_for_a_guard(fields: dict[str, Any], guard: str | None) -> None:
    cluster = snapshot([node("od", ON_DEMAND, cpu="16"), node("s"), pod(on="od", **fields)])
    expected = {} if guard is None else {guard: 1}
    assert kept_by_guards(cluster, Policy(), CIRCUMSTANCES) == expected
    assert kept_by_guards(cluster, original_policy(Policy()), CIRCUMSTANCES) == {}
