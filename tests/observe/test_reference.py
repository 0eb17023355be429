"""Tests that docs/reasons.md and docs/metrics.md are complete."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from rescheduler.draining.state import Why
from rescheduler.observe.events import PodProgress, Waiting
from rescheduler.observe.metric_families import PREFIX
from rescheduler.observe.metrics import Metrics
from rescheduler.planning.what_if.lifting import OF_NODES, OF_PODS

DOCS = Path(__file__).parents[2] / "docs"


def codes(heading: str) -> list[str]:
    """Return the first column of the tables below *heading* of docs/reasons.md."""
    section = (DOCS / "reasons.md").read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)


def test_every_reason_is_documented() -> None:
    """Those of nodes are held by tests/planning/test_severity.py, with their severities."""
    assert codes("Why no drain starts") == [waiting.value for waiting in Waiting]
    assert codes("Why a drain failed") == [why.value for why in Why]


def test_what_ends_a_reason_is_what_levers_try() -> None:
    """The last column of the reasons of nodes and pods, and what the rules declare, name the same ways."""
    page = (DOCS / "reasons.md").read_text(encoding="utf-8")
    advice = dict(re.findall(r"^\| `([a-z-]+)` \| \w+ \| .* \| (.*) \|$", page, re.MULTILINE))
    by_key = {code for code, text in advice.items() if re.match("remove the (annotation|label)", text)}
    assert by_key == {str(reason) for each in (OF_PODS, OF_NODES) for reason, remedy in each.items() if remedy.key}
    flags = {str(reason): remedy.flag for reason, remedy in OF_PODS.items() if remedy.flag}
    assert {code: flag for code, flag in flags.items() if f"`{flag}`" not in advice[code]} == {}


def test_every_state_of_a_pod_is_documented() -> None:
    section = (DOCS / "operating.md").read_text(encoding="utf-8").partition("\n## Report and status page\n")[2]
    table = section.partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z]+)` \|", table, re.MULTILINE) == [state.value for state in PodProgress]


def test_every_metric_is_documented() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    expected = {
        family.name + ("_total" if family.type == "counter" else ""): family.type.replace("unknown", "untyped")
        for family in registry.collect()
        if family.name.startswith(PREFIX)
    }
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| `(spot_\w+)` \| (\w+) \|", page, re.MULTILINE)) == expected
