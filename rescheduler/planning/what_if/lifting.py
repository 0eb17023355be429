"""Obstacles that the owners of pods can remove, and copies of pods without them."""

import enum
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from msgspec.structs import replace

from predicates.filters import Filters
from predicates.local_results import Targets
from predicates.node_selectors import HARD_EFFECTS, first_untolerated, node_selector_mask, tolerated
from predicates.nodes import MISSING
from predicates.objects import (
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodClass,
    PodSpec,
    Requirement,
    Taint,
    Toleration,
)
from predicates.scheduler import DEFAULT_NAME
from predicates.snapshot import Snapshot
from predicates.texts import shown
from rescheduler.errors import UsageError
from rescheduler.planning.controllers import ControllerName, controller_of
from rescheduler.planning.node_labels import NodeLabel, NodeLabels
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import Policy
from rescheduler.planning.pool_shares import MAX_SHARE, WHOLE
from rescheduler.planning.rules.candidates import SCALE_DOWN_DISABLED
from rescheduler.planning.rules.declared import Fate, PodRules
from rescheduler.planning.rules.gangs import gangs_of
from rescheduler.planning.rules.pins import taint_text
from rescheduler.planning.rules.pod_rules import DO_NOT_DISRUPT, DO_NOT_EVICT_KARPENTER, SAFE_TO_EVICT
from rescheduler.planning.rules.pod_traits import (
    DO_NOT_DRAIN,
    DO_NOT_EVICT,
    PREFER_NO_EVICTION,
    REMOVAL_DISABLED,
    RESTRICT_SCALE_DOWN,
    SAFE_LOCAL_VOLUMES,
    local_volumes,
    needed_volumes,
)

#: The field of a pod.
GRACE: Final = "terminationGracePeriodSeconds"


class Trait(enum.StrEnum):
    """What pods of several controllers can have in common, so that one change removes their obstacles."""

    SELECTOR = "Selector"  #: what the pods demand of a node's labels
    TAINT = "Taint"  #: of the spot nodes, which the pods do not tolerate
    KEY = "Key"  #: of an annotation or label of the pods
    NODE_KEY = "NodeKey"  #: of an annotation or label of the nodes
    VOLUME = "Volume"  #: the name of a local volume


#: Traits with their texts, such as ``capacity-type=on-demand`` or ``spot=true:NoSchedule``.
Traits: TypeAlias = tuple[tuple[Trait, str], ...]


@dataclass(frozen=True, slots=True, order=True)
class Obstacle:
    """A property of pods or nodes that prevents drains, and that its owner can change."""

    controller: ControllerName
    reason: Reason
    description: str  #: the part to change, such as ``emptyDir cache``
    traits: Traits = ()  #: the obstacle is removed if all of these are; empty if only the owner can remove it

    def __str__(self) -> str:
        return f"{self.controller}: {self.description}"


#: Returns a pod without the obstacle, and the part to change.
_Lift: TypeAlias = Callable[[Pod, Policy], tuple[Pod, str]]


def _without_annotation(key: str, allows: str | None = None) -> _Lift:
    """Return the lift that removes the annotation, unless its value is *allows*."""

    def lift(pod: Pod, _: Policy) -> tuple[Pod, str]:
        others = {name: value for name, value in pod.annotations.items() if name != key or value == allows}
        return replace(pod, annotations=others), f"annotation {key}: {pod.annotations.get(key, '')}"

    return lift


def _without_label(key: str) -> _Lift:
    def lift(pod: Pod, _: Policy) -> tuple[Pod, str]:
        others = {name: value for name, value in pod.cls.labels.items() if name != key}
        return replace(pod, cls=replace(pod.cls, labels=others)), f"label {key}: {pod.cls.labels.get(key, '')}"

    return lift


