"""Every ``rescheduler`` command of README and docs, and every command that the program prints, does what it says."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import pytest

from rescheduler.cli import COMMANDS, main
from rescheduler.clock import SystemClock
from rescheduler.housekeeping import composition
from rescheduler.observe.events import Overviewed
from rescheduler.observe.prepared_pages import StatusPage
from rescheduler.observe.status import Board
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy, namespace_scope
from rescheduler.planning.what_if.comparison import levers_of
from rescheduler.planning.what_if.overview import overview
from rescheduler.snapshot_file import reader
from tests import forking
from tests.sample import files

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

#: Commands that plan, which the sample is enough for. The others need a cluster or a cloud: their flags are checked.
ON_A_FILE = ("plan", "explain", "report")


def shell_words(command: str) -> list[str]:
    """Return the words of *command* as a shell reads them."""
    script = "\n".join(["words() { printf '%s\\0' \"$@\"; }", f"words {command}"])
    done = subprocess.run(["bash", "-c", script], check=True, capture_output=True)
    return done.stdout.decode().split("\0")[:-1]


def documented() -> Iterator[tuple[str, str]]:
    """Yield the commands in the blocks and the sentences of all pages, each with the name of its page."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"```(?:bash|console)\n(.*?)```", text, re.DOTALL)
        lines = re.sub(r"\\\n\s*", "", "\n".join(blocks)).splitlines()
        sentences = re.sub(r"```.*?```", "", text, flags=re.DOTALL).replace("\\|", "|")
        for line in [*lines, *(" ".join(each.split()) for each in re.findall(r"`(rescheduler [^`]+)`", sentences))]:
            for part in re.split(r" && | \| | > ", line.removeprefix("$ ")):
                if part.startswith("rescheduler "):
                    yield page.name, part


DOCUMENTED = sorted(set(documented()))
PLACEHOLDER = re.compile(r"(?<![A-Z_-])[A-Z]{3,}(?![A-Z_]*=)|…|<|/etc/|kubeconfig|--snapshot -( |$)")


def ended(args: list[str]) -> int | str | None:
    with pytest.raises(SystemExit) as exited:
        main(args)
    return exited.value.code


def test_there_are_commands() -> None:
    assert {"README.md", "cli.md", "money.md", "operating.md", "simulating.md"} <= {page for page, _ in DOCUMENTED}


@pytest.mark.parametrize(("page", "command"), DOCUMENTED)
def test_a_documented_command_has_flags_that_exist(page: str, command: str) -> None:
    words = shell_words(command)
    name = next(word for word in words[1:] if not word.startswith("-"))
    assert name in COMMANDS
    flags = [word.partition("=")[0] for word in words[2:] if word.startswith("--")]
    help_text = help_of(*_group(words)) if flags else ""
    assert [flag for flag in flags if not re.search(rf"{flag}\b", help_text)] == []


@cache
def help_of(*command: str) -> str:
    return forking.run(*command, "--help-all", check=True).stdout


def _group(words: list[str]) -> list[str]:
    """Return the command and, of a group, its subcommand."""
    return [word for word in words[1:3] if re.fullmatch("[a-z-]+", word) and not word.startswith("-")][
        : 2 if words[1] in ("liqo", "provider") else 1
    ]


@pytest.mark.parametrize(
    ("page", "command"),
    [
        (page, command)
        for page, command in DOCUMENTED
        if command.split()[1] in ON_A_FILE
        and not PLACEHOLDER.search(command.partition("  #")[0])
        and "--from-daemon" not in command  # a file has none: tests/cluster/test_readme_commands.py
    ],
)
def test_a_documented_plan_works_as_it_is_on_the_sample(
    page: str,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("RESCHEDULER_SNAPSHOT", str(files.DUMP))
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "prices.csv").symlink_to(files.PRICES)
    monkeypatch.chdir(tmp_path)
    assert (ended(shell_words(command)[1:]), capfd.readouterr().err) == (0, "")


#: The forms in the table of what-ifs. The sample has no taint of AKS.
FORMS = [
    form
    for form in re.findall(
        r"^\| `([^`]+)` \|", PAGES[0].with_name("docs").joinpath("what-if.md").read_text(), re.MULTILINE
    )
    if re.match(r"(skip|allow|unpin|budget|add-spot|scheduler|lose-spot) ?\S*", form) and "=VALUE" not in form
]


@pytest.mark.parametrize("form", FORMS)
def test_a_documented_change_works_as_it_is_on_the_sample(form: str, capfd: pytest.CaptureFixture[str]) -> None:
    text = form.replace("NODE", "ip-10-0-16-11.eu-west-1.compute.internal")
    assert ended(["plan", "--snapshot", str(files.DUMP), "--survive=off", "--what-if", text]) == 0
    assert f"What if: {text}\n" in capfd.readouterr().out


def printed_by(page: str) -> list[str]:
    """Return the commands of an HTML page that plans: that of the page, and those of its levers."""
    [levers] = re.findall(r"add its --what-if to .*?</ol>", page, re.DOTALL)
    command, *texts = map(unescape, re.findall(r"<code>((?:rescheduler |--what-if )[^<]*)</code>", levers))
    return [f"{command} {text}" for text in texts]


