"""Whether a drain may begin is decided by a read right before its first mark: the watch may be silent for a while."""

from collections.abc import Mapping
from typing import Final

import pytest

from rescheduler.draining import actions
from rescheduler.draining.actions import Intent, Step
from rescheduler.draining.state import Why
from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.observe.events import DrainEnded
from rescheduler.providers.base import Deleted
from tests.housekeeping.world import CLUSTER, START, LoopWorld, ScriptedProvider, world
from tests.planning.builders import ON_DEMAND, SPOT, Manifest, node, snapshot

ONE_NODE: Final = (CLUSTER[0], CLUSTER[2], CLUSTER[3])
THEIRS: Final = Intent("them", Step.DRAINING, START, identity="other/lease")
DELETED: Final = "2026-01-01T11:59:59Z"

#: What has happened to od-1, or to its machine, and why no drain of it begins.
CHANGES: Final[Mapping[str, tuple[Manifest, Why, str]]] = {
    "no on-demand label": (node("od-1", "other"), Why.NOT_ON_DEMAND, "do not match --on-demand-node-label"),
    "the label of spot nodes, too": (
        node("od-1", ON_DEMAND, labels={SPOT: ""}),
        Why.NOT_ON_DEMAND,
        "match --spot-node-label",
    ),
    "a spot node now": (node("od-1", SPOT), Why.NOT_ON_DEMAND, "do not match --on-demand-node-label"),
    "another machine": (
        {**node("od-1", ON_DEMAND), "spec": {"providerID": "x:///2"}},
        Why.NOT_ON_DEMAND,
        "its provider ID was",
    ),
    "an opt-out of ours": (
        node("od-1", ON_DEMAND, annotations={"spot-rescheduler/do-not-drain": "true"}),
        Why.PLAN_CHANGED,
        "spot-rescheduler/do-not-drain",
    ),
    "an opt-out of Cluster Autoscaler": (
        node("od-1", ON_DEMAND, annotations={"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}),
        Why.PLAN_CHANGED,
        "scale-down-disabled",
    ),
    "an opt-out of Karpenter": (
        node("od-1", ON_DEMAND, annotations={"karpenter.sh/do-not-disrupt": "true"}),
        Why.PLAN_CHANGED,
        "do-not-disrupt",
    ),
    "the label of the control plane": (
        node("od-1", ON_DEMAND, labels={"node-role.kubernetes.io/control-plane": ""}),
        Why.PLAN_CHANGED,
        "--allow-control-plane",
    ),
    "another tool removes it": (
        node("od-1", ON_DEMAND, taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]),
        Why.PLAN_CHANGED,
        "another tool is removing it",
    ),
    "it is being deleted": (
        {**node("od-1", ON_DEMAND), "metadata": {**node("od-1", ON_DEMAND)["metadata"], "deletionTimestamp": DELETED}},
        Why.PLAN_CHANGED,
        "its deletion was requested",
    ),
    "it is not Ready": (
        node("od-1", ON_DEMAND, ready="Unknown"),
        Why.PLAN_CHANGED,
        "its kubelet cannot terminate pods",
    ),
    "the mark of another installation": (
        node(
            "od-1",
            ON_DEMAND,
            annotations={actions.ANNOTATION: THEIRS.dump()},
        ),
        Why.MARK_LOST,
        "the annotation belongs to another process",
    ),
}


def unseen(here: LoopWorld, changed: Manifest) -> None:
    """Change a node, which the watch does not show."""
    name = changed["metadata"]["name"]
    before = here.node(name)
    [after] = snapshot([{**changed, "metadata": {**changed["metadata"], "uid": before.metadata.uid}}]).nodes
    here.cluster.upsert("Node", after)
    here.hide_change(name, before)


def marked(here: LoopWorld) -> list[tuple[str, str]]:
    """Return what was written to nodes. Removing marks changes nothing on a node that has none."""
    return [write for write in here.writes if write[0] != "untaint"]


def failure(here: LoopWorld) -> tuple[Why, str]:
    [ended] = here.of(DrainEnded)
    return ended.failure.why, ended.failure.detail


@pytest.mark.parametrize(("changed", "why", "says"), CHANGES.values(), ids=CHANGES)
def test_no_drain_begins_if_the_node_has_changed(changed: Manifest, why: Why, says: str) -> None:
    with world(*ONE_NODE) as here:
        unseen(here, changed)
        assert here.loop(provider=ScriptedProvider([Deleted()])).round() is not RoundOutcome.DRAINED
        found, detail = failure(here)
        assert (found, says in detail, marked(here)) == (why, True, [])


MINIMUM: Final[Mapping[str, tuple[Manifest, bool]]] = {
    "as it was watched": (node("od-2", ON_DEMAND), True),
    "a spot node now": (node("od-2", SPOT), False),
    "not Ready": (node("od-2", ON_DEMAND, ready="False"), False),
    "removed by another tool": (
        node("od-2", ON_DEMAND, taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]),
        False,
    ),
}


@pytest.mark.parametrize(("other", "drained"), MINIMUM.values(), ids=MINIMUM)
def test_no_drain_begins_if_too_few_other_nodes_are_left(other: Manifest, *, drained: bool) -> None:
    with world(*CLUSTER) as here:
        unseen(here, other)
        here.loop(provider=ScriptedProvider([Deleted()]), minimum=1).round()
        assert (("taint", "od-1") in here.writes) is drained
        if not drained:
            found, detail = failure(here)
            assert (found, "--min-on-demand-nodes=1" in detail, marked(here)) == (Why.BELOW_MINIMUM, True, [])
