"""The command line: one module per command, imported when the command is called."""

import atexit
import errno
import gc
import importlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from predicates.texts import similar
from rescheduler.errors import IncompleteError, NoNodesError, ReschedulerError, UsageError

#: Command → the module that defines it as ``command``, or module and name, and its line in the help.
COMMANDS: Final = {
    "run": ("rescheduler.cli.run", "Run the daemon, which drains on-demand nodes in rounds."),
    "plan": ("rescheduler.cli.plan", "Show which on-demand nodes can be drained now, and what blocks the others."),
    "explain": ("rescheduler.cli.explain", "Explain which spot nodes reject each pod, and why."),
    "report": ("rescheduler.cli.report", "Write the plan as an HTML file with totals, diagrams and nodes."),
    "simulate": ("rescheduler.cli.simulate", "Show what the daemon would do to a copy of the cluster in memory."),
    "savings": ("rescheduler.cli.savings", "Show what drains have saved, with receipts for each day."),
    "prices": ("rescheduler.cli.prices", "Print the prices of a cloud for the cluster's instance types."),
    "pause": ("rescheduler.cli.pause", "Pause drains, for a given time or until resumed."),
    "resume": ("rescheduler.cli.pause:resume", "End a pause, or waive replacement pods that an earlier drain owes."),
    "status": (
        "rescheduler.cli.status",
        "Show the leader, pauses, the drain in progress and owed replacement pods.",
    ),
    "proxy": ("rescheduler.cli.proxy", "Run the cloudpool proxy: drain nodes before their machines are removed."),
    "provider": ("rescheduler.cli.provider", "Serve a cloud provider to Cluster Autoscaler over gRPC."),
    "liqo": ("rescheduler.cli.liqo", "Run the services that create virtual nodes with Liqo."),
    "install": ("rescheduler.cli.install", "Print the manifests of the daemon, for kubectl apply."),
    "snapshot": ("rescheduler.cli.snapshot", "Write the cluster to a file, for plan --snapshot."),
    "completion": ("rescheduler.cli.help:completion", "Print the script that completes commands in a shell."),
    "version": ("rescheduler.cli.help:version", "Print the version."),
    "help": ("rescheduler.cli.help", "Show the help of a command."),
}
# On import, numpy's BLAS would start a thread per processor. The program does not use BLAS, and the threads cost CPU.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

_OWN_FLAGS: Final = ("-h", "--help", "-help")
_VERSION_FLAGS: Final = ("--version", "-version")

#: Set in each container of a cluster.
_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"

_PROGRAM: Final = "rescheduler"
#: The file name of the kubectl plugin; kubectl replaces dashes in the plugin's name with underscores.
_PLUGIN: Final = "kubectl-spot_rescheduler"
_PLUGIN_PROGRAM: Final = "kubectl spot-rescheduler"


