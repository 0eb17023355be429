"""Tests of a plan at a glance: 40 lines for any cluster, levers with commands, one line for each node."""

import json
from decimal import Decimal
from typing import Any

import pytest

from rescheduler.cli import main
from rescheduler.cli.console import rendered
from rescheduler.cli.glance import LINES, SORT_KEYS
from rescheduler.cli.plan_page import glance
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.outcome import Blocker, Plan, Planning, Reason, Rejected
from rescheduler.planning.policy import Policy
from rescheduler.planning.what_if.overview import Lever, overview
from tests.planning.builders import ON_DEMAND, node, snapshot
from tests.sample import files

TYPE = "node.kubernetes.io/instance-type"
LONG = "very-long-name-of-something-" * 8


def worst(number: int, name: str) -> list[str]:
    """Return the page, as pieces, of a cluster with many types, reasons, notes and levers with long names."""
    nodes = [node(f"{name}{i}"[:250], ON_DEMAND, labels={TYPE: f"{name[:40]}type-{i}"}) for i in range(number)]
    names = [item["metadata"]["name"] for item in nodes]
    reasons = list(Reason)
    verdicts = [
        Plan(each, ()) if i % 2 else Rejected(each, (Blocker(reasons[i % len(reasons)], "x", f"ns/{name}pod-{i}"),))
        for i, each in enumerate(names)
    ]
    levers = [
        Lever(f"Deployment ns/{name}{i}", Reason.LOCAL_STORAGE, f"emptyDir {name}", (names[0],), (names[0],),
              changes=(f"allow ns/deployment/{name}{i} local-storage",))
        for i in range(number)
    ]  # fmt: skip
    prices = PriceList({(f"{name[:40]}type-{i}", "", False): Decimal(1) for i in range(number)}, currency="$")
    cluster = snapshot([*nodes, node("spot")])
    result = overview(
        Planning(tuple(verdicts), number, 1), cluster, prices, levers,
        levers_complete=False, assumptions=[f"{name} {i}" for i in range(number)], incomplete=f"it lacks {name}",
    )  # fmt: skip
    width = 40 if number % 2 else 80
    return rendered(glance(result, cluster, Policy(), width), width).splitlines()


@pytest.mark.parametrize("name", ["n", LONG], ids=["short names", "long names"])
@pytest.mark.parametrize("number", [1, 2, 9, 60, 301])
def test_the_page_has_at_most_40_lines_for_any_cluster(number: int, name: str) -> None:
    page = worst(number, name)
    assert len(page) <= LINES
    assert any("drainable" in line for line in page)


def printed(capfd: pytest.CaptureFixture[str], *flags: str) -> list[str]:
    flags = ("--prices", str(files.PRICES), "--currency=$", *flags)
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--snapshot", str(files.DUMP), *flags])
    assert ended.value.code == 0
    return capfd.readouterr().out.splitlines()


def test_levers_have_their_money_and_an_exact_command(capfd: pytest.CaptureFixture[str]) -> None:
    summary = json.loads("".join(printed(capfd, "-o", "json")))["summary"]
    lever = summary["levers"][0]
    assert lever["what_if"] == ["allow data/deployment/spark-worker local-storage"]
    flags = f"--snapshot {files.DUMP} --prices {files.PRICES} '--currency=$'"
    assert lever["try"] == f"rescheduler plan {flags} --what-if '{lever['what_if'][0]}'"
    assert 0 < lever["net_per_month"] < lever["price_per_month"]


@pytest.mark.parametrize("flags", [["--nodes"], ["--sort-by=price"], ["--nodes", "--sort-by", "age"]], ids=" ".join)
def test_each_node_has_one_line(capfd: pytest.CaptureFixture[str], monkeypatch: Any, flags: list[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page = printed(capfd, "--survive=off", *flags)
    rows = page[page.index(next(line for line in page if line.startswith("node "))) + 1 :]
    assert len(rows) == 30
    assert max(map(len, page)) <= 80
    assert all(line.startswith("ip-10-0-") for line in rows)


@pytest.mark.parametrize("key", SORT_KEYS)
def test_lines_are_sorted(capfd: pytest.CaptureFixture[str], monkeypatch: Any, key: str) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    page = printed(capfd, "--survive=off", f"--sort-by={key}")
    start = next(number for number, line in enumerate(page) if line.startswith("node "))
    column = "node" if key == "name" else "$/month" if key == "price" else key
    at = page[start].index(column)
    cells = [line[at:].split()[0] for line in page[start + 1 :]]
    if key == "price":
        assert [int(cell) for cell in cells] == sorted(map(int, cells), reverse=True)
    elif key in ("cpu", "memory", "age"):
        numbers = [int(cell.rstrip("%dhm")) for cell in cells]
        assert numbers == sorted(numbers, reverse=key == "age")
    else:
        assert cells == sorted(cells)


def test_a_group_of_the_provider_is_no_list_of_nodes(capfd: pytest.CaptureFixture[str]) -> None:
    page = printed(capfd, "--survive=off", "--nodes", "1:10:pool")
    assert page == printed(capfd, "--survive=off")
    assert not any(line.startswith("node ") for line in page)


def test_a_lever_is_shown_in_full_and_as_a_patch(capfd: pytest.CaptureFixture[str]) -> None:
    page = printed(capfd, "--lever=1")
    assert page[-1].endswith("--what-if 'allow data/deployment/spark-worker local-storage'")
    [patch] = printed(capfd, "--lever", "1", "--patch")
    assert patch == (
        "kubectl patch -n data deployment spark-worker --type=merge -p "
        '\'{"spec":{"template":{"metadata":{"annotations":'
        '{"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes":"scratch"}}}}}\''
    )


WRONG = {
    "--lever=99": "--lever=99: no such lever: expected 1 to 11",
    "--patch": "--patch: expected --lever",
    "--watch": "--watch: expected a live cluster",
    "--lever=1 --independent": "--lever: expected no --what-if and no --independent",
}


@pytest.mark.parametrize(("flags", "message"), WRONG.items())
def test_contradictions_are_usage_errors(capfd: pytest.CaptureFixture[str], flags: str, message: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "-f", str(files.DUMP), *flags.split()])
    assert (ended.value.code, message in capfd.readouterr().err) == (2, True)


def test_the_first_lever_can_be_tried(capfd: pytest.CaptureFixture[str]) -> None:
    text = json.loads("".join(printed(capfd, "-o", "json")))["summary"]["levers"][0]["what_if"][0]
    result = json.loads("".join(printed(capfd, "-o", "json", "--what-if", text)))["what_if"]
    assert result["after"]["drainable_nodes"] == result["before"]["drainable_nodes"] + 3
