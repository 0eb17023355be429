"""Inputs of planning in addition to pods and nodes: marks of drains, cooldowns and vetoes."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from predicates.objects import Node
from rescheduler.draining.intent import ANNOTATION, Intent, Step, read
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import Circumstances
from rescheduler.planning.timestamps import utc


def while_draining(circumstances: Circumstances, node: str, *, has_pods: bool) -> Circumstances:
    """Return *circumstances* for *node*, which is being drained: its own cooldown and vetoes do not count.

    *has_pods* says whether pods that do not end with the node are still on it.
    """
    empty = node in circumstances.ordered and not has_pods
    return replace(
        circumstances,
        cooling={name: until for name, until in circumstances.cooling.items() if name != node},
        vetoes={name: blockers for name, blockers in circumstances.vetoes.items() if name != node},
        ordered=circumstances.ordered - {node},
        emptied=frozenset({node} if empty else ()),
    )


def intents(nodes: Iterable[Node]) -> dict[str, Intent]:
    """Return the intents in the annotations of *nodes*, by node. Unreadable ones are left out."""
    annotated = (node for node in nodes if ANNOTATION in node.metadata.annotations)
    written = ((node.name, read(node)) for node in annotated)
    return {name: intent for name, intent in written if intent is not None}


def vetoes_of_others(written: Mapping[str, Intent], identity: str, now: datetime) -> dict[str, tuple[Blocker, ...]]:
    """Return blockers for the nodes that other installations drain. *identity* is this installation's."""
    foreign = {name: intent for name, intent in written.items() if intent.identity not in ("", identity)}
    return {name: (Blocker(Reason.OTHER_INSTALLATION, _drained_by(intent, now)),) for name, intent in foreign.items()}


def _drained_by(intent: Intent, now: datetime) -> str:
    """Describe who drains a node and, if the mark was not renewed, when the mark expired."""
    activity = "removes its machine" if intent.step is Step.REMOVING else "drains it"
    text = f"installation {intent.identity} {activity} (holder {intent.holder})"
    if intent.until is None or not intent.lapsed(now):
        return text
    return f"{text}; it did not renew its mark, which was valid until {utc(intent.until)}"
