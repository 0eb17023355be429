"""Tests of log lines: the verbosity of each event, and the format."""

import datetime as dt
import io
import json
import logging
from dataclasses import replace

import pytest

from rescheduler.draining.events import EvictionResult
from rescheduler.draining.state import Failure, Why
from rescheduler.observe.events import (
    Compared,
    CoolingDown,
    DrainStarted,
    ErrorKind,
    Event,
    EvictionAnswered,
    Held,
    InvolvedLease,
    LeadershipChanged,
    MachineAnswered,
    MachineGone,
    MachineOrdered,
    Observed,
    OwedChanged,
    PauseChanged,
    RemovalPostponed,
    RoomEnded,
    RoomEnding,
    RoomOrdered,
    RoundEnded,
    Started,
    SurgeEnded,
    SurgeResult,
    SurgeStarted,
    Sweep,
    Swept,
    Tainted,
    Trouble,
    Waiting,
    WatchAges,
)
from rescheduler.observe.logs import Logs, configure
from rescheduler.planning.outcome import Plan
from rescheduler.settings import LogFormat, Logging
from tests.observe.builders import BLOCKED, NOW, OD, PLAN, WEB, ended, observed, planned

LEASE = InvolvedLease("kube-system", "k8s-spot-rescheduler", "uid-lease")


def logged(*events: Event, verbosity: int = 2) -> list[str]:
    """Return the log lines without the time."""
    stream = io.StringIO()
    configure(Logging(verbosity), stream)
    listener = Logs()
    for event in events:
        listener(event)
    return [line.partition(" ")[2] for line in stream.getvalue().splitlines()]


