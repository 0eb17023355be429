"""Tests of shell completion, by the protocols of the shells and of kubectl."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from rescheduler.cli import COMMANDS
from rescheduler.cli.help import kubectl_main
from tests import forking

_ROOT: Final = Path(__file__).parents[2]

#: The words on the command line, and the completions of the last word.
CASES: dict[str, tuple[list[str], list[str]]] = {
    "nothing yet": (["rescheduler", ""], list(COMMANDS)),
    "a command": (["rescheduler", "pl"], ["plan"]),
    "an unknown command": (["rescheduler", "nothing"], []),
    "a flag without a command is one of run": (["rescheduler", "--dry"], ["--dry-run"]),
    "another flag of run": (["rescheduler", "--v=2", "--kube-a"], ["--kube-api-content-type"]),
    "a flag of run": (["rescheduler", "--dry-run", "--kubec"], ["--kubeconfig"]),
    "a flag": (["rescheduler", "plan", "--indep"], ["--independent"]),
    "a flag after a boolean flag": (["rescheduler", "plan", "--independent", "--outp"], ["--output"]),
    "a value": (["rescheduler", "plan", "-o", ""], ["table", "wide", "details", "json", "yaml", "html"]),
    "a value with a beginning": (["rescheduler", "plan", "--output", "y"], ["yaml"]),
    "the value of a boolean flag": (["rescheduler", "plan", "--independent=f"], ["false"]),
    "a command of a group": (["rescheduler", "liqo", "disc"], ["discovery"]),
    "help for a command": (["rescheduler", "help", "expl"], ["explain"]),
    "help for a command of a group": (["rescheduler", "help", "liqo", ""], ["discovery", "node-manager"]),
    "help for a command without commands": (["rescheduler", "help", "plan", ""], []),
}


def program(*arguments: str, **variables: str) -> str:
    main = forking.python([*forking.PROGRAM, *arguments])
    done = forking.completed(main, env={**forking.environment(), **variables})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(("command_line", "completions"), CASES.values(), ids=CASES)
def test_bash_and_zsh_get_the_completions(command_line: list[str], completions: list[str]) -> None:
    asked = {"COMP_WORDS": " ".join(command_line), "COMP_CWORD": str(len(command_line) - 1)}
    answer = program(**asked, _RESCHEDULER_COMPLETE="bash_complete").split()
    assert answer == [f"plain,{value}" for value in completions]
    answer = program(**asked, _RESCHEDULER_COMPLETE="zsh_complete").strip().splitlines()
    assert (answer[::3], answer[1::3]) == (["plain"] * len(completions), completions)


def test_fish_gets_the_completions_with_their_help() -> None:
    answer = program(COMP_WORDS="rescheduler pl", COMP_CWORD="pl", _RESCHEDULER_COMPLETE="fish_complete")
    assert answer == f"plain,plan\t{COMMANDS['plan'][1]}\n"


@pytest.mark.parametrize(
    "command_line",
    [["rescheduler", "plan", "--snapshot", ""], ["rescheduler", "explain", "--kubeconfig", "/etc/"]],
    ids=" ".join,
)
def test_the_shell_completes_paths(command_line: list[str]) -> None:
    asked = {"COMP_WORDS": " ".join(command_line), "COMP_CWORD": str(len(command_line) - 1)}
    assert program(**asked, _RESCHEDULER_COMPLETE="bash_complete") == f"file,{command_line[-1]}\n"


@pytest.mark.parametrize(
    ("shell", "beginning"),
    [("zsh", "#compdef rescheduler\n"), ("fish", "function _rescheduler_completion;\n")],
)
def test_each_shell_gets_its_completion_script(shell: str, beginning: str) -> None:
    assert program(_RESCHEDULER_COMPLETE=f"{shell}_source").startswith(beginning)


def test_a_real_bash_completes(tmp_path: Path) -> None:
    """Bash calls the function of our script, as it does when Tab is pressed."""
    bash = shutil.which("bash")
    assert bash is not None
    started = tmp_path / "rescheduler"
    started.write_text(f'#!/bin/sh\nPYTHONPATH={_ROOT} exec {sys.executable} -m rescheduler "$@"\n')
    started.chmod(0o755)
    script = """
        eval "$(_RESCHEDULER_COMPLETE=bash_source rescheduler)"
        complete -p rescheduler
        COMP_WORDS=(rescheduler plan --output js) COMP_CWORD=3
        _rescheduler_completion rescheduler
        echo "${COMPREPLY[@]}"
    """
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([bash, "-c", script], check=True, capture_output=True, timeout=120, env=environment)
    assert done.stdout.decode().splitlines() == ["complete -o nosort -F _rescheduler_completion rescheduler", "json"]


@pytest.mark.parametrize(
    ("command_line", "answer"),
    [
        (["ver"], ["version\tPrint the version.", ":4"]),
        (["plan", "-o", "ya"], ["yaml", ":4"]),
        (["plan", "--snapshot", ""], [":0"]),
        (["nothing", ""], [f"{name}\t{line}" for name, (_, line) in COMMANDS.items()] + [":4"]),
    ],
    ids=["a command", "a value", "a path", "after an unknown command"],
)
def test_kubectl_gets_the_completions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command_line: list[str], answer: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-spot_rescheduler", *command_line])
    kubectl_main()
    assert capsys.readouterr().out.splitlines() == answer


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script_of_a_shell(shell: str) -> None:
    script = program("completion", shell)
    assert "_rescheduler_completion" in script
    assert f"_RESCHEDULER_COMPLETE={shell}_complete" in script
