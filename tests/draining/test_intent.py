"""Tests of the annotation and the taint on a node that is being drained."""

from datetime import UTC, datetime, timedelta

import pytest

from predicates.objects import Node, NodeSpec, ObjectMeta, Taint
from predicates.snapshot import DRAIN_TAINT
from rescheduler.draining import actions
from rescheduler.draining.actions import ANNOTATION, Intent, Step
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt

DEBT = Debt(Controller("ns", "Deployment", "web", "uid"), 2, 3, "digest", 4, ("rs-1", "rs-2"))
SINCE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def node(annotation: str | None = None, *taints: Taint) -> Node:
    annotations = {} if annotation is None else {ANNOTATION: annotation}
    return Node(metadata=ObjectMeta(name="od", annotations=annotations), spec=NodeSpec(taints=taints))


@pytest.mark.parametrize(
    "written",
    [
        Intent("me", Step.DRAINING, SINCE, ("uid-1", "uid-2")),
        Intent("me", Step.REMOVING, SINCE, group="pool"),
        Intent("me", Step.DRAINING, SINCE, until=SINCE + timedelta(hours=1)),
        Intent("me", Step.DRAINING, SINCE, identity="kube-system/spot-rescheduler", debts=(DEBT,)),
        Intent("me", Step.REMOVING, SINCE, group="pool", debts=(DEBT, Debt(DEBT.controller, 0, 1))),
    ],
)
def test_a_written_mark_is_read_unchanged(written: Intent) -> None:
    assert actions.read(node(written.dump())) == written


def test_a_mark_of_version_0_1_0_is_parsed() -> None:
    """Such a mark has neither an installation nor debts. Fields of later versions are ignored."""
    text = '{"holder":"me","step":"removing","since":"2026-01-02T03:04:05Z","group":"pool","later":{"x":1}}'
    assert actions.read(node(text)) == Intent("me", Step.REMOVING, SINCE, group="pool")


def test_the_format_is_readable() -> None:
    text = Intent("me", Step.DRAINING, SINCE, ("uid-1",)).dump()
    assert text == '{"holder":"me","step":"draining","since":"2026-01-02T03:04:05.000000Z","pods":["uid-1"]}'


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        '{"holder":"me"}',
        '{"holder":"me","step":"x","since":"2026"}',
        '{"holder":"me","step":"draining","since":"some day"}',
        '{"holder":"me","step":"draining","since":"2026-01-02T03:04:05Z","x":' + "[" * 10_000 + "]" * 10_000 + "}",
        '{"holder":"me","step":"removing","since":"9999-12-31T23:59:59Z"}',
        '{"holder":"me","step":"draining","since":"2026-01-02T03:04:05Z","until":"some day"}',
        '{"holder":"me","step":"draining","since":"2026-01-02T03:04:05Z","until":"9999-12-31T23:59:59Z"}',
        '{"holder":"me","step":"draining","since":"2026-01-02T03:04:05Z","debts":[{"ready":1,"bound":1}]}',
        '{"holder":"me","step":"draining","since":"2026-01-02T03:04:05Z","debts":{}}',
    ],
)
def test_invalid_marks_are_ignored(text: str | None) -> None:
    assert actions.read(node(text)) is None


def test_a_time_without_a_zone_is_utc() -> None:
    read = actions.read(node('{"holder":"me","step":"draining","since":"2026-01-02T03:04:05"}'))
    assert read == Intent("me", Step.DRAINING, SINCE)


@pytest.mark.parametrize(
    ("until", "lapsed"), [(None, False), (SINCE, False), (SINCE - timedelta(microseconds=1), True)]
)
def test_an_expired_lease_means_that_the_holder_has_stopped(until: datetime | None, lapsed: bool) -> None:
    assert Intent("me", Step.DRAINING, SINCE, until=until).lapsed(SINCE) is lapsed


@pytest.mark.parametrize(
    ("holder", "value"),
    [("pod-1_ab12", "pod-1_ab12"), ("host/1:é", "host-1"), ("x" * 62 + "--", "x" * 62), ("", "")],
)
def test_the_taint_value_is_the_holder_in_label_syntax(holder: str, value: str) -> None:
    assert actions.taint(holder) == Taint(key=DRAIN_TAINT.key, effect="NoSchedule", value=value)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (node(), False),
        (node(None, Taint(key="other", effect="NoSchedule")), False),
        (node(None, actions.taint("me")), True),
        (node("broken"), True),
    ],
)
def test_a_taint_or_an_annotation_marks_a_node(marked: Node, expected: bool) -> None:
    assert actions.is_marked(marked) is expected
