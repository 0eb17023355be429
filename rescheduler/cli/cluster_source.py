"""The source of the cluster for ``plan`` and ``explain``, progress messages, and the defaults of other tools."""

import gc
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import click

from predicates.snapshot import Snapshot
from rescheduler.cli.console import is_one_terminal, warn
from rescheduler.cli.go_flags import FILE_TEXT, Bool, Option
from rescheduler.errors import IncompleteError, NoNodesError, UsageError
from rescheduler.pages.tree import Line
from rescheduler.planning.node_info import label_findings, node_infos
from rescheduler.planning.policy import Policy
from rescheduler.settings import ApiServerConnection, Scheduling
from rescheduler.snapshot_file import reader
from rescheduler.snapshot_file.reader import assumptions, omissions, without_templates

# The source of the cluster for ``plan`` and ``explain``: the API server, or a file written by kubectl.

#: Threshold of new objects for a garbage collection (``gc.set_threshold``).
_GC_THRESHOLD: Final = 1_000_000

snapshot_option: Final = Option(
    "--snapshot",
    FILE_TEXT,
    short="-f",
    metavar="FILE",
    help="Read the cluster from FILE, which `rescheduler snapshot` writes, or kubectl get "
    "nodes,pods,poddisruptionbudgets,namespaces,persistentvolumes,persistentvolumeclaims,storageclasses,csinodes,"
    "csidrivers,volumeattachments,replicasets,statefulsets,controllerrevisions,jobs,resourcequotas,limitranges,"
    "priorityclasses,runtimeclasses "
    "-A -o json; - is standard input. JSON (lists, arrays, JSON lines, several of them), YAML and gzip are read. "
    "Default: the cluster of the kubeconfig.",
)
strict_option: Final = Option(
    "--strict",
    Bool(),
    default=False,
    help="Exit with code 3 if the file of --snapshot is incomplete: without pods of kube-system, of DaemonSets or of a "
    "namespace.",
)
output_option: Final = Option(
    "--output",
    click.Choice(["table", "wide", "details", "json", "yaml", "html"]),
    short="-o",
    default="table",
    help="table for people, wide with every pod and node by name, details with nodes that stay for the same reasons "
    "together; json or yaml for programs; html for a browser. "
    "Nothing else is printed to standard output.",
)


_INCOMPLETE: Final = (
    "the file is incomplete: it has {}; so too many nodes look drainable, and no money is stated; "
    "`rescheduler snapshot > FILE` writes a complete file"
)
_WRITES: Final = _INCOMPLETE.rpartition("; ")[2]


