"""Pods that no spot node could ever accept because of their own rules, and the smallest change of these rules."""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from predicates.filters import Filters
from predicates.local_results import Targets
from predicates.node_selectors import HARD_EFFECTS, first_untolerated, node_selector_mask, tolerated
from predicates.nodes import MISSING
from predicates.objects import (
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PodClass,
    PodSpec,
    Requirement,
    Taint,
    Toleration,
)
from predicates.snapshot import Snapshot
from rescheduler.errors import UsageError
from rescheduler.planning.node_labels import NodeLabel, NodeLabels
from rescheduler.planning.rules.pins import taint_text
from rescheduler.planning.what_if.lifting import Trait, Traits


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
