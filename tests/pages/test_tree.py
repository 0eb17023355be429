"""What the tree of a plan says is in all its renderings."""

import html
import re
from dataclasses import replace
from typing import Any

import pytest

from rescheduler.cli.output import as_json
from rescheduler.cli.plan_page import page
from rescheduler.pages.plan_tree import plan_parts
from rescheduler.pages.report import as_html
from rescheduler.pages.tree import Amount, Chart, ChoiceTable, Content, Line, PagePart, Table
from rescheduler.planning.outcome import Reason
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy, Survive
from rescheduler.planning.what_if.overview import Lever, Overview, overview, tradeoff
from tests.pages.clusters import PRICES, manifests
from tests.planning.builders import NOW, snapshot

CLUSTER = snapshot(manifests(9, 3))
#: The keys of the JSON summary that have the facts of a part. Those of other parts are in sentences or in nodes.
KEYS = {"sums": "freed", "notes": "assumptions", "survival": "survival", "levers": "levers", "worth": "worth_curve"}


def whole() -> Overview:
    """Return a plan that has something to say in every part but the worth of its moves."""
    policy, circumstances = Policy(budgets_in_steps=True, planning_timeout=0), Circumstances(NOW)
    planner = Planner(CLUSTER, policy)
    planning = planner.plan_all(circumstances)
    kept = tuple(verdict.node for verdict in planning.rejected)
    lever = Lever("Pod ops/bare0", Reason.NO_CONTROLLER, "no controller", kept, kept[:1], changes=("allow it",))
    known = overview(planning, CLUSTER, PRICES, [lever], assumptions=["no quotas"], policy=policy, held="it is Sunday")
    known = replace(known, survival=planner.certificate(circumstances, Survive.POOL, planning.plans))
    return replace(known, tradeoff=tradeoff(planner, circumstances, known, Survive.POOL))


#: What text leaves out of the names of nodes.
DOMAIN = ".eu-central-1.compute.internal"
PLAN = whole()
PARTS = {part.name: part for part in plan_parts(PLAN)}


def said(content: Content) -> list[str]:
    """Return the texts of *content* that a reader must find; amounts as in text."""
    match content:
        case Line():
            return [content.before + content.text]
        case Table():
            rows = [*content.rows, *content.sums]
            return [content.heading, *(row.name for row in rows)]
        case ChoiceTable():
            return [text for choice in content.choices for text in (*choice.what, choice.command)]
        case Chart():
            return []


def amounts(part: PagePart) -> list[Amount]:
    tables = [content for content in part.content if isinstance(content, Table)]
    values = [row.values[key] for table in tables for row in (*table.rows, *table.sums) for key in table.columns]
    return [value for value in values if isinstance(value, Amount)]


def texts() -> tuple[str, str]:
    """Return the page as text and as HTML, without tags and suffixes of names that text leaves out."""
    lines = "\n".join(line.before + line.text for line in page(PLAN, CLUSTER, NOW, wide=True))
    markup = html.unescape(re.sub("<[^>]*>", "", as_html(PLAN, NOW)))
    return lines.replace(DOMAIN, ""), markup.replace(DOMAIN, "")


def test_the_plan_has_every_part_and_something_to_lose() -> None:
    assert [*PARTS] == ["first", "sums", "reasons", "notes", "survival", "levers"]
    assert PLAN.survival is not None
    assert [isinstance(each, Chart) for each in PARTS["survival"].content] == [False, True]


@pytest.mark.parametrize("name", PARTS)
def test_text_and_html_say_all_that_is_in_a_part(name: str) -> None:
    wanted = [text.replace(DOMAIN, "") for content in PARTS[name].content for text in said(content)]
    for rendering in texts():
        assert [text for text in wanted if text not in rendering] == []
    lines, markup = texts()
    assert [amount.text for amount in amounts(PARTS[name]) if amount.text not in lines] == []
    assert [amount.bare for amount in amounts(PARTS[name]) if amount.bare not in markup] == []


@pytest.mark.parametrize("name", [name for name in KEYS if name in PARTS])
def test_json_has_the_facts_of_a_part(name: str) -> None:
    assert as_json(PLAN, 0)["summary"][KEYS[name]]


def test_the_amounts_of_the_sums_are_those_of_json() -> None:
    summary: dict[str, Any] = as_json(PLAN, 0)["summary"]
    [table] = [content for content in PARTS["sums"].content if isinstance(content, Table)]
    kinds = [summary["freed"]["by_instance_type"][row.name] for row in table.rows]
    for row, found in zip((*table.rows, *table.sums), (*kinds, summary["freed"], summary["on_demand"]), strict=True):
        for key in table.columns:
            value = row.values[key]
            assert isinstance(value, Amount)
            assert found[key] == value.plain
