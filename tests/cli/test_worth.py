"""Tests of --min-worth and --drain-order=worth in the commands that read a snapshot file."""

import json
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from predicates.objects import Pod
from rescheduler.cli import main
from rescheduler.planning.money.move_costs import MoveWorth
from rescheduler.planning.node_worths import NodeWorths
from tests.cli.dumps import write_dump
from tests.planning.builders import ON_DEMAND, Manifest, budget, node, pod


def owned(name: str, on: str, cpu: str) -> Manifest:
    return pod(name, on, cpu=cpu, owner="apps/v1/ReplicaSet")


#: A node of four vCPU saves up to 29.20 per month. For a moved pod: good 28.47, fair 13.87, poor 4.50.
CLUSTER = [
    *(node(name, ON_DEMAND, cpu="4") for name in ("fair", "good", "poor")),
    node("spot", cpu="32"),
    *(owned(f"{app}-0", "spot", "100m") for app in ("a", "b")),
    owned("a-1", "good", "1"),
    *(owned(f"a-{number}", "fair", "500m") for number in (2, 3)),
    *(owned(f"b-{number}", "poor", "500m") for number in range(1, 7)),
    budget("x", "other", allowed=1),
    pod("kube-system/proxy-0", "unlisted", owner="apps/v1/DaemonSet"),
]
FLAGS = ["--price-per-vcpu=0.01", "--price-per-gib=0", "--spot-price-per-vcpu=0.001", "--spot-price-per-gib=0"]
KEPT = "4.50 for a move; --min-worth=10 asks for more"


