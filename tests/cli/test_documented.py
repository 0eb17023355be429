"""Tests that the flags in the tables of docs/operating.md exist and have the documented defaults."""

import re
from pathlib import Path
from typing import Any

import click
import pytest

from rescheduler.cli import COMMANDS
from rescheduler.cli.cluster_source import DEFAULTS, ORIGINAL
from rescheduler.cli.explain import command as explain_command
from rescheduler.cli.output import as_json
from rescheduler.cli.pause import command as pause_command
from rescheduler.cli.pause import resume as resume_command
from rescheduler.cli.plan import command as plan_command
from rescheduler.cli.report import command as report_command
from rescheduler.cli.run import command
from rescheduler.cli.savings import command as savings_command
from rescheduler.cli.simulate import command as simulate_command
from rescheduler.cli.status import command as status_command
from rescheduler.cloudpool.proxy.paths import Operation, route
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from rescheduler.planning.what_if.overview import overview
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, node, snapshot

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"

#: Flags set by the shipped manifests; their defaults are not documented.
SET_BY_MANIFESTS = {"--pod-name"}


def test_documented_defaults_are_the_defaults_of_the_flags() -> None:
    rows = re.findall(r"^\| `(--[a-z-]+)` \| `?([^|`]+)`? \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    documented = {flag: default for flag, default in rows if flag not in SET_BY_MANIFESTS}
    options = {
        option.opts[0]: _written(option.default) for option in command.params if isinstance(option, click.Option)
    }
    assert documented == {flag: options[flag] for flag in documented}
    assert len(rows) == 55


READERS = [plan_command, explain_command, report_command, savings_command, status_command, simulate_command]


@pytest.mark.parametrize("documented", [command, *READERS, pause_command, resume_command], ids=lambda named: named.name)
def test_every_flag_is_documented(documented: click.Command) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGE.parent.glob("*.md"))
    pages += (PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    options = [option for option in documented.params if isinstance(option, click.Option) and not option.hidden]
    flags = [option.opts[0] for option in options]
    assert [flag for flag in flags if f"`{flag}" not in pages and f" {flag}" not in pages] == []


def test_every_command_and_output_format_is_documented() -> None:
    page = (PAGE.parent / "cli.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([a-z]+)", page, re.MULTILINE)) | set(re.findall(r", `([a-z]+) ", page))
    [output] = [option for option in plan_command.params if option.name == "output"]
    assert isinstance(output.type, click.Choice)
    assert {*COMMANDS, *output.type.choices} - rows == set()


def test_every_field_of_a_plan_is_documented() -> None:
    section = (PAGE.parent / "cli.md").read_text(encoding="utf-8").partition("### JSON of a plan")[2]
    objects = snapshot([node("on-demand", ON_DEMAND), node("spot")])
    load = as_json(overview(Planner(objects, Policy()).plan_all(CIRCUMSTANCES), objects, PriceList()), 0)
    fields = {*load["nodes"][0], *load["summary"], *load["summary"]["freed"]}
    assert {field for field in fields if f"`{field}`" not in section} == set()


def test_the_compat_table_has_each_changed_default() -> None:
    page = (PAGE.parent / "upgrading.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `--([a-z-]+)` \| ([^|]+) \| `?([^|`]+)`? \|", page, re.MULTILINE)
    options = {option.name: _written(option.default) for option in command.params if isinstance(option, click.Option)}
    rows = {flag.replace("-", "_"): (default, changed.strip()) for flag, default, changed in table}
    names = {"scheduler_name": "scheduler_names"}
    assert {names.get(flag, flag): row for flag, row in rows.items()} == {
        name: (options[name], _written(changed)) for name, changed in DEFAULTS[ORIGINAL].items()
    }


#: Topics of users who migrate: the table for each of the two replaced programs has a row for each topic.
TOPICS = ("taint key", "grace", "metrics", "RBAC", "exit codes", "log levels", "ports", "JSON", "docker usage")


@pytest.mark.parametrize("program", ["k8s-spot-rescheduler", "kubeaware-cloudpool-proxy"])
def test_every_difference_has_its_reason(program: str) -> None:
    page = (PAGE.parent / "upgrading.md").read_text(encoding="utf-8")
    section = page.partition(f"### What differs from {program}\n")[2].partition("\n#")[0]
    head, _, *rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    assert head[-3:] == [program, "here", "reason"]
    assert [row for row in rows if len(row) != 4 or not all(row)] == []
    assert [topic for topic in TOPICS if not any(row[0].startswith(topic) for row in rows)] == []


def _written(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(default) if isinstance(default, tuple) else str(default)


def test_the_tests_of_the_promises_exist() -> None:
    root = PAGE.parents[1]
    section = (root / "docs/promises.md").read_text(encoding="utf-8")
    rows = [line for line in section.splitlines() if line.startswith("| ") and line != "| promise | test |"]
    named = {row: re.findall(r"`(tests/[a-z_/]+(?:\.py)?)`", row) for row in rows}
    assert rows
    assert [row for row, paths in named.items() if not paths] == []
    assert [path for paths in named.values() for path in paths if not (root / path).exists()] == []


def test_the_odd_paths_that_count_as_resizes_are_documented() -> None:
    page = (PAGE.parent / "upgrading.md").read_text(encoding="utf-8")
    [row] = [line for line in page.splitlines() if line.startswith("| odd paths of `POST /pool/size` |")]
    resizes, _, refused = row.split(" | ")[2].partition("behind another prefix")
    named = re.findall(r"`(/[^`]+)`", resizes)
    assert len(named) == 7
    assert {route("POST", path).operation for path in named} == {Operation.SIZE}
    assert {route("POST", path).operation for path in re.findall(r"`(/[^`]+)`", refused)} == {Operation.FORBIDDEN}


@pytest.mark.parametrize("status", ["403", "415", "421"])
def test_the_statuses_that_refuse_web_pages_are_among_the_differences(status: str) -> None:
    page = (PAGE.parent / "upgrading.md").read_text(encoding="utf-8").partition("from kubeaware-cloudpool-proxy")[2]
    assert [line for line in page.splitlines() if line.startswith("| ") and status in line]
