"""Tests of a plan at a glance: 40 lines for any cluster, levers with commands, one line for each node."""

import datetime as dt
import json
import os
import re
import subprocess
from collections import Counter
from decimal import Decimal
from html import escape
from pathlib import Path
from typing import Any

import pytest

from rescheduler.cli import main, plan
from rescheduler.cli.cluster_source import ClusterSource
from rescheduler.cli.console import rendered
from rescheduler.cli.node_table import SORT_KEYS
from rescheduler.cli.plan_page import LINES, glance
from rescheduler.clock import SystemClock
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.outcome import Blocker, Plan, Planning, Reason, Rejected
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
    return rendered(glance(result, width), width).splitlines()


@pytest.mark.parametrize("name", ["n", LONG], ids=["short names", "long names"])
@pytest.mark.parametrize("number", [1, 2, 9, 60, 301])
def test_the_page_has_at_most_40_lines_for_any_cluster(number: int, name: str) -> None:
    page = worst(number, name)
    assert len(page) <= LINES
    assert any("drainable" in line for line in page)


#: What was printed, by the width of the terminal and the flags: a plan with its levers takes seconds.
PRINTED: dict[tuple[str, ...], list[str]] = {}
#: For pages whose levers do not matter.
QUICK = ("--survive=off", "--levers-timeout=0")


def printed(capfd: pytest.CaptureFixture[str], *flags: str) -> list[str]:
    """Return what `plan` prints about the sample; the same flags are computed once."""
    key = (os.environ.get("COLUMNS", ""), *flags)
    if key not in PRINTED:
        with pytest.raises(SystemExit) as ended:
            main(["plan", "--snapshot", str(files.DUMP), "--prices", str(files.PRICES), "--currency=$", *flags])
        assert ended.value.code == 0
        PRINTED[key] = capfd.readouterr().out.splitlines()
    return PRINTED[key]


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
    page = printed(capfd, *QUICK, *flags)
    rows = page[page.index(next(line for line in page if line.startswith("node "))) + 1 :]
    assert len(rows) == 30
    assert max(map(len, page)) <= 80
    assert all(line.startswith("ip-10-0-") for line in rows)


@pytest.mark.parametrize("key", SORT_KEYS)
def test_lines_are_sorted(capfd: pytest.CaptureFixture[str], monkeypatch: Any, key: str) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    page = printed(capfd, *QUICK, f"--sort-by={key}")
    start = next(number for number, line in enumerate(page) if line.startswith("node "))
    column = "node" if key == "name" else "$/month" if key == "price" else key
    at = page[start].index(column)
    cells = [line[at:].split()[0] for line in page[start + 1 :]]
    if key == "price":
        assert [int(cell) for cell in cells] == sorted(map(int, cells), reverse=True)
    elif key in ("cpu", "memory", "age"):
        numbers = [int(cell.rstrip("%dhm")) for cell in cells]
        assert numbers == sorted(numbers, reverse=key == "age")
    elif key == "severity":
        assert Counter(cells) == {"drainable:": 14, "error": 3, "warning": 11, "info": 2}
        assert cells == sorted(cells, key=["error", "warning", "info", "drainable:"].index)
    else:
        assert cells == sorted(cells)


def test_a_group_of_the_provider_is_no_list_of_nodes(capfd: pytest.CaptureFixture[str]) -> None:
    page = printed(capfd, *QUICK, "--nodes", "1:10:pool")
    assert page == printed(capfd, *QUICK)
    assert not any(line.startswith("node ") for line in page)


def test_a_lever_is_shown_in_full_and_as_a_patch(capfd: pytest.CaptureFixture[str]) -> None:
    page = printed(capfd, "--lever=1")
    assert page[-1].endswith("--what-if 'allow data/deployment/spark-worker local-storage'")
    risk, patch = printed(capfd, "--lever", "1", "--patch")
    assert risk == "# what the pods keep in local volumes is lost"
    assert patch == (
        "kubectl patch -n data deployment spark-worker --type=merge -p "
        '\'{"spec":{"template":{"metadata":{"annotations":'
        '{"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes":"scratch"}}}}}\''
    )


