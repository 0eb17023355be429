"""The table of rules: each reason has a rule, and a row in docs/reasons.md. What lifts it stands with the rule.

The checks take the columns as values, so that each forgotten step is shown to be noticed, by name.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rescheduler.planning.answers.node import RULES
from rescheduler.planning.outcome import Reason
from rescheduler.planning.rules.declared import Kind, Rule
from rescheduler.planning.rules.lifts import Remedy, removing, removing_from_node

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reasons.md").read_text(encoding="utf-8")

#: The reasons that no rule finds, because they follow from the placement of the pods, the forecast, or a drain that has
#: begun; and the module that does.
FOUND_LATER: Final[Mapping[Reason, str]] = {
    Reason.SPOT_POOL_SETTLING: "planning/question.py",
    Reason.CANNOT_MOVE_IN_STEPS: "planning/question.py",
    Reason.FRAGILE: "planning/placement/forecast.py",
    Reason.RETURNS_TO_ON_DEMAND: "planning/placement/forecast.py",
    Reason.RETURNS_TO_DRAINED: "planning/placement/forecast.py",
    Reason.SPOT_POOL_SHARE: "planning/pool_shares.py",
    Reason.WOULD_NOT_SURVIVE: "planning/answers/survival.py",
    Reason.FALLBACK_HEADROOM: "planning/answers/headroom.py",
    Reason.TIMEOUT: "planning/placement/forecast_checks.py",
    Reason.NOT_ON_DEMAND: "planning/answers/follow.py",
    Reason.NO_SPOT_CAPACITY: "planning/room/orders.py",
}

#: By kind, the section of docs/reasons.md in which the reasons of rules stand. Those of drains may be about both.
SECTION: Final = {
    Kind.CLASS: "Reasons of a pod",
    Kind.POD: "Reasons of a pod",
    Kind.TIMED: "Reasons of a pod",
    Kind.NODE: "Reasons of the node",
    Kind.TIMED_NODE: "Reasons of the node",
}

#: The kinds of rules about pods.
OF_PODS: Final = (Kind.CLASS, Kind.POD, Kind.TIMED)

#: Reasons about nodes that pods can have, too.
OF_BOTH: Final = (Reason.REMOVAL_DISABLED, Reason.UNREADABLE_OBJECT)


def sections(page: str) -> dict[str, set[str]]:
    """Return the codes of each section of *page*."""
    parts = re.findall(r"^### (.+?)\n(.*?)(?=^###? )", page, re.DOTALL | re.MULTILINE)
    return {title: set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE)) for title, text in parts}


def forgotten(
    rules: Sequence[Rule] = RULES,
    page: str = PAGE,
    later: Collection[Reason] = tuple(FOUND_LATER),
) -> list[str]:
    """Return what lacks in the columns of the table."""
    found, rows = {reason for rule in rules for reason in rule.reasons}, sections(page)
    documented = set[str]().union(*rows.values())
    complaints = [f"Reason.{each.name}: no rule declares it" for each in Reason if each not in found.union(later)]
    complaints += [f"docs/reasons.md lacks a row for {each.value}" for each in Reason if each.value not in documented]
    for rule in rules:
        misplaced = [
            each for each in rule.reasons if each.value not in rows.get(SECTION.get(rule.kind, ""), each.value)
        ]
        complaints += [
            f"docs/reasons.md: {each.value}, of the rule {rule.name}, is not in {SECTION[rule.kind]!r}"
            for each in misplaced
            if each not in OF_BOTH and each.value in documented
        ]
        complaints += [
            f"{rule.name}: what lifts Reason.{reason.name} lifts it from {'pods' if remedy.lift else 'nodes'}"
            for reason, remedy in rule.lifted_by.items()
            if (rule.kind in OF_PODS) is (remedy.lift is None)
        ]
    return complaints + contradictions(rules)


def contradictions(rules: Sequence[Rule]) -> list[str]:
    """Return which rules say otherwise than an earlier one of the same scope what lifts a reason."""
    complaints, first = [], dict[tuple[bool, Reason], tuple[Rule, Remedy]]()
    for rule in rules:
        for reason, remedy in rule.lifted_by.items():
            earlier, known = first.setdefault((rule.kind in OF_PODS, reason), (rule, remedy))
            if known is not remedy:
                complaints.append(f"{earlier.name} and {rule.name} lift Reason.{reason.name} in two ways")
    return complaints


def test_nothing_is_forgotten() -> None:
    assert forgotten() == []


def test_what_is_found_later_is_found_where_the_table_says() -> None:
    for reason, module in FOUND_LATER.items():
        assert f"Reason.{reason.name}" in (ROOT / "rescheduler" / module).read_text(encoding="utf-8"), reason


def without(name: str) -> list[Rule]:
    rules = [rule for rule in RULES if rule.name != name]
    assert len(rules) < len(RULES)
    return rules


def test_a_reason_without_a_rule_is_named() -> None:
    assert "Reason.GRACE_PERIOD: no rule declares it" in forgotten(without("_grace_period"))
    assert forgotten(later=()) == [f"Reason.{each.name}: no rule declares it" for each in Reason if each in FOUND_LATER]


def test_a_missing_row_is_named() -> None:
    page = re.sub(r"^\| `grace-period` \|.*\n", "", PAGE, count=1, flags=re.MULTILINE)
    assert forgotten(page=page) == ["docs/reasons.md lacks a row for grace-period"]


def test_a_row_in_the_wrong_section_is_named() -> None:
    row = "| `grace-period` | warning | - | - |\n"
    page = re.sub(r"^\| `grace-period` \|.*\n", "", PAGE, flags=re.MULTILINE)
    page = page.replace("| `scale-down-disabled` |", f"{row}| `scale-down-disabled` |", 1)
    expected = ["docs/reasons.md: grace-period, of the rule _grace_period, is not in 'Reasons of a pod'"]
    assert forgotten(page=page) == expected


def test_what_lifts_a_reason_from_the_wrong_objects_is_named() -> None:
    rules = [_with(rule, Reason.DO_NOT_DISRUPT, removing_from_node("x")) for rule in RULES]
    assert "_do_not_disrupt: what lifts Reason.DO_NOT_DISRUPT lifts it from nodes" in forgotten(rules)


def test_rules_that_lift_a_reason_in_two_ways_are_named() -> None:
    rules = [rule if rule.name != "_labeled" else _with(rule, Reason.REMOVAL_DISABLED, removing("x")) for rule in RULES]
    assert forgotten(rules) == ["_annotated and _labeled lift Reason.REMOVAL_DISABLED in two ways"]


def _with(rule: Rule, reason: Reason, remedy: Remedy) -> Rule:
    return replace(rule, lifted_by={**rule.lifted_by, reason: remedy}) if reason in rule.reasons else rule
