"""Click options in the syntax of Go's pflag: ``--flag``, ``--flag=false``, ``-flag=value``, ``-v=2``, durations.

The argument lists of k8s-spot-rescheduler's deployments work unchanged, including long flags with a single dash.
"""

import re
import textwrap
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from rescheduler import durations

_F = TypeVar("_F", bound=Callable[..., Any])

#: The type name of parameters that are paths.
_PATH: Final = "path"

#: Where the context of a command stores the arguments of the command in click's syntax.
ARGUMENTS: Final = "rescheduler.arguments"

#: The days at the start of a duration. Go has no such unit.
_DAYS: Final = re.compile(r"([0-9]{1,5})d(?![0-9.]*d)")

_TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
_FALSE: Final = ("0", "f", "F", "FALSE", "false", "False")


def parse_duration(text: str) -> timedelta:
    """Parse a duration in the format of Go's ``time.ParseDuration``, or one that begins with days.

    Examples: ``2m30s``, ``1.5h``, ``500ms``, ``0``, ``30d``, ``1d12h``. Raises ValueError. Negative durations are
    rejected, because no setting uses them.
    """
    days = _DAYS.match(text)
    hours, rest = (int(days[1]) * 24, text[days.end() :]) if days else (0, text)
    try:
        return timedelta(seconds=durations.seconds(f"{hours}h{rest}" if days else rest))
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None


