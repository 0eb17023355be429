"""Results on standard output as JSON or YAML, or a plan as HTML."""

import sys
from datetime import datetime
from typing import Any

import msgspec

from rescheduler.planning.what_if.overview import Overview


def print_json(value: Any) -> None:
    """Print *value* as one line of JSON."""
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")


def print_yaml(value: Any) -> None:
    """Print *value* as a YAML document that begins with ``---``."""
    import yaml  # noqa: PLC0415 - imported on demand

    plain = msgspec.to_builtins(value)
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(plain, Dumper=dumper, sort_keys=False, allow_unicode=True, explicit_start=True, width=120)
    sys.stdout.buffer.write(text.encode())


def print_html(overview: Overview, at: datetime) -> None:
    """Print the report of a plan that was made at the time *at*."""
    from rescheduler.pages.report import as_html  # noqa: PLC0415 - imported on demand

    sys.stdout.buffer.write(as_html(overview, at).encode())
