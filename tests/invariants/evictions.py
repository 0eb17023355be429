"""Invariant 3: no eviction that a budget, an opt-out or a rule forbids at that moment.

The API server enforces the budgets for evictions, so the daemon must evict pods and never delete them. The daemon reads
the cluster by watches. Therefore changes within `Rules.lag` before an eviction are not counted as violations.
"""

from collections.abc import Iterator
from datetime import datetime

from tests.invariants.judging import JudgedMoment
from tests.invariants.marks import mark_on
from tests.invariants.moments import HistoryMoment, PodEvicted, ours
from tests.invariants.objects import SeenNode, SeenPod
from tests.invariants.opt_outs import DO_NOT_DISRUPT, forbidden
from tests.invariants.resting import is_leftover
from tests.invariants.rules import Rules, Violation

DO_NOT_DRAIN = "spot-rescheduler/do-not-drain"
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"


class NothingForbidden:
    def check(self, moment: HistoryMoment, scene: JudgedMoment) -> Iterator[Violation]:
        if not isinstance(moment, PodEvicted):
            return
        at, pod = moment.write.received, moment.pod
        if why := _pod_stays(pod, at, scene) or _node_stays(pod, at, scene) or _no_place(pod, at, scene):
            what = f"pod {pod.key} of node {pod.spec.node_name or '-'} was evicted although {why}"
            yield Violation(3, moment.at, what)

    def end(self, scene: JudgedMoment) -> Iterator[Violation]:
        for write in ours(scene.history.writes, scene.rules):
            if write.kind == "pods" and write.verb.startswith("delete") and write.accepted and not write.dry_run:
                what = f"pod {write.namespace}/{write.name} was deleted instead of evicted, which bypasses budgets"
                yield Violation(3, write.handled, what)


def _pod_stays(pod: SeenPod, at: datetime, scene: JudgedMoment) -> str:
    states = scene.now.recent(pod.metadata.uid, at, scene.rules.lag)
    reasons = [forbidden(state, at, scene.now, scene.rules) for state in states if isinstance(state, SeenPod)]
    return reasons[-1] if reasons and all(reasons) else ""


def _node_stays(pod: SeenPod, at: datetime, scene: JudgedMoment) -> str:
    node = scene.now.nodes.get(pod.spec.node_name)
    if node is None:
        return "" if pod.spec.node_name else "it is on no node"
    if scene.now.is_younger(node.metadata.uid, at, scene.rules.lag):
        return ""  # it has just replaced another Node of the same name
    states = scene.now.recent(node.metadata.uid, at, scene.rules.lag)
    reasons = [_node_forbids(state, scene.rules) for state in states if isinstance(state, SeenNode)]
    return reasons[-1] if reasons and all(reasons) else ""


def _no_place(pod: SeenPod, at: datetime, scene: JudgedMoment) -> str:
    """Return a reason if no spot node is usable.

    A leftover moves to another on-demand node, and so does a pod that the kubelets of spot nodes have refused.
    """
    if is_leftover(pod, scene.rules) or scene.owner(pod) in scene.now.failing:
        return ""
    recent = (scene.now.recent(uid, at, scene.rules.lag) for uid in scene.now.spot_uids)
    places = (state for states in recent for state in states if isinstance(state, SeenNode))
    return "" if any(node.takes_pods for node in places) else "no spot node is schedulable"


def _node_forbids(node: SeenNode, rules: Rules) -> str:
    annotations = node.metadata.annotations
    if any(annotations.get(key) == "true" for key in (SCALE_DOWN_DISABLED, DO_NOT_DISRUPT, DO_NOT_DRAIN)):
        return "its node opts out"
    mark = mark_on(node, rules.identity)
    return "" if mark is not None and mark.whole else "its node does not have the daemon's mark"
