"""Plain pods: nothing about them has to be judged for each pod. Nearly all pods of most clusters are plain.

They have no annotations but costs of moves, no rule applies to them, their controllers create them again as they are
and in any order, and no volume keeps them. This is found out once for pods that are alike.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from predicates.objects import OwnerReference, Pod, PodClass
from rescheduler.planning.money.move_costs import DISRUPTION_COSTS
from rescheduler.planning.replacements import Replacements
from rescheduler.planning.rules.declared import PodRules
from rescheduler.planning.rules.owners import Owners
from rescheduler.planning.rules.pins import Pins
from rescheduler.planning.rules.pod_rules import responders
from rescheduler.planning.rules.volumes import Volumes

#: Pods that are equal in this, and have no annotations, are alike: their class, their controller and their generation.
Alike: TypeAlias = tuple[PodClass, OwnerReference | None, int]

#: The annotations that no rule reads: they state what a move costs.
_OF_NO_RULE: Final = frozenset(DISRUPTION_COSTS)


@dataclass(frozen=True, slots=True)
class PlainPods:
    """Which pods are plain. Valid for one round, whose rules these are."""

    pod_rules: PodRules
    owners: Owners | None
    replacements: Replacements
    volumes: Volumes
    pins: Pins
    _known: dict[Alike, bool] = field(default_factory=dict)

    def others(self, pods: Iterable[Pod]) -> list[Pod]:
        """Return those of *pods* that are not plain."""
        known, rules = self._known, self.pod_rules
        each_is_judged = bool(rules.unconditional)
        others = []
        for pod in pods:  # inline, because this is called for all pods on on-demand nodes
            if pod.annotations and not pod.annotations.keys() <= _OF_NO_RULE:
                others.append(pod)
                continue
            alike = pod.cls, pod.owner, pod.generation
            plain = known.get(alike)
            if plain is None:
                plain = known[alike] = self._is_plain(pod)
            if not plain or (each_is_judged and rules.one_decides(pod)):
                others.append(pod)
        return others

    def _is_plain(self, pod: Pod) -> bool:
        cls = pod.cls
        return (
            self.pod_rules.none_applies(pod)
            and not cls.spec.resource_claims
            and not responders(cls)
            and not self.volumes.concern(cls)
            and self.pins.of(cls) is None
            and self.replacements.like_running(pod)
            and (self.owners is None or not self.owners.concern(pod))
        )