def _removal_enabled(pod: Pod, policy: Policy) -> tuple[Pod, str]:
    """Return the pod without CAST AI's key, which may be an annotation, a label or both."""
    texts = []
    for present, without in ((pod.annotations, _without_annotation), (pod.cls.labels, _without_label)):
        if present.get(REMOVAL_DISABLED) == "true":
            pod, description = without(REMOVAL_DISABLED)(pod, policy)
            texts.append(description)
    return pod, ", ".join(texts)


def _without_karpenter_annotations(pod: Pod, policy: Policy) -> tuple[Pod, str]:
    """Return the pod without Karpenter's annotation, under its present and its former name."""
    texts = []
    for key in (DO_NOT_DISRUPT, DO_NOT_EVICT_KARPENTER):
        if key in pod.annotations:
            pod, description = _without_annotation(key)(pod, policy)
            texts.append(description)
    return pod, ", ".join(texts)


def _allow_eviction(description: str) -> _Lift:
    def lift(pod: Pod, _: Policy) -> tuple[Pod, str]:
        return replace(pod, annotations={**pod.annotations, SAFE_TO_EVICT: "true"}), description

    return lift


def _gang_member(pod: Pod, policy: Policy) -> tuple[Pod, str]:
    return _allow_eviction(f"member of {', '.join(map(str, gangs_of(pod)))}")(pod, policy)


def _local_storage(pod: Pod, policy: Policy) -> tuple[Pod, str]:
    names = ",".join(volume.name for volume in local_volumes(pod.cls))
    description = ", ".join(
        f"{'emptyDir' if volume.host_path is None else 'hostPath'} {volume.name}"
        for volume in needed_volumes(pod, policy.ignore_local_volumes)
    )
    return replace(pod, annotations={**pod.annotations, SAFE_LOCAL_VOLUMES: names}), description


def _other_scheduler(pod: Pod, policy: Policy) -> tuple[Pod, str]:
    spec = pod.cls.spec
    cls = replace(pod.cls, spec=replace(spec, scheduler_name=policy.scheduler_names[0]))
    return replace(pod, cls=cls), f"schedulerName {spec.scheduler_name or DEFAULT_NAME}"


def _with_shorter_grace(pod: Pod, policy: Policy) -> tuple[Pod, str]:
    seconds, longest = pod.cls.spec.termination_grace_period_seconds, int(policy.max_graceful_termination)
    if seconds is None or seconds <= longest:
        return pod, ""
    spec = replace(pod.cls.spec, termination_grace_period_seconds=longest)
    return replace(pod, cls=replace(pod.cls, spec=spec)), f"{GRACE}: {seconds}"


def _without_share(pod: Pod, _: Policy) -> tuple[Pod, str]:
    """Return the pod whose controller may have all replicas on one pool of spot nodes."""
    return replace(pod, annotations={**pod.annotations, MAX_SHARE: f"{WHOLE}%"}), MAX_SHARE


_LIFTS: Final[Mapping[Reason, _Lift]] = {
    Reason.NOT_SAFE_TO_EVICT: _without_annotation(SAFE_TO_EVICT, allows="true"),
    Reason.DO_NOT_DISRUPT: _without_karpenter_annotations,
    Reason.DO_NOT_EVICT: _without_annotation(DO_NOT_EVICT),
    Reason.PREFER_NO_EVICTION: _without_annotation(PREFER_NO_EVICTION),
    Reason.RESTRICT_SCALE_DOWN: _without_label(RESTRICT_SCALE_DOWN),
    Reason.REMOVAL_DISABLED: _removal_enabled,
    Reason.NO_CONTROLLER: _allow_eviction("no controller"),
    Reason.EVICTION_RESPONDER: _allow_eviction("evictionResponders"),
    Reason.GANG_MEMBER: _gang_member,
    Reason.RUNS_TO_COMPLETION: _allow_eviction("runs to completion"),
    Reason.CUSTOM_CONTROLLER: _allow_eviction("owner that is not a built-in controller"),
    Reason.KUBE_SYSTEM: _allow_eviction("a kube-system pod without a PodDisruptionBudget"),
    Reason.LIQO_COMPONENT: _allow_eviction("Liqo component"),
    Reason.LOCAL_STORAGE: _local_storage,
    Reason.OTHER_SCHEDULER: _other_scheduler,
    Reason.GRACE_PERIOD: _with_shorter_grace,
    Reason.SPOT_POOL_SHARE: _without_share,
}

