"""Pods that no spot node could ever take by their own rules, and what keeps them off."""

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from predicates.filters import Filters, Targets
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
    """What keeps classes of pods off *targets*, regardless of free resources. Valid until the nodes change."""

    def __init__(self, snapshot: Snapshot, filters: Filters, targets: Targets) -> None:
        self._snapshot = snapshot
        self._filters = filters
        self._targets = targets
        numbers = dict.fromkeys(snapshot.nodes.taint_set[targets.rows].tolist())
        self._taint_sets = [snapshot.nodes.taint_sets[number] for number in numbers]  #: those of the targets
        self._tolerant: dict[tuple[Toleration, ...], bool] = {}
        self._seen: dict[PodClass, Unpinned | None] = {}

    def of(self, cls: PodClass) -> Unpinned | None:
        """Return the smallest change that lets a target take pods of this class, or None.

        None means that a target could take them as they are, or that other rules, such as their size, also forbid it.
        """
        if cls not in self._seen:
            fits = self._filters.could_fit
            free = self._has_no_rules(cls.spec) or fits(cls, self._targets)
            changes = () if free else self._changes(cls)
            self._seen[cls] = next((change for change in changes if fits(change.cls, self._targets)), None)
        return self._seen[cls]

    def _has_no_rules(self, spec: PodSpec) -> bool:
        """Return whether nothing in *spec* can keep its pods off all targets. This is much faster than the filters."""
        if spec.node_selector or _required(spec) is not None:
            return False
        if (tolerant := self._tolerant.get(spec.tolerations)) is None:
            tolerant = any(first_untolerated(taints, spec.tolerations) is None for taints in self._taint_sets)
            self._tolerant[spec.tolerations] = tolerant
        return tolerant

    def freed(self, cls: PodClass) -> PodClass:
        """Return the class without the rules that keep it off the targets.

        If some target could take it as it is, all its rules about nodes are removed.
        """
        if (pinned := self.of(cls)) is not None:
            return pinned.cls
        return _edited(cls, {}, self._missing_tolerations(cls), affinity=False)

    def _changes(self, cls: PodClass) -> Iterator[Unpinned]:
        """Yield possible changes, smallest first."""
        spec = cls.spec
        matched = {key: value for key, value in spec.node_selector.items() if self._on_a_target(key, value)}
        tolerations = self._missing_tolerations(cls)
        for added in dict.fromkeys(((), tolerations)):
            for affinity in (True, False):
                for selector in (spec.node_selector, matched, {}):
                    texts = _texts(spec, selector, added, affinity=affinity)
                    if texts:
                        taints = ",".join(_taints(added)) if len(texts) == bool(added) else ""
                        yield Unpinned(_edited(cls, selector, added, affinity=affinity), ", ".join(texts), taints)

    def _on_a_target(self, key: str, value: str) -> bool:
        column = self._snapshot.nodes.label(key)
        number = column.number.get(value, MISSING)
        return number != MISSING and bool((column.ids[self._targets.rows] == number).any())

    def _missing_tolerations(self, cls: PodClass) -> tuple[Toleration, ...]:
        """Return tolerations for the taints of the targets that pods of this class do not tolerate."""
        taints = dict.fromkeys(taint for taints in self._taint_sets for taint in taints)
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


def _texts(spec: PodSpec, selector: dict[str, str], added: tuple[Toleration, ...], *, affinity: bool) -> list[str]:
    """Return what differs between *spec* and the changed rules."""
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
