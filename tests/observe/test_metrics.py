"""Tests of metrics: each event is counted under the documented names."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from rescheduler.draining.events import EvictionResult
from rescheduler.draining.state import Why
from rescheduler.observe.events import (
    DebtEnded,
    DrainStarted,
    ErrorKind,
    Event,
    EvictionAnswered,
    Held,
    LeadershipChanged,
    MachineAnswered,
    MemoryDropped,
    OwedChanged,
    PlaceholdersObserved,
    RoomEnded,
    RoomEnding,
    RoundEnded,
    SavingsCounted,
    Started,
    SurgeEnded,
    SurgeResult,
    SurgeStarted,
    Trouble,
    Waiting,
    WatchAges,
)
from rescheduler.observe.metric_families import FAILURE_CODES
from rescheduler.observe.metrics import Metrics
from rescheduler.planning.money.savings import Savings
from rescheduler.planning.outcome import LandingOutcome, Plan
from rescheduler.planning.pools import PoolState
from rescheduler.providers.base import DeleteResult
from tests.observe.builders import BLOCKED, NOW, OD, PLAN, SPOT, WEB, WORKER, ended, observed, planned, valued

P = "spot_rescheduler_"
FAILED = RoundEnded(NOW, 0.3, succeeded=False)
DELAYED = (Held(Waiting.DRAIN_DELAY, "x"), RoundEnded(NOW, 0.3, succeeded=True))


def after(*events: Event) -> CollectorRegistry:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    for event in events:
        metrics(event)
    return registry


def samples(registry: CollectorRegistry, name: str) -> list[Sample]:
    return [sample for metric in registry.collect() if metric.name == P + name for sample in metric.samples]


SAVED = SavingsCounted(Savings(7200, money={"USD": Decimal("1.5")}))

LOST = replace(
    observed("a"),
    pools=(PoolState("a/m5.large", 2, 3, 0.25, NOW, None), PoolState("b/m5.large", 2, 0, 0.0, None, None)),
)

CASES: dict[str, tuple[Event, str, dict[str, str], float]] = {
    "losses of a pool": (LOST, "spot_pool_losses_total", {"pool": "a/m5.large"}, 3),
    "no losses of a pool": (LOST, "spot_pool_losses_total", {"pool": "b/m5.large"}, 0),
    "the rate of losses": (LOST, "spot_pool_hazard", {"pool": "a/m5.large"}, 0.25),
    "nodes": (observed("a", "b"), "nodes_count", {"node_type": WORKER}, 2),
    "spot nodes": (observed("a"), "nodes_count", {"node_type": SPOT}, 1),
    "pods of a node": (observed("a"), "node_pods_count", {"node_type": WORKER, "node": "a"}, 3),
    "what plans save": (valued("1", "0.25"), "potential_savings", {"currency": "USD"}, 547.5),
    "a drain": (ended(), "node_drain_total", {"drain_state": "Success", "node": "od-1"}, 1),
    "a failed drain": (ended(Why.STOPPED), "node_drain_total", {"drain_state": "Failure", "node": "od-1"}, 1),
    "a drain, without its node": (ended(), "drains_total", {"result": "success"}, 1),
    "a failed drain, without its node": (ended(Why.STOPPED), "drains_total", {"result": "failure"}, 1),
    "its cause": (ended(Why.STOPPED), "drain_failures_total", {"cause": "stopped"}, 1),
    "its duration": (ended(), "drain_duration_seconds_sum", {}, 12.5),
    "an evicted pod": (EvictionAnswered(OD, WEB, EvictionResult.EVICTED), "evicted_pods_total", {}, 1),
    "a rejected eviction": (EvictionAnswered(OD, WEB, EvictionResult.REFUSED), "evicted_pods_total", {}, 0),
    "the rejection": (
        EvictionAnswered(OD, WEB, EvictionResult.REFUSED), "evictions_total", {"result": "refused", "code": "429"}, 1,
    ),
    "a failure": (
        EvictionAnswered(OD, WEB, EvictionResult.FAILED, "no", 403),
        "evictions_total", {"result": "failed", "code": "403"}, 1,
    ),
    "no answer": (
        EvictionAnswered(OD, WEB, EvictionResult.FAILED), "evictions_total", {"result": "failed", "code": ""}, 1,
    ),
    "a roll-out": (SurgeEnded(OD, "web/api", SurgeResult.DONE), "surges_total", {"result": "done"}, 1),
    "an undone roll-out": (
        SurgeEnded(OD, "web/api", SurgeResult.ROLLED_BACK), "surges_total", {"result": "rolled-back"}, 1,
    ),
    "a roll-out that begins": (SurgeStarted(OD, "web/api", 1), "surges_total", {"result": "done"}, 0),
    "a pause": (Held(Waiting.PAUSED, "x"), "cooldown_active", {"kind": "paused"}, 1),
    "another wait": (Held(Waiting.PENDING_PODS, "x"), "cooldown_active", {"kind": "paused"}, 0),
    "outside of all windows": (
        Held(Waiting.OUTSIDE_DRAIN_WINDOW, "x"),
        "cooldown_active",
        {"kind": "outside-drain-window"},
        1,
    ),
    "the leader": (LeadershipChanged(leading=True), "leader", {}, 1),
    "a replica that does not lead": (LeadershipChanged(leading=False), "leader", {}, 0),
    "a successful round": (RoundEnded(NOW, 0.3, succeeded=True), "last_success_timestamp_seconds", {}, NOW.timestamp()),
    "its duration, too": (RoundEnded(NOW, 0.3, succeeded=True), "loop_duration_seconds_count", {}, 1),
    "a failed round": (RoundEnded(NOW, 0.3, succeeded=False), "last_success_timestamp_seconds", {}, 0),
    "trouble": (Trouble(ErrorKind.WRITE, "x"), "errors_total", {"type": "write"}, 1),
    "planning": (planned(PLAN, BLOCKED), "plan_duration_seconds_sum", {}, 0.2),
    "nodes that can be drained": (planned(PLAN, BLOCKED), "drainable_nodes", {}, 1),
    "empty nodes do not count": (planned(PLAN, Plan("od-3", ())), "drainable_nodes", {}, 1),
    "empty nodes": (planned(PLAN, Plan("od-3", ())), "empty_nodes", {}, 1),
    "nodes that are not drained": (planned(PLAN, BLOCKED), "blocked_nodes", {"reason": "no-controller"}, 1),
    "pods that block a node": (planned(PLAN, BLOCKED), "blocked_pods", {"reason": "pod-disruption-budget"}, 1),
    "the delay": (Held(Waiting.DRAIN_DELAY, "x"), "cooldown_active", {"kind": "drain-delay"}, 1),
    "no delay": (Held(Waiting.PENDING_PODS, "x"), "cooldown_active", {"kind": "drain-delay"}, 0),
    "the delay is over": (planned(PLAN, complete=False), "cooldown_active", {"kind": "drain-delay"}, 0),
    "nodes in cooldown": (observed("a"), "cooldown_active", {"kind": "node"}, 0),
    "a drain in progress": (DrainStarted(OD, PLAN), "drains_in_progress", {}, 1),
    "a landing": (ended(landing=40.5), "landing_duration_seconds_sum", {}, 40.5),
    "its number": (ended(landing=40.5), "landing_duration_seconds_count", {}, 1),
    "a drain without evictions": (ended(), "landing_duration_seconds_count", {}, 0),
    "an order of room": (
        RoomEnded(OD, RoomEnding.TIMED_OUT, "x"), "room_orders_total", {"outcome": "timed-out"}, 1,
    ),
    "running placeholders": (PlaceholdersObserved(3, 1), "placeholders", {"state": "running"}, 3),
    "pending placeholders": (PlaceholdersObserved(3, 1), "placeholders", {"state": "pending"}, 1),
    "pods that are owed": (OwedChanged(3), "owed_replacements", {}, 3),
    "pods that are given up": (
        DebtEnded("a/Workflow/w", "od", 2, "gone"), "owed_replacements_given_up_total", {}, 2,
    ),
    "entries of the memory that are dropped": (
        MemoryDropped({"debt": 3}, "full"), "memory_entries_dropped_total", {"kind": "debt"}, 3,
    ),
    "nothing is owed": (OwedChanged(0), "owed_replacements", {}, 0),
    "a watch's age": (WatchAges({"Pod": 12.5}), "watch_age_seconds", {"kind": "Pod"}, 12.5),
    "money saved": (SAVED, "savings_money_total", {"currency": "USD"}, 1.5),
    "money in another currency": (SAVED, "savings_money_total", {"currency": ""}, 0),
    "node-hours saved": (SAVED, "savings_nodehours_total", {}, 2.0),
    "a machine": (
        MachineAnswered(OD, "pool", "deleted", ""), "node_removals_total", {"backend": "pool", "result": "deleted"}, 1,
    ),
}  # fmt: skip


def test_savings_are_zero_before_the_ledger_is_read() -> None:
    registry = CollectorRegistry()
    Metrics(registry, currency="USD")
    assert registry.get_sample_value(P + "savings_money_total", {"currency": "USD"}) == 0
    assert registry.get_sample_value(P + "savings_nodehours_total") == 0


def test_savings_never_decrease() -> None:
    less = SavingsCounted(Savings(3600, money={"USD": Decimal(1), "EUR": Decimal(2)}))
    registry = after(SAVED, less)
    money = {sample.labels["currency"]: sample.value for sample in samples(registry, "savings_money")}
    assert money == {"": 0, "EUR": 2, "USD": 1.5}
    assert registry.get_sample_value(P + "savings_nodehours_total") == 2


@pytest.mark.parametrize("waiting", Waiting)
def test_each_wait_is_shown_while_it_lasts(waiting: Waiting) -> None:
    labels = {"kind": str(waiting)}
    assert after(planned(PLAN)).get_sample_value(P + "cooldown_active", labels) == 0
    assert after(Held(waiting, "x")).get_sample_value(P + "cooldown_active", labels) == 1
    others = (other for other in Waiting if other is not waiting)
    for other in others:
        assert after(Held(waiting, "x"), Held(other, "x")).get_sample_value(P + "cooldown_active", labels) == 0


def test_only_the_leader_reports_owed_replacements() -> None:
    registry = after(OwedChanged(3), LeadershipChanged(leading=False))
    assert registry.get_sample_value(P + "owed_replacements") == 0


NO_WAIT = dict.fromkeys(["node", *map(str, Waiting)], 0.0)


@pytest.mark.parametrize(
    ("events", "expected"),
    {
        "at the start": ((), NO_WAIT),
        "while another replica leads": ((Held(Waiting.NOT_LEADING, "x"),), NO_WAIT | {"not-leading": 1}),
        "after rounds that wait": ((*2 * DELAYED,), NO_WAIT | {"drain-delay": 1}),
        "when a drain starts": ((*DELAYED, DrainStarted(OD, None)), NO_WAIT),
        "after a round that failed": (
            (*DELAYED, Trouble(ErrorKind.READ, "x"), Held(Waiting.ROUND_FAILED, "x"), FAILED),
            NO_WAIT | {"round-failed": 1},
        ),
        "after a round that failed because of the provider": (
            (*DELAYED, planned(PLAN), Held(Waiting.PROVIDER_SILENT, "x"), FAILED), NO_WAIT | {"provider-silent": 1},
        ),
        "after a round that could not read the cluster": (
            (Held(Waiting.NOT_SYNCED, "x"), FAILED), NO_WAIT | {"not-synced": 1},
        ),
    }.values(),
    ids=str,
)  # fmt: skip
def test_only_the_active_waits_are_shown(events: tuple[Event, ...], expected: dict[str, float]) -> None:
    kinds = {sample.labels["kind"]: sample.value for sample in samples(after(*events), "cooldown_active")}
    assert kinds == expected


#: Counter → the label values with which it starts.
ZEROS: dict[str, set[tuple[str, ...]]] = {
    "drains": {("success",), ("failure",)},
    "drain_failures": {(why.value,) for why in Why},
    "errors": {(kind.value,) for kind in ErrorKind},
    "evictions": {
        ("evicted", "201"), ("gone", "404"), ("refused", "429"), ("requested", "201"),
        *(("failed", code) for code in FAILURE_CODES),
    },
    "placement_predictions": {(outcome.value,) for outcome in LandingOutcome},
    "node_removals": {("pool", result.value) for result in DeleteResult},
    "room_orders": {(ending.value,) for ending in RoomEnding},
    "surges": {(result.value,) for result in SurgeResult},
    "memory_entries_dropped": {
        *(("cooldown",), ("moves",), ("leftover",), ("not-recovered",), ("pool",), ("refusal",), ("owner",), ("debt",)),
    },
    "owed_replacements_given_up": {()},
    "evicted_pods": {()},
    "returned_pods": {()},
    "node_drain": set(),
}  # fmt: skip


#: The counters of the ledger, which a running total sets.
SAVINGS: dict[str, list[tuple[str, ...]]] = {"savings_money": [("",)], "savings_nodehours": [()]}

#: The counter of lost nodes has the pools that exist.
POOLS: dict[str, list[tuple[str, ...]]] = {"spot_pool_losses": []}


def test_counters_without_a_node_start_at_zero() -> None:
    registry = CollectorRegistry()
    Metrics(registry, "pool")
    counters = [family for family in registry.collect() if family.type == "counter" and family.name.startswith(P)]
    assert {
        family.name.removeprefix(P): {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in counters
    } == {name: dict.fromkeys(labels, 0.0) for name, labels in (ZEROS | SAVINGS | POOLS).items()}


@pytest.mark.parametrize("event", [event for event, *_ in CASES.values()], ids=CASES)
def test_no_event_adds_a_series_to_a_counter_without_a_node(event: Event) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, "pool")
    before = {name: len(samples(registry, name)) for name in ZEROS}
    metrics(event)
    del before["node_drain"]
    assert {name: len(samples(registry, name)) for name in before} == before


def test_a_replica_that_does_not_lead_has_no_pools() -> None:
    registry = after(LOST, LeadershipChanged(leading=False))
    assert (samples(registry, "spot_pool_losses"), samples(registry, "spot_pool_hazard")) == ([], [])


def test_an_unknown_status_of_an_eviction_adds_a_series() -> None:
    registry = after(EvictionAnswered(OD, WEB, EvictionResult.FAILED, "no", 418))
    assert registry.get_sample_value(P + "evictions_total", {"result": "failed", "code": "418"}) == 1


def test_the_sum_of_drains_remains_after_the_node_is_gone() -> None:
    later = [observed(at=NOW + timedelta(minutes=minutes)) for minutes in (0, 15)]
    registry = after(ended(), ended(Why.STOPPED), *later)
    assert samples(registry, "node_drain") == []
    assert {sample.labels["result"]: sample.value for sample in samples(registry, "drains")} == {
        "success": 1,
        "failure": 1,
    }


@pytest.mark.parametrize("why", Why)
def test_each_cause_of_a_failed_drain_is_a_label(why: Why) -> None:
    assert after(ended(why)).get_sample_value(P + "drain_failures_total", {"cause": str(why)}) == 1


def test_a_watch_that_ended_leaves_no_series() -> None:
    registry = after(WatchAges({"Pod": 1.0, "Node": 2.0}), WatchAges({"Node": 3.0}))
    assert {sample.labels["kind"]: sample.value for sample in samples(registry, "watch_age_seconds")} == {"Node": 3.0}


@pytest.mark.parametrize(("event", "name", "labels", "value"), CASES.values(), ids=CASES)
def test_each_event_changes_its_metric(event: Event, name: str, labels: dict[str, str], value: float) -> None:
    assert after(event).get_sample_value(P + name, labels) == value


def test_deleted_nodes_leave_no_series() -> None:
    registry = after(observed("a", "b"), observed("b"))
    assert registry.get_sample_value(P + "node_pods_count", {"node_type": WORKER, "node": "a"}) is None
    assert registry.get_sample_value(P + "node_pods_count", {"node_type": WORKER, "node": "b"}) == 3


def test_the_count_of_a_removed_node_can_be_scraped_for_a_while() -> None:
    labels = {"drain_state": "Success", "node": "od-1"}
    events: list[Event] = [observed("od-1"), ended(), observed(), observed(at=NOW + timedelta(minutes=14))]
    assert after(*events).get_sample_value(P + "node_drain_total", labels) == 1
    events.append(observed(at=NOW + timedelta(minutes=15)))
    assert after(*events).get_sample_value(P + "node_drain_total", labels) is None


def test_a_node_that_comes_back_keeps_its_count() -> None:
    later = [observed(at=NOW + timedelta(minutes=10)), observed("od-1", at=NOW + timedelta(minutes=12))]
    registry = after(ended(), *later, observed(at=NOW + timedelta(minutes=20)))
    assert registry.get_sample_value(P + "node_drain_total", {"drain_state": "Success", "node": "od-1"}) == 1


def test_reasons_that_no_longer_apply_leave_no_series() -> None:
    registry = after(planned(BLOCKED), planned(PLAN))
    assert registry.get_sample_value(P + "blocked_nodes", {"reason": "no-controller"}) is None
    assert registry.get_sample_value(P + "blocked_pods", {"reason": "no-controller"}) is None


def test_a_partial_plan_does_not_change_the_metrics_of_other_nodes() -> None:
    registry = after(planned(BLOCKED), planned(PLAN, complete=False))
    assert registry.get_sample_value(P + "blocked_nodes", {"reason": "no-controller"}) == 1


def test_a_pod_that_blocks_for_two_reasons_counts_for_both() -> None:
    registry = after(planned(BLOCKED))
    counted = {reason: registry.get_sample_value(P + "blocked_pods", {"reason": reason}) for reason in REASONS}
    assert counted == dict.fromkeys(REASONS, 1)


REASONS = ("no-controller", "pod-disruption-budget")

ALL = (
    Started("1.2", "me", "x:1", dry_run=False),
    observed("a"),
    planned(BLOCKED),
    ended(),
    *(e for e, *_ in CASES.values()),
)


def test_the_page_has_no_created_series() -> None:
    page = generate_latest(after(*ALL)).decode()
    assert "_created" not in page
    assert f"{P}build_info{{" in page


def test_the_page_is_valid_in_both_formats() -> None:
    """Metrics whose names end in _count have no type: promtool's linter allows such names for histograms only."""
    page = generate_latest(after(*ALL)).decode()
    assert f"# TYPE {P}nodes_count untyped" in page
    assert f"# TYPE {P}node_pods_count untyped" in page
    openmetrics = generate_openmetrics(after(*ALL)).decode()  # type: ignore[no-untyped-call]
    parsed = text_string_to_metric_families(openmetrics)  # type: ignore[no-untyped-call]
    families = {family.name: family for family in parsed}
    assert families[P + "nodes_count"].type == "unknown"
    assert families[P + "node_drain"].type == "counter"


def test_what_plans_save_is_unknown_without_prices_of_spot_nodes() -> None:
    assert samples(after(valued("1", "0.25"), valued("1", None)), "potential_savings") == []
