"""Pods that cannot move to a spot node: their own rules, and objects that cannot be decoded."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.kubelet import KUBELET, kubelets
from predicates.node_selectors import HARD_EFFECTS, node_labels_mask, node_selector_mask, tolerated
from predicates.nodes import Flags
from predicates.objects import (
    NodeSelector,
    PersistentVolume,
    Pod,
    PodClass,
    Requirement,
    Taint,
    Toleration,
    Unreadable,
)
from predicates.plugins import nodes
from predicates.snapshot import DRAIN_TAINT, Snapshot
from predicates.storage import find_claim, find_volume, volume_affinity
from predicates.texts import shown
from rescheduler.planning.forms import count, shortened
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.rules.interruptions import is_start_up_taint, signal_of_taint

# Pods that no spot node could ever accept because of their own rules: nodeSelector, node affinity, tolerations.

#: Prefixes of taints that describe the condition of a node, or that mark nodes that have not joined the cluster yet.
_CONDITIONS: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/unregistered")

#: Ends of the keys of labels that all nodes of a zone or region share, such as ``topology.ebs.csi.aws.com/zone``.
_ZONAL: Final = ("/zone", "/region")

#: A message names at most this many taints.
_NAMED: Final = 3

_Rules: TypeAlias = tuple[nodes.Required | None, tuple[Toleration, ...]]


#: Tolerates every taint, as all pods do of a scheduler that does not check taints.
_ANY_TAINT: Final = (Toleration(operator="Exists"),)


class Pins:
    """The classes of pods that all spot nodes (*rows* of *snapshot*) reject. Valid until the nodes change.

    The load of the nodes does not matter, nor do temporary taints, such as those of a node that is not Ready.
    Without spot nodes no pod is pinned. *starting* are further keys of start-up taints.
    """

    def __init__(self, snapshot: Snapshot, rows: npt.NDArray[np.intp], starting: Collection[str] = ()) -> None:
        self._starting = starting
        self._snapshot = snapshot
        self._rows = rows
        self._by_class: dict[PodClass, tuple[Reason, str] | None] = {}
        self._by_rules: dict[_Rules, str | None] = {}
        self._kubelets = kubelets(snapshot)

    def blockers(self, pods: Iterable[Pod]) -> Iterator[Blocker]:
        """Yield a blocker for each of *pods* that is pinned."""
        for pod in pods:
            if (found := self.of(pod.cls)) is not None:
                yield Blocker(*found, pod.key)

    def of(self, pod: PodClass) -> tuple[Reason, str] | None:
        """Return why all spot nodes reject the class, with details, or None if one of them may accept it."""
        if pod not in self._by_class:
            self._by_class[pod] = self._found(pod)
        return self._by_class[pod]

    def _found(self, pod: PodClass) -> tuple[Reason, str] | None:
        if pod.claims and (why := self._local_volume(pod)) is not None:
            return Reason.PINNED, why
        profile = self._snapshot.scheduler.profile(pod.spec.scheduler_name)
        required = nodes.required_by(pod) if profile.has("NodeAffinity") else None
        rules = required, pod.spec.tolerations if profile.has("TaintToleration") else _ANY_TAINT
        if rules not in self._by_rules:
            self._by_rules[rules] = self._evaluate(*rules)
        if (why := self._by_rules[rules]) is not None:
            return Reason.PINNED, why
        return self._refused(pod, rules)

    def _refused(self, pod: PodClass, rules: _Rules) -> tuple[Reason, str] | None:
        """Return why the kubelets of all spot nodes that the scheduler could choose refuse the class, or None."""
        applying = [(plugin, state) for plugin in self._kubelets if (state := plugin.pre_filter(pod)) is not None]
        if not applying:
            return None
        required, tolerations = rules
        rows = self._rows[self._matches(required)]
        table = self._snapshot.nodes
        repelled = [
            any(_rejects(taint, tolerations, self._starting) for taint in taints) for taints in table.taint_sets
        ]
        rows = rows[~np.array(repelled)[table.taint_set[rows]]]
        found = [(plugin, plugin.filter(state, self._snapshot, rows)) for plugin, state in applying]
        rejections = {plugin: result for plugin, result in found if result is not None}
        refused = np.any([result.codes != 0 for result in rejections.values()], axis=0) if rejections else False
        if not len(rows) or not np.all(refused):
            return None
        each = ((result, code) for result in rejections.values() for code in result.codes.tolist())
        counts = Counter(reason for result, code in each for reason in result.reasons(code))
        texts = ", ".join(f"{number} {shown(reason)}" for reason, number in sorted(counts.items()))
        where = f"the scheduler could place it on {count(len(rows), 'spot node')}"
        reason = Reason.KUBELET if rejections.keys() <= {KUBELET} else Reason.REFUSED_BEFORE
        return reason, f"{where}, and no kubelet there runs it: {texts}"

    def _local_volume(self, pod: PodClass) -> str | None:
        """Return that a bound volume of the class exists on nodes that are not spot, or None."""
        volume = local_volume(pod, self._snapshot, self._rows)
        if volume is None:
            return None
        nodes = volume_affinity(volume)
        where = f": {_affinity(nodes)}" if nodes is not None else ""
        return f"its volume {volume.metadata.name} only exists on nodes that are not spot{where}"

    def _evaluate(self, required: nodes.Required | None, tolerations: tuple[Toleration, ...]) -> str | None:
        matches = self._matches(required)
        rows = self._rows[matches] if matches.any() else self._rows
        taints = self._untolerated(rows, tolerations)
        if not len(rows) or (matches.any() and taints is None):
            return None
        selected = required is not None and matches.any()
        texts = [] if required is None or selected else [self._selector_text(*required)]
        if taints is not None:
            texts.append(_taints_text(taints, len(rows), "matching spot node" if selected else "spot node"))
        return "; ".join(texts)

    def _matches(self, required: nodes.Required | None) -> Flags:
        """Return which spot nodes match the nodeSelector and the required node affinity."""
        rejected = None if required is None else nodes.NODE_AFFINITY.filter(required, self._snapshot, self._rows)
        return np.ones(len(self._rows), np.bool_) if rejected is None else rejected.codes == 0

    def _untolerated(
        self, rows: npt.NDArray[np.intp], tolerations: tuple[Toleration, ...]
    ) -> list[tuple[Taint, int]] | None:
        """Return the untolerated taints, each with its number of nodes, or None if a node has no such taint."""
        table = self._snapshot.nodes
        nodes: Counter[Taint] = Counter()
        for number, rows_with in zip(*np.unique(table.taint_set[rows], return_counts=True), strict=True):
            taints = [taint for taint in table.taint_sets[number] if _rejects(taint, tolerations, self._starting)]
            if not taints:
                return None
            nodes.update(dict.fromkeys(taints, int(rows_with)))
        return sorted(nodes.items(), key=lambda item: (-item[1], item[0].key))

    def _selector_text(self, pairs: tuple[tuple[str, str], ...], affinity: NodeSelector | None) -> str:
        """Describe the part of the requirements that matches no spot node."""
        unmatched = [pair for pair in pairs if not node_labels_mask([pair], self._snapshot, self._rows).any()]
        if unmatched:
            return f"its nodeSelector {_pairs(unmatched)} matches no spot node"
        if affinity is None or not node_labels_mask(pairs, self._snapshot, self._rows).any():
            return f"its nodeSelector {_pairs(pairs)} matches no spot node"
        text = f"its required node affinity {_affinity(affinity)}"
        if not pairs or not node_selector_mask(affinity, self._snapshot, self._rows).any():
            return f"{text} matches no spot node"
        return f"its nodeSelector {_pairs(pairs)} and {text} match no spot node together"


def local_volume(pod: PodClass, snapshot: Snapshot, rows: npt.NDArray[np.intp]) -> PersistentVolume | None:
    """Return a bound volume of the class that no node in *rows* can ever access, or None.

    A volume that is limited to zones or regions does not count: a spot node may be added there.
    """
    if not len(rows):
        return None
    for claim in pod.claims:
        found = None if claim.ephemeral else find_claim(snapshot, pod.namespace, claim.name)
        volume = find_volume(snapshot, found.spec.volume_name) if found is not None and found.spec.volume_name else None
        nodes = volume_affinity(volume) if volume is not None else None
        if nodes is None or _is_zonal(nodes) or node_selector_mask(nodes, snapshot, rows).any():
            continue
        return volume
    return None


def _is_zonal(nodes: NodeSelector) -> bool:
    keys = {rule.key for term in nodes.node_selector_terms for rule in term.match_expressions}
    return all(key.endswith(_ZONAL) for key in keys)


def _rejects(taint: Taint, tolerations: tuple[Toleration, ...], starting: Collection[str]) -> bool:
    """Return whether a permanent *taint* of a node is not tolerated."""
    temporary = is_temporary_taint(taint.key, starting)
    return taint.effect in HARD_EFFECTS and not temporary and not tolerated(taint, tolerations)


def is_temporary_taint(key: str, starting: Collection[str]) -> bool:
    """Return whether a taint with this *key* is about the state of its node. *starting* are keys of start-up taints."""
    return (
        key.startswith(_CONDITIONS)
        or key == DRAIN_TAINT.key
        or signal_of_taint(key) is not None
        or is_start_up_taint(key, starting)
    )


def _taints_text(taints: list[tuple[Taint, int]], total: int, noun: str) -> str:
    if len(taints) == 1:
        taint, number = taints[0]
        return f"it does not tolerate the taint {taint_text(taint)} of {number} of {count(total, noun)}"
    named = shortened([f"{taint_text(taint)} (of {number})" for taint, number in taints], _NAMED)
    return f"it does not tolerate the taints of {count(total, noun)}: {named}"


def taint_text(taint: Taint) -> str:
    """Return *taint* as kubectl prints it: ``pool=spot:NoSchedule``."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    return shown(",".join(f"{key}={value}" for key, value in pairs))