#: The annotation or label that is the reason about a pod.
POD_KEYS: Final[Mapping[Reason, str]] = {
    Reason.NOT_SAFE_TO_EVICT: SAFE_TO_EVICT,
    Reason.DO_NOT_DISRUPT: DO_NOT_DISRUPT,
    Reason.DO_NOT_EVICT: DO_NOT_EVICT,
    Reason.PREFER_NO_EVICTION: PREFER_NO_EVICTION,
    Reason.RESTRICT_SCALE_DOWN: RESTRICT_SCALE_DOWN,
    Reason.REMOVAL_DISABLED: REMOVAL_DISABLED,
}

#: The annotation, or the annotation and label, that is the reason about a node.
NODE_KEYS: Final[Mapping[Reason, str]] = {
    Reason.SCALE_DOWN_DISABLED: SCALE_DOWN_DISABLED,
    Reason.DO_NOT_DISRUPT_NODE: DO_NOT_DISRUPT,
    Reason.DO_NOT_DRAIN: DO_NOT_DRAIN,
    Reason.REMOVAL_DISABLED: REMOVAL_DISABLED,
}

#: Reasons about nodes that can be lifted, each with the part to change.
NODE_OBSTACLES: Final[Mapping[Reason, str]] = {
    reason: f"annotation {'or label ' if reason is Reason.REMOVAL_DISABLED else ''}{key}"
    for reason, key in NODE_KEYS.items()
}

#: Reasons about pods that :func:`lifted` removes.
LIFTABLE: Final = frozenset(_LIFTS)


class Risk(enum.StrEnum):
    """What is lost for good when an obstacle is lifted and the pods are evicted, the worst first."""

    DATA = "data"
    POD = "pod"
    WORK = "work"

    @property
    def text(self) -> str:
        """Return the meaning, as a sentence part."""
        return _RISK_TEXTS[self]


_RISK_TEXTS: Final[Mapping[Risk, str]] = {
    Risk.DATA: "what the pods keep in local volumes is lost",
    Risk.POD: "nothing creates the pod again",
    Risk.WORK: "the pods start their work again, or never",
}

#: The risk of lifting each reason; none for all others.
RISKS: Final[Mapping[Reason, Risk]] = {
    Reason.LOCAL_STORAGE: Risk.DATA,
    Reason.NO_CONTROLLER: Risk.POD,
    Reason.CUSTOM_CONTROLLER: Risk.POD,
    Reason.RUNS_TO_COMPLETION: Risk.WORK,
    Reason.GANG_MEMBER: Risk.WORK,
}


def lifted(pod: Pod, reason: Reason, policy: Policy) -> Pod:
    """Return *pod* without the obstacle *reason*, which must be one of :data:`LIFTABLE`."""
    return _LIFTS[reason](pod, policy)[0]


def node_without(node: Node, reason: Reason) -> Node:
    """Return *node* without the annotation or label that is the obstacle *reason*, one of :data:`NODE_KEYS`."""
    key, meta = NODE_KEYS[reason], node.metadata
    annotations = {name: value for name, value in meta.annotations.items() if name != key}
    labels = {name: value for name, value in meta.labels.items() if name != key}
    return replace(node, metadata=replace(meta, annotations=annotations, labels=labels))


