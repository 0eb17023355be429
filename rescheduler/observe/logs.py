"""The events as log lines, and how lines look: for people, or one JSON object each.

Verbosity as glog's: 0 tells of drains and of what went wrong, 2 what an operator wants to know of each round,
3 every eviction, 4 everything. A line carries node, pod and reason as fields of their own.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TextIO, assert_never

from rescheduler.observe.events import (
    Chosen,
    Compared,
    CoolingDown,
    DrainEnded,
    DrainStarted,
    Event,
    EvictionAnswered,
    EvictionResult,
    Held,
    KeptByGuards,
    LeadershipChanged,
    MachineAnswered,
    MachineGone,
    MachineOrdered,
    NodeEvent,
    Observed,
    OwedChanged,
    Planned,
    ProcessEvent,
    RemovalPostponed,
    RoundEnded,
    Started,
    Swept,
    Tainted,
    Trouble,
    WatchAges,
)
from rescheduler.planning.outcome import Plan, Rejected, Verdict
from rescheduler.settings import LogFormat, Logging

NOTICE: Final = 25  #: between INFO and WARNING: told at every verbosity
DETAIL: Final = 15

#: The least level that is told at each verbosity.
LEVELS: Final = (NOTICE, NOTICE, logging.INFO, DETAIL, logging.DEBUG)

FIELDS: Final = ("node", "pod", "reason")
_NAMES: Final = {NOTICE: "INFO", DETAIL: "INFO"}

log = logging.getLogger("rescheduler")


def configure(settings: Logging, stream: TextIO | None = None) -> None:
    """Send the whole program's log to *stream* (standard error) as *settings* say."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if settings.format is LogFormat.JSON else TextLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    log.setLevel(LEVELS[settings.verbosity])


class TextLines(logging.Formatter):
    """``2026-01-02T03:04:05.678Z WARNING drain failed: … node=od-1 reason=eviction-timeout``"""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        return f"{_time(record)} {_level(record)} {_message(record)}{fields}"


class JsonLines(logging.Formatter):
    """One object a line: ``time``, ``level``, ``message``, and the fields that the line has."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _time(record), "level": _level(record), "message": _message(record), **_fields(record)}
        return json.dumps(line, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _level(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno, record.levelname)


def _message(record: logging.LogRecord) -> str:
    """One line, whatever the message holds; of an exception its type and text."""
    message = " ".join(record.getMessage().split())
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        message += f": {type(error).__name__}: {' '.join(str(error).split())}"
    return message


def _fields(record: logging.LogRecord) -> Mapping[str, str]:
    found = {name: getattr(record, name, None) for name in FIELDS}
    return {name: str(value) for name, value in found.items() if value}


class Logs:
    """The listener. A node's reasons are told when they change, and every round only at verbosity 4."""

    def __init__(self) -> None:
        self._told: dict[str, object] = {}
        self._held: object = None
        self._unmatched: set[str] = set()  #: labels that were told to match no node
        self._news = logging.INFO  # what becomes of nodes is all that a dry run does, so there it is always told

    def __call__(self, event: Event) -> None:
        match event:
            case Started() | LeadershipChanged() | WatchAges() | KeptByGuards():
                self._of_process(event)
            case Observed():
                self._observed(event)
            case Held():
                self._holds(event)
            case Planned():
                self._planned(event)
            case Chosen(rejected=rejected):
                for one in rejected:
                    _verdict(one, logging.INFO)
            case Trouble(kind, detail, node):
                _say(logging.WARNING, detail, node=node, reason=kind)
            case OwedChanged():
                pass  # the reason why nothing is drained names it
            case RoundEnded(seconds=seconds, succeeded=succeeded):
                _say(logging.DEBUG, f"round {'ended' if succeeded else 'broken off'} after {seconds:.3f} s")
            case _:
                _of_node(event)

    def _of_process(self, event: ProcessEvent) -> None:
        match event:
            case Started(version, holder, address, dry_run):
                dry = ", dry run" if dry_run else ""
                self._news = NOTICE if dry_run else logging.INFO
                _say(NOTICE, f"spot-rescheduler {version} starts as {holder}{dry}, serving on http://{address}")
            case LeadershipChanged(leading):
                _say(NOTICE, "this replica leads: it acts" if leading else "this replica does not lead: it waits")
            case WatchAges():
                pass  # a metric shows them; a watch that is too old is the reason of a wait
            case KeptByGuards(nodes, complete):
                why = ", ".join(f"{count} {reason}" for reason, count in sorted(nodes.items()))
                count = f"{'' if complete else 'at least '}{sum(nodes.values())}"
                _say(
                    NOTICE,
                    f"{count} on-demand nodes stay that k8s-spot-rescheduler would drain ({why}); "
                    "--compat=k8s-spot-rescheduler drains them",
                )

    def _observed(self, event: Observed) -> None:
        counts = ", ".join(f"{len(nodes)} Ready nodes {label}" for label, nodes in event.pods.items())
        _say(DETAIL, f"the cluster has {counts}")
        for label in event.unmatched:
            if label not in self._unmatched:
                text = f"no node matches the label {label}: see --on-demand-node-label, --spot-node-label"
                _say(logging.WARNING, text)
        self._unmatched.update(event.unmatched)

    def _holds(self, event: Held) -> None:
        """At verbosity 2 once, until the reason changes."""
        level = logging.DEBUG if self._held is event.waiting else logging.INFO
        self._held = event.waiting
        _say(level, f"nothing is drained: {event.detail}", reason=event.waiting)

    def _planned(self, event: Planned) -> None:
        self._held = None
        planning = event.planning
        full = sum(1 for plan in planning.plans if plan.placements)
        for verdict in planning.verdicts:
            known = self._told.get(verdict.node)
            self._told[verdict.node] = told = _essence(verdict)
            _verdict(verdict, logging.DEBUG if known == told else self._news)
        if event.complete:
            judged = {one.node for one in planning.verdicts}
            self._told = {node: told for node, told in self._told.items() if node in judged}
        _say(
            DETAIL,
            f"judged {len(planning.verdicts)} of {planning.on_demand_nodes} on-demand nodes for "
            f"{planning.spot_nodes} spot nodes in {event.seconds:.3f} s: {full} can be emptied",
        )


