"""Tests of the JSON of a plan for values that only some clusters have: prices and levers."""

from dataclasses import replace
from decimal import Decimal

from rescheduler.cli.output import as_json
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.money.worth import Worth
from rescheduler.planning.outcome import Plan, Planning, Reason, Rejected
from rescheduler.planning.what_if.overview import Lever, overview
from tests.cli.test_plan_page import DISABLED, NODES
from tests.planning.builders import snapshot


def test_the_json_output_has_prices_and_levers() -> None:
    lever = Lever(
        "Pod ci/job", Reason.NO_CONTROLLER, "it has no controller", ("od-1",), ("od-1",), ("x: y",), ("od-1",)
    )
    lever = replace(
        lever, changes=("allow ci/pod/job no-controller",), worth=Worth.of(Decimal(1), Decimal(0), Decimal("0.25"))
    )
    planning = Planning((Plan("od-0", ()), Rejected("od-1", (DISABLED,))), 2, 2)
    prices = PriceList({("m5.2xlarge", "", False): Decimal("0.384")}, currency="EUR")
    load = as_json(overview(planning, snapshot(NODES), prices, [lever], levers_complete=False), 0.5)
    assert [node["price_per_hour"] for node in load["nodes"]] == [0.384, 0.384]
    summary = load["summary"]
    assert (summary["freed"]["price_per_month"], summary["on_demand"]["price_per_month"]) == (280.32, 560.64)
    assert (summary["currency"], summary["levers_complete"], summary["seconds"]) == ("EUR", False, 0.5)
    assert summary["levers"] == [
        {
            "controller": "Pod ci/job",
            "reason": "no-controller",
            "obstacle": "it has no controller",
            "nodes": ["od-1"],
            "frees": ["od-1"],
            "together_with": ["x: y"],
            "frees_together": ["od-1"],
            "tried": True,
            "what_if": ["allow ci/pod/job no-controller"],
            "try": "rescheduler plan --what-if 'allow ci/pod/job no-controller'",
            "risk": "pod",
            "severity": "error",
            "price_per_month": 730.0,
            "net_per_month": 547.5,
            "committed_per_month": 0.0,
            "spot_share_per_month": 182.5,
            "net_per_month_together": None,
        }
    ]
