"""``rescheduler help [COMMAND …]``, the same text as ``COMMAND --help``, ``version``, and ``completion`` for shells and
kubectl.
"""

import difflib
import platform
import sys
from collections.abc import Sequence
from typing import Final

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from rescheduler import VERSION
from rescheduler.cli.go_flags import GoCommand


@click.command("version", cls=GoCommand)
def version() -> None:
    """Print the version of this program and of Python."""
    click.echo(f"rescheduler {VERSION} (Python {platform.python_version()})")


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a command of the group that was typed so far."""
    parent = _described(ctx, ctx.params.get(param.name or "") or ())
    if not isinstance(parent.command, click.Group):
        return []
    return [CompletionItem(name) for name in parent.command.list_commands(parent) if name.startswith(incomplete)]


@click.command("help", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[COMMAND]...", shell_complete=_complete)
@click.pass_context
def command(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Show the help of a command, or of the program if no command is named."""
    described = _described(ctx, names)
    click.echo(described.command.get_help(described))


def _described(ctx: click.Context, names: Sequence[str]) -> click.Context:
    """Return the context of the command with these *names*, each of which is a subcommand of the previous one.

    Raises click.UsageError if there is no such command.
    """
    current = ctx.find_root()
    for name in names:
        group = current.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"{current.command_path} has no commands, so it has no {name!r}", ctx)
        if (named := group.get_command(current, name)) is None:
            expected = ", ".join(group.list_commands(current))
            if near := difflib.get_close_matches(name, group.list_commands(current), n=1):
                raise click.UsageError(f"no such command {name!r}: did you mean {near[0]}?", ctx)
            raise click.UsageError(f"no such command {name!r}: expected one of {expected}", ctx)
        current = named.make_context(name, [], parent=current, resilient_parsing=True)
    return current


# The script that completes commands in a shell.

_SHELLS: Final = ("bash", "zsh", "fish")


@click.command("completion", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
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