LINES: dict[str, tuple[Event, int, list[str]]] = {
    "the start": (
        Started("1.2", "me", "localhost:9235", dry_run=True),
        0,
        ["INFO spot-rescheduler 1.2 starts as me, dry run, serving on http://localhost:9235"],
    ),
    "the leader": (LeadershipChanged(leading=True), 0, ["INFO this replica is the leader"]),
    "what blocks a node": (
        planned(BLOCKED),
        2,
        [
            "INFO not drained: no <b>controller</b> recreates it node=od-2 pod=default/bare reason=no-controller",
            "INFO not drained: 0 of 1 node=od-2 pod=default/db-1 reason=pod-disruption-budget",
        ],
    ),
    "a node that can be drained": (planned(PLAN), 2, ["INFO can be drained: 1 pod fits on spot nodes node=od-1"]),
    "a drain": (DrainStarted(OD, PLAN), 0, ["INFO draining; moving 1 pod: default/web-1 to spot-1 node=od-1"]),
    "a resumed drain": (DrainStarted(OD, None), 0, ["INFO resuming the drain node=od-1"]),
    "the taint": (Tainted(OD), 2, ["INFO tainted: it accepts no more pods node=od-1"]),
    "a roll-out": (
        SurgeStarted(OD, "web/api", 1), 0, ["INFO rolling out Deployment web/api to move 1 pod node=od-1"],
    ),
    "its end": (
        SurgeEnded(OD, "web/api", SurgeResult.DONE),
        0,
        ["INFO the roll-out of Deployment web/api has ended: done node=od-1 reason=done"],
    ),
    "an undone roll-out": (
        SurgeEnded(OD, "web/api", SurgeResult.ROLLED_BACK),
        0,
        ["WARNING the roll-out of Deployment web/api has ended: rolled-back node=od-1 reason=rolled-back"],
    ),
    "an eviction": (
        EvictionAnswered(OD, WEB, EvictionResult.REFUSED, "would violate web"),
        3,
        ["INFO eviction refused: would violate web node=od-1 pod=default/web-1 reason=refused"],
    ),
    "a failed eviction": (
        EvictionAnswered(OD, WEB, EvictionResult.FAILED, "forbidden"),
        0,
        ["WARNING eviction failed: forbidden node=od-1 pod=default/web-1 reason=failed"],
    ),
    "the end": (ended(), 0, ["INFO drained after 12.5 s, moved 1 pod; it accepts pods again node=od-1"]),
    "a removed machine that will be replaced": (
        replace(ended(), removed=True, unshrunk="502: no"),
        0,
        ["WARNING drained after 12.5 s, moved 1 pod; a new machine will replace it: 502: no node=od-1"],
    ),
    "a failure": (
        ended(Why.EVICTION_TIMEOUT),
        0,
        [
            (
                "WARNING drain failed after 12.5 s, the taint was removed: it took too long "
                "node=od-1 pod=default/web-1 reason=eviction-timeout"
            )
        ],
    ),
    "a cool-down": (
        CoolingDown(OD, NOW, 2),
        0,
        [
            ("INFO no new attempt before 2026-01-01T12:00:00Z after 2 consecutive failed drains "
            "node=od-1 reason=cooling-down")
        ],
    ),
    "a pause": (PauseChanged(LEASE, "drains are paused"), 0, ["INFO drains are paused reason=paused"]),
    "the end of a pause": (PauseChanged(LEASE, ""), 0, ["INFO drains are no longer paused"]),
    "marks": (
        Swept(OD, "", Sweep.ROLLED_BACK),
        0,
        ["INFO found marks of a drain by an unknown holder: rolled-back node=od-1 reason=rolled-back"],
    ),
    "an order of room": (
        RoomOrdered(OD, 4, 2, "spot-1", "frees 4 vCPU and adds 4", NOW),
        0,
        [
            (
                "INFO created placeholders for 4 pods: expecting 2 new spot nodes like spot-1; the order frees 4 "
                "vCPU and adds 4; placeholders that are not running by 2026-01-01T12:00:00Z are removed node=od-1"
            )
        ],
    ),
    "an order of spot nodes": (
        RoomOrdered(OD, 4, 2, "spot-1", "frees 4 vCPU and adds 4", NOW, "pool"),
        0,
        [
            (
                "INFO requested 2 new spot nodes like spot-1 in group pool from the provider for 4 pods; the order "
                "frees 4 vCPU and adds 4; nodes that are not Ready by 2026-01-01T12:00:00Z are given back node=od-1"
            )
        ],
    ),
    "room that was filled": (
        RoomEnded(OD, RoomEnding.FILLED, ""),
        0,
        ["INFO the order of spot room has ended node=od-1 reason=filled"],
    ),
    "room that did not come": (
        RoomEnded(OD, RoomEnding.TIMED_OUT, "1 of 4 run"),
        0,
        ["WARNING the order of spot room has ended: 1 of 4 run node=od-1 reason=timed-out"],
    ),
    "a termination request": (
        MachineOrdered(OD, "pool", "g"),
        0,
        ["INFO empty: requested termination of the machine in group g from pool node=od-1"],
    ),
    "a termination requested by an earlier drain": (
        MachineGone(OD),
        0,
        ["INFO the machine is terminating or gone, and the Node was deleted node=od-1"],
    ),
    "a postponed termination request": (
        RemovalPostponed(OD, Failure(Why.PLAN_CHANGED, "the plan is no longer valid: no-controller: pod a/b")),
        0,
        [
            (
                "WARNING machine termination may have been requested before; not requested again for now: the plan "
                "is no longer valid: no-controller: pod a/b node=od-1 reason=plan-changed"
            )
        ],
    ),
    "the response to it": (MachineAnswered(OD, "pool", "deleted", ""), 0, ["INFO pool: deleted node=od-1"]),
    "a machine whose termination is not confirmed": (
        replace(ended(), handed_over=True, tainted=True),
        0,
        ["INFO drained after 12.5 s; machine termination requested, not yet confirmed node=od-1"],
    ),
    "a machine that is gone": (
        replace(ended(), removed=True),
        0,
        [
            (
                "INFO drained after 12.5 s, moved 1 pod; its machine is terminating or gone, and the Node was deleted "
                "node=od-1"
            )
        ],
    ),
    "a drain whose pods returned": (
        replace(ended(), returned=1),
        0,
        [
            (
                "WARNING drained after 12.5 s, 1 of 1 pod returned to nodes that are not spot "
                "(see --manage-soft-taint); it accepts pods again node=od-1"
            )
        ],
    ),
    "a drain of which a pod returned": (
        replace(ended(), evicted=(WEB, WEB, WEB), returned=1),
        0,
        [
            (
                "WARNING drained after 12.5 s, moved 2 pods, but 1 of 3 pods returned to nodes that are not spot "
                "(see --manage-soft-taint); it accepts pods again node=od-1"
            )
        ],
    ),
    "a node that another tool is removing": (
        replace(ended(), removed_by="another tool is removing it (a taint)"),
        0,
        ["INFO drained after 12.5 s, moved 1 pod; another tool is removing it (a taint) node=od-1"],
    ),
    "a node that stays tainted": (
        replace(ended(Why.INTERNAL_ERROR), tainted=True),
        0,
        [
            (
                "WARNING drain failed after 12.5 s, the taint is still set: it took too long "
                "node=od-1 pod=default/web-1 reason=internal-error"
            )
        ],
    ),
    "the landing of the pods": (
        Compared("od-1", {"as-forecast": 2, "on-demand": 1, "missing": 0}, 1),
        2,
        ["INFO replacement pods compared with the forecast: 2 as-forecast, 1 on-demand node=od-1"],
    ),
    "trouble": (Trouble(ErrorKind.WRITE, "no answer", "od-1"), 0, ["WARNING no answer node=od-1 reason=write"]),
    "a wait": (
        Held(Waiting.DRAIN_DELAY, "the drain delay runs"),
        2,
        ["INFO nothing is drained: the drain delay runs reason=drain-delay"],
    ),
    "the nodes": (
        observed("a"),
        3,
        [
            ("INFO the cluster has 1 Ready node with label node-role.kubernetes.io/worker, "
            "1 Ready node with label node-role.kubernetes.io/spot-worker")
        ],
    ),
    "a round": (RoundEnded(NOW, 0.25, succeeded=True), 4, ["DEBUG round ended after 0.250 s"]),
}  # fmt: skip