def _affinity(affinity: NodeSelector) -> str:
    terms = (
        ", ".join(_requirement(requirement) for requirement in (*term.match_expressions, *term.match_fields))
        for term in affinity.node_selector_terms
    )
    return " or ".join(f"({term})" for term in terms)


def _requirement(requirement: Requirement) -> str:
    values = ", ".join(requirement.values)
    match requirement.operator:
        case "In" | "NotIn":
            return f"{requirement.key} {'in' if requirement.operator == 'In' else 'not in'} [{values}]"
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"!{requirement.key}"
        case other:
            return f"{requirement.key} {other} {values}"


# Which nodes are blocked by objects that cannot be decoded.

#: Kinds that affect all pods of their namespace that would move.
_OF_NAMESPACES: Final = ("PodDisruptionBudget", "PersistentVolumeClaim")

#: At most this many objects are reported for one node.
_UNREADABLE_NAMED: Final = 5


class UnreadableObjects:
    """The unreadable objects that are missing from a snapshot, by the nodes or namespaces that they affect.

    An unreadable Node is never a candidate, so it is not listed here.
    """

    def __init__(self, unreadable: Iterable[Unreadable]) -> None:
        #: Pods by node; None for those whose node is unknown.
        self._pods: defaultdict[str | None, list[Unreadable]] = defaultdict(list)
        #: Other objects by namespace; None for those whose namespace is unknown.
        self._others: defaultdict[str | None, list[Unreadable]] = defaultdict(list)
        for item in unreadable:
            if item.kind == "Pod":
                self._pods[item.node].append(item)
            elif item.kind in _OF_NAMESPACES:
                namespace, slash, _ = item.key.partition("/")
                self._others[namespace if slash else None].append(item)
        #: Nodes with unreadable pods: their free resources are unknown.
        self.nodes = frozenset(node for node in self._pods if node)

    def blockers(self, node: str, movers: Iterable[Pod]) -> Iterator[Blocker]:
        """Yield the blockers of *node*, from which *movers* would have to move."""
        if not self._pods and not self._others:
            return
        namespaces: dict[str | None, None] = dict.fromkeys(pod.namespace for pod in movers)
        if namespaces:
            namespaces[None] = None
        relevant = chain(
            *(self._pods.get(key, ()) for key in (node, None)), *(self._others.get(key, ()) for key in namespaces)
        )
        for item in islice(relevant, _UNREADABLE_NAMED):
            yield Blocker(Reason.UNREADABLE_OBJECT, f"it cannot be decoded: {item.why}")
