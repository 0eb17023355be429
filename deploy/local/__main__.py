"""`python -m deploy.local`: the local control plane for a person at a terminal."""

import sys

import click

from deploy.local.cli import main
from deploy.local.errors import LocalError

if __name__ == "__main__":
    try:
        main(prog_name="python -m deploy.local")
    except LocalError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
