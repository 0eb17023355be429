"""The log formats: text, or one JSON object per line. Node, pod and reason are separate fields of a line.

Verbosity is as in glog: 0 logs drains and errors, 2 the results of each round, 3 every eviction, 4 everything.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TextIO

from predicates.texts import one_line, printable, shown
from rescheduler.settings import LogFormat, Logging

NOTICE: Final = 25  #: between INFO and WARNING: logged at every verbosity
DETAIL: Final = 15

#: The lowest log level at each verbosity.
LEVELS: Final = (NOTICE, NOTICE, logging.INFO, DETAIL, logging.DEBUG)

FIELDS: Final = ("node", "pod", "reason")
#: A namespace, a slash and a name.
LONGEST_FIELD: Final = 320
_NAMES: Final = {NOTICE: "INFO", DETAIL: "INFO"}

log = logging.getLogger("rescheduler")


def configure(settings: Logging, stream: TextIO | None = None) -> None:
    """Send the program's log to *stream* (default: standard error) in the format and verbosity of *settings*."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if settings.format is LogFormat.JSON else TextLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    log.setLevel(LEVELS[settings.verbosity])


class TextLines(logging.Formatter):
    """The text format: ``2026-01-02T03:04:05.678Z WARNING drain failed: … node=od-1 reason=eviction-timeout``."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        return f"{_time(record)} {_level(record)} {_message(record)}{fields}"


class JsonLines(logging.Formatter):
    """The JSON format: one object per line with ``time``, ``level``, ``message`` and the line's fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _time(record), "level": _level(record), "message": _message(record), **_fields(record)}
        return json.dumps(line, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _level(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno, record.levelname)


def _message(record: logging.LogRecord) -> str:
    """Return the message in one line; for an exception its type and text."""
    message = " ".join(record.getMessage().split())
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        message += f": {type(error).__name__}: {one_line(str(error))}"
    return printable(message)


def _fields(record: logging.LogRecord) -> Mapping[str, str]:
    values = {name: getattr(record, name, None) for name in FIELDS}
    return {name: shown(str(value), LONGEST_FIELD) for name, value in values.items() if value}


def write(level: int, message: str, **fields: object) -> None:
    """Log *message* at *level*; *fields* are some of :data:`FIELDS`, and empty ones are omitted."""
    log.log(level, "%s", message, extra={name: str(value) for name, value in fields.items() if value})
