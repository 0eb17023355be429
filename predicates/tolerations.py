"""Taints and tolerations (``v1.Toleration.ToleratesTaint``)."""

from collections.abc import Sequence

from predicates.objects import Taint, Toleration

HARD_EFFECTS = ("NoSchedule", "NoExecute")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether *toleration* tolerates *taint*.

    An empty key or effect matches every key or effect; an empty operator means ``Equal``. The operators ``Gt`` and
    ``Lt`` never match: their feature gate is off by default in 1.36.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    """Return whether any of *tolerations* tolerates *taint*."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def first_untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """Return the first NoSchedule or NoExecute taint that is not tolerated, or None."""
    hard = (taint for taint in taints if taint.effect in HARD_EFFECTS)
    return next((taint for taint in hard if not tolerated(taint, tolerations)), None)
