"""The table of rules: each reason has a rule, a row in docs/reasons.md and, where one can lift it, a remedy.

The checks take the columns as values, so that each forgotten step is shown to be noticed, by name.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from rescheduler.planning.answers.node import RULES
from rescheduler.planning.outcome import Reason
from rescheduler.planning.rules.declared import Kind, Rule
from rescheduler.planning.what_if.lifting import REMEDIES, Remedy

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

#: Reasons about nodes that pods can have, too.
OF_BOTH: Final = (Reason.REMOVAL_DISABLED, Reason.UNREADABLE_OBJECT)


def sections(page: str) -> dict[str, set[str]]:
    """Return the codes of each section of *page*."""
    parts = re.findall(r"^### (.+?)\n(.*?)(?=^###? )", page, re.DOTALL | re.MULTILINE)
    return {title: set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE)) for title, text in parts}


def forgotten(
    rules: Sequence[Rule] = RULES,
    page: str = PAGE,
    remedies: Mapping[Reason, Remedy] = REMEDIES,
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
            f"REMEDIES lacks what lifts Reason.{each.name}: the rule {rule.name} reads an annotation"
            for each in rule.reasons
            if rule.annotations and each not in remedies
        ]
    complaints += [
        f"REMEDIES has Reason.{each.name}, which no rule about {'pods' if remedy.lift else 'nodes'} finds"
        for each, remedy in remedies.items()
        if each not in _of_kinds(rules, pods=remedy.lift is not None).union(later)
    ]
    return complaints


def _of_kinds(rules: Sequence[Rule], *, pods: bool) -> set[Reason]:
    """Return what the rules find that judge pods, or nodes, alone."""
    kinds = (Kind.CLASS, Kind.POD, Kind.TIMED) if pods else (Kind.NODE, Kind.TIMED_NODE)
    return {reason for rule in rules if rule.kind in kinds for reason in rule.reasons}


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
    assert forgotten(later=()) == [
        f"Reason.{each.name}: no rule declares it" for each in Reason if each in FOUND_LATER
    ] + ["REMEDIES has Reason.SPOT_POOL_SHARE, which no rule about pods finds"]


def test_a_missing_row_is_named() -> None:
    page = re.sub(r"^\| `grace-period` \|.*\n", "", PAGE, count=1, flags=re.MULTILINE)
    assert forgotten(page=page) == ["docs/reasons.md lacks a row for grace-period"]


def test_a_row_in_the_wrong_section_is_named() -> None:
    row = "| `grace-period` | warning | - | - |\n"
    page = re.sub(r"^\| `grace-period` \|.*\n", "", PAGE, flags=re.MULTILINE)
    page = page.replace("| `scale-down-disabled` |", f"{row}| `scale-down-disabled` |", 1)
    expected = ["docs/reasons.md: grace-period, of the rule _grace_period, is not in 'Reasons of a pod'"]
    assert forgotten(page=page) == expected


def test_an_annotation_that_no_lever_removes_is_named() -> None:
    rest: dict[Reason, Remedy] = {
        reason: remedy for reason, remedy in REMEDIES.items() if reason is not Reason.DO_NOT_DISRUPT
    }
    expected = ["REMEDIES lacks what lifts Reason.DO_NOT_DISRUPT: the rule _do_not_disrupt reads an annotation"]
    assert forgotten(remedies=rest) == expected


def test_a_lever_without_a_rule_is_named() -> None:
    complaints = forgotten(
        remedies={**REMEDIES, Reason.TIMEOUT: Remedy(node_key="x"), Reason.BUDGET: Remedy(node_key="x")}
    )
    assert complaints == ["REMEDIES has Reason.BUDGET, which no rule about nodes finds"]
