"""The marks of drains on the nodes of the cluster, and what they say to those who plan."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from predicates.objects import Node
from rescheduler.draining.actions import ANNOTATION, Intent, Step, read
from rescheduler.planning.forms import utc
from rescheduler.planning.outcome import Blocker, Reason


def intents(nodes: Iterable[Node]) -> dict[str, Intent]:
    """Return the intents in the annotations of *nodes*, by node. Unreadable ones are left out."""
    annotated = (node for node in nodes if ANNOTATION in node.metadata.annotations)
    written = ((node.name, read(node)) for node in annotated)
    return {name: intent for name, intent in written if intent is not None}


def removing(written: Mapping[str, Intent]) -> frozenset[str]:
    """Return the nodes for which machine termination may have been requested."""
    return frozenset(name for name, intent in written.items() if intent.step is Step.REMOVING)


def drained_by_others(
    written: Mapping[str, Intent], identity: str, now: datetime, *, beside: bool = False
) -> dict[str, tuple[Blocker, ...]]:
    """Return blockers for the nodes that other processes drain. *identity* is that of an installation.

    Its own drains count only for those who plan *beside* it, until the machine is ordered away.
    """
    found: dict[str, tuple[Blocker, ...]] = {}
    for name, intent in written.items():
        if intent.identity not in ("", identity):
            found[name] = (Blocker(Reason.OTHER_INSTALLATION, _drained_by(intent, now)),)
        elif beside and intent.identity and intent.step is not Step.REMOVING:
            detail = f"the daemon drains it ({intent.step} since {utc(intent.since)})"
            found[name] = (Blocker(Reason.BEING_DRAINED, detail),)
    return found


def _drained_by(intent: Intent, now: datetime) -> str:
    """Describe who drains a node and, if the mark was not renewed, when the mark expired."""
    activity = "removes its machine" if intent.step is Step.REMOVING else "drains it"
    text = f"installation {intent.identity} {activity} (holder {intent.holder})"
    if intent.until is None or not intent.lapsed(now):
        return text
    return f"{text}; it did not renew its mark, which was valid until {utc(intent.until)}"
