"""The flags in the tables of docs/operating.md exist, and have the defaults that the page gives."""

import re
from pathlib import Path
from typing import Any

import click

from rescheduler.cli.run import command

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"

#: What the shipped manifests set has no default worth a word.
SET_BY_MANIFESTS = {"--pod-name"}


def test_defaults_of_the_flags() -> None:
    rows = re.findall(r"^\| `(--[a-z-]+)` \| `?([^|`]+)`? \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    documented = {flag: default for flag, default in rows if flag not in SET_BY_MANIFESTS}
    options = {
        option.opts[0]: _written(option.default) for option in command.params if isinstance(option, click.Option)
    }
    assert documented == {flag: options[flag] for flag in documented}
    assert len(rows) == 15


def _written(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(default) if isinstance(default, tuple) else str(default)
