"""Tests of the content of the status page, without a browser."""

import dataclasses
import re
from datetime import timedelta
from decimal import Decimal

from rescheduler.observe.events import (
    Compared,
    DrainProgressed,
    DrainStarted,
    Held,
    LeadershipChanged,
    Overviewed,
    Planned,
    PodProgress,
    SavingsCounted,
    Surveyed,
    Waiting,
)
from rescheduler.observe.prepared_pages import StatusPage
from rescheduler.observe.status import DRAINS, Board, Status, as_json
from rescheduler.planning.money.prices import NodeFacts, PriceList
from rescheduler.planning.money.savings import Savings
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.what_if.comparison import levers_of
from rescheduler.planning.what_if.overview import overview
from tests.observe.builders import BLOCKED, NOW, OD, PLAN, WEB, ended, observed, planned
from tests.planning.builders import ON_DEMAND, node, pod, snapshot

FACTS = NodeFacts(
    name="od-1",
    spot=False,
    instance_type="m5.large",
    zone="eu-1a",
    cpu=2000,
    memory=8 << 30,
    requested_cpu=500,
    requested_memory=2 << 30,
    created="2025-12-30T12:00:00Z",
)
PRICES = PriceList(by_type={("m5.large", "", False): Decimal("0.1")}, currency="EUR")


def page(board: Board) -> str:
    return StatusPage().as_html(board)


def test_the_status_shows_the_facts_of_a_node() -> None:
    event = dataclasses.replace(planned(PLAN, BLOCKED), facts={"od-1": FACTS})
    board = Board(planned=event, prices=PRICES)
    assert "m5.large, eu-1a, age 2d, 0.10 EUR per hour" in page(board)
    assert [node.get("facts") for node in as_json(board)["nodes"]] == [
        {
            "instanceType": "m5.large",
            "zone": "eu-1a",
            "created": "2025-12-30T12:00:00Z",
            "cpu": 2000,
            "memory": 8 << 30,
            "requestedCpu": 500,
            "requestedMemory": 2 << 30,
            "pricePerHour": 0.1,
        },
        None,
    ]


def test_the_status_shows_a_cooldown_and_its_end() -> None:
    cooling = dataclasses.replace(observed("od-1"), cooling={"od-2": NOW})
    assert "Cools down until 2026-01-01T12:00:00Z." in page(Board(planned=planned(PLAN, BLOCKED), observed=cooling))


def test_the_status_shows_each_pod_of_a_running_drain() -> None:
    status = Status()
    status(DrainStarted(OD, PLAN))
    status(planned(PLAN, BLOCKED))
    targets, since = {"default/web-1": "spot-1"}, {"default/web-1": NOW}
    status(DrainProgressed(OD, "evicting", ((WEB, PodProgress.BOUND),), targets, since))
    text = page(status.board)
    assert "Phase: evicting. Pods: 1 bound." in text
    assert text.index("Drain of") < text.index("Verdicts of")
    assert ">spot-1</td>" in text.partition("Pods of the drain")[2].partition("</table>")[0]
    assert f'datetime="{NOW:%Y-%m-%dT%H:%M:%SZ}"' in text.partition("Pods of the drain")[2].partition("</table>")[0]
    [entry] = re.findall(r'<details id="node-od-1".*?</summary>', text)
    assert ("being drained" in entry, "can be drained" in entry) == (True, False)
    assert "0 of 2 on-demand nodes can be drained" in text
    shown = as_json(status.board)
    [node] = [each for each in shown["nodes"] if each["node"] == "od-1"]
    assert (node["drainable"], node["placements"], shown["drainableNodes"]) == (False, [], 0)
    assert [blocker["reason"] for blocker in node["blockers"]] == ["being-drained-by-another"]
    assert shown["nodesByReason"]["being-drained-by-another"] == 1
    assert as_json(status.board)["drain"] == {
        "node": "od-1",
        "phase": "evicting",
        "pods": [{"pod": "default/web-1", "state": "bound", "target": "spot-1", "since": "2026-01-01T12:00:00Z"}],
    }
    status(ended())
    shown = as_json(status.board)
    assert (shown["drain"], shown["draining"], shown["drainableNodes"]) == (None, None, 1)
    assert "Phase:" not in page(status.board)


def test_the_status_shows_the_landing_of_a_drain() -> None:
    status = Status()
    status(ended(landing=4.25))
    status(Compared("od-1", {"as-planned": 3, "elsewhere": 1, "lost": 0}, 0))
    status(Compared("od-9", {"as-planned": 1}, 0))
    later = NOW + timedelta(hours=1)
    status(dataclasses.replace(ended(), at=later))
    assert "ready after 4.2 s; 3 as-planned, 1 elsewhere" in page(status.board)
    assert set(status.board.landings) == {("od-1", NOW)}
    for number in range(DRAINS):
        status(dataclasses.replace(ended(), at=later + timedelta(hours=number)))
    assert status.board.landings == {}


def test_a_replica_that_does_not_lead_shows_the_leader_and_its_own_verdicts() -> None:
    status = Status()
    status(LeadershipChanged(leading=False))
    status(Held(Waiting.NOT_LEADING, "another replica leads: pod-2", "pod-2"))
    status(Surveyed(planned(PLAN, BLOCKED)))
    content = as_json(status.board)
    assert (content["leader"], content["leading"], content["waiting"]["reason"]) == ("pod-2", False, "not-leading")
    assert [node["node"] for node in content["nodes"]] == ["od-1", "od-2"]
    assert "This replica is not the leader. pod-2 is." in page(status.board)


