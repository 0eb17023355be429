"""Where ``plan`` and ``explain`` read the cluster from: the API server, or a file that kubectl wrote."""

import gc
from dataclasses import dataclass
from typing import Final

import click

from predicates.snapshot import Snapshot
from rescheduler import dump
from rescheduler.cli.go_flags import Option
from rescheduler.settings import Connection

#: So many more objects made than freed before garbage is looked for.
_SELDOM: Final = 200_000

snapshot_option: Final = Option(
    "--snapshot",
    metavar="FILE",
    help="Read the cluster from FILE, as printed by kubectl get "
    "nodes,pods,poddisruptionbudgets,namespaces,persistentvolumes,persistentvolumeclaims,storageclasses,csinodes "
    "-A -o json; - is standard input, gzip is read too. Without it the cluster of the kubeconfig is read.",
)
output_option: Final = Option(
    "--output",
    click.Choice(["table", "json"]),
    short="-o",
    default="table",
    help="table for people, json for programs. Nothing else is printed on standard output.",
)


@dataclass(frozen=True, slots=True)
class Source:
    """A file, or a connection where there is none."""

    snapshot: str | None
    connection: Connection

    def read(self) -> Snapshot:
        """Read all of it. Raises the errors of :mod:`rescheduler.dump` or of the API server.

        Each object that cannot be decoded is one line on standard error.
        """
        snapshot = self._read()
        for unreadable in snapshot.unreadable:
            click.echo(f"rescheduler: left out, as it cannot be decoded: {unreadable.why}", err=True)
        return snapshot

    def _read(self) -> Snapshot:
        # A read makes millions of objects that all stay: collecting garbage in between finds none.
        gc.disable()
        try:
            if self.snapshot is not None:
                return dump.read(self.snapshot)
            from rescheduler.app import read_cluster  # noqa: PLC0415 - the client is imported when it is needed

            return read_cluster(self.connection, _warn)
        finally:
            gc.enable()
            gc.freeze()
            gc.set_threshold(_SELDOM)  # What is planned and explained next mostly stays, too.


def _warn(text: str) -> None:
    click.echo(f"rescheduler: warning: {text}", err=True)
