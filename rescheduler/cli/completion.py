"""``rescheduler completion``: the script that completes commands in a shell, and completion for kubectl."""

import sys
from typing import Final

import click
from click.shell_completion import ShellComplete, get_completion_class

_SHELLS: Final = ("bash", "zsh", "fish")


@click.command("completion", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    r"""Print the script that completes commands, flags and their values in a shell.

    \b
    source <(rescheduler completion bash)      in ~/.bashrc
    source <(rescheduler completion zsh)       in ~/.zshrc
    rescheduler completion fish > ~/.config/fish/completions/rescheduler.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "rescheduler", "_RESCHEDULER_COMPLETE").source())


# Completion for ``kubectl spot-rescheduler``: kubectl passes the arguments to ``kubectl_complete-spot_rescheduler``.
# It prints a line per completion, with its description after a tab, then a colon and a directive for the shell.

#: Directives of cobra, the library that kubectl uses.
_FILES_TOO: Final = ":0"
_NO_FILES: Final = ":4"


def kubectl_main() -> None:
    """Complete the last argument of the program (an entry point)."""
    from rescheduler.cli import cli  # noqa: PLC0415 - it contains this command

    *words, incomplete = sys.argv[1:] or [""]
    items = ShellComplete(cli, {}, "rescheduler", "").get_completions(words, incomplete)
    for item in items:
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(_FILES_TOO if any(item.type == "file" for item in items) else _NO_FILES)
