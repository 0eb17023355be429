"""Annotations and labels with which users and other tools exempt nodes and pods from drains. Pure."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from predicates.objects import Node, Pod, PodClass
from rescheduler import durations
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.timestamps import utc

#: Our own annotation: ``true``, or a duration from the creation of the node or the start of the pod. ``false`` has no
#: effect, and an invalid value counts as ``true``.
DO_NOT_DRAIN: Final = "spot-rescheduler/do-not-drain"
DO_NOT_EVICT: Final = "spot-rescheduler/do-not-evict"

#: Descheduler: its evictor only checks that the annotation exists.
PREFER_NO_EVICTION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
#: Spot Ocean: a label of pods.
RESTRICT_SCALE_DOWN: Final = "spotinst.io/restrict-scale-down"
#: CAST AI: an annotation or a label, of nodes and of pods.
REMOVAL_DISABLED: Final = "autoscaling.cast.ai/removal-disabled"

#: Returns whether an instant has been reached.
Reached: TypeAlias = Callable[[datetime], bool]


def node_opt_out(node: Node, since: datetime | None, reached: Reached) -> Blocker | None:
    """Return a blocker if *node* is exempt from drains, or None. *since* is its creation time."""
    value = node.metadata.annotations.get(DO_NOT_DRAIN)
    if value is not None and (why := _own_opt_out(DO_NOT_DRAIN, value, since, reached)):
        return Blocker(Reason.DO_NOT_DRAIN, why)
    if kind := _with_removal_disabled(node.metadata.annotations.get, node.metadata.labels.get):
        return Blocker(Reason.REMOVAL_DISABLED, f'it has the {kind} {REMOVAL_DISABLED}: "true"')
    return None


def annotated_opt_out(pod: Pod, since: datetime | None, reached: Reached) -> Blocker | None:
    """Return a blocker if an annotation exempts *pod* from evictions, or None. *since* is its start time."""
    value = pod.annotations.get(DO_NOT_EVICT)
    if value is not None and (why := _own_opt_out(DO_NOT_EVICT, value, since, reached)):
        return Blocker(Reason.DO_NOT_EVICT, why)
    if pod.annotations.get(PREFER_NO_EVICTION, "false") != "false":
        return Blocker(Reason.PREFER_NO_EVICTION, f"it has the annotation {PREFER_NO_EVICTION}")
    if pod.annotations.get(REMOVAL_DISABLED) == "true":
        return Blocker(Reason.REMOVAL_DISABLED, f'it has the annotation {REMOVAL_DISABLED}: "true"')
    return None


def labeled_opt_out(cls: PodClass) -> Blocker | None:
    """Return a blocker if a label exempts the pods of a class from evictions, or None."""
    if cls.labels.get(RESTRICT_SCALE_DOWN) == "true":
        return Blocker(Reason.RESTRICT_SCALE_DOWN, f'it has the label {RESTRICT_SCALE_DOWN}: "true"')
    if cls.labels.get(REMOVAL_DISABLED) == "true":
        return Blocker(Reason.REMOVAL_DISABLED, f'it has the label {REMOVAL_DISABLED}: "true"')
    return None


def _with_removal_disabled(annotation: Callable[[str], str | None], label: Callable[[str], str | None]) -> str:
    if annotation(REMOVAL_DISABLED) == "true":
        return "annotation"
    return "label" if label(REMOVAL_DISABLED) == "true" else ""


def _own_opt_out(key: str, value: str, since: datetime | None, reached: Reached) -> str:
    """Return the reason if our annotation *key* applies now, or ""."""
    if value == "false":
        return ""
    if value == "true":
        return f'it has the annotation {key}: "true"'
    try:
        period = timedelta(seconds=durations.seconds(value))
    except ValueError:
        return f'it has the annotation {key}: {value!r}, expected "true", "false" or a duration such as 4h'
    if since is None:
        return f"it has the annotation {key}: {value}, and its start is not known"
    return "" if reached(since + period) else f"{key}: {value} ends at {utc(since + period)}"
