"""``rescheduler plan`` on a dump, as a process sees it: what it prints for programs."""

import json
from pathlib import Path
from typing import Any

import pytest

from rescheduler.cli import main
from tests.planning.builders import ON_DEMAND, budget, node, pod

CLUSTER = [
    node("od", ON_DEMAND),
    node("s"),
    pod("w-1", "od", labels={"app": "w"}),
    pod("w-2", "od", labels={"app": "w"}),
    budget("b", "w", allowed=1),
]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": CLUSTER}))
    return file


def planned(capfdbinary: pytest.CaptureFixture[bytes], dump: Path, *flags: str) -> dict[str, Any]:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--snapshot", str(dump), "-o", "json", *flags])
    assert ended.value.code in (0, None)
    found: dict[str, Any] = json.loads(capfdbinary.readouterr().out)
    return found


def test_a_budget_is_spent_once_in_a_plan(capfdbinary: pytest.CaptureFixture[bytes], dump: Path) -> None:
    [verdict] = planned(capfdbinary, dump)["nodes"]
    assert (verdict["drainable"], [one["reason"] for one in verdict["blockers"]]) == (False, ["pod-disruption-budget"])


def test_a_budget_is_good_for_one_eviction_after_the_other(
    capfdbinary: pytest.CaptureFixture[bytes], dump: Path
) -> None:
    found = planned(capfdbinary, dump, "--budgets-in-steps")
    [verdict] = found["nodes"]
    assert {one["pod"]: one["node"] for one in verdict["placements"]} == {"default/w-1": "s", "default/w-2": "s"}
    assert (verdict["drainable"], found["summary"]["pods_to_move"]) == (True, 2)
