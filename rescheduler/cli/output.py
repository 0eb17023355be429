"""Objects for programs on standard output: JSON, or the same object as YAML."""

import sys
from typing import Any

import msgspec


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
