"""What nothing in the API proves about a plan: sentences for people who decide whether to trust it. Pure.

An image may exist for one architecture only, a kubelet may forbid a sysctl, and a DaemonSet may run on the drained node
and not on the targets. The cluster's own pods are the only evidence.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from predicates.objects import Node, Pod
from predicates.snapshot import Snapshot
from predicates.texts import shown
from rescheduler.planning.controllers import controller_of
from rescheduler.planning.forms import count
from rescheduler.planning.outcome import Plan
from rescheduler.planning.pod_security import is_safe_sysctl
from rescheduler.planning.rules.candidates import machine_kind

#: At most so many sentences of each kind.
_MOST: Final = 3


def unproven(snapshot: Snapshot, plans: Sequence[Plan]) -> tuple[str, ...]:
    """Return a sentence for each controller, sysctl and DaemonSet about which *plans* assume something."""
    moves = [
        (snapshot.pods[key], target)
        for plan in plans
        for placement in plan.placements
        if (key := str(placement.pod)) in snapshot.pods and (target := _node(snapshot, placement.node)) is not None
    ]
    found = _architectures(snapshot, moves), _sysctls(snapshot, moves), _daemon_sets(snapshot, plans, moves)
    return tuple(sentence for sentences in found for sentence in _few(list(sentences)))


def _few(sentences: list[str]) -> list[str]:
    rest = len(sentences) - _MOST
    return sentences if rest <= 0 else [*sentences[:_MOST], f"{sentences[_MOST]}; the same for {rest - 1} more"[:200]]


def _node(snapshot: Snapshot, name: str) -> Node | None:
    row = snapshot.nodes.row.get(name)
    return None if row is None else snapshot.nodes.nodes[row]


def _architectures(snapshot: Snapshot, moves: Iterable[tuple[Pod, Node]]) -> Iterator[str]:
    """Yield the controllers whose pods go to a kind of machine on which none of their pods runs."""
    new: Counter[tuple[str, str]] = Counter()
    for pod, target in moves:
        kind, own = machine_kind(target), _node(snapshot, pod.node_name)
        if kind and own is not None and machine_kind(own) and kind != machine_kind(own):
            new[str(controller_of(pod)), kind] += 1
    if not new:
        return
    nodes = {node.name: machine_kind(node) for node in snapshot.nodes}
    running = ((pod, nodes.get(pod.node_name, "")) for pod in snapshot.pods.values() if pod.ready)
    kinds = {kind for _, kind in new}
    ran = {(str(controller_of(pod)), kind) for pod, kind in running if kind in kinds}
    for (controller, kind), number in sorted(new.items()):
        if (controller, kind) not in ran:
            pods = count(number, "pod")
            yield f"no pod of {controller} has run on {kind} here, and {pods} would go there: its image may not run"


def _sysctls(snapshot: Snapshot, moves: Iterable[tuple[Pod, Node]]) -> Iterator[str]:
    """Yield the controllers whose pods set a sysctl that kubelets forbid unless they are told to allow it."""
    told: set[tuple[str, str]] = set()
    for pod, target in moves:
        context = pod.cls.spec.security_context
        for sysctl in context.sysctls if context is not None else ():
            key = str(controller_of(pod)), sysctl.name
            if is_safe_sysctl(sysctl.name) or key in told or _sets(snapshot, target, sysctl.name):
                continue
            told.add(key)
            yield (
                f"pods of {key[0]} set the sysctl {shown(sysctl.name)}: whether the kubelet of {target.name} allows it "
                "(--allowed-unsafe-sysctls) is not known"
            )


def _sets(snapshot: Snapshot, node: Node, name: str) -> bool:
    contexts = (pod.cls.spec.security_context for pod in snapshot.pods_on[node.name].values() if pod.ready)
    return any(sysctl.name == name for context in contexts if context is not None for sysctl in context.sysctls)


def _daemon_sets(snapshot: Snapshot, plans: Iterable[Plan], moves: Iterable[tuple[Pod, Node]]) -> Iterator[str]:
    """Yield the DaemonSets that run on the drained nodes, and not on some of their targets."""
    targets = {target.name for _, target in moves}
    if not targets:
        return
    here = {owner for plan in plans if plan.placements for owner in _daemon_sets_on(snapshot, plan.node)}
    missing = Counter(owner for target in targets for owner in here - _daemon_sets_on(snapshot, target))
    for owner, number in sorted(missing.items()):
        of = "the only target" if len(targets) == 1 else f"{number} of {len(targets)} targets"
        yield f"DaemonSet {owner} runs on the drained nodes, and does not run on {of}: pods that need it would lack it"


def _daemon_sets_on(snapshot: Snapshot, node: str) -> set[str]:
    owned = ((pod, pod.owner) for pod in snapshot.pods_on[node].values())
    return {f"{pod.namespace}/{owner.name}" for pod, owner in owned if owner is not None and owner.kind == "DaemonSet"}
