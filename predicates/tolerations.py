"""Which taints a pod tolerates (``v1.Toleration.ToleratesTaint``)."""

from collections.abc import Sequence

from predicates.objects import Taint, Toleration

HARD_EFFECTS = ("NoSchedule", "NoExecute")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """An empty key or effect matches all of them; an empty operator means Equal.

    The comparison operators ``Gt`` and ``Lt`` stand behind a gate that is off by default in 1.36.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    """Whether any of *tolerations* tolerates *taint*."""
    return any(tolerates(one, taint) for one in tolerations)


def first_untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """The first NoSchedule or NoExecute taint that nothing tolerates."""
    return next((one for one in taints if one.effect in HARD_EFFECTS and not tolerated(one, tolerations)), None)