def lift_all(pod: Pod, rules: PodRules) -> tuple[Pod, frozenset[Obstacle], Fate | None]:
    """Return *pod* without the obstacles to its eviction, these obstacles, and its fate without them.

    The fate is None if no change to the pod would allow its eviction.
    """
    obstacles = set[Obstacle]()
    while isinstance(result := rules.fate(pod), Blocker):
        lift = _LIFTS.get(result.reason)
        if lift is None or any(obstacle.reason is result.reason for obstacle in obstacles):
            return pod, frozenset(obstacles), None
        traits = _traits(pod, result.reason, rules.facts.policy)
        pod, description = lift(pod, rules.facts.policy)
        obstacles.add(Obstacle(controller_of(pod), result.reason, shown(description), traits))
    return pod, frozenset(obstacles), result


def _traits(pod: Pod, reason: Reason, policy: Policy) -> Traits:
    """Return what *pod* can have in common with pods of other controllers that have the obstacle *reason*."""
    if reason is Reason.LOCAL_STORAGE:
        names = {volume.name for volume in needed_volumes(pod, policy.ignore_local_volumes)}
        return tuple((Trait.VOLUME, name) for name in sorted(names))
    return ((Trait.KEY, POD_KEYS[reason]),) if reason in POD_KEYS else ()


# Pods that no spot node could ever accept because of their own rules, and the rules to change.


@dataclass(frozen=True, slots=True)
class Unpinned:
    """A class of pods without the rules that keep them off the spot nodes."""

    cls: PodClass
    obstacle: str  #: the rules that were removed, such as ``nodeSelector pool=ci``
    traits: Traits = ()  #: what was removed; empty if no trait says it