class Commands(click.Group):
    """The commands of :data:`COMMANDS`.

    Flags of a command may precede it. Without a command, in a cluster or with ``--compat``, the command is ``run``;
    otherwise nothing starts. The kubectl plugin prints help if it has no arguments.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in _VERSION_FLAGS:
            args = ["version"]
        elif not args and ctx.resilient_parsing:
            pass  # Completion of the first word, which can be any command.
        elif not args and ctx.info_name == _PLUGIN_PROGRAM:
            args = ["--help"]  # A user who tries the plugin in a terminal does not expect a daemon to start.
        elif not args or (args[0].startswith("-") and args[0] not in _OWN_FLAGS):
            args = self._with_command_first(ctx, args)
        return super().parse_args(ctx, args)

    def _with_command_first(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return *args*, which begin with flags, with their command first, or with ``run``.

        Raises UsageError if there is no command outside of a cluster, where nothing live may start by accident.
        """
        for place, word in enumerate(args):
            if word in COMMANDS and (path := self._path(ctx, args[: place + 1], args[place + 1 :])):
                return [*path, *args[:place], *args[place + len(path) :]]
        unknown = self._unknown_flag(ctx, args)
        compatible = any(arg.lstrip("-").startswith("compat=") for arg in args)
        if not (ctx.resilient_parsing or compatible or os.environ.get(_IN_CLUSTER)):
            if unknown:
                raise UsageError(unknown)
            typed = shlex.join([ctx.info_name or _PROGRAM, "run", *args])
            raise UsageError(
                f"no command: expected one, such as plan; outside of a cluster, only `{typed}` starts the daemon "
                "(with --dry-run it changes nothing)"
            )
        return ["run", *args]

    def _unknown_flag(self, ctx: click.Context, args: list[str]) -> str:
        """Return which flag before the first command in *args* is none of this command, or ""."""
        from rescheduler.cli.go_flags import unknown_flag  # noqa: PLC0415 - imported on demand

        place = next((place for place, word in enumerate(args) if word in COMMANDS), 0)
        command = self.get_command(ctx, args[place]) if place else None
        flag = unknown_flag(args[:place], command.params) if command is not None else ""
        return f"{flag}: the command {args[place]} has no such flag; `{args[place]} --help` lists them" if flag else ""

    def _path(self, ctx: click.Context, before: list[str], after: list[str]) -> list[str]:
        """Return the command and the subcommands that follow *before*, whose last word names the command.

        The result is empty if the words before the command are not all flags of it, with their values.
        """
        from rescheduler.cli.go_flags import are_flags  # noqa: PLC0415 - imported on demand

        path = [before[-1]]
        command = self.get_command(ctx, before[-1])
        for word in after:
            if not isinstance(command, click.Group) or word not in command.list_commands(ctx):
                break
            path.append(word)
            command = command.get_command(ctx, word)
        return path if command is not None and are_flags(before[:-1], command.params) else []

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and (near := similar(args[0], COMMANDS)):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near}?")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command without importing it, or a flag of ``run``, the default command."""
        commands = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items()]
        matching = [item for item in commands if item.value.startswith(incomplete)]
        if not incomplete.startswith("-"):
            return matching
        run = self.get_command(ctx, "run")
        assert run is not None
        return run.shell_complete(run.make_context("run", [], parent=ctx, resilient_parsing=True), incomplete)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        gc.disable()  # what an import creates stays alive, so garbage collection would only cost time
        try:
            command: click.Command = getattr(importlib.import_module(module), name or "command")
        finally:
            gc.enable()
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
    """Move pods from on-demand nodes to spot nodes, all pods of a node or none, and release the empty nodes.

    In a cluster, the daemon is run if there is no command, so argument lists of k8s-spot-rescheduler work unchanged.
    The program of that name is also included: it runs the daemon with --compat=k8s-spot-rescheduler. Every option can
    be set in the environment as RESCHEDULER_…. See COMMAND --help for the options.
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0 success, 1 failure, 2 usage error, 3 no node matches the labels, or a
    file is incomplete (--strict).

    Errors are one line on standard error. If the program was started as a kubectl plugin, its name in messages is that
    of the plugin.
    """
    # Python collects garbage once more at exit. With millions of objects, that takes a long time and frees nothing.
    atexit.register(gc.freeze)
    sys.exit(_status(args, _PLUGIN_PROGRAM if Path(sys.argv[0]).name == _PLUGIN else _PROGRAM))


def k8s_spot_rescheduler() -> None:
    """Run ``run`` with the defaults of k8s-spot-rescheduler: the entry point of that name."""
    args = sys.argv[1:]
    main(args if args and args[0] in _VERSION_FLAGS else ["run", "--compat=k8s-spot-rescheduler", *args])


def _status(args: Sequence[str] | None, program: str) -> int:
    try:
        if sys.stdout is None:  # Standard error was closed before the program started.
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - it stays open
        result: Any = cli.main(args, prog_name=program, standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except BrokenPipeError:
        # The reader of the pipe has exited. Redirect stdout, so that the interpreter's flush at exit does not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - a user never sees a traceback
        return _report_failure(error, program)
    return result if isinstance(result, int) else 0


def _report_failure(error: BaseException, program: str) -> int:
    """Print the error in one line, after the name of the program, and return the exit code."""
    from predicates.texts import printable  # noqa: PLC0415 - imported on demand

    where = program
    match error:
        case click.ClickException():
            context = getattr(error, "ctx", None)
            where = context.command_path if context else where
            message, status = error.format_message(), 2
        case UsageError():
            message, status = str(error), 2
        case NoNodesError() | IncompleteError():
            message, status = str(error), 3
        case ReschedulerError():
            message, status = str(error), 1
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EIO):
            message, status = f"cannot write the output: {error.strerror}", 1
        case KeyboardInterrupt() | click.Abort():
            message, status = "interrupted", 130
        case _:
            import traceback  # noqa: PLC0415 - imported on demand

            at = traceback.extract_tb(error.__traceback__)[-1]
            message = f"internal error: {type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})"
            status = 1
    click.echo(f"{where}: {printable(' '.join(message.split()))}", err=True)
    return status