@pytest.mark.parametrize(("event", "verbosity", "lines"), LINES.values(), ids=LINES)
def test_an_event_is_logged_at_its_verbosity(event: Event, verbosity: int, lines: list[str]) -> None:
    """Each line is logged at its verbosity, and not below it."""
    assert logged(event, verbosity=verbosity)[: len(lines)] == lines
    if verbosity > 1:
        assert logged(event, verbosity=verbosity - 1 if verbosity > 2 else 0) == []


@pytest.mark.parametrize("why", Why)
def test_each_cause_of_a_failed_drain_is_logged(why: Why) -> None:
    [line] = logged(ended(why), verbosity=0)
    assert line.endswith(f"it took too long node=od-1 pod=default/web-1 reason={why}")


@pytest.mark.parametrize("waiting", Waiting)
def test_each_wait_is_logged_with_its_reason(waiting: Waiting) -> None:
    assert logged(Held(waiting, "for a reason")) == [f"INFO nothing is drained: for a reason reason={waiting}"]


def test_events_for_metrics_only_are_not_logged() -> None:
    assert logged(OwedChanged(3), WatchAges({"Pod": 1.0}), verbosity=4) == []


def test_reasons_are_logged_when_they_change() -> None:
    assert len(logged(planned(BLOCKED), planned(BLOCKED))) == 2
    assert len(logged(planned(BLOCKED), planned(PLAN), planned(BLOCKED))) == 5


def test_a_dry_run_logs_verdicts_at_every_verbosity() -> None:
    lines = logged(Started("1.2", "me", "x:1", dry_run=True), planned(PLAN, Plan("od-3", ())), verbosity=0)
    assert lines[1:] == [
        "INFO can be drained: 1 pod fits on spot nodes node=od-1",
        "INFO has no pods to move node=od-3",
    ]