class Unpinning:
    """Finds the rules that keep pods off *targets* regardless of free resources. Valid until the nodes change."""

    def __init__(self, snapshot: Snapshot, filters: Filters, targets: Targets) -> None:
        self._snapshot = snapshot
        self._filters = filters
        self._targets = targets
        numbers = Counter(snapshot.nodes.taint_set[targets.rows].tolist())
        #: The taint sets of the targets, the most frequent first.
        self._taint_sets = [snapshot.nodes.taint_sets[number] for number, _ in numbers.most_common()]
        table, rows = snapshot.nodes, targets.rows
        largest = table.allocatable[rows].max(axis=0).tolist() if len(rows) else []
        self._largest = dict(zip(table.resources, largest, strict=False))  #: allocatable, by resource
        self._tolerant: dict[tuple[Toleration, ...], bool] = {}
        self._seen: dict[PodClass, Unpinned | None] = {}

    def of(self, cls: PodClass) -> Unpinned | None:
        """Return the smallest change that lets a target accept pods of this class, or None.

        None means that a target could accept them as they are, or that another reason, such as their size, prevents it.
        """
        if cls not in self._seen:
            changes = () if self._fits(cls) else self._changes(cls)
            fits = (change for change in changes if self._is_small(cls) and self._fits(change.cls))
            self._seen[cls] = next(fits, None)
        return self._seen[cls]

    def _fits(self, cls: PodClass) -> bool:
        """Return whether a target could accept pods of this class.

        Without rules about the labels of nodes, only taints and sizes are compared, which is much faster.
        """
        if cls.spec.node_selector or _required(cls.spec) is not None:
            return self._filters.could_fit(cls, self._targets)
        return self._is_tolerant(cls.spec)

    def _is_small(self, cls: PodClass) -> bool:
        """Return whether no request exceeds that resource of the largest target."""
        return all(amount <= self._largest.get(resource, 0) for resource, amount in cls.requests)

    def _is_tolerant(self, spec: PodSpec) -> bool:
        """Return whether *spec* tolerates the taints of a target."""
        if (tolerant := self._tolerant.get(spec.tolerations)) is None:
            tolerant = any(first_untolerated(taints, spec.tolerations) is None for taints in self._taint_sets)
            self._tolerant[spec.tolerations] = tolerant
        return tolerant

    def freed(self, cls: PodClass) -> PodClass:
        """Return the class without the rules that keep it off the targets.

        If some target could accept its pods as they are, all its rules about nodes are removed.
        """
        if (pinned := self.of(cls)) is not None:
            return pinned.cls
        return _edited(cls, {}, None, self._missing_tolerations(cls))

    def _changes(self, cls: PodClass) -> Iterator[Unpinned]:
        """Yield possible changes, smallest first."""
        spec = cls.spec
        matched = {key: value for key, value in spec.node_selector.items() if self._has_target_label(key, value)}
        for added in dict.fromkeys(((), self._fewest_tolerations(cls), self._missing_tolerations(cls))):
            for rules, affinity in self._affinities(_required(spec)):
                for selector in (spec.node_selector, matched, {}):
                    edited = _edited(cls, selector, affinity, added)
                    if texts := _describe_changes(spec, edited.spec, rules, added):
                        yield Unpinned(edited, ", ".join(texts), _traits_of(cls, edited, rules, added))

    def _affinities(self, required: NodeSelector | None) -> Iterator[tuple[list[Requirement], NodeSelector | None]]:
        """Yield what may become of *required*, with the rules that this drops: none, those without a match, and all."""
        rules = list(dict.fromkeys(rule for term in _terms(required) for rule in term.match_expressions))
        yield [], required
        if unmatched := [rule for rule in rules if not self._has_match(rule)]:
            yield unmatched, _without(required, unmatched)
        if required is not None:
            yield rules, None

    def _has_match(self, rule: Requirement) -> bool:
        alone = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(rule,)),))
        return bool(node_selector_mask(alone, self._snapshot, self._targets.rows).any())

    def _has_target_label(self, key: str, value: str) -> bool:
        column = self._snapshot.nodes.label(key)
        number = column.number.get(value, MISSING)
        return number != MISSING and bool((column.ids[self._targets.rows] == number).any())

    def _fewest_tolerations(self, cls: PodClass) -> tuple[Toleration, ...]:
        """Return the fewest tolerations that a target requires; among equal numbers, those for the most targets."""
        return min((_tolerations(taints, cls) for taints in self._taint_sets), key=len, default=())

    def _missing_tolerations(self, cls: PodClass) -> tuple[Toleration, ...]:
        """Return tolerations for all taints of the targets that pods of this class do not tolerate."""
        return _tolerations(dict.fromkeys(taint for taints in self._taint_sets for taint in taints), cls)


def _tolerations(taints: Iterable[Taint], cls: PodClass) -> tuple[Toleration, ...]:
    """Return tolerations for the *taints* that pods of this class do not tolerate."""
    return tuple(
        Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
        for taint in taints
        if taint.effect in HARD_EFFECTS and not tolerated(taint, cls.spec.tolerations)
    )


def _edited(
    cls: PodClass, selector: dict[str, str], required: NodeSelector | None, tolerations: tuple[Toleration, ...] = ()
) -> PodClass:
    """Return the class with this nodeSelector and required node affinity, and with further *tolerations*."""
    spec = replace(cls.spec, node_selector=selector, tolerations=(*cls.spec.tolerations, *tolerations))
    if required != _required(spec) and spec.affinity is not None and spec.affinity.node_affinity is not None:
        affinity = NodeAffinity(required=required, preferred=spec.affinity.node_affinity.preferred)
        spec = replace(spec, affinity=replace(spec.affinity, node_affinity=affinity))
    return replace(cls, spec=spec)


def _without(required: NodeSelector | None, rules: Container[Requirement]) -> NodeSelector | None:
    """Return *required* without *rules*; None if a term has no others, because then it accepts every node."""
    terms = []
    for term in _terms(required):
        left = tuple(rule for rule in term.match_expressions if rule not in rules)
        if term.match_expressions and not left and not term.match_fields:
            return None
        terms.append(replace(term, match_expressions=left))
    return None if required is None else replace(required, node_selector_terms=tuple(terms))


