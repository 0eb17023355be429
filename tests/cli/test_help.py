"""Tests of the command ``help``, of the name of the program in messages, and of the entry points."""

import configparser
import importlib
import re
import sys
from pathlib import Path

import pytest

from rescheduler.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]
PLUGIN = "/usr/local/bin/kubectl-spot_rescheduler"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.mark.parametrize(
    "names",
    [[], ["plan"], ["explain"], ["provider", "serve"], ["liqo"], ["liqo", "node-manager"], ["help"]],
    ids=" ".join,
)
def test_help_prints_the_help_of_a_command(capsys: pytest.CaptureFixture[str], names: list[str]) -> None:
    status, out, err = run(capsys, "help", *names)
    assert (status, err) == (0, "")
    assert out.startswith(f"Usage: {' '.join(['rescheduler', *names])} ")
    assert out == run(capsys, *names, "--help")[1]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["liqo", "x"],
            "rescheduler help: no such command 'x': expected one of discovery, node-manager",
        ),
        (["plan", "x"], "rescheduler help: rescheduler plan has no commands, so it has no 'x'"),
    ],
    ids=["in a group", "in a command"],
)
def test_help_for_an_unknown_command_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], names: list[str], message: str
) -> None:
    assert run(capsys, "help", *names) == (2, "", f"{message}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "--nothing"], "kubectl spot-rescheduler plan: No such option"),
        (["nothing"], "kubectl spot-rescheduler: No such command"),
        (["plan", "--snapshot", "/nothing"], "kubectl spot-rescheduler: --snapshot /nothing: No such file"),
    ],
    ids=" ".join,
)
def test_errors_of_the_plugin_have_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    monkeypatch.setattr(sys, "argv", [PLUGIN])
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_the_usage_of_the_plugin_has_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [PLUGIN])
    assert run(capsys, "plan", "--help")[1].startswith("Usage: kubectl spot-rescheduler plan [OPTIONS]\n")


def test_the_plugin_without_arguments_prints_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [PLUGIN])
    status, out, err = run(capsys)
    assert (status, err) == (0, "")
    assert out == run(capsys, "--help")[1]
    assert out.startswith("Usage: kubectl spot-rescheduler [OPTIONS] COMMAND [OPTIONS]\n")


def test_the_entry_points_exist() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["options.entry_points"]["console_scripts"].strip().splitlines()
    scripts = dict(line.split(" = ") for line in lines)
    assert scripts["kubectl-spot_rescheduler"] == scripts["rescheduler"]
    assert "kubectl_complete-spot_rescheduler" in scripts
    for target in scripts.values():
        module, _, function = target.partition(":")
        assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "liqo"])
def test_help_has_at_most_100_lines_of_80_columns(capsys: pytest.CaptureFixture[str], command: str) -> None:
    out = run(capsys, command, "--help")[1]
    assert (len(out.splitlines()) <= 100, max(map(len, out.splitlines())) <= 80) == (True, True)


@pytest.mark.parametrize("command", ["run", "plan", "explain", "report"])
def test_every_flag_is_named_in_the_short_help_and_explained_in_the_long_one(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    short, long = (run(capsys, command, flag)[1] for flag in ("--help", "--help-all"))
    options = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", long, re.MULTILINE))
    assert len(options) > 30
    assert [flag for flag in sorted(options) if flag not in short] == []
    assert len(long) > 2 * len(short)