def test_a_wait_is_logged_once() -> None:
    waits = [Held(Waiting.DRAIN_DELAY, "600 s more"), Held(Waiting.DRAIN_DELAY, "590 s more")]
    assert len(logged(*waits)) == 1
    assert len(logged(*waits, Held(Waiting.PENDING_PODS, "x"))) == 2


def test_another_detail_of_the_same_wait_is_logged() -> None:
    """Otherwise a missing permission would stay unknown if the cluster was not read yet before."""
    waits = [Held(Waiting.NOT_SYNCED, "not read yet: Pod"), Held(Waiting.NOT_SYNCED, "get jobs: forbidden")]
    assert [line.partition(" reason=")[0] for line in logged(*waits, waits[1])] == [
        "INFO nothing is drained: not read yet: Pod",
        "INFO nothing is drained: get jobs: forbidden",
    ]


def test_a_label_that_no_node_has_is_reported_once() -> None:
    """The line is logged at every verbosity, but not again: a pool may be empty from time to time."""
    none = Observed(dt.datetime(2026, 1, 1, tzinfo=dt.UTC), {}, frozenset(), {}, unmatched=("role=spot",))
    some = replace(none, unmatched=())
    lines = logged(none, none, some, none, verbosity=0)
    text = "WARNING no node matches the label role=spot: see --on-demand-node-label, --spot-node-label"
    assert lines == [text]
    suggestion = "--on-demand-node-label=a --spot-node-label=b (EKS: 1 on-demand, 2 spot nodes)"
    lines = logged(replace(none, suggestion=suggestion), verbosity=0)
    assert lines == [f"{text}; these flags match nodes: {suggestion}"]


def test_nodes_with_both_labels_are_reported_once() -> None:
    both = Observed(dt.datetime(2026, 1, 1, tzinfo=dt.UTC), {}, frozenset(), {}, overlapping=("a", "b"))
    lines = logged(both, replace(both, overlapping=()), both, verbosity=0)
    assert lines == [
        "WARNING 2 nodes, for example a, match both --on-demand-node-label and --spot-node-label: treated as spot"
    ]


def test_json_lines_have_fields() -> None:
    stream = io.StringIO()
    configure(Logging(2, LogFormat.JSON), stream)
    Logs()(ended(Why.STOPPED))
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "WARNING",
        "message": "drain failed after 12.5 s, the taint was removed: it took too long",
        "node": "od-1",
        "pod": "default/web-1",
        "reason": "stopped",
    }


@pytest.mark.parametrize("form", LogFormat)
def test_our_errors_are_one_line(form: LogFormat) -> None:
    stream = io.StringIO()
    configure(Logging(0, form), stream)
    try:
        int("two\nlines")
    except ValueError:
        logging.getLogger("rescheduler.housekeeping.loop").exception("a round\nended")
    [line] = stream.getvalue().splitlines()
    assert "a round ended: ValueError: invalid literal for int" in line


def test_warnings_of_libraries_are_logged() -> None:
    stream = io.StringIO()
    configure(Logging(4), stream)
    logging.getLogger("urllib3").info("chatter")
    logging.getLogger("urllib3").warning("trouble")
    assert [line.partition(" ")[2] for line in stream.getvalue().splitlines()] == ["WARNING trouble"]


def test_the_last_on_demand_node_is_no_wrong_label() -> None:
    some = Observed(
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC), {"role=od": {"a": 1}, "role=spot": {"s": 1}}, frozenset(), {}
    )
    none = replace(some, pods={"role=od": {}, "role=spot": {"s": 1}}, unmatched=("role=od",))
    lines = logged(some, none, none, some, none, verbosity=0)
    assert lines == ["INFO no node with the label role=od is left: there is nothing to drain any more"] * 2
    lost = replace(some, pods={"role=od": {"a": 1}, "role=spot": {}}, unmatched=("role=spot",))
    lines = logged(some, lost, lost, verbosity=0)
    assert [line.partition(":")[0] for line in lines] == ["WARNING no node matches the label role=spot"]
