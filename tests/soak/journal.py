"""Journal of the actions on the cluster, one line each, on standard error and in a file."""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import click

from rescheduler.clock import SystemClock


@dataclass(slots=True)
class Journal:
    """A log of actions, written to standard error and to a file. Not thread-safe."""

    file: Path
    since: datetime = field(default_factory=lambda: SystemClock().now())
    lines: list[tuple[float, str]] = field(default_factory=list)  #: seconds since the start, and the action

    def note(self, action: str) -> None:
        now = SystemClock().now()
        seconds = (now - self.since).total_seconds()
        self.lines.append((seconds, action))
        text = f"{now:%H:%M:%S.%f} {seconds:7.1f} s  {action}"
        click.echo(text, err=True)
        with self.file.open("a") as log:
            log.write(f"{text}\n")
