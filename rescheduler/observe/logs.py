"""Log lines for events. :mod:`rescheduler.observe.logs` describes their levels and formats."""

import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TextIO

from predicates.texts import escaped, one_line, printable, shown
from rescheduler.observe.events import DETAIL, NOTICE, Chosen, Event, Held, Observed, Planned, Started, Trouble, Waiting
from rescheduler.planning.forms import count, utc
from rescheduler.planning.node_info import both_labels
from rescheduler.planning.outcome import Plan, Planning, Reason, Rejected, Verdict
from rescheduler.settings import LogFormat, Logging

# The log formats: text, or one JSON object per line. Node, pod and reason are separate fields of a line.
#
# Verbosity is as in glog: 0 logs drains and errors, 2 the results of each round, 3 every eviction, 4 everything.

#: The lowest log level at each verbosity.
LEVELS: Final = (NOTICE, NOTICE, logging.INFO, DETAIL, logging.DEBUG)

FIELDS: Final = ("node", "pod", "reason")
#: A namespace, a slash and a name.
LONGEST_FIELD: Final = 320
_NAMES: Final = {NOTICE: "INFO", DETAIL: "INFO"}

log = logging.getLogger("rescheduler")


def configure(settings: Logging, stream: TextIO | None = None) -> None:
    """Send the program's log to *stream* (default: standard error) in the format and verbosity of *settings*."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if settings.format is LogFormat.JSON else TextLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    log.setLevel(LEVELS[settings.verbosity])


class TextLines(logging.Formatter):
    """The text format: ``2026-01-02T03:04:05.678Z WARNING drain failed: … node=od-1 reason=eviction-timeout``."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        return f"{_time(record)} {_level(record)} {_message(record)}{fields}"


class JsonLines(logging.Formatter):
    """The JSON format: one object per line with ``time``, ``level``, ``message`` and the line's fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _time(record), "level": _level(record), "message": _message(record), **_fields(record)}
        return escaped(json.dumps(line, ensure_ascii=False))


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _level(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno, record.levelname)


def _message(record: logging.LogRecord) -> str:
    """Return the message in one line; for an exception its type and text."""
    message = " ".join(record.getMessage().split())
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        message += f": {type(error).__name__}: {one_line(str(error))}"
    return printable(message)


def _fields(record: logging.LogRecord) -> Mapping[str, str]:
    values = {name: getattr(record, name, None) for name in FIELDS}
    return {name: shown(str(value), LONGEST_FIELD) for name, value in values.items() if value}


def write(level: int, message: str, **fields: object) -> None:
    """Log *message* at *level*; *fields* are some of :data:`FIELDS`, and empty ones are omitted."""
    log.log(level, "%s", message, extra={name: str(value) for name, value in fields.items() if value})


_NUMBER: Final = re.compile(r"\d+")


class Logs:
    """A listener that writes log lines. Verdicts are logged when they change; at verbosity 4, in every round."""

    def __init__(self) -> None:
        self._reported: dict[str, object] = {}
        self._planning: Planning | None = None  #: the last one
        self._held: tuple[Waiting, str] | None = None
        self._trouble: Trouble | None = None  #: the last one: the same error in every round is one line
        self._unmatched: set[str] = set()  #: labels that were reported to match no node
        self._had_nodes: set[str] = set()  #: labels that matched nodes in the last round
        self._overlapping = False  #: whether nodes with both labels were reported
        self._change_level = logging.INFO  # a dry run only reports verdicts, so there they are always logged

    def __call__(self, event: Event) -> None:
        match event:
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
            case Started(dry_run=dry_run):
                self._change_level = NOTICE if dry_run else logging.INFO
        for line in event.log_lines():
            write(line.level, line.text, node=line.node, pod=line.pod, reason=line.reason)

    def _observed(self, event: Observed) -> None:
        counts = ", ".join(
            f"{count(len(nodes), 'Ready node')} with label {label}" for label, nodes in event.pods.items()
        )
        write(DETAIL, f"the cluster has {counts}")
        settling = {state.name: state.settling for state in event.pools}
        for pool, nodes in event.lost.items():
            until = settling.get(pool)
            wait = f"; its room does not count for plans before {utc(until)}" if until is not None else ""
            write(NOTICE, f"spot pool {pool} lost {count(nodes, 'node')}{wait}", reason=Reason.SPOT_POOL_SETTLING)
        on_demand = next(iter(event.pods), "")  # the first of the two labels
        for label in event.unmatched:
            if label == on_demand and label in self._had_nodes:
                write(NOTICE, f"no node with the label {label} is left: there is nothing to drain any more")
            elif label not in self._unmatched:
                text = f"no node matches the label {label}: see --on-demand-node-label, --spot-node-label"
                suggestion = f"; these flags match nodes: {event.suggestion}" if event.suggestion else ""
                write(logging.WARNING, text + suggestion)
        self._unmatched.update(event.unmatched)
        self._had_nodes = {label for label, nodes in event.pods.items() if nodes}
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
            where = f"spot nodes{verdict.with_leftovers}"
            fit = f"{count(len(placements), 'pod')} {'fits' if len(placements) == 1 else 'fit'} on {where}"
            write(
                level, f"can be drained: {fit}" if placements else "can be drained: it has no pods to move", node=node
            )
        case Rejected(node, blockers):
            for blocker in blockers:
                write(level, f"not drained: {blocker.detail}", node=node, pod=blocker.pod, reason=blocker.reason)