def check_lever(command: str, freed: Iterable[str], capfd: pytest.CaptureFixture[str]) -> None:
    """Check that *command*, which a lever prints, frees the nodes *freed* that the lever names."""
    assert ended([*shell_words(command)[1:], "-o", "json"]) == 0
    result = json.loads(capfd.readouterr().out)["what_if"]
    assert set(freed) <= set(result["after"]["drainable"]) - set(result["before"]["drainable"])


def test_every_command_that_plan_and_report_print_works_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Each lever's command frees what the lever says, with the flags of the run: exclusions, prices, the file."""
    monkeypatch.chdir(ROOT)
    flags = ["--snapshot", "docs/sample.json.gz", "--prices=docs/sample-prices.csv", "--exclude-namespaces=ci"]
    assert ended(["plan", *flags, "-o", "json"]) == 0
    levers = json.loads(capfd.readouterr().out)["summary"]["levers"]
    report = tmp_path / "report.html"
    assert ended(["report", *flags, f"--output-file={report}"]) == 0
    assert printed_by(report.read_text()) == [lever["try"] for lever in levers]
    assert levers
    for number, lever in enumerate(levers, 1):
        assert ended(["plan", *flags, f"--lever={number}"]) == 0
        assert capfd.readouterr().out.splitlines()[-1] == lever["try"]
        check_lever(lever["try"], lever["frees"] or lever["frees_together"], capfd)


def test_every_command_that_the_status_page_prints_works_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The page names the cluster's file only for this test: otherwise it is that of the reader's kubeconfig."""
    policy = Policy(budgets_in_steps=True, judge_controllers=True, namespaces=namespace_scope((), ("ci",), ""))
    cluster, clock = reader.read(str(files.DUMP)), SystemClock()
    planner, circumstances = Planner(cluster, policy), Circumstances(clock.now(), prices=files.prices())
    planning = planner.plan_all(circumstances)
    found = levers_of(planning, planner, cluster, policy, circumstances, files.prices(), lambda: False).levers
    command = "rescheduler plan --exclude-namespaces ci"
    summed = overview(planning, cluster, files.prices(), found, now=circumstances.now, command=command)
    page = StatusPage().as_html(Board(overviewed=Overviewed(circumstances.now, summed)))
    monkeypatch.setenv("RESCHEDULER_SNAPSHOT", str(files.DUMP))
    printed = printed_by(page)
    assert len(printed) == len(found) > 4
    for text, lever in zip(printed, found, strict=True):
        check_lever(text, lever.gain[0], capfd)


def test_a_printed_command_has_the_options_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whoever reads the page has another environment. What is typed overrides it."""
    monkeypatch.setenv("RESCHEDULER_SNAPSHOT", str(files.DUMP))
    monkeypatch.setenv("RESCHEDULER_EXCLUDE_NAMESPACES", "ci")
    monkeypatch.setenv("RESCHEDULER_SKIP_NODES_WITH_SYSTEM_PODS", "false")
    monkeypatch.setenv("RESCHEDULER_CURRENCY", "EUR")
    monkeypatch.setenv("RESCHEDULER_OUTPUT", "json")
    assert ended(["plan", "--currency=$", "--survive=off"]) == 0
    words = shell_words(json.loads(capfd.readouterr().out)["summary"]["levers"][0]["try"])
    assert words[:4] == ["rescheduler", "plan", "--currency=$", "--survive=off"]
    others = {f"--snapshot={files.DUMP}", "--exclude-namespaces=ci", "--skip-nodes-with-system-pods=false"}
    assert set(words[4:-2]) == others
    assert words[-2] == "--what-if"


def test_the_status_page_plans_with_the_policy_of_its_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags of the daemon's machine are left out: the command runs where the page is read."""
    received: list[str] = []
    monkeypatch.setattr(composition, "run", lambda *arguments: received.append(arguments[2].plan_command))
    label = "--on-demand-node-label=eks.amazonaws.com/capacityType=ON_DEMAND"
    machine = ["--running-in-cluster=false", "--namespace=ops", "--prices", str(files.PRICES), "--listen-address=:1"]
    monkeypatch.setenv("RESCHEDULER_MIN_ON_DEMAND_NODES", "1")
    monkeypatch.setenv("RESCHEDULER_KUBECONFIG", "/nowhere")
    assert ended(["run", label, "--exclude-namespaces", "ci", *machine, "--dry-run", "--drain-order=age"]) == 0
    expected = f"rescheduler plan {label} --exclude-namespaces ci --drain-order=age --min-on-demand-nodes=1"
    assert received == [expected]


def test_a_command_that_reads_a_pipe_does_not_wait_for_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Pages of a plan from a pipe print ``--snapshot -``, which somebody may paste."""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    assert ended(["plan", "--snapshot", "-"]) == 2
    assert "--snapshot -: expected the output of kubectl get -o json in a pipe" in capfd.readouterr().err
