"""Drains played through as (time, event, expected actions), and the parts that stories begin and end with."""

from typing import TypeAlias

from rescheduler.draining import machine
from rescheduler.draining.intent import Step
from rescheduler.draining.messages import (
    Action,
    Event,
    Evict,
    EvictionAccepted,
    LookAgain,
    Looked,
    Mark,
    Marked,
    OrderRemoval,
    ProviderAnswered,
    Release,
    Released,
    Seen,
)
from rescheduler.draining.state import Drain, Limits, Result
from rescheduler.planning.outcome import Blocker, Placement, Plan, PodRef, Reason, Rejected

A, B, C = (PodRef("ns", name, name) for name in "abc")
LIMITS = Limits(eviction=120, grace=60, headroom=30, removal=100, release=20)
PLAN = Plan("od", (Placement(A, "s1"), Placement(B, "s2", grace_period=10)))
EMPTY = Plan("od", ())
NO_ROOM = Rejected("od", (Blocker(Reason.NO_ROOM, "Insufficient cpu", "ns/a"), Blocker(Reason.BUDGET, "x")))

Story: TypeAlias = list[tuple[float, Event, tuple[Action, ...]]]

MARK = Mark(Step.DRAINING, ("a", "b"))
OPENING: Story = [
    (0, ProviderAnswered(None), (MARK,)),
    (1, Marked(), (LookAgain(),)),
    (2, Looked(PLAN), (Evict(A), Evict(B))),
]
TAKEN: Story = [(0, ProviderAnswered("pool"), (MARK,)), *OPENING[1:]]
ACCEPTED: Story = [(3, EvictionAccepted("a"), ()), (3, EvictionAccepted("b"), ())]
EMPTIED: Story = [(5, Seen(frozenset()), (LookAgain(),))]
OFF: Story = [(90, Released(), ())]
LEFT: Story = [(6, Looked(EMPTY), (Release(),)), (7, Released(), ())]
ORDERED: Story = [
    (6, Looked(EMPTY), (Mark(Step.REMOVING, group="pool"),)),
    (7, Marked(), (OrderRemoval("pool"),)),
]


def seen(*uids: str) -> Seen:
    return Seen(frozenset(uids))


def play(begun: Result, story: Story) -> Drain:
    drain, _ = begun
    for now, event, expected in story:
        drain, actions = machine.step(drain, event, now)
        assert actions == expected, (now, event)
    return drain
