"""Tests of the table of phases, events and next phases, and of its page."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from itertools import chain, product
from random import Random
from typing import get_args, get_origin

import pytest

from rescheduler.draining import transitions
from rescheduler.draining.actions import Evict, TryEviction
from rescheduler.draining.events import DrainEvent, ProviderAnswered, kind_name, kind_of
from rescheduler.draining.state import Drain, Phase
from rescheduler.draining.transitions import (
    EVICTIONS_SENT,
    STARTS,
    TABLE,
    TransitionRule,
    UnexpectedEvent,
    UnexpectedPhase,
)
from tests.draining.diagram import PAGE, drawn
from tests.draining.test_any_events import BEGINNINGS, Events, Trace

#: All kinds of events: the last phase ignores them.
KINDS = tuple(TABLE[Phase.DONE])

#: Drains for each phase, and samples of each event.
DRAINS, SAMPLES = 30, 12


@cache
def traces() -> list[Trace]:
    return [Events(Random(seed)).trace(beginning) for beginning in BEGINNINGS for seed in range(100)]


@cache
def drains() -> Mapping[Phase, list[Drain]]:
    """Return drains that are in each phase, from random runs."""
    reached: defaultdict[Phase, list[Drain]] = defaultdict(list)
    for trace in traces():
        for before, _, after, _ in trace:
            reached[before.phase].append(before)
            if after.done:
                reached[after.phase].append(after)
    return {phase: Random(0).choices(there, k=DRAINS) for phase, there in reached.items()}


@cache
def samples() -> Mapping[type, list[DrainEvent]]:
    """Return random events of each type."""
    random = Events(Random(0))
    events_by_type: defaultdict[type, list[DrainEvent]] = defaultdict(list)
    while any(len(events_by_type[kind]) < SAMPLES for kind in KINDS):
        event = random.any()
        events_by_type[kind_of(event)].append(event)
    return {kind: events[:SAMPLES] for kind, events in events_by_type.items()}


@pytest.mark.parametrize("phase", Phase)
def test_every_event_is_handled_or_ignored_or_raises(phase: Phase) -> None:
    for drain, kind in product(drains()[phase], KINDS):
        rule = TABLE[phase].get(kind)
        for event in samples()[kind]:
            if rule is None:
                with pytest.raises(
                    UnexpectedEvent, match=f"the phase {phase.name} does not accept .* {kind_name(kind)}"
                ):
                    transitions.step(drain, event, 1e4)
            elif rule.handler is None:
                assert transitions.step(drain, event, 1e4) == (drain, ())
            else:
                assert transitions.step(drain, event, 1e4)[0].phase in {phase, *rule.next}


def test_a_phase_change_outside_the_table_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    drain, _ = BEGINNINGS["a drain"]
    ordering = drains()[Phase.ORDERING][0]
    to_ordering = TransitionRule(lambda *_: (ordering, ()))
    monkeypatch.setattr(transitions, "rule_for", lambda *_: to_ordering)
    with pytest.raises(UnexpectedPhase, match="ProviderAnswered must not change the phase ASKING to ORDERING"):
        transitions.step(drain, ProviderAnswered("pool"), 0)


def test_every_phase_change_of_the_table_occurs() -> None:
    """A permitted change that never occurs could hide a bug."""
    changes = {(before.phase, after.phase) for trace in traces() for before, _, after, _ in trace}
    for phase, rules in TABLE.items():
        for drain, event in product(drains()[phase], chain.from_iterable(samples()[kind] for kind in rules)):
            changes.add((phase, transitions.step(drain, event, 1e4)[0].phase))
    permitted = {(phase, after) for phase, rules in TABLE.items() for rule in rules.values() for after in rule.next}
    assert permitted == changes & permitted


def test_evictions_are_requested_only_in_phases_that_send_them() -> None:
    requests = {
        after.phase
        for trace in traces()
        for _, _, after, actions in trace
        if any(isinstance(action, Evict | TryEviction) for action in actions)
    }
    assert requests == EVICTIONS_SENT


def test_the_final_phase_ignores_every_event() -> None:
    """Each event is handled or ignored in some phase, so the last one knows it."""
    known, events = ({get_origin(kind) or kind for kind in kinds} for kinds in (KINDS, get_args(DrainEvent)))
    assert known == events
    assert set(TABLE[Phase.DONE].values()) == {TransitionRule()}


def test_every_start_is_tested() -> None:
    assert all(callable(getattr(transitions, name)) for name in STARTS)
    assert {drain.phase for drain, _ in BEGINNINGS.values()} - set(STARTS.values()) == {
        Phase.DELETING,
        Phase.SURGE_NOTING,
    }


def test_the_page_shows_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert drawn(page) == page, "run python -m tests.draining.diagram"
    assert all(f"| {phase.name} | " in page.partition("## Events")[0] for phase in Phase)
