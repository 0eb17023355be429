"""The daemon and ``plan --from-daemon`` count alike, on the same clusters: status page, metrics, report and plan.

The daemon's rounds run in memory; the commands get the same snapshot and what the daemon has stored.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from rescheduler.cli.output import as_json as plan_json
from rescheduler.cli.plan_data import PlannedCluster, known_facts, read_and_plan
from rescheduler.draining.actions import Intent, Step
from rescheduler.housekeeping.command_reads import Installation, InstallationStatus
from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.kube.lease import LeaseObject
from rescheduler.observe.events import Overviewed
from rescheduler.observe.metrics import Metrics
from rescheduler.observe.prepared_pages import StatusPage
from rescheduler.observe.status import Status, as_json
from rescheduler.pages.report import as_html
from rescheduler.planning.controllers import Controller
from rescheduler.planning.memory import Memory, StoredSettings, dump, load
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.money.worth import summed
from rescheduler.planning.movements import ControllerMoves, Move, Movements
from rescheduler.planning.outcome import nodes_by_reason
from rescheduler.planning.pauses import PAUSE_REASON, PAUSED, parse_window
from rescheduler.planning.policy import Circumstances, DrainOrder, Policy
from rescheduler.planning.refusals import KubeletRefusal
from rescheduler.settings import Provider, Timing
from tests.cli.test_from_daemon import Source
from tests.housekeeping.world import IDENTITY, LoopWorld, Replacement, world
from tests.planning.builders import ON_DEMAND, Manifest, budget, node, pod

PRICES = PriceList(
    per_vcpu=Decimal("0.05"),
    per_gib=Decimal(0),
    spot_per_vcpu=Decimal("0.01"),
    spot_per_gib=Decimal(0),
    currency="$",
)
SINCE = datetime(2026, 1, 1, 11, tzinfo=UTC)
FOREIGN = Intent("other-1", Step.DRAINING, SINCE, identity="other/lease")
ORDERED = Intent("me", Step.REMOVING, SINCE, identity=IDENTITY)
TIMING = Timing(node_drain_delay=timedelta(minutes=10))

CLUSTER: tuple[Manifest, ...] = (
    node("od-1", ON_DEMAND),
    node("od-2", ON_DEMAND),
    node("od-empty", ON_DEMAND),
    node("od-pinned", ON_DEMAND, labels={"pool": "ci"}),
    node("od-bare", ON_DEMAND),
    node("spot-1", cpu="4"),
    pod("web-1", "od-1", cpu="2"),
    pod("db-1", "od-2", cpu="2500m"),
    pod("ci-1", "od-pinned", nodeSelector={"pool": "ci"}),
    pod("bare-1", "od-bare", owner=None),
)


@dataclass(frozen=True)
class Case:
    """A cluster, and what happens before the counts are compared."""

    more: tuple[Manifest, ...] = ()
    windows: tuple[str, ...] = ()
    before: Callable[[LoopWorld], object] = lambda _: None
    dry_run: bool = False
    paused: bool = False
    waiting: str = ""  #: why nothing is drained
    own: str = ""  #: the node that the daemon runs on
    order: DrainOrder = DrainOrder.LEAST_REQUESTED
    min_worth: float = 0.0


def refused(here: LoopWorld) -> None:
    here.replacements["web"] = Replacement.REFUSED


CASES = {
    "a dry run in which not both of two nodes fit": Case(dry_run=True),
    "a pause": Case(paused=True, waiting="paused"),
    "a closed window": Case(windows=("Sat 01:00-02:00",), waiting="outside-drain-window"),
    "a pending pod takes room": Case(more=(pod("new-1", cpu="1500m", created="2026-01-01T10:00:00Z"),), dry_run=True),
    "a budget": Case(more=(budget("web", "web", allowed=0),), dry_run=True),
    "the delay after a drain": Case(waiting="drain-delay"),
    "a failed drain, with its cooldown and debts": Case(before=refused),
    "the daemon's own node": Case(own="od-1"),
    "the daemon's own node, which has no pods to move": Case(own="od-empty"),
    "a minimum of worth": Case(dry_run=True, min_worth=65.0),
    "the order of worth": Case(dry_run=True, order=DrainOrder.WORTH),
    "another installation drains a node": Case(before=lambda here: here.mark("od-2", FOREIGN.dump())),
    "the machine of a node was ordered away": Case(before=lambda here: here.mark("od-2", ORDERED.dump())),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_plan_and_daemon_count_alike(case: Case) -> None:
    with world(*CLUSTER, *case.more) as here:
        here.page_is_read, here.own_node = True, case.own
        here.paused = "drains are paused: an upgrade" if case.paused else ""
        case.before(here)
        windows = tuple(map(parse_window, case.windows))
        ordered: dict[str, Any] = {"drain_order": case.order, "min_worth": case.min_worth}
        loop = here.loop(TIMING, prices=PRICES, dry_run=case.dry_run, windows=windows, **ordered)
        outcomes = [loop.round() for _ in range(1 if case.dry_run or case.paused or windows else 2)]
        assert RoundOutcome.BROKEN not in outcomes
        status, registry = Status(PRICES), CollectorRegistry()
        metrics = Metrics(registry, currency="$")
        for _, event in here.reported:
            status(event)
            metrics(event)
        daemon = remembered(here, paused=case.paused)
        alone, planned = (from_daemon(here, daemon, independent=each, **ordered) for each in (True, False))
        shown = as_json(status.board)

        # Each node by itself: plan --independent, the status page, and the metrics.
        assert counts(alone) == {
            "onDemandNodes": shown["onDemandNodes"],
            "spotNodes": shown["spotNodes"],
            "drainableNodes": shown["drainableNodes"],
            "emptyNodes": shown["emptyNodes"],
            "nodesByReason": shown["nodesByReason"],
            "pending": shown["pending"]["pods"],
        }
        verdicts = plan_json(alone.overview(PRICES), 0)["nodes"]
        assert {each["node"]: each["drainable"] for each in shown["nodes"]} == {
            verdict["node"]: verdict["drainable"] for verdict in verdicts
        }
        kept = [each["node"] for each in verdicts if "not-worth-it" in [item["reason"] for item in each["blockers"]]]
        assert kept == [each["node"] for each in verdicts if (each["worth_per_move"] or math.inf) < case.min_worth]
        assert bool(kept) == bool(case.min_worth)
        drainable, empty = (metric(registry, name) for name in ("drainable_nodes", "empty_nodes"))
        assert (drainable + empty, empty) == (len(alone.planning.plans), alone.planning.empty)
        worth = summed(alone.overview(PRICES).worths.values()).net_per_month
        assert shown["potentialSavings"]["netPerMonth"] == float(worth or 0)
        assert metric(registry, "potential_savings", currency="$") == float(worth or 0)

        # All nodes in sequence: plan, its report, and the status page.
        overview = planned.overview(PRICES, planned.levers(PRICES, timedelta(seconds=60), here.clock))
        summary, sequence = plan_json(overview, 0)["summary"], shown["inSequence"]
        assert sequence["drainableNodes"] == summary["drainable_nodes"]
        assert sequence["podsToMove"] == summary["pods_to_move"]
        assert sequence["nodesByReason"] == counts(planned)["nodesByReason"]
        assert sequence["netPerMonth"] == summary["freed"]["net_per_month"]
        assert [each["whatIf"] for each in sequence["levers"]] == [each["what_if"] for each in summary["levers"]]
        said = f"{summary['drainable_nodes']} of {summary['on_demand_nodes']} on-demand nodes drainable"
        assert [said in page for page in (as_html(overview), StatusPage().as_html(status.board))] == [True, True]

        # Why nothing is drained.
        if case.waiting:
            assert shown["waiting"]["reason"] == case.waiting
            assert daemon.why_nothing_is_drained().startswith(case.waiting)


def counts(planned: PlannedCluster) -> dict[str, Any]:
    planning = planned.planning
    return {
        "onDemandNodes": planning.on_demand_nodes,
        "spotNodes": planning.spot_nodes,
        "drainableNodes": len(planning.plans),
        "emptyNodes": planning.empty,
        "nodesByReason": {str(reason): number for reason, number in nodes_by_reason(planning).items()},
        "pending": planning.pending.pods,
    }


def metric(registry: CollectorRegistry, name: str, **labels: str) -> float:
    value = registry.get_sample_value(f"spot_rescheduler_{name}", labels)
    assert value is not None
    return value


def remembered(here: LoopWorld, *, paused: bool) -> InstallationStatus:
    """Return what ``plan`` reads: the Lease, and the memory if the daemon has stored it."""
    notes = {PAUSED: "true", PAUSE_REASON: "an upgrade"} if paused else {}
    lease = msgspec.convert({"metadata": {"name": "lease", "annotations": notes}}, LeaseObject)
    stored = here.config_map.stored
    memory = None if stored is None else load(stored.content)
    return InstallationStatus(here.clock.now(), Installation("default", "lease", "memory"), lease, memory)


def from_daemon(
    here: LoopWorld, daemon: InstallationStatus, *, independent: bool = False, **fields: Any
) -> PlannedCluster:
    source: Any = Source(here.cluster)
    policy = Policy(budgets_in_steps=True, **fields)
    return read_and_plan(source, policy, PRICES, Provider(), here.clock, independent=independent, daemon=daemon)


def moved_often(here: LoopWorld) -> Memory:
    moves = ControllerMoves((Move(here.clock.now(), 20),), namespace="default")
    return Memory(movements=Movements({"default/x": moves}), settings=StoredSettings(moves_per_pod=1.0))


def of_leader(here: LoopWorld, **fields: Any) -> None:
    view = here.view
    view._use(dataclasses.replace(view._known, leader=msgspec.structs.replace(view.leader, **fields)))


def remember(here: LoopWorld, memory: Memory) -> None:
    here.view._sources = dataclasses.replace(here.view._sources, memory=lambda: memory)


#: By field of the circumstances: what the daemon remembers, sees or hears from its provider so that it is not empty.
KNOWN: dict[str, Callable[[LoopWorld], object]] = {
    "cooling": lambda here: here.history.node_failed("od-1", "uid-od-1"),
    "own": lambda here: of_leader(here, own="od-1"),
    "ordered": lambda here: of_leader(here, ended=("od-1", "od-2")),
    "ordered by a mark": lambda here: here.mark("od-2", ORDERED.dump()),
    "ending": lambda here: of_leader(here, ending=("spot-1",)),
    "vetoes of marks": lambda here: here.mark("od-2", FOREIGN.dump()),
    "vetoes of owners": lambda here: here.history.set_aside(Controller("default", "ReplicaSet", "db", "")),
    "prices": lambda _: None,
    "last": lambda here: remember(here, moved_often(here)),
    "rested": lambda here: here.history.moves_leftovers({"uid-of-a-pod": "default/uid-of-db"}),
    "history": lambda here: here.history.owner_moved("default/ReplicaSet/db", 2, here.clock.now(), 45),
    "settling": lambda here: here.history.observe_pools({"a": 1}, {"a": 1}),
    "refused": lambda here: here.history.refused(
        KubeletRefusal(
            Controller("default", "ReplicaSet", "db", ""), "digest", (), "spot-1", "OutOfcpu", here.clock.now()
        )
    ),
    "growth": lambda here: of_leader(here, growth={"od-1": ("workers", 3)}),
    "no growth is known": lambda here: of_leader(here, growth={"od-1": ("", 0)}),
    "left_pending": lambda here: of_leader(here, left_pending=("default", "shop")),
}
#: Fields that are the same for every plan, that only a drain sets, and what is written in the marks of this process.
_OF_NO_PLAN = {"now", "emptied", "deadlines", "holder"}


def test_each_field_of_the_circumstances_is_compared() -> None:
    fields = {field.name for field in dataclasses.fields(Circumstances)}
    assert {name.partition(" ")[0] for name in KNOWN} - {"no"} == fields - _OF_NO_PLAN


@pytest.mark.parametrize("name", KNOWN)
def test_commands_plan_in_the_circumstances_of_the_daemon(name: str) -> None:
    with world(*CLUSTER) as here:
        here.loop(TIMING, prices=PRICES).round()
        nothing = Circumstances(here.clock.now())
        here.view.know(prices=PRICES)
        KNOWN[name](here)
        here.history.planned(here.view.leader)
        lease = msgspec.convert({"metadata": {"name": "lease"}}, LeaseObject)
        memory = msgspec.structs.replace(here.view.facts.known.memory, leader=here.history.memory.leader)
        namespace, _, lease_name = IDENTITY.partition("/")
        place = Installation(namespace, lease_name, "memory")
        status = InstallationStatus(here.clock.now(), place, lease, load(dump(memory)))
        here.view.advance()
        of_daemon = here.view.circumstances
        found = known_facts(here.cluster, Policy(), PRICES, here.clock, status).circumstances
        assert dataclasses.replace(of_daemon, holder="") == found
        field = name.partition(" ")[0]
        assert field == "no" or getattr(found, field) != getattr(nothing, field)


def test_an_overview_is_made_only_for_readers_and_for_changes() -> None:
    with world(*CLUSTER) as here:
        loop = here.loop(TIMING, dry_run=True)
        for reads, made in ((False, 0), (True, 1), (True, 1)):
            here.page_is_read = reads
            loop.round()
            here.frozen.tick(timedelta(minutes=2))
            assert len(here.of(Overviewed)) == made
        here.cluster.delete("Pod", "default/bare-1")
        loop.round()
        assert len(here.of(Overviewed)) == 2
        assert here.of(Overviewed)[1].overview.planning.empty == 2