class Printed:
    """Runs commands on the cluster, and returns what they print."""

    def __init__(self, capture: pytest.CaptureFixture[bytes], folder: Path) -> None:
        self._capture = capture
        self._folder = folder
        self.add()

    def add(self, *objects: Manifest) -> None:
        """Add *objects* to the cluster."""
        self._dump = write_dump(self._folder, [*CLUSTER, *objects])

    def __call__(self, command: str, *flags: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main([command, "--snapshot", str(self._dump), *FLAGS, *flags])
        out, err = self._capture.readouterr()
        assert (ended.value.code, err) == (0, b"")
        return out.decode()

    def plan(self, *flags: str) -> Any:
        return json.loads(self("plan", "-o", "json", *flags))


@pytest.fixture
def printed(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Printed:
    return Printed(capfdbinary, tmp_path)


def verdicts(plan: Any) -> dict[str, tuple[list[str], float | None, float | None]]:
    """Return reasons, cost and worth by node."""
    return {
        each["node"]: ([item["reason"] for item in each["blockers"]], each["move_cost"], each["worth_per_move"])
        for each in plan["nodes"]
    }


def test_all_commands_leave_the_same_node(printed: Printed) -> None:
    expected = {"good": ([], 1.0, 28.47), "fair": ([], 2.0, 14.235), "poor": (["not-worth-it"], 6.0, 4.5017)}
    for flags in ([], ["--independent"]):
        plan = printed.plan("--drain-order=worth", "--min-worth=10", *flags)
        assert verdicts(plan) == expected
        assert plan["summary"]["move_cost"] == 3.0
    alone = printed("explain", "--min-worth=10", "poor")
    assert " ".join(alone.split()).count(KEPT) == 1
    assert KEPT in printed("report", "--min-worth=10")
    for page in ("wide", "details"):
        assert KEPT in " ".join(printed("plan", "--min-worth=10", "-o", page).split())
    assert "not-worth-it" in printed("plan", "--min-worth=10")


def test_a_simulated_daemon_drains_in_the_order_and_leaves_the_same_node(printed: Printed) -> None:
    flags = "--for=1h", "--node-drain-delay=1m", "--allow-returning-plans", "--drain-order=worth", "--min-worth=10"
    course = printed("simulate", *flags)
    assert re.findall(r"node (\w+): drain of [1-9]", course) == ["good", "fair"]


def test_a_what_if_changes_the_minimum(printed: Printed) -> None:
    after = printed.plan("--what-if", "min-worth=10")["what_if"]["after"]
    assert (after["drainable_nodes"], after["pods_to_move"], after["move_cost"]) == (2, 3, 3.0)
    before = printed.plan("--min-worth=10", "--what-if", "min-worth=0")["what_if"]["after"]
    assert (before["drainable_nodes"], before["pods_to_move"], before["move_cost"]) == (3, 9, 9.0)


def test_the_line_of_the_plan_is_what_its_flag_gives(printed: Printed) -> None:
    printed.add(node("large", ON_DEMAND, cpu="64"), pod("a-9", "large"))
    [line] = [each.strip() for each in printed("plan").splitlines() if "--min-worth=" in each]
    assert line == "95% of the money with 40% of the moves: --min-worth=14"
    whole, best = printed.plan()["summary"], printed.plan("--min-worth=14")["summary"]
    money = best["freed"]["net_per_month"] / whole["freed"]["net_per_month"]
    assert (0.95 <= money < 0.96, best["pods_to_move"], whole["pods_to_move"]) == (True, 4, 10)
    curve = whole["worth_curve"]
    assert curve["recommended"] in curve["points"]
    assert curve["recommended"]["min_worth"] == 14
    assert f"The ring: {line}." in printed("report")


@pytest.mark.parametrize("flags", [["--independent"], ["--levers-timeout=0"], ["--what-if=min-worth=0"]], ids=str)
def test_no_curve_is_made_where_it_says_nothing(printed: Printed, flags: list[str]) -> None:
    assert printed.plan(*flags)["summary"]["worth_curve"] is None


def test_without_prices_there_is_a_cost_but_no_worth(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.cli.test_worth.FLAGS", [])
    plan = printed.plan("--min-worth=10", "--drain-order=worth")
    assert verdicts(plan) == {"good": ([], 1.0, None), "fair": ([], 2.0, None), "poor": ([], 6.0, None)}
    assert plan["summary"]["worth_curve"] is None


@pytest.mark.parametrize("value", ["-1", "x", "nan", "1e3", ""])
def test_a_minimum_that_is_no_amount_is_refused(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path, value: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--snapshot", str(write_dump(tmp_path, CLUSTER)), f"--min-worth={value}"])
    error = capfdbinary.readouterr().err
    assert (ended.value.code, b"--min-worth" in error) == (2, True)
    assert b"expected an amount per month such as 2.50" in error


@pytest.mark.parametrize(
    ("factor", "flag"), [("1", "14"), ("100000", "1400000"), ("0.000001", "0.000014")], ids=["usual", "large", "small"]
)
def test_the_printed_value_is_accepted(
    printed: Printed, monkeypatch: pytest.MonkeyPatch, factor: str, flag: str
) -> None:
    """Amounts in a currency with small or large units have no exponent."""
    own, spot = (format(Decimal(each) * Decimal(factor), "f") for each in ("0.01", "0.001"))
    flags = f"--price-per-vcpu={own}", f"--spot-price-per-vcpu={spot}", "--price-per-gib=0", "--spot-price-per-gib=0"
    monkeypatch.setattr("tests.cli.test_worth.FLAGS", flags)
    printed.add(node("large", ON_DEMAND, cpu="64"), pod("a-9", "large"))
    [line] = [each.strip() for each in printed("plan").splitlines() if "--min-worth=" in each]
    assert line == f"95% of the money with 40% of the moves: --min-worth={flag}"
    assert printed.plan(f"--min-worth={flag}")["summary"]["pods_to_move"] == 4
    report = printed("report")
    assert f"--min-worth={flag}." in report
    assert f">{flag}<" in report
    assert f"--min-worth={flag} asks for more" in printed("plan", f"--min-worth={flag}", "-o", "wide")


@pytest.mark.parametrize(("output", "computed"), [("table", set()), ("json", {"fair", "good", "poor"})])
def test_without_prices_worths_are_computed_only_for_outputs_that_have_them(
    printed: Printed, output: str, computed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, of = set(), NodeWorths.of

    def counted(self: NodeWorths, node: str, pods: Callable[[str], Iterable[Pod]], **fields: Any) -> MoveWorth:
        nodes.add(node)
        return of(self, node, pods, **fields)

    monkeypatch.setattr(NodeWorths, "of", counted)
    monkeypatch.setitem(globals(), "FLAGS", [])
    printed("plan", "-o", output)
    assert nodes == computed