def format_duration(duration: timedelta) -> str:
    """Format *duration* to the millisecond, as :func:`parse_duration` accepts it: ``2m30s``, ``500ms``."""
    milliseconds = round(duration.total_seconds() * 1000)
    if milliseconds % 1000:
        return f"{milliseconds}ms"
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (seconds, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0"


class DurationType(click.ParamType[timedelta]):
    """A Go duration, converted to a timedelta of at least *least* and at most *most*."""

    name = "duration"

    def __init__(self, least: timedelta = timedelta(), most: timedelta = timedelta.max) -> None:
        self.least = least
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            duration = parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if duration < self.least:
            self.fail(f"{value!r}: expected at least {format_duration(self.least)}", param, ctx)
        if duration > self.most:
            self.fail(f"{value!r}: expected at most {format_duration(self.most)}", param, ctx)
        return duration


class Bool(click.ParamType[bool]):
    """A boolean in any spelling that Go's ``strconv.ParseBool`` accepts."""

    name = "boolean"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        if isinstance(value, bool):
            return value
        if value not in _TRUE + _FALSE:
            self.fail(f"{value!r}: expected true or false", param, ctx)
        return value in _TRUE

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Complete ``--flag=t``. The text after ``--flag`` and a space is the next argument, not a value."""
        values = [CompletionItem(value) for value in ("true", "false") if incomplete and value.startswith(incomplete)]
        return values or ctx.command.shell_complete(ctx, incomplete)


class Parsed(click.ParamType[Any]):
    """A value converted by *parse*. Exceptions of type *errors* become error messages."""

    def __init__(self, parse: Callable[[str], Any], name: str, errors: type[Exception] = ValueError) -> None:
        self.name = name
        self._parse = parse
        self._errors = errors

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except self._errors as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Let the shell complete paths."""
        return [CompletionItem(incomplete, type="file")] if self.name == _PATH else []


class OptionalValue(click.types.StringParamType):
    """An optional text, empty if it is left out. *is_value* decides whether the next argument is the text."""

    def __init__(self, is_value: Callable[[str], bool]) -> None:
        self.is_value = is_value


def _path_text(text: str) -> str:
    if "\0" in text:
        raise ValueError("a path cannot contain a NUL character")
    return text


#: A path as Path and as text. Whether the file exists is checked when it is read.
FILE: Final = Parsed(lambda text: Path(_path_text(text)), _PATH)
FILE_TEXT: Final = Parsed(_path_text, _PATH)


class Option:
    """A decorator that adds a long option, which ``RESCHEDULER_…`` in the environment can also set, to a command."""

    def __init__(
        self, flag: str, kind: click.ParamType[Any] | None = None, *, to: str = "", short: str = "", **more: Any
    ) -> None:
        """Create the option. *to* is the name of the command's parameter; the default is the name of the flag."""
        self.to = to or flag.lstrip("-").replace("-", "_")
        self._names = (flag, *filter(None, [short]), self.to)
        self._settings = {
            "type": kind,
            "envvar": "RESCHEDULER_" + flag.lstrip("-").replace("-", "_").upper(),
            "show_envvar": True,
            "show_default": more.get("default") is not None,
            **more,
        }
        if isinstance(kind, Bool):
            self._settings |= {"metavar": "[=true|false]", "default": "true" if more.get("default") else "false"}

    def __call__(self, command: _F) -> _F:
        return click.option(*self._names, **self._settings)(command)


#: Maximum number of lines, and of columns, of the help of a command. ``--help-all`` has no limit of lines.
HELP_LINES: Final = 100
HELP_COLUMNS: Final = 80

#: The flags of long help texts that have a line each, by section. The others are only named.
_COMMON: Final = {
    "Cluster": (
        "--snapshot", "--kubeconfig", "--context", "--namespace", "--running-in-cluster", "--on-demand-node-label",
        "--spot-node-label",
    ),
    "Output": (
        "--output", "--output-file", "--nodes", "--sort-by", "--watch", "--what-if", "--lever", "--patch",
        "--from-daemon", "--independent", "--strict", "--dry-run", "--once", "--listen-address", "--v",
    ),
    "Money": ("--prices", "--currency", "--price-per-vcpu", "--spot-price-per-vcpu", "--commitments"),
    "Drains": (
        "--node-drain-delay", "--drain-window", "--min-on-demand-nodes", "--drain-order", "--manage-soft-taint",
        "--make-room", "--cloud-provider", "--cloud-config", "--skip-nodes-with-local-storage",
        "--skip-nodes-with-system-pods", "--delete-non-replicated-pods", "--exclude-namespaces", "--compat",
    ),
}  # fmt: skip
_SENTENCE: Final = re.compile(r"\.(?= |$)")
#: The width of the column with the names of flags.
_FLAGS_WIDTH: Final = 36


class GoCommand(click.Command):
    """A command whose options have Go's syntax. A long help text is shortened; ``--help-all`` shows all of it."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.params.append(
            click.Option(
                ["--help-all"],
                is_flag=True,
                expose_value=False,
                is_eager=True,
                help="Show all options in full, and exit.",
                callback=self._show_all,
            )
        )

    def _show_all(self, ctx: click.Context, _: click.Parameter, shown: object) -> None:
        if shown and not ctx.resilient_parsing:
            click.echo(super().get_help(ctx))
            ctx.exit()

    def get_help(self, ctx: click.Context) -> str:
        """Return the help: in full if it has at most :data:`HELP_LINES` lines, otherwise the common flags."""
        helps = (super().get_help(ctx), self._short_help(ctx, 2), self._short_help(ctx, 1))
        return next((text for text in helps if text.count("\n") < HELP_LINES), helps[-1])

    def _short_help(self, ctx: click.Context, lines: int) -> str:
        """Return the help with at most *lines* for each common flag, by section, and the names of all others."""
        formatter = click.HelpFormatter(width=HELP_COLUMNS)
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        options = {param.opts[0]: param for param in self.get_params(ctx) if isinstance(param, click.Option)}
        options = {name: option for name, option in options.items() if not option.hidden}
        for section, names in _COMMON.items():
            if rows := [_help_lines(options[name], lines) for name in names if name in options]:
                with formatter.section(section):
                    formatter.write("\n".join(rows) + "\n")
        common = {name for names in _COMMON.values() for name in names}
        others = ", ".join(name for name in options if name not in common)
        with formatter.section("More flags, which --help-all explains with the defaults and the environment"):
            formatter.write("\n".join(_wrapped(others, HELP_COLUMNS, "  ")) + "\n")
        return formatter.getvalue().rstrip("\n")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = tuple(normalized(args, self.get_params(ctx)))
        return super().parse_args(ctx, list(ctx.meta[ARGUMENTS]))


def _help_lines(option: click.Option, lines: int) -> str:
    """Return the option with the beginning of its help, in at most *lines* lines."""
    names = ", ".join(sorted(option.opts, key=len))
    text = " ".join((option.help or "").split())
    end = _SENTENCE.search(text)
    pieces = _wrapped(text[: end.start()] if end else text, HELP_COLUMNS, " " * _FLAGS_WIDTH)
    if len(pieces) > lines:
        last = pieces[lines - 1]
        pieces = [*pieces[: lines - 1], last if len(last) < HELP_COLUMNS else last[:-1]]
        pieces[-1] += "…"
    return "\n".join([f"  {names:<{_FLAGS_WIDTH - 3}} {pieces[0].strip()}", *pieces[1:]])


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def normalized(args: Sequence[str], params: Sequence[click.Parameter]) -> Iterator[str]:
    """Convert *args* to click's syntax: two dashes before long names, and a value for every boolean flag."""
    options = {name: param for param in params if isinstance(param, click.Option) for name in param.opts}
    waiting = deque(args)
    while waiting:
        arg = waiting.popleft()
        if arg == "--":
            yield arg
            yield from waiting
            return
        name, equals, value = arg.partition("=")
        known = _known(name, options)
        if known is None:
            yield arg
        elif not equals and isinstance(kind := options[known].type, OptionalValue):
            yield f"{known}={waiting.popleft() if waiting and kind.is_value(waiting[0]) else ''}"
        elif isinstance(options[known].type, Bool):
            yield f"{known}={value if equals else 'true'}"
        elif equals and not known.startswith("--"):
            yield known
            yield value
        else:
            yield known + equals + value
            if not equals and not options[known].is_flag and waiting:
                yield waiting.popleft()  # the value of the option, even if it looks like an option


def unknown_flag(args: Sequence[str], params: Sequence[click.Parameter]) -> str:
    """Return the first word of *args* that begins with a dash and is no option among *params*, or ""."""
    options = {name: param for param in params if isinstance(param, click.Option) for name in param.opts}
    flags = (arg.partition("=")[0] for arg in args if arg.startswith("-"))
    return next((flag for flag in flags if _known(flag, options) is None), "")


def are_flags(args: Sequence[str], params: Sequence[click.Parameter]) -> bool:
    """Return whether *args* are options among *params*, each with its value, and nothing else."""
    options = {name: param for param in params if isinstance(param, click.Option) for name in param.opts}
    rest = iter(args)
    for arg in rest:
        name, equals, _ = arg.partition("=")
        known = _known(name, options)
        if known is None:
            return False
        takes_value = not (equals or options[known].is_flag or isinstance(options[known].type, Bool | OptionalValue))
        if takes_value and next(rest, None) is None:
            return False
    return True


def _known(name: str, options: dict[str, click.Option]) -> str | None:
    """Return the option to which *name* refers, or None. As in glog, underscores and a single dash are accepted."""
    if not name.startswith("-"):
        return None
    bare = name.lstrip("-").replace("_", "-")
    return next((candidate for candidate in (name, f"-{bare}", f"--{bare}") if candidate in options), None)
