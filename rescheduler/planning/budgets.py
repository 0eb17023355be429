"""PodDisruptionBudgets, and what a plan may still spend of them.

The eviction API is the judge (``pkg/registry/core/pod/storage/eviction.go``); this says beforehand what it
would say, and spends a copy, because the API's numbers do not know the plan (kubernetes/autoscaler#9111).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from predicates.objects import Pod, PodClass, PodDisruptionBudget
from predicates.selectors import Selector, compile_selector
from predicates.snapshot import Snapshot
from rescheduler.planning.outcome import Blocker, Reason

Pair: TypeAlias = tuple[str, str]

#: Why pods of a node that one budget (its key) guards must stay although it allows so many evictions at a time.
TooSlow: TypeAlias = Callable[[str, Sequence[Pod], int], Blocker | None]


class Budgets:
    """The budgets of a snapshot, by the classes of pods that they guard. Good for one :meth:`version`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.made_of = self.version(snapshot)
        # Under the rarest label that its pods must have, so that a class is asked about few; under None without any.
        self._in: defaultdict[tuple[str, Pair | None], list[tuple[str, Selector]]] = defaultdict(list)
        self._budgets: dict[str, PodDisruptionBudget] = {}
        self.allowed: dict[str, int] = {}  #: evictions that the API says each allows now
        selectors: list[tuple[str, str, Selector]] = []
        for key, one in snapshot.of("PodDisruptionBudget").items():
            assert isinstance(one, PodDisruptionBudget)
            self._budgets[key] = one
            self.allowed[key] = one.status.disruptions_allowed
            # In policy/v1 an absent selector selects nothing, an empty one everything.
            selectors.append((key, one.metadata.namespace, compile_selector(one.spec.selector)))
        common = Counter((namespace, pair) for _, namespace, selector in selectors for pair in selector.pairs)
        for key, namespace, selector in selectors:
            rarest = min(selector.pairs, key=lambda pair: common[namespace, pair], default=None)
            self._in[namespace, rarest].append((key, selector))
        self._of: dict[PodClass, tuple[str, ...]] = {}

    @staticmethod
    def version(snapshot: Snapshot) -> tuple[int, int]:
        """What changes when the budgets, or the classes that there are, have changed."""
        return snapshot.versions["PodDisruptionBudget"], snapshot.generation

    def of(self, pod: PodClass) -> tuple[str, ...]:
        """The keys of the budgets that guard pods of this class."""
        if (found := self._of.get(pod)) is None:
            pairs: tuple[Pair | None, ...] = (None, *pod.labels.items())
            asked = (one for pair in pairs for one in self._in.get((pod.namespace, pair), ()))
            found = tuple(sorted(key for key, selector in asked if selector.matches(pod.labels)))
            self._of[pod] = found
        return found

    def guards(self, pod: Pod) -> bool:
        return bool(self.of(pod.cls))

    def get(self, key: str) -> PodDisruptionBudget:
        return self._budgets[key]


@dataclass(slots=True)
class Purse:
    """What is left of the budgets while a plan is made.

    With *too_slow* a budget that allows one eviction is good for any number, one after the other, unless this function
    returns a blocker: the replacement becomes Ready, the budget allows the next one. Without it all of a plan's
    evictions must be allowed at once.
    """

    budgets: Budgets
    too_slow: TooSlow | None = None
    spent: dict[str, int] = field(default_factory=dict)

    def pay(self, pods: Iterable[Pod]) -> list[Blocker]:
        """Pay for the eviction of all of *pods*, or for none: what stands in the way, empty when it is paid."""
        wanted: dict[str, list[Pod]] = {}
        blockers = []
        keys_of = self.budgets.of
        for pod in pods:
            keys = keys_of(pod.cls)
            if not keys or pod.phase == "Pending":  # The API evicts what has never run without asking a budget.
                continue
            if len(keys) > 1:
                blockers.append(_several(pod, keys))
            elif pod.ready or not self._goes_free(keys[0]):
                wanted.setdefault(keys[0], []).append(pod)
        for key, guarded in wanted.items():
            allowed = self.budgets.allowed[key]
            left = allowed - self.spent.get(key, 0)
            if left >= len(guarded):
                continue
            if allowed > 0 and self.too_slow is not None:
                blockers += filter(None, [self.too_slow(key, guarded, allowed)])
            else:
                blockers += _shortage(key, guarded, max(left, 0))
        if not blockers:
            for key, guarded in wanted.items():
                self.spent[key] = self.spent.get(key, 0) + len(guarded)
        return blockers

    def copy(self) -> "Purse":
        return Purse(self.budgets, self.too_slow, dict(self.spent))

    def _goes_free(self, key: str) -> bool:
        """Unready pods may go unpaid: by policy AlwaysAllow, or while the budget's healthy pods suffice."""
        one = self.budgets.get(key)
        if one.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
            return True
        return one.status.current_healthy >= one.status.desired_healthy > 0


def _shortage(key: str, pods: list[Pod], left: int) -> list[Blocker]:
    detail = f"PodDisruptionBudget {key} allows {left} evictions now, {len(pods)} of its pods are here"
    return [Blocker(Reason.BUDGET, detail, pod.key) for pod in pods[left:]]


def _several(pod: Pod, keys: tuple[str, ...]) -> Blocker:
    detail = f"PodDisruptionBudgets {', '.join(keys)} guard it; the eviction API refuses pods with more than one"
    return Blocker(Reason.MANY_BUDGETS, detail, pod.key)
