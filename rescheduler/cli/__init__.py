"""The command line: one module a command, imported when it is called."""

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from rescheduler.errors import ReschedulerError, UsageError

#: Command → the module that has it as ``command``, and its line in the help.
COMMANDS: Final = {
    "run": ("rescheduler.cli.run", "Empty on-demand nodes, round after round (the daemon)."),
    "plan": ("rescheduler.cli.plan", "Show which on-demand nodes can be emptied now, and what blocks the others."),
    "explain": ("rescheduler.cli.explain", "Show for pods why which spot node does not take them."),
    "resume": ("rescheduler.cli.resume", "Let the daemon go on although an earlier drain owes replacement pods."),
    "proxy": ("rescheduler.cli.proxy", "Stand before a cloudpool, and drain nodes before their machines are removed."),
    "provider": ("rescheduler.cli.provider", "Serve a cloud provider to Cluster Autoscaler over gRPC."),
    "liqo": ("rescheduler.cli.liqo", "Serve the parts that make virtual nodes with Liqo."),
    "version": ("rescheduler.cli.version", "Print the version."),
}
_OWN_FLAGS: Final = ("-h", "--help", "-help")
_VERSION_FLAGS: Final = ("--version", "-version")


class Commands(click.Group):
    """The commands of :data:`COMMANDS`. No argument, or a flag as the first one, means ``run``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in _VERSION_FLAGS:
            args = ["version"]
        elif not args or (args[0].startswith("-") and args[0] not in _OWN_FLAGS):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    subcommand_metavar="COMMAND [OPTIONS]",
)
def cli() -> None:
    """Moves pods from on-demand nodes to spot nodes, all of a node or none, and gives the emptied nodes back.

    Without a command it is run, so the argument lists of k8s-spot-rescheduler work as they are. The program of that
    name is here, too: it is run with --compat=k8s-spot-rescheduler.
    Every option can be set as RESCHEDULER_… in the environment. COMMAND --help tells more.
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0 done, 1 it failed, 2 wrong use; what went wrong is one line on standard error."""
    sys.exit(_status(args))


def k8s_spot_rescheduler() -> None:
    """The entry point of that name: ``run`` with the defaults of k8s-spot-rescheduler, then as :func:`main`."""
    args = sys.argv[1:]
    main(args if args and args[0] in _VERSION_FLAGS else ["run", "--compat=k8s-spot-rescheduler", *args])


def _status(args: Sequence[str] | None) -> int:
    try:
        result: Any = cli.main(args, prog_name="rescheduler", standalone_mode=False)
    except BrokenPipeError:
        # Whoever read us has gone; the interpreter must not complain when it flushes on the way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - a user never sees a traceback
        return _failed(error)
    return result if isinstance(result, int) else 0


def _failed(error: BaseException) -> int:
    """Tell what went wrong in one line; the exit code."""
    where = "rescheduler"
    match error:
        case click.ClickException():
            context = getattr(error, "ctx", None)
            where = context.command_path if context else where
            message, status = error.format_message(), 2
        case UsageError():
            message, status = str(error), 2
        case ReschedulerError():
            message, status = str(error), 1
        case KeyboardInterrupt() | click.Abort():
            message, status = "interrupted", 130
        case _:
            at = traceback.extract_tb(error.__traceback__)[-1]
            message = f"internal error: {type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})"
            status = 1
    click.echo(f"{where}: {' '.join(message.split())}", err=True)
    return status
