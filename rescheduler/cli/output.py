"""Results on standard output as JSON, YAML or HTML."""

import contextlib
import json
import sys
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from predicates.texts import escaped
from rescheduler.cli.go_flags import Option
from rescheduler.errors import UsageError
from rescheduler.pages.plan_facts import plan_facts
from rescheduler.pages.tree import Line
from rescheduler.planning.what_if.overview import Overview


def json_bytes(value: Any) -> bytes:
    """Return *value* as one line of JSON, in which characters that are not printable are escapes."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a surrogate without its pair
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()
    return encoded if encoded.isascii() and b"\x7f" not in encoded else escaped(encoded.decode()).encode()


def print_json(value: Any) -> None:
    """Print *value* as one line of JSON."""
    sys.stdout.buffer.write(json_bytes(value) + b"\n")


def print_yaml(value: Any) -> None:
    """Print *value* as a YAML document that begins with ``---``.

    If it contains characters that are not printable, they are escapes, and so are all others that are not ASCII.
    """
    import yaml  # noqa: PLC0415 - imported on demand

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    plain = msgspec.to_builtins(value)
    dump = partial(yaml.dump, plain, Dumper=dumper, sort_keys=False, explicit_start=True, width=120)
    text = str(dump(allow_unicode=True))
    if not text.replace("\n", "").isprintable():
        text = str(dump(allow_unicode=False))
    sys.stdout.buffer.write(text.encode())


def print_html(overview: Overview, at: datetime) -> None:
    """Print the report of a plan that was made at the time *at*."""
    from rescheduler.pages.report import as_html  # noqa: PLC0415 - imported on demand

    sys.stdout.buffer.write(as_html(overview, at).encode())


output_file_option: Final = Option(
    "--output-file",
    metavar="FILE",
    default="-",
    help="Write the result to FILE, replacing an existing file once it is complete; - is standard output.",
)


def write_output(text: str, file: str) -> None:
    """Write *text* to *file*, which keeps its content if that fails. Raises UsageError if *file* cannot be written.

    A regular file is replaced by a complete one, so that nobody reads half of it.
    """
    if file == "-":
        sys.stdout.buffer.write(text.encode())
        return
    if not file:
        raise UsageError("--output-file: expected a file, or - for standard output")
    path = Path(file)
    new = path.with_name(f".{path.name}.new")
    try:
        if path.exists() and not path.is_file():  # a device or a pipe
            path.write_text(text, encoding="utf-8")
            return
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise UsageError(f"--output-file {file}: cannot write there: {error.strerror}") from error


# A plan as an object for programs: ``plan -o json`` and ``plan -o yaml``.


def as_json(overview: Overview, seconds: float) -> dict[str, Any]:
    """Return the object for ``-o json``. *seconds* is the duration of planning alone."""
    return plain(plan_facts(overview, seconds))


def plain(facts: dict[str, Any]) -> dict[str, Any]:
    """Return *facts* with what programs read in place of each value. Knows nothing of plans."""
    result: dict[str, Any] = msgspec.to_builtins(facts, enc_hook=lambda value: value.plain)
    return result


def lines_as_html(title: str, lines: Iterable[Line]) -> str:
    """Return *lines* as a document, for ``explain -o html``."""
    from rescheduler.pages.element import document, element  # noqa: PLC0415 - imported on demand
    from rescheduler.pages.tree_html import contents  # noqa: PLC0415

    return document(title, element("div", element("main", element("h1", title), contents(lines, "h2"))))