@pytest.mark.parametrize("flags", [[], ["-o", "wide"], ["--nodes"], ["--what-if=add-spot 1 cpu=4,memory=8Gi"]], ids=str)
def test_a_watched_plan_begins_with_its_time(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    """The pages of a live cluster, here read from a file, are ten seconds apart."""
    pauses: list[float] = []

    class Watched(SystemClock):
        def now(self) -> dt.datetime:
            return dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC) + dt.timedelta(seconds=sum(pauses))

    def passed(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(plan, "SystemClock", Watched)
    monkeypatch.setattr(plan, "pause", passed)
    monkeypatch.setattr(plan, "daemon_of", lambda *_: None)
    monkeypatch.setattr(plan, "ClusterSource", lambda _, *others: ClusterSource(str(files.DUMP), *others))
    with pytest.raises(SystemExit):
        main(["plan", "--watch", "--survive=off", "--levers-timeout=0", *flags])
    begins = [line for line in capfd.readouterr().out.splitlines() if line.startswith("Every ")]
    times = ("2026-01-01T12:00:00Z", "2026-01-01T12:00:10Z")
    assert (begins, pauses) == ([f"Every 10 s, now {time}" for time in times], [10, 10])


WRONG = {
    "--lever=99": "--lever=99: no such lever: expected 1 to 12",
    "--patch": "--patch: expected --lever",
    "--watch": "--watch: expected a live cluster",
    "--lever=9 --levers-timeout=0s": "--lever: expected a --levers-timeout above 0",
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


def test_the_patches_of_a_lever_that_frees_nothing_alone_are_complete(capfd: pytest.CaptureFixture[str]) -> None:
    """Each change that the lever tries has its command, or a comment that says why there is none."""
    levers = json.loads("".join(printed(capfd, "-o", "json")))["summary"]["levers"]
    combined = [number for number, lever in enumerate(levers, 1) if not lever["frees"]]
    assert combined
    for number in combined:
        lever = levers[number - 1]
        printed_lines = printed(capfd, f"--lever={number}", "--patch")
        commands = [line for line in printed_lines if not line.startswith("#") or "running pods cannot" in line]
        assert len(commands) == len(lever["what_if"]) == 1 + len(lever["together_with"])


def test_levers_are_in_the_order_of_what_they_save(capfd: pytest.CaptureFixture[str]) -> None:
    levers = json.loads("".join(printed(capfd, "-o", "json")))["summary"]["levers"]
    alone = [lever["net_per_month"] for lever in levers if lever["frees"]]
    together = [lever["net_per_month_together"] for lever in levers if not lever["frees"]]
    assert alone == sorted(alone, reverse=True)
    assert together == sorted(together, reverse=True)
    assert [bool(lever["frees"]) for lever in levers] == [True] * len(alone) + [False] * len(together)


def test_all_pages_have_the_same_levers_with_the_same_numbers(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    levers = json.loads("".join(printed(capfd, "-o", "json")))["summary"]["levers"]
    amounts = [lever["net_per_month"] if lever["frees"] else lever["net_per_month_together"] for lever in levers]
    expected = [
        (str(number), str(len(lever["frees"] or lever["frees_together"])), f"{amount:,.0f}", lever["risk"] or "")
        for number, (lever, amount) in enumerate(zip(levers, amounts, strict=True), 1)
    ]
    for flags in ([], ["-o", "details"], ["-o", "wide"]):
        page = printed(capfd, *flags)
        rows = [line for line in page if re.match(r" {1,2}[0-9]+ +[0-9?]+ ", line)]
        found = [(row[:3].strip(), row[5:10].strip(), row[12:20].strip(), row[22:26].strip()) for row in rows]
        assert found == expected[: len(found)]
        assert len(found) == len(expected) or "more with -o wide" in "".join(page)
        offered = [line.strip() for line in page if line.strip().startswith("--what-if")]
        tried = [lever["try"].partition("'--currency=$' ")[2] for lever in levers[: len(found)]]
        assert offered == [text.replace(".eu-west-1.compute.internal", "") for text in tried]
    html = "".join(printed(capfd, "-o", "html"))
    [steps] = re.findall(r'<ol class="steps">.*?</ol>', html)
    found_html = re.findall(r": frees ([0-9]+) nodes?, ([0-9,]+) \$/month", steps)
    assert found_html == [(frees, month) for _, frees, month, _ in expected]
    [command] = re.findall(r"add its --what-if to <code>(.*?)</code>", html)
    assert [f"{command} {text}" for text in re.findall(r"<code>(--what-if .*?)</code>", steps)] == [
        escape(lever["try"], quote=False) for lever in levers
    ]


def test_a_lever_that_loses_something_for_good_says_what(capfd: pytest.CaptureFixture[str]) -> None:
    levers = json.loads("".join(printed(capfd, "-o", "json")))["summary"]["levers"]
    found = {text: lever["risk"] for lever in levers if lever["frees"] for text in lever["what_if"]}
    assert found["allow data/deployment/spark-worker local-storage"] == "data"
    assert found["allow ci/pod/release-build-7rhh2 no-controller"] == "pod"
    assert found["unpin ci/deployment/ci-cache"] is None


def test_the_page_says_that_not_all_levers_were_tried_even_if_none_was(capfd: pytest.CaptureFixture[str]) -> None:
    for flags in ([], ["-o", "wide"]):
        assert "The time limit ended" in "".join(printed(capfd, "--levers-timeout=1us", *flags))


def test_a_change_that_was_pasted_with_line_breaks_is_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    text = "allow data/\n deployment/\n spark-worker  local-storage"
    result = json.loads("".join(printed(capfd, "-o", "json", "--what-if", text)))["what_if"]
    assert result["after"]["drainable_nodes"] == result["before"]["drainable_nodes"] + 3


def as_a_shell(command: str) -> list[str]:
    """Return the words of *command* as a shell reads them."""
    script = "\n".join(["words() { printf '%s\\0' \"$@\"; }", f"words {command}"])
    done = subprocess.run(["bash", "-c", script], check=True, capture_output=True)
    return done.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("columns", [40, 200])
def test_the_first_command_of_the_page_can_be_pasted(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    page = printed(capfd)
    assert max(map(len, page)) <= columns
    start = next(number for number, line in enumerate(page) if line.startswith("First: "))
    end = next(number for number, line in enumerate(page) if line.startswith("  frees "))
    words = as_a_shell("\n".join(page[start:end]).removeprefix("First: "))
    assert words[:2] == ["rescheduler", "plan"]
    with pytest.raises(SystemExit) as ended:
        main(words[1:])
    out, err = capfd.readouterr()
    assert (ended.value.code, err, "Can also be drained" in out) == (0, "", True)


def test_each_node_has_a_bar_of_the_larger_share_if_there_is_room(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    page = printed(capfd, *QUICK, "--sort-by=price")
    [head] = [line for line in page if line.startswith("node ")]
    at = head.index("use")
    for line in page[page.index(head) + 1 :]:
        cpu, memory = (int(share) for share in re.findall(r" ([0-9]+)%", line)[:2])
        bar = line[at : at + 10]
        assert bar == "█" * bar.count("█") + "░" * bar.count("░")
        assert abs(bar.count("█") - max(cpu, memory) / 10) <= 0.5
    prices = [int(line[head.index("$/month") :].split()[0].replace(",", "")) for line in page[page.index(head) + 1 :]]
    assert prices == sorted(prices, reverse=True)


@pytest.mark.parametrize("owner", ["Deployment", "ReplicaSet"])
def test_a_long_selector_is_shown_whatever_the_owner(owner: str) -> None:
    cluster = snapshot([node("a", ON_DEMAND), node("s")])
    obstacle = f"nodeSelector {'x' * 40}=on-demand"
    lever = Lever(f"{owner} shop/{'y' * 40}", Reason.PINNED, obstacle, ("a",), ("a",), changes=("x",))
    result = overview(Planning((Rejected("a", (Blocker(Reason.PINNED, "x"),)),), 1, 1), cluster, PriceList(), [lever])
    text = rendered(glance(result, 80), 80)
    assert obstacle.partition(" ")[2] in text.replace("\n", "").replace(" ", "")
    assert max(map(len, text.splitlines())) <= 80
