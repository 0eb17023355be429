"""Flags as Go's pflag takes them, on click: ``--flag``, ``--flag=false``, ``-flag=value``, ``-v=2``, durations.

The argument lists of k8s-spot-rescheduler's deployments work unchanged, single-dash long flags included.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from rescheduler import durations

_F = TypeVar("_F", bound=Callable[..., Any])

_TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
_FALSE: Final = ("0", "f", "F", "FALSE", "false", "False")


def parse_duration(text: str) -> timedelta:
    """A duration as Go's ``time.ParseDuration`` reads it: ``2m30s``, ``1.5h``, ``500ms``, ``0``.

    Negative ones are refused, no setting has a use for them. Raises ValueError.
    """
    try:
        return timedelta(seconds=durations.seconds(text.removeprefix("+")))
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None


def format_duration(duration: timedelta) -> str:
    """*duration* as :func:`parse_duration` reads it, to the millisecond: ``2m30s``, ``500ms``."""
    milliseconds = round(duration.total_seconds() * 1000)
    if milliseconds % 1000:
        return f"{milliseconds}ms"
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (seconds, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0"


class Duration(click.ParamType[timedelta]):
    """A Go duration as a timedelta, *least* at least."""

    name = "duration"

    def __init__(self, least: timedelta = timedelta()) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            duration = parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if duration < self._least:
            self.fail(f"{value!r}: expected at least {format_duration(self._least)}", param, ctx)
        return duration


class Bool(click.ParamType[bool]):
    """The spellings of Go's ``strconv.ParseBool``."""

    name = "boolean"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        if isinstance(value, bool):
            return value
        if value not in _TRUE + _FALSE:
            self.fail(f"{value!r}: expected true or false", param, ctx)
        return value in _TRUE


class Parsed(click.ParamType[Any]):
    """What *parse* makes of the text; its ValueError or UsageError is the message."""

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


def _path_text(text: str) -> str:
    if "\0" in text:
        raise ValueError("a path cannot hold a NUL character")
    return text


#: A path, and one that stays a text; what it leads to is looked at when it is read.
FILE: Final = Parsed(lambda text: Path(_path_text(text)), "path")
FILE_TEXT: Final = Parsed(_path_text, "path")


class Option:
    """A long option that ``RESCHEDULER_…`` in the environment sets as well; it decorates a command."""

    def __init__(
        self, flag: str, kind: click.ParamType[Any] | None = None, *, to: str = "", short: str = "", **more: Any
    ) -> None:
        """*to* is the parameter of the command, the flag's own name without it."""
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


class GoCommand(click.Command):
    """A command that takes its options in Go's spelling."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(normalised(args, self.get_params(ctx))))


def normalised(args: Sequence[str], params: Sequence[click.Parameter]) -> Iterator[str]:
    """*args* as click wants them: two dashes before long names, a value behind every boolean flag."""
    options = {name: one for one in params if isinstance(one, click.Option) for name in one.opts}
    rest = iter(args)
    for arg in rest:
        if arg == "--":
            yield arg
            yield from rest
            return
        name, equals, value = arg.partition("=")
        known = _known(name, options)
        if known is None:
            yield arg
        elif isinstance(options[known].type, Bool):
            yield f"{known}={value if equals else 'true'}"
        elif equals and not known.startswith("--"):
            yield known
            yield value
        else:
            yield known + equals + value
            if not equals and not options[known].is_flag:
                yield from _next(rest)


def _known(name: str, options: dict[str, click.Option]) -> str | None:
    """The option that *name* means; underscores and a single dash stand for what glog's users are used to."""
    if not name.startswith("-"):
        return None
    bare = name.lstrip("-").replace("_", "-")
    return next((one for one in (name, f"-{bare}", f"--{bare}") if one in options), None)


def _next(rest: Iterator[str]) -> Iterator[str]:
    """The value of an option, which is not looked at even if it looks like one."""
    for value in rest:
        yield value
        return
