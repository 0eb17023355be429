"""``rescheduler completion``: the script that completes commands in a shell."""

from typing import Final

import click
from click.shell_completion import get_completion_class

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