def test_the_status_shows_a_pause_until_it_ends() -> None:
    status, text = Status(), "drains are paused until 2026-01-01T14:00:00Z: release 42"
    status(Surveyed(planned(PLAN, BLOCKED)))
    status(Held(Waiting.PAUSED, text))
    assert f"<code>paused</code> Nothing is drained: {text}." in page(status.board)
    assert as_json(status.board)["waiting"] == {"reason": "paused", "detail": text}
    status(planned(PLAN, BLOCKED))
    assert "paused" not in page(status.board)
    assert as_json(status.board)["waiting"] is None


def test_the_status_of_a_running_daemon_shows_savings_and_prices() -> None:
    status = Status(PRICES)
    assert (as_json(status.board)["savings"], "Saved:" in page(status.board)) == (None, False)
    status(SavingsCounted(Savings(7200, money={"EUR": Decimal("0.1")})))
    status(SavingsCounted(Savings(10800, money={"EUR": Decimal("0.3")})))
    status(dataclasses.replace(planned(PLAN, BLOCKED), facts={"od-1": FACTS}))
    assert "Saved: 0.30 EUR, 3 node-hours of on-demand." in page(status.board)
    assert "0.10 EUR per hour" in page(status.board)
    content = as_json(status.board)
    assert content["savings"] == {"nodeHours": 3.0, "money": {"EUR": 0.3}}
    assert [node.get("facts", {}).get("pricePerHour") for node in content["nodes"]] == [0.1, None]


def test_savings_are_shown_once_they_are_read() -> None:
    board = Board(savings=Savings(round(1234.4 * 3600), money={"EUR": Decimal("56.7")}))
    assert "Saved: 56.70 EUR, 1,234 node-hours of on-demand." in page(board)
    assert as_json(board)["savings"] == {"nodeHours": 1234.4, "money": {"EUR": 56.7}}


def test_the_list_of_nodes_is_rendered_again_for_a_new_plan_and_for_new_cooldowns() -> None:
    renderer, board = StatusPage(), Board(planned=planned(PLAN, BLOCKED))
    first = renderer.as_html(board)
    assert renderer.as_html(board) == first
    cooling = dataclasses.replace(observed("od-1"), cooling={"od-2": NOW})
    assert "Cools down until" in renderer.as_html(dataclasses.replace(board, observed=cooling))
    assert "node-od-2" not in renderer.as_html(dataclasses.replace(board, planned=planned(PLAN)))


def test_nodes_that_a_round_did_not_judge_are_listed_with_the_time_of_the_plan() -> None:
    status = Status()
    for event in (observed("od-1", "od-7", "od-8"), planned(PLAN, complete=False), DrainStarted(OD, PLAN)):
        status(event)
    text, listed = page(status.board), as_json(status.board)["nodes"]
    assert [name in text for name in ('id="node-od-1"', 'id="node-od-7"', 'id="node-od-8"')] == [True] * 3
    assert text.count("not judged yet") == 2
    assert [(node["node"], node.get("judged")) for node in listed] == [("od-1", None), ("od-7", False), ("od-8", False)]
    assert f'<time datetime="{NOW:%Y-%m-%dT%H:%M:%SZ}">' in text
    status(planned(PLAN, BLOCKED))
    assert "not judged yet" not in page(status.board)


PARTS = (
    "Nothing is drained",
    "Draining",
    "drainable",
    "Summary",
    "What stands in the way",
    "Levers",
    "On-demand nodes",
)


def test_the_page_has_the_order_of_plan_and_report_also_during_a_drain() -> None:
    """Why nothing is drained, the headline, sums, reasons, levers, and then every node."""
    cluster = snapshot(
        [
            node("od-1", ON_DEMAND),
            node("od-2", ON_DEMAND),
            node("spot"),
            pod("web-1", "od-1"),
            pod("bare", "od-2", owner=None),
        ]
    )
    planner, circumstances = Planner(cluster, Policy()), Circumstances(NOW)
    planning = planner.plan_all(circumstances)
    levers = levers_of(planning, planner, cluster, Policy(), circumstances, PRICES, lambda: False)
    status = Status(PRICES)
    status(Planned(NOW, planner.plan_each(circumstances), {}, 0.1, complete=True))
    before = page(status.board)
    assert ("because somebody looks at this page" in before, as_json(status.board)["inSequence"]) == (True, None)
    status(Overviewed(NOW, overview(planning, cluster, PRICES, levers.levers, now=NOW)))
    status(DrainStarted(OD, PLAN))
    status(Held(Waiting.PAUSED, "an upgrade"))
    text = page(status.board).partition("</style>")[2]
    places = [text.index(part) for part in PARTS]
    assert places == sorted(places)
    assert ["node-od-1" in text, "node-od-2" in text] == [True, True]
    assert "rescheduler plan --what-if &#x27;allow default/bare no-controller&#x27;" in text or "--what-if" in text
    shown = as_json(status.board)["inSequence"]
    assert (shown["drainableNodes"], shown["nodesByReason"]) == (1, {"no-controller": 1})
    assert [(lever["whatIf"], lever["frees"]) for lever in shown["levers"]] == [
        (["allow default/pod/bare no-controller"], ["od-2"])
    ]
