"""Log lines for the events of single nodes."""

import logging
from typing import assert_never

from rescheduler.draining.eviction_outcomes import EvictionResult
from rescheduler.observe.events import (
    Compared,
    CoolingDown,
    DrainEnded,
    DrainStarted,
    EvictionAnswered,
    MachineAnswered,
    MachineGone,
    MachineOrdered,
    NodeEvent,
    OrderWithheld,
    RemovalPostponed,
    RoomEnded,
    RoomEnding,
    RoomOrdered,
    Swept,
    Tainted,
)
from rescheduler.observe.log_lines import DETAIL, NOTICE, write
from rescheduler.planning.outcome import Plan
from rescheduler.planning.timestamps import utc
from rescheduler.planning.units import count


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
    after, moved = f"after {event.seconds:.1f} s", f"moved {count(len(event.evicted), 'pod')}"
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
        write(NOTICE, f"drained {after}, {moved}; {end}", node=event.node)
