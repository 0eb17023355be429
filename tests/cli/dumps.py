"""Run ``plan`` and ``report`` on a snapshot file, as a user does."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rescheduler.cli import main


def write_dump(folder: Path, objects: Sequence[dict[str, Any]]) -> Path:
    """Write *objects* as kubectl prints them, and return the file."""
    file = folder / "list.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects]}))
    return file


def run(capfd: pytest.CaptureFixture[str], command: str, dump: Path, *flags: str) -> str:
    """Return what *command* prints. It succeeds without a message on standard error."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--snapshot", str(dump), *flags])
    out, err = capfd.readouterr()
    assert (ended.value.code, err) in ((0, ""), (None, ""))
    return out


def planned(capfd: pytest.CaptureFixture[str], dump: Path, *flags: str) -> dict[str, Any]:
    """Return the object that ``plan -o json`` prints."""
    result: dict[str, Any] = json.loads(run(capfd, "plan", dump, "-o", "json", *flags))
    return result
