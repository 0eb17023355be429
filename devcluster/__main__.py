"""`python -m devcluster`: the local control plane on the command line."""

import sys

import click

from devcluster.cli import main
from devcluster.errors import LocalError

if __name__ == "__main__":
    try:
        main(prog_name="python -m devcluster")
    except LocalError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
