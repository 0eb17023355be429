"""Which pods of a node must move, which stay, and which block draining the node."""

from collections.abc import Iterable

from predicates.objects import Pod
from rescheduler.planning.outcome import Blocker
from rescheduler.planning.rules.pod_rules import RULES, RULES_WITHOUT_ANNOTATIONS, Context, Fate, Rule


def fate(pod: Pod, context: Context) -> Fate | Blocker:
    """Return what happens to *pod* when its node is drained, or why it blocks the node.

    *pod* must not be finished; snapshots contain no finished pods.
    """
    if pod.annotations:
        return _first_result(RULES, pod, context)
    owner = (pod.owner.kind, pod.owner.api_version) if pod.owner is not None else ("", "")
    kind = pod.cls, pod.added_labels, owner, pod.assigned
    if (known := context.fates.get(kind)) is None:
        result = _first_result(RULES_WITHOUT_ANNOTATIONS, pod, context)
        if isinstance(result, Blocker) or _is_uncacheable(pod, context):  # Not cached: a blocker names the pod.
            return result
        known = context.fates[kind] = result
    return known


def _is_uncacheable(pod: Pod, context: Context) -> bool:
    """Return whether the result depends on the pod's UID or on its owner, and cannot be cached."""
    by_owner = pod.owner is not None and (pod.owner.kind == "Job" or context.policy.skip_single_replicas)
    return pod.cls.terminating or by_owner


def blockers_of(pod: Pod, context: Context) -> tuple[Blocker, ...]:
    """Return all blockers of evicting *pod*, in the order of the rules; the first is the one that :func:`fate` returns.

    Rules after one that allows the eviction are ignored, and a pod that is being deleted has no further blockers.
    """
    blockers: list[Blocker] = []
    for rule in RULES:
        result = rule(pod, context)
        if isinstance(result, Fate):
            break
        if result is not None:
            blockers.append(result)
        if pod.cls.terminating and blockers:
            break
    return tuple(blockers)


def _first_result(rules: Iterable[Rule], pod: Pod, context: Context) -> Fate | Blocker:
    for rule in rules:
        if (result := rule(pod, context)) is not None:
            return result
    return Fate.MOVES
