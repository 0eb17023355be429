"""``rescheduler version``."""

import platform

import click

from rescheduler import VERSION
from rescheduler.cli.go_flags import GoCommand


@click.command("version", cls=GoCommand)
def command() -> None:
    """Print the version of this program and of Python."""
    click.echo(f"rescheduler {VERSION} (Python {platform.python_version()})")