def _essence(verdict: Verdict) -> object:
    """What of a verdict is news when it changes; the words of a detail may carry numbers that always do."""
    if isinstance(verdict, Plan):
        return "plan"
    return tuple(sorted({(one.reason, one.pod or "") for one in verdict.blockers}))


def _verdict(verdict: Verdict, level: int) -> None:
    match verdict:
        case Plan(node, ()):
            _say(level, "has nothing to move", node=node)
        case Plan(node, placements):
            _say(level, f"can be emptied: {len(placements)} pods fit spot nodes", node=node)
        case Rejected(node, blockers):
            for one in blockers:
                _say(level, f"stays: {one.detail}", node=node, pod=one.pod, reason=one.reason)


def _of_node(event: NodeEvent) -> None:
    match event:
        case DrainStarted(node, Plan(placements=placements)):
            where = ", ".join(f"{one.pod} to {one.node}" for one in placements)
            _say(NOTICE, f"draining, {len(placements)} pods move: {where or 'none'}", node=node)
        case DrainStarted(node):
            _say(NOTICE, "resuming the drain", node=node)
        case Tainted(node):
            _say(logging.INFO, "tainted, it takes no more pods", node=node)
        case EvictionAnswered():
            _eviction(event)
        case MachineOrdered() | MachineAnswered() | MachineGone() | RemovalPostponed():
            _machine(event)
        case DrainEnded():
            _drain_ended(event)
        case Compared(node, outcomes):
            found = ", ".join(f"{pods} {outcome}" for outcome, pods in sorted(outcomes.items()) if pods)
            _say(logging.INFO, f"replacement pods compared with the forecast: {found}", node=node)
        case CoolingDown(node, until, failures):
            text = f"left alone until {until:%Y-%m-%dT%H:%M:%SZ} after {failures} failed drains in a row"
            _say(NOTICE, text, node=node, reason="cooling-down")
        case Swept(node, holder, done):
            _say(NOTICE, f"found marks of a drain by {holder or 'nobody known'}: {done}", node=node, reason=done)
        case _:
            assert_never(event)


def _machine(event: MachineOrdered | MachineAnswered | MachineGone | RemovalPostponed) -> None:
    match event:
        case RemovalPostponed(node, failure):
            text = f"its machine may have been ordered away; it is not ordered again for now: {failure.detail}"
            _say(logging.WARNING, text, node=node, reason=failure.why)
        case MachineGone(node):
            _say(NOTICE, "its machine is going or gone, the Node is deleted", node=node)
        case MachineOrdered(node, provider, group):
            _say(NOTICE, f"empty: {provider} was asked to take its machine out of group {group}", node=node)
        case MachineAnswered(node, provider, outcome, detail):
            _say(NOTICE, f"{provider}: {outcome}{f': {detail}' if detail else ''}", node=node)


def _eviction(event: EvictionAnswered) -> None:
    level = logging.WARNING if event.result is EvictionResult.FAILED else DETAIL
    detail = f": {event.detail}" if event.detail else ""
    _say(level, f"eviction {event.result}{detail}", node=event.node, pod=event.pod, reason=event.result)


def _drain_ended(event: DrainEnded) -> None:
    after = f"after {event.seconds:.1f} s"
    if event.failure is not None:
        taint = "the taint is still on" if event.tainted else "the taint is off"
        text = f"drain failed {after}, {taint}: {event.failure.detail}"
        pod = event.failure.pods[0] if event.failure.pods else None
        _say(logging.WARNING, text, node=event.node, pod=pod, reason=event.failure.why)
    elif event.handed_over:
        _say(NOTICE, f"drained {after}; machine termination requested, not yet confirmed", node=event.node)
    elif event.unshrunk:
        text = f"drained {after}, {len(event.evicted)} pods moved; another machine comes in its place: {event.unshrunk}"
        _say(logging.WARNING, text, node=event.node)
    else:
        end = event.removed_by or (
            "its machine is going or gone, the Node is deleted" if event.removed else "it takes pods again"
        )
        _say(NOTICE, f"drained {after}, {len(event.evicted)} pods moved; {end}", node=event.node)


def _say(level: int, message: str, **fields: object) -> None:
    log.log(level, "%s", message, extra={name: str(value) for name, value in fields.items() if value})
