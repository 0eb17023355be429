"""Log lines for events. :mod:`rescheduler.observe.logs` describes their levels and formats."""

import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TextIO, assert_never

from predicates.texts import escaped, one_line, printable, shown
from rescheduler.draining.events import EvictionResult
from rescheduler.observe.events import (
    Chosen,
    Compared,
    CoolingDown,
    DebtEnded,
    DrainEnded,
    DrainProgressed,
    DrainStarted,
    DrainWaits,
    Event,
    EvictionAnswered,
    Held,
    HistoryEvent,
    LeadershipChanged,
    MachineAnswered,
    MachineGone,
    MachineOrdered,
    MemoryDropped,
    NodeEvent,
    Observed,
    OrderWithheld,
    Overviewed,
    OwedChanged,
    OwnerSetAside,
    PauseChanged,
    PlaceholdersObserved,
    Planned,
    PodProgress,
    ProcessEvent,
    RemovalPostponed,
    RoomEnded,
    RoomEnding,
    RoomOrdered,
    RoundEnded,
    SavingsCounted,
    Started,
    SurgeEnded,
    SurgeResult,
    SurgeStarted,
    Surveyed,
    Swept,
    Tainted,
    Trouble,
    Waiting,
    WatchAges,
)
from rescheduler.planning.forms import age, count, utc
from rescheduler.planning.node_info import both_labels
from rescheduler.planning.outcome import Plan, Planning, Reason, Rejected, Verdict
from rescheduler.settings import LogFormat, Logging

# The log formats: text, or one JSON object per line. Node, pod and reason are separate fields of a line.
#
# Verbosity is as in glog: 0 logs drains and errors, 2 the results of each round, 3 every eviction, 4 everything.

NOTICE: Final = 25  #: between INFO and WARNING: logged at every verbosity
DETAIL: Final = 15

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


# Log lines for the events of single nodes.


def log_node_event(event: NodeEvent) -> None:
    """Log *event*: at every verbosity, except for taints, evictions and comparisons."""
    match event:
        case DrainStarted(node, Plan(placements=placements)):
            moves = ", ".join(f"{placement.pod} to {placement.node}" for placement in placements)
            write(NOTICE, f"draining; moving {count(len(placements), 'pod')}: {moves or 'none'}", node=node)
        case DrainStarted(node):
            write(NOTICE, "resuming the drain", node=node)
        case Tainted(node):
            write(logging.INFO, "tainted: it accepts no more pods", node=node)
        case EvictionAnswered():
            _eviction(event)
        case SurgeStarted(node, deployment, pods):
            write(NOTICE, f"rolling out Deployment {deployment} to move {count(pods, 'pod')}", node=node)
        case SurgeEnded(node, deployment, result):
            level = NOTICE if result is SurgeResult.DONE else logging.WARNING
            write(level, f"the roll-out of Deployment {deployment} has ended: {result}", node=node, reason=result)
        case MachineOrdered() | OrderWithheld() | MachineAnswered() | MachineGone() | RemovalPostponed():
            _machine(event)
        case DrainEnded():
            _drain_ended(event)
        case Compared(node, outcomes):
            counts = ", ".join(f"{pods} {outcome}" for outcome, pods in sorted(outcomes.items()) if pods)
            write(logging.INFO, f"replacement pods compared with the forecast: {counts}", node=node)
        case CoolingDown() | Swept() | RoomOrdered() | RoomEnded():
            _log_node_state(event)
        case _:
            assert_never(event)


def _log_node_state(event: CoolingDown | Swept | RoomOrdered | RoomEnded) -> None:
    match event:
        case CoolingDown(node, until, failures):
            text = f"no new attempt before {utc(until)} after {failures} consecutive failed drains"
            write(NOTICE, text, node=node, reason="cooling-down")
        case Swept(node, holder, done):
            write(NOTICE, f"found marks of a drain by {holder or 'an unknown holder'}: {done}", node=node, reason=done)
        case RoomOrdered(node, pods, nodes, template, worth, until, group):
            added = f"{count(nodes, 'new spot node')} like {template}"
            text = f"created placeholders for {count(pods, 'pod')}: expecting {added}"
            if group:
                text = f"requested {added} in group {group} from the provider for {count(pods, 'pod')}"
            end = "nodes that are not Ready" if group else "placeholders that are not running"
            action = "given back" if group else "removed"
            write(NOTICE, f"{text}; the order {worth}; {end} by {utc(until)} are {action}", node=node)
        case RoomEnded(node, ending, detail):
            level = NOTICE if ending in (RoomEnding.FILLED, RoomEnding.WITHDRAWN) else logging.WARNING
            write(level, f"the order of spot room has ended{detail and f': {detail}'}", node=node, reason=ending)