def _describe_changes(
    before: PodSpec, after: PodSpec, rules: Iterable[Requirement], added: tuple[Toleration, ...]
) -> list[str]:
    """Describe the differences between the specs: *after* has *added* tolerations, and *rules* no more."""
    labels = [f"{key}={value}" for key, value in before.node_selector.items() if key not in after.node_selector]
    texts = [f"nodeSelector {', '.join(labels)}"] if labels else []
    if _required(after) != (required := _required(before)):
        dropped = _affinity_text(required) if _required(after) is None else " and ".join(map(_requirement, rules))
        texts.append(f"node affinity {dropped}")
    if added:
        texts.append(f"no toleration of {', '.join(_taints(added))}")
    return texts


def _traits_of(
    before: PodClass, after: PodClass, rules: Iterable[Requirement], added: tuple[Toleration, ...]
) -> Traits:
    """Return what the class *after* does not demand of a node any more, and the taints that it tolerates now.

    The result is empty if a selector cannot say all of it.
    """
    labels = before.spec.node_selector.items() - after.spec.node_selector.items()
    demands = {NodeLabel(key, (value,)) for key, value in labels}
    demands |= {demand for rule in rules if (demand := _demand(rule)) is not None}
    untolerant = replace(after.spec, tolerations=before.spec.tolerations)
    if without_demands(before, demands).spec != untolerant or not all(map(_is_selectable, demands)):
        return ()
    taints = sorted((Trait.TAINT, text) for text in _taints(added))
    return (*sorted((Trait.SELECTOR, str(demand)) for demand in demands), *taints)


def _demand(rule: Requirement) -> NodeLabel | None:
    """Return what *rule* demands of a node's labels, or None if no label selector can say it."""
    if rule.operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
        return None
    return NodeLabel(rule.key, tuple(sorted({*rule.values})), negated=rule.operator in ("NotIn", "DoesNotExist"))


def _is_selectable(demand: NodeLabel) -> bool:
    try:
        return NodeLabels.parse(str(demand)).alternatives == ((demand,),)
    except UsageError:
        return False


def demands_of(cls: PodClass) -> set[NodeLabel]:
    """Return what pods of the class demand of a node's labels, as far as label selectors can say it."""
    labels = {NodeLabel(key, (value,)) for key, value in cls.spec.node_selector.items()}
    rules = (rule for term in _terms(_required(cls.spec)) for rule in term.match_expressions)
    return labels.union(demand for rule in rules if (demand := _demand(rule)) is not None)


def without_demands(cls: PodClass, demands: Collection[NodeLabel]) -> PodClass:
    """Return the class of pods that do not demand this of a node, by nodeSelector or by required node affinity."""
    spec = cls.spec
    selector = {key: value for key, value in spec.node_selector.items() if NodeLabel(key, (value,)) not in demands}
    rules = {rule for term in _terms(_required(spec)) for rule in term.match_expressions if _demand(rule) in demands}
    if not rules and len(selector) == len(spec.node_selector):
        return cls
    return _edited(cls, selector, _without(_required(spec), rules))


def _taints(tolerations: tuple[Toleration, ...]) -> list[str]:
    return [taint_text(Taint(key=item.key, value=item.value, effect=item.effect)) for item in tolerations]


def _required(spec: PodSpec) -> NodeSelector | None:
    return spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None


def _terms(required: NodeSelector | None) -> tuple[NodeSelectorTerm, ...]:
    return () if required is None else required.node_selector_terms


def _affinity_text(required: NodeSelector | None) -> str:
    terms = ((*term.match_expressions, *term.match_fields) for term in _terms(required))
    return " or ".join(" and ".join(map(_requirement, term)) for term in terms)


def _requirement(rule: Requirement) -> str:
    values = f" ({', '.join(rule.values)})" if rule.values else ""
    return f"{rule.key} {rule.operator}{values}"
