"""Pods that no spot node could ever accept because of their own rules, and the rules to change."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from predicates.filters import Filters
from predicates.local_results import Targets
from predicates.nodes import MISSING
from predicates.objects import NodeAffinity, NodeSelector, PodClass, PodSpec, Requirement, Taint, Toleration
from predicates.snapshot import Snapshot
from predicates.tolerations import HARD_EFFECTS, first_untolerated, tolerated


@dataclass(frozen=True, slots=True)
class Unpinned:
    """A class of pods without the rules that keep them off the spot nodes."""

    cls: PodClass
    obstacle: str  #: the rules that were removed, such as ``nodeSelector pool=ci``
    taints: str = ""  #: the taints that are tolerated now, if nothing else was changed


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
        return _edited(cls, {}, self._missing_tolerations(cls), affinity=False)

    def _changes(self, cls: PodClass) -> Iterator[Unpinned]:
        """Yield possible changes, smallest first."""
        spec = cls.spec
        matched = {key: value for key, value in spec.node_selector.items() if self._has_target_label(key, value)}
        for added in dict.fromkeys(((), self._fewest_tolerations(cls), self._missing_tolerations(cls))):
            for affinity in (True, False):
                for selector in (spec.node_selector, matched, {}):
                    texts = _describe_changes(spec, selector, added, affinity=affinity)
                    if texts:
                        taints = ",".join(_taints(added)) if len(texts) == bool(added) else ""
                        yield Unpinned(_edited(cls, selector, added, affinity=affinity), ", ".join(texts), taints)

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
    cls: PodClass, selector: dict[str, str], tolerations: tuple[Toleration, ...], *, affinity: bool
) -> PodClass:
    spec = replace(cls.spec, node_selector=selector, tolerations=(*cls.spec.tolerations, *tolerations))
    if not affinity and spec.affinity is not None and spec.affinity.node_affinity is not None:
        preferred = NodeAffinity(preferred=spec.affinity.node_affinity.preferred)
        spec = replace(spec, affinity=replace(spec.affinity, node_affinity=preferred))
    return replace(cls, spec=spec)


def _describe_changes(
    spec: PodSpec, selector: dict[str, str], added: tuple[Toleration, ...], *, affinity: bool
) -> list[str]:
    """Describe the differences between *spec* and the changed rules."""
    dropped = [f"{key}={value}" for key, value in spec.node_selector.items() if key not in selector]
    texts = [f"nodeSelector {', '.join(dropped)}"] if dropped else []
    if not affinity and (required := _required(spec)) is not None:
        texts.append(f"node affinity {_terms(required)}")
    if added:
        texts.append(f"no toleration of {', '.join(_taints(added))}")
    return texts


def _taints(tolerations: tuple[Toleration, ...]) -> list[str]:
    return [_taint(Taint(key=item.key, value=item.value, effect=item.effect)) for item in tolerations]


def _required(spec: PodSpec) -> NodeSelector | None:
    return spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None


def _taint(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _terms(required: NodeSelector) -> str:
    terms = ((*term.match_expressions, *term.match_fields) for term in required.node_selector_terms)
    return " or ".join(" and ".join(map(_requirement, term)) for term in terms)


def _requirement(rule: Requirement) -> str:
    values = f" ({', '.join(rule.values)})" if rule.values else ""
    return f"{rule.key} {rule.operator}{values}"