@dataclass(frozen=True, slots=True)
class ClusterSource:
    """A snapshot file or, if there is none, a connection."""

    snapshot: str | None
    connection: ApiServerConnection
    scheduling: Scheduling
    creators: bool = False  #: read also what creates nodes
    _said: set[str] = field(default_factory=set)  #: warnings that were printed
    _on_page: list[str] = field(default_factory=list)  #: the lines of a page beside which a person sees warnings

    def read(self) -> Snapshot:
        """Read the cluster. Raises the errors of :mod:`rescheduler.snapshot_file.reader` or of the API server.

        Print one line on standard error for each object that cannot be decoded.
        """
        snapshot = self._read()
        for unreadable in snapshot.unreadable:
            warn(f"ignored, because it cannot be decoded: {unreadable.why}")
        return snapshot

    def assumptions(self, snapshot: Snapshot, policy: Policy) -> tuple[str, ...]:
        """Return sentences that state the assumptions about kinds that the snapshot file does not contain."""
        if self.snapshot is None:
            return self.scheduling.notes
        by_labels = not policy.namespaces.selector.everything
        return self.scheduling.notes + assumptions(snapshot, self.scheduling, by_namespace_labels=by_labels)

    def incomplete(self, snapshot: Snapshot) -> str:
        """Return a sentence that states what the snapshot file lacks although every cluster has it, or ""."""
        if self.snapshot is not None and not len(snapshot.nodes):
            return f"no Nodes in the file; {_WRITES}"
        lacking = omissions(snapshot) if self.snapshot is not None else ()
        return _INCOMPLETE.format(" and ".join(lacking)) if lacking else ""

    def of_replacements(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the sentence about replacement pods whose templates the snapshot file does not contain, if any."""
        unknown = without_templates(snapshot) if self.snapshot is not None else None
        return (unknown,) if unknown is not None else ()

    def shown(self, lines: Iterable[Line]) -> None:
        """Record what a page says: on a terminal, no warning repeats it."""
        if is_one_terminal():
            self._on_page.extend(line.text.casefold() for line in lines)

    def warn(
        self, snapshot: Snapshot, policy: Policy, assumed: Iterable[str], incomplete: str, *, strict: bool = False
    ) -> None:
        """Print a warning for each assumption, and one if nodes match both labels. Call this after printing the result.

        *assumed* and *incomplete* are the results of :meth:`assumptions` and :meth:`incomplete`. Raises NoNodesError if
        no node matches one of the labels, and IncompleteError if *strict* and the file is incomplete.
        """
        findings = label_findings(snapshot, policy, node_infos(snapshot, policy))
        if self.snapshot is not None and not len(snapshot.nodes):
            raise NoNodesError(incomplete)
        if findings.no_nodes:
            raise NoNodesError(findings.no_nodes)
        for text in (*assumed, *filter(None, [findings.both])):
            self.warn_once(text)
        if incomplete:
            if strict:
                raise IncompleteError(incomplete)
            self.warn_once(incomplete)

    def warn_once(self, text: str) -> None:
        """Print a warning, unless it was printed before."""
        if text not in self._said:
            self._said.add(text)
            if any(text.casefold() in line for line in self._on_page):
                return
            warn(f"warning: {text}")

    def _read(self) -> Snapshot:
        if self.snapshot == "-" and sys.stdin is not None and sys.stdin.isatty():
            raise UsageError("--snapshot -: expected the output of kubectl get -o json in a pipe, not a terminal")
        # Reading creates millions of objects that all stay alive, so garbage collection would only cost time.
        gc.disable()
        try:
            if self.snapshot is not None:
                return reader.read(
                    self.snapshot, self.scheduling, lambda text: self.warn_once(f"skipped in the file: {text}")
                )
            from rescheduler.housekeeping.command_reads import read_cluster  # noqa: PLC0415 - the client is imported on demand

            return read_cluster(self.connection, self.scheduling, self.warn_once, creators=self.creators)
        finally:
            gc.enable()
            gc.freeze()
            gc.set_threshold(_GC_THRESHOLD)  # Most objects created by planning also stay alive.


# Progress messages on standard error, for a person at a terminal.

_ERASED: Final = "\r\033[K"  #: returns to the start of the line and erases it


@contextmanager
def progress(activity: str) -> Iterator[None]:
    """Show *activity* while the block runs; print nothing if standard error is not a terminal."""
    shown = sys.stderr.isatty()
    if shown:
        print(f"{activity} …", end="", file=sys.stderr, flush=True)  # noqa: T201
    try:
        yield
    finally:
        if shown:
            print(_ERASED, end="", file=sys.stderr, flush=True)  # noqa: T201


# ``--compat``: use the defaults of another tool. Flags and the environment take precedence.

ORIGINAL: Final = "k8s-spot-rescheduler"

#: By tool: its defaults that differ from ours, by parameter name.
DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    ORIGINAL: {
        "skip_nodes_with_local_storage": "false",
        "skip_nodes_with_system_pods": "false",
        "allow_fragile_plans": "true",
        "allow_returning_plans": "true",
        "move_jobs": "always",
        "shorten_grace_periods": "true",
        "scheduler_names": ("*",),
        "wait_for_pending_pods": "true",
        "return_wait": "0",
        "max_moves_per_pod_per_day": "0",
    }
}


def _set_defaults(context: click.Context, _: click.Parameter, tool: str | None) -> None:
    if tool:
        context.default_map = {**(context.default_map or {}), **DEFAULTS[tool]}


compat_option: Final = Option(
    "--compat",
    click.Choice(list(DEFAULTS)),
    is_eager=True,
    expose_value=False,
    callback=_set_defaults,
    help=f"Use the defaults of this tool. {ORIGINAL} changes the defaults of ten flags: "
    "--skip-nodes-with-local-storage=false, --skip-nodes-with-system-pods=false, --allow-fragile-plans, "
    "--allow-returning-plans, --move-jobs=always, --shorten-grace-periods, --scheduler-name='*', "
    "--wait-for-pending-pods, --return-wait=0 and --max-moves-per-pod-per-day=0. Explicit flags take precedence. "
    "Drains still wait until the moved pods run again.",
)
