"""Log lines for events, and the log formats: text, or one JSON object per line.

Verbosity is as in glog: 0 logs drains and errors, 2 the results of each round, 3 every eviction, 4 everything. Node,
pod and reason are separate fields of a line.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TextIO, assert_never

from rescheduler.draining.events import EvictionResult
from rescheduler.observe.events import (
    Chosen,
    Compared,
    CoolingDown,
    DrainEnded,
    DrainProgressed,
    DrainStarted,
    Event,
    EvictionAnswered,
    Held,
    KeptByGuards,
    LeadershipChanged,
    MachineAnswered,
    MachineGone,
    MachineOrdered,
    NodeEvent,
    Observed,
    OwedChanged,
    PauseChanged,
    PlaceholdersObserved,
    Planned,
    ProcessEvent,
    RemovalPostponed,
    RoomEnded,
    RoomEnding,
    RoomOrdered,
    RoundEnded,
    SavingsCounted,
    Started,
    Surveyed,
    Swept,
    Tainted,
    Trouble,
    WatchAges,
)
from rescheduler.planning.node_info import both_labels
from rescheduler.planning.outcome import Plan, Rejected, Verdict
from rescheduler.settings import LogFormat, Logging

NOTICE: Final = 25  #: between INFO and WARNING: logged at every verbosity
DETAIL: Final = 15

#: The lowest log level at each verbosity.
LEVELS: Final = (NOTICE, NOTICE, logging.INFO, DETAIL, logging.DEBUG)

FIELDS: Final = ("node", "pod", "reason")
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
        return json.dumps(line, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _level(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno, record.levelname)


def _message(record: logging.LogRecord) -> str:
    """Return the message in one line; for an exception its type and text."""
    message = " ".join(record.getMessage().split())
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        message += f": {type(error).__name__}: {' '.join(str(error).split())}"
    return message


def _fields(record: logging.LogRecord) -> Mapping[str, str]:
    values = {name: getattr(record, name, None) for name in FIELDS}
    return {name: str(value) for name, value in values.items() if value}


class Logs:
    """The listener. Verdicts are logged when they change; at verbosity 4, in every round."""

    def __init__(self) -> None:
        self._reported: dict[str, object] = {}
        self._held: object = None
        self._unmatched: set[str] = set()  #: labels that were reported to match no node
        self._overlapping = False  #: whether nodes with both labels were reported
        self._change_level = logging.INFO  # a dry run only reports verdicts, so there they are always logged

    def __call__(self, event: Event) -> None:
        match event:
            case Started() | LeadershipChanged() | PauseChanged() | WatchAges() | KeptByGuards() | SavingsCounted():
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
                _log(logging.WARNING, detail, node=node, reason=kind)
            case OwedChanged() | PlaceholdersObserved() | Surveyed() | DrainProgressed():
                pass  # included in other events
            case RoundEnded(seconds=seconds, succeeded=succeeded):
                _log(logging.DEBUG, f"round {'ended' if succeeded else 'aborted'} after {seconds:.3f} s")
            case _:
                _of_node(event)

    def _of_process(self, event: ProcessEvent) -> None:
        match event:
            case Started(version, holder, address, dry_run):
                dry = ", dry run" if dry_run else ""
                self._change_level = NOTICE if dry_run else logging.INFO
                _log(NOTICE, f"spot-rescheduler {version} starts as {holder}{dry}, serving on http://{address}")
            case LeadershipChanged(leading):
                _log(NOTICE, "this replica is the leader" if leading else "this replica is not the leader: waiting")
            case PauseChanged(paused=paused):
                _log(NOTICE, paused or "drains are no longer paused", reason="paused" if paused else "")
            case WatchAges() | SavingsCounted():
                pass  # metrics show it; a stale watch is also a reason to wait
            case KeptByGuards(nodes, complete):
                why = ", ".join(f"{count} {reason}" for reason, count in sorted(nodes.items()))
                count = f"{'' if complete else 'at least '}{sum(nodes.values())}"
                _log(
                    NOTICE,
                    f"k8s-spot-rescheduler would drain {count} more on-demand nodes ({why}); "
                    "--compat=k8s-spot-rescheduler allows that",
                )

    def _observed(self, event: Observed) -> None:
        counts = ", ".join(f"{len(nodes)} Ready nodes {label}" for label, nodes in event.pods.items())
        _log(DETAIL, f"the cluster has {counts}")
        for label in event.unmatched:
            if label not in self._unmatched:
                text = f"no node matches the label {label}: see --on-demand-node-label, --spot-node-label"
                more = f"; these flags match nodes: {event.suggestion}" if event.suggestion else ""
                _log(logging.WARNING, text + more)
        self._unmatched.update(event.unmatched)
        if event.overlapping and not self._overlapping:
            _log(logging.WARNING, both_labels(event.overlapping))
        self._overlapping = self._overlapping or bool(event.overlapping)

    def _log_held(self, event: Held) -> None:
        """Log at verbosity 2 only when the reason changes."""
        level = logging.DEBUG if self._held is event.waiting else logging.INFO
        self._held = event.waiting
        _log(level, f"nothing is drained: {event.detail}", reason=event.waiting)

    def _planned(self, event: Planned) -> None:
        self._held = None
        planning = event.planning
        full = sum(1 for plan in planning.plans if plan.placements)
        for verdict in planning.verdicts:
            known = self._reported.get(verdict.node)
            self._reported[verdict.node] = content = _significant_part(verdict)
            _verdict(verdict, logging.DEBUG if known == content else self._change_level)
        if event.complete:
            judged = {verdict.node for verdict in planning.verdicts}
            self._reported = {node: content for node, content in self._reported.items() if node in judged}
        _log(
            DETAIL,
            f"planned {len(planning.verdicts)} of {planning.on_demand_nodes} on-demand nodes for "
            f"{planning.spot_nodes} spot nodes in {event.seconds:.3f} s: {full} can be drained",
        )


def _significant_part(verdict: Verdict) -> object:
    """Return what must change for a verdict to be logged again.

    Details are ignored: they may contain changing numbers.
    """
    if isinstance(verdict, Plan):
        return "plan"
    return tuple(sorted({(blocker.reason, blocker.pod or "") for blocker in verdict.blockers}))


def _verdict(verdict: Verdict, level: int) -> None:
    match verdict:
        case Plan(node, ()):
            _log(level, "has no pods to move", node=node)
        case Plan(node, placements):
            _log(level, f"can be drained: {len(placements)} pods fit on spot nodes", node=node)
        case Rejected(node, blockers):
            for blocker in blockers:
                _log(level, f"not drained: {blocker.detail}", node=node, pod=blocker.pod, reason=blocker.reason)


def _of_node(event: NodeEvent) -> None:
    match event:
        case DrainStarted(node, Plan(placements=placements)):
            moves = ", ".join(f"{placement.pod} to {placement.node}" for placement in placements)
            _log(NOTICE, f"draining, {len(placements)} pods move: {moves or 'none'}", node=node)
        case DrainStarted(node):
            _log(NOTICE, "resuming the drain", node=node)
        case Tainted(node):
            _log(logging.INFO, "tainted, it accepts no more pods", node=node)
        case EvictionAnswered():
            _eviction(event)
        case MachineOrdered() | MachineAnswered() | MachineGone() | RemovalPostponed():
            _machine(event)
        case DrainEnded():
            _drain_ended(event)
        case Compared(node, outcomes):
            counts = ", ".join(f"{pods} {outcome}" for outcome, pods in sorted(outcomes.items()) if pods)
            _log(logging.INFO, f"replacement pods compared with the forecast: {counts}", node=node)
        case CoolingDown() | Swept() | RoomOrdered() | RoomEnded():
            _after(event)
        case _:
            assert_never(event)


def _after(event: CoolingDown | Swept | RoomOrdered | RoomEnded) -> None:
    match event:
        case CoolingDown(node, until, failures):
            text = f"no new attempt before {until:%Y-%m-%dT%H:%M:%SZ} after {failures} consecutive failed drains"
            _log(NOTICE, text, node=node, reason="cooling-down")
        case Swept(node, holder, done):
            _log(NOTICE, f"found marks of a drain by {holder or 'an unknown holder'}: {done}", node=node, reason=done)
        case RoomOrdered(node, pods, nodes, template, worth, until, group):
            text = f"created placeholders for {pods} pods: expecting {nodes} new spot nodes like {template}"
            if group:
                text = f"asked the provider for {nodes} spot nodes like {template} in group {group} for {pods} pods"
            end = "are not Ready" if group else "do not run"
            _log(NOTICE, f"{text}; it {worth}; they are removed if they {end} by {until:%Y-%m-%dT%H:%M:%SZ}", node=node)
        case RoomEnded(node, ending, detail):
            level = NOTICE if ending in (RoomEnding.FILLED, RoomEnding.WITHDRAWN) else logging.WARNING
            _log(level, f"the order of spot room has ended{detail and f': {detail}'}", node=node, reason=ending)


def _machine(event: MachineOrdered | MachineAnswered | MachineGone | RemovalPostponed) -> None:
    match event:
        case RemovalPostponed(node, failure):
            text = f"machine termination may have been requested before; not requested again for now: {failure.detail}"
            _log(logging.WARNING, text, node=node, reason=failure.why)
        case MachineGone(node):
            _log(NOTICE, "its machine is terminating or gone, the Node was deleted", node=node)
        case MachineOrdered(node, provider, group):
            _log(NOTICE, f"empty: requested termination of the machine in group {group} from {provider}", node=node)
        case MachineAnswered(node, provider, outcome, detail):
            _log(NOTICE, f"{provider}: {outcome}{f': {detail}' if detail else ''}", node=node)


def _eviction(event: EvictionAnswered) -> None:
    level = logging.WARNING if event.result is EvictionResult.FAILED else DETAIL
    detail = f": {event.detail}" if event.detail else ""
    _log(level, f"eviction {event.result}{detail}", node=event.node, pod=event.pod, reason=event.result)


def _drain_ended(event: DrainEnded) -> None:
    after = f"after {event.seconds:.1f} s"
    if event.failure is not None:
        taint = "the taint is still set" if event.tainted else "the taint was removed"
        text = f"drain failed {after}, {taint}: {event.failure.detail}"
        pod = event.failure.pods[0] if event.failure.pods else None
        _log(logging.WARNING, text, node=event.node, pod=pod, reason=event.failure.why)
    elif event.handed_over:
        _log(NOTICE, f"drained {after}; machine termination requested, not yet confirmed", node=event.node)
    elif event.unshrunk:
        text = f"drained {after}, {len(event.evicted)} pods moved; a new machine will replace it: {event.unshrunk}"
        _log(logging.WARNING, text, node=event.node)
    else:
        end = event.removed_by or (
            "its machine is terminating or gone, the Node was deleted" if event.removed else "it accepts pods again"
        )
        _log(NOTICE, f"drained {after}, {len(event.evicted)} pods moved; {end}", node=event.node)


def _log(level: int, message: str, **fields: object) -> None:
    log.log(level, "%s", message, extra={name: str(value) for name, value in fields.items() if value})
