"""The severity of what keeps nodes is shown as a word everywhere, and as a color on terminals and HTML pages."""

import json
from datetime import timedelta
from functools import cache

import click
import pytest

from rescheduler.cli import main
from rescheduler.cli.console import rendered, style_of
from rescheduler.cli.explain import ExplainPage
from rescheduler.cli.plan_page import glance, nodes_page, page
from rescheduler.observe.events import Overviewed
from rescheduler.observe.prepared_pages import StatusPage
from rescheduler.observe.status import Board
from rescheduler.pages.report import as_html
from rescheduler.pages.tree import Line
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from rescheduler.planning.what_if.levers import rank_levers
from rescheduler.planning.what_if.overview import Overview, overview
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, node, pod, snapshot

NOW = CIRCUMSTANCES.now
POLICY = Policy()
#: One node for each severity, and one that can be drained.
CLUSTER = snapshot(
    [
        *(node(f"od-{number}", ON_DEMAND) for number in range(4)),
        node("spot"),
        pod("bare", "od-0", owner=None),
        pod("etl", "od-1", volumes=[{"name": "scratch", "emptyDir": {}}]),
        pod("kept", "od-2", annotations={"spot-rescheduler/do-not-evict": "true"}),
        pod("web", "od-3", cpu="100m"),
    ]
)
EXPECTED = {"od-0": "error", "od-1": "warning", "od-2": "info", "od-3": None}


@cache
def planned() -> tuple[Planner, Overview]:
    planner = Planner(CLUSTER, POLICY)
    planning = planner.plan_all(CIRCUMSTANCES)
    ranked = rank_levers(planning, planner.round(CIRCUMSTANCES), CIRCUMSTANCES.prices, lambda: False)
    return planner, overview(planning, CLUSTER, CIRCUMSTANCES.prices, ranked.levers)


def pages() -> dict[str, list[Line]]:
    planner, plan = planned()
    explained = ExplainPage(planner, CLUSTER, CIRCUMSTANCES, wide=False)
    return {
        "glance": list(glance(plan, 120)),
        "nodes": list(nodes_page(plan, NOW + timedelta(hours=1), 120, "severity")),
        "details": list(page(plan, CLUSTER, NOW)),
        "explain": [line for name in EXPECTED for line in explained.node(name)],
        "explain of a pod": list(explained.pod(planner.explain(CLUSTER.pods["default/bare"], CIRCUMSTANCES))),
    }


#: By page: what it says about the error, the warning and the information.
SHOWN = {
    "glance": ["  no-controller  1 node  error\n  local-storage  1 node  warning\n  do-not-evict   1 node  info\n"],
    "nodes": ["error     no-controller", "warning   local-storage", "info      do-not-evict"],
    "details": ["  no-controller (error): ", "  local-storage (warning): ", "  do-not-evict (info): "],
    "explain": ["  no-controller (error): ", "  local-storage (warning): ", "  do-not-evict (info): "],
    "explain of a pod": ["  cannot be evicted: no-controller (error): "],
}


@pytest.mark.parametrize("name", SHOWN)
def test_the_severity_is_a_word_also_without_colors(name: str) -> None:
    text = rendered(pages()[name], 120)
    assert [part for part in SHOWN[name] if part not in text] == []
    assert "\x1b" not in text


#: By page: how the last red line and the last yellow line begin.
COLORED = {
    "glance": ("no-controller ", "local-storage "),
    "nodes": ("od-0 ", "od-1 "),
    "details": ("od-0", "od-1"),
    "explain": ("Node od-0 ", "Node od-1 "),
}


@pytest.mark.parametrize("name", COLORED)
def test_errors_are_red_and_warnings_are_yellow_on_a_terminal(name: str) -> None:
    lines = pages()[name]
    for color, start in zip(("red", "yellow"), COLORED[name], strict=True):
        colored = next(line for line in reversed(lines) if style_of(line).get("fg") == color)
        assert colored.text.startswith(start)
        code = click.style("", fg=color, reset=False)
        assert rendered([colored], 120, colors=True).startswith(code)


def test_report_and_status_page_have_the_severities_in_their_colors() -> None:
    _, plan = planned()
    report, status = as_html(plan), StatusPage().as_html(Board(overviewed=Overviewed(NOW, plan)))
    for html in (report, status):
        for severity in ("error", "warning", "info"):
            assert f'<td data-column="Severity" role="cell"><span class="{severity}">{severity}</span></td>' in html
            assert f".{severity} {{" in html
            assert f'</code> <span class="{severity}">{severity}</span>: frees 1 node; keeps 1 node.' in html
    assert '<span class="error">not drained: no-controller (error)</span>' in report
    assert '<code>no-controller</code> <span class="error">error</span> pod default/bare: ' in report


def test_the_objects_for_programs_have_the_severities(capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--snapshot", "docs/sample.json.gz", "-o", "json"]
    for command in (["plan", *arguments], ["explain", *arguments]):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 0
    plan, *explained = map(json.loads, capfd.readouterr().out.splitlines())
    order = ["error", "warning", "info"]
    for each in plan["nodes"]:
        severities = [blocker["severity"] for blocker in each["blockers"]]
        assert each["severity"] == min(severities, key=order.index, default=None)
        assert (each["severity"] is None) == each["drainable"]
    by_reason = {item["reason"]: item["severity"] for each in plan["nodes"] for item in each["blockers"]}
    assert set(by_reason.values()) == set(order)
    assert {each["severity"] for each in plan["summary"]["levers"]} == set(order)
    blockers = [blocker for each in explained for blocker in each["blockers"]]
    assert blockers
    assert [item for item in blockers if by_reason.get(item["reason"], item["severity"]) != item["severity"]] == []
