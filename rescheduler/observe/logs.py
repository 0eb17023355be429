"""Log lines for events. :mod:`rescheduler.observe.log_lines` describes their levels and formats."""

import logging
import re
from typing import Final

from rescheduler.observe.drain_logs import log_node_event
from rescheduler.observe.events import (
    Chosen,
    DebtEnded,
    DrainProgressed,
    Event,
    Held,
    HistoryEvent,
    LeadershipChanged,
    MemoryDropped,
    Observed,
    OwedChanged,
    OwnerSetAside,
    PauseChanged,
    PlaceholdersObserved,
    Planned,
    ProcessEvent,
    RoundEnded,
    SavingsCounted,
    Started,
    Surveyed,
    Trouble,
    Waiting,
    WatchAges,
)
from rescheduler.observe.log_lines import DETAIL, NOTICE, log, write
from rescheduler.planning.node_info import both_labels
from rescheduler.planning.outcome import Plan, Planning, Reason, Rejected, Verdict
from rescheduler.planning.timestamps import utc
from rescheduler.planning.units import count

_NUMBER: Final = re.compile(r"\d+")


class Logs:
    """A listener that writes log lines. Verdicts are logged when they change; at verbosity 4, in every round."""

    def __init__(self) -> None:
        self._reported: dict[str, object] = {}
        self._planning: Planning | None = None  #: the last one
        self._held: tuple[Waiting, str] | None = None
        self._trouble: Trouble | None = None  #: the last one: the same error in every round is one line
        self._unmatched: set[str] = set()  #: labels that were reported to match no node
        self._overlapping = False  #: whether nodes with both labels were reported
        self._change_level = logging.INFO  # a dry run only reports verdicts, so there they are always logged

    def __call__(self, event: Event) -> None:
        match event:
            case Started() | LeadershipChanged() | PauseChanged() | WatchAges() | SavingsCounted():
                self._of_process(event)
            case Observed():
                self._observed(event)
            case Held():
                self._log_held(event)
            case Planned():
                self._planned(event)
            case Chosen(rejected=rejected):
                for verdict in rejected:
                    _verdict(verdict, logging.INFO)
            case Trouble(kind, detail, node):
                level = logging.DEBUG if event == self._trouble else logging.WARNING
                self._trouble = event
                write(level, detail, node=node, reason=kind)
            case OwnerSetAside() | DebtEnded() | MemoryDropped():
                _of_history(event)
            case OwedChanged() | PlaceholdersObserved() | Surveyed() | DrainProgressed():
                pass  # included in other events
            case RoundEnded(seconds=seconds, succeeded=succeeded):
                write(logging.DEBUG, f"round {'ended' if succeeded else 'aborted'} after {seconds:.3f} s")
            case _:
                log_node_event(event)

    def _of_process(self, event: ProcessEvent) -> None:
        match event:
            case Started(version, holder, address, dry_run):
                dry = ", dry run" if dry_run else ""
                self._change_level = NOTICE if dry_run else logging.INFO
                write(NOTICE, f"spot-rescheduler {version} starts as {holder}{dry}, serving on http://{address}")
            case LeadershipChanged(leading):
                write(NOTICE, "this replica is the leader" if leading else "this replica is not the leader: waiting")
            case PauseChanged(paused=paused):
                write(NOTICE, paused or "drains are no longer paused", reason="paused" if paused else "")
            case WatchAges() | SavingsCounted():
                pass  # metrics show it; a stale watch is also a reason to wait

    def _observed(self, event: Observed) -> None:
        counts = ", ".join(
            f"{count(len(nodes), 'Ready node')} with label {label}" for label, nodes in event.pods.items()
        )
        write(DETAIL, f"the cluster has {counts}")
        for label in event.unmatched:
            if label not in self._unmatched:
                text = f"no node matches the label {label}: see --on-demand-node-label, --spot-node-label"
                suggestion = f"; these flags match nodes: {event.suggestion}" if event.suggestion else ""
                write(logging.WARNING, text + suggestion)
        self._unmatched.update(event.unmatched)
        if event.overlapping and not self._overlapping:
            write(logging.WARNING, both_labels(event.overlapping))
        self._overlapping = self._overlapping or bool(event.overlapping)

    def _log_held(self, event: Held) -> None:
        """Log at verbosity 2 only when the reason changes. Numbers in it, such as the remaining time, are ignored."""
        reason = event.waiting, _NUMBER.sub("", event.detail)
        level = logging.DEBUG if self._held == reason else logging.INFO
        self._held = reason
        write(level, f"nothing is drained: {event.detail}", reason=event.waiting)

    def _planned(self, event: Planned) -> None:
        self._held = None
        planning = event.planning
        full = sum(1 for plan in planning.plans if plan.placements)
        if planning is not self._planning or log.isEnabledFor(logging.DEBUG):
            self._verdicts(planning, complete=event.complete)
        self._planning = planning
        write(
            DETAIL,
            f"planned {len(planning.verdicts)} of {planning.on_demand_nodes} on-demand nodes for "
            f"{planning.spot_nodes} spot nodes in {event.seconds:.3f} s: {full} can be drained",
        )

    def _verdicts(self, planning: Planning, *, complete: bool) -> None:
        for verdict in planning.verdicts:
            known = self._reported.get(verdict.node)
            self._reported[verdict.node] = content = _significant_part(verdict)
            _verdict(verdict, logging.DEBUG if known == content else self._change_level)
        if complete:
            nodes = {verdict.node for verdict in planning.verdicts}
            self._reported = {node: content for node, content in self._reported.items() if node in nodes}


def _of_history(event: HistoryEvent) -> None:
    match event:
        case OwnerSetAside(name, until, failures):
            times = "" if failures == 1 else f" {failures} times in a row"
            text = f"pods of {name} did not run in time after a drain{times}; they are not moved before {utc(until)}"
            write(logging.WARNING, text, reason=Reason.NOT_RECOVERED)
        case DebtEnded():
            write(logging.WARNING, event.text)
        case MemoryDropped(detail=detail):
            write(logging.WARNING, f"the memory dropped entries: {detail}")


def _significant_part(verdict: Verdict) -> object:
    """Return the parts of *verdict* that must change for it to be logged again.

    Details are ignored: they may contain changing numbers.
    """
    if isinstance(verdict, Plan):
        return "plan"
    return tuple(sorted({(blocker.reason, blocker.pod or "") for blocker in verdict.blockers}))


def _verdict(verdict: Verdict, level: int) -> None:
    match verdict:
        case Plan(node, ()):
            write(level, "has no pods to move", node=node)
        case Plan(node, placements):
            write(level, f"can be drained: {len(placements)} pods fit on spot nodes", node=node)
        case Rejected(node, blockers):
            for blocker in blockers:
                write(level, f"not drained: {blocker.detail}", node=node, pod=blocker.pod, reason=blocker.reason)