def _machine(event: MachineOrdered | OrderWithheld | MachineAnswered | MachineGone | RemovalPostponed) -> None:
    match event:
        case RemovalPostponed(node, failure):
            text = f"machine termination may have been requested before; not requested again for now: {failure.detail}"
            write(logging.WARNING, text, node=node, reason=failure.why)
        case MachineGone(node):
            write(NOTICE, "the machine is terminating or gone, and the Node was deleted", node=node)
        case MachineOrdered(node, provider, group):
            write(NOTICE, f"empty: requested termination of the machine in group {group} from {provider}", node=node)
        case OrderWithheld(node, why):
            write(logging.WARNING, f"the termination of the machine was not requested: {why}", node=node)
        case MachineAnswered(node, provider, outcome, detail):
            write(NOTICE, f"{provider}: {outcome}{f': {detail}' if detail else ''}", node=node)


def _eviction(event: EvictionAnswered) -> None:
    level = logging.WARNING if event.result is EvictionResult.FAILED else DETAIL
    detail = f": {event.detail}" if event.detail else ""
    write(level, f"eviction {event.result}{detail}", node=event.node, pod=event.pod, reason=event.result)


def _drain_ended(event: DrainEnded) -> None:
    after, moved = f"after {event.seconds:.1f} s", _moved(event)
    if event.failure is not None:
        taint = "the taint is still set" if event.tainted else "the taint was removed"
        text = f"drain failed {after}, {taint}: {event.failure.detail}"
        pod = event.failure.pods[0] if event.failure.pods else None
        write(logging.WARNING, text, node=event.node, pod=pod, reason=event.failure.why)
    elif event.handed_over:
        write(NOTICE, f"drained {after}; machine termination requested, not yet confirmed", node=event.node)
    elif event.unshrunk:
        text = f"drained {after}, {moved}; a new machine will replace it: {event.unshrunk}"
        write(logging.WARNING, text, node=event.node)
    else:
        end = event.removed_by or (
            "its machine is terminating or gone, and the Node was deleted" if event.removed else "it accepts pods again"
        )
        write(logging.WARNING if event.returned else NOTICE, f"drained {after}, {moved}; {end}", node=event.node)


#: What a drain waits for, by the state of a pod.
_WAITS_FOR: Final = {
    PodProgress.EVICTING: "its eviction",
    PodProgress.EVICTED: "its replacement to be bound to a node",
    PodProgress.BOUND: "its replacement to be Ready",
}


def _waits(event: DrainWaits) -> None:
    """Log one line for each pod that the drain waits for."""
    progress = event.progress
    for pod, state in progress.pods:
        if (what := _WAITS_FOR.get(state)) is not None:
            since, target = progress.since.get(str(pod)), progress.targets.get(str(pod))
            long = f" for {age(utc(since), event.at)}" if since is not None else ""
            planned = f"; planned to {target}" if target else ""
            write(logging.INFO, f"waiting{long} for {what}{planned}", node=progress.node, pod=pod)


def _moved(event: DrainEnded) -> str:
    pods, returned = len(event.evicted), event.returned
    if not returned:
        return f"moved {count(pods, 'pod')}"
    stay = f"moved {count(pods - returned, 'pod')}, but " if returned < pods else ""
    return f"{stay}{returned} of {count(pods, 'pod')} returned to nodes that are not spot (see --manage-soft-taint)"


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
            case OwedChanged() | PlaceholdersObserved() | Surveyed() | Overviewed() | DrainProgressed():
                pass  # included in other events
            case DrainWaits():
                _waits(event)
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
            fit = f"{count(len(placements), 'pod')} {'fits' if len(placements) == 1 else 'fit'} on spot nodes"
            write(
                level, f"can be drained: {fit}" if placements else "can be drained: it has no pods to move", node=node
            )
        case Rejected(node, blockers):
            for blocker in blockers:
                write(level, f"not drained: {blocker.detail}", node=node, pod=blocker.pod, reason=blocker.reason)
