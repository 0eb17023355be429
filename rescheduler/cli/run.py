"""``rescheduler run``: the daemon."""

from datetime import timedelta
from typing import Any, Final

import click

from rescheduler.cli.go_flags import Bool, Duration, GoCommand, Option, Parsed
from rescheduler.cli.options import (
    connection_options,
    group,
    logging_options,
    node_name_option,
    policy_options,
    provider_options,
    soft_taint_option,
)
from rescheduler.errors import UsageError
from rescheduler.planning.policy import Policy
from rescheduler.settings import Address, Connection, Logging, Provider, Running, Timing

ADDRESS: Final = Parsed(Address.parse, "host:port", UsageError)
SECOND: Final = timedelta(seconds=1)

#: Flags of glog and of old deployments that say nothing to this program; they are taken and ignored.
IGNORED: Final = (
    "--logtostderr",
    "--alsologtostderr",
    "--stderrthreshold",
    "--vmodule",
    "--log-backtrace-at",
    "--log-dir",
)
_SWITCHES: Final = ("--logtostderr", "--alsologtostderr")

timing_options = group(
    "timing",
    Timing,
    (
        Option(
            "--housekeeping-interval",
            Duration(least=timedelta(milliseconds=100)),
            default="10s",
            help="Pause between two rounds. A round reads what is watched anyway and asks the API server nothing.",
        ),
        Option(
            "--node-drain-delay",
            Duration(),
            default="10m",
            help="Pause after a drained node, for the moved pods to settle and for an autoscaler to take the node "
            "away. 0: none. A drain that failed is not followed by it.",
        ),
        Option(
            "--pod-eviction-timeout",
            Duration(least=SECOND),
            default="2m",
            help="How long evictions that are refused for now (by a PodDisruptionBudget, say) are tried again; then "
            "the drain is given up.",
        ),
        Option(
            "--max-graceful-termination",
            Duration(least=SECOND),
            default="2m",
            help="The longest that a pod gets to shut down; a pod's own grace period holds where it is shorter. A pod "
            "that has not left half a minute after its time ends the drain as failed.",
        ),
        Option(
            "--pending-patience",
            Duration(),
            default="10m",
            help="While pods are pending that a spot node could ever take, nothing is drained; a pod that pends for "
            "longer than this no longer counts. 0: pending pods hold nothing back.",
        ),
    ),
)


def _ignored(flag: str) -> Option:
    kind = Bool() if flag in _SWITCHES else None
    return Option(flag, kind, hidden=True, expose_value=False, help="Taken for the sake of old argument lists.")


def ignored_options(command: Any) -> Any:
    for flag in IGNORED:
        command = _ignored(flag)(command)
    return command


@click.command("run", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@policy_options
@timing_options
@soft_taint_option
@provider_options("Who takes the emptied nodes: none leaves them, schedulable, to whatever autoscaler there is.")
@Option("--dry-run", Bool(), default=False, help="Decide and report only: nothing in the cluster is changed.")
@Option(
    "--once",
    Bool(),
    default=False,
    help="One round, then exit: 0 when a node was drained or none could be, 1 when the drain failed.",
)
@connection_options
@Option(
    "--running-in-cluster",
    Bool(),
    default=True,
    help="Use the ServiceAccount of the pod we run in. Off when --kubeconfig or --context is given; off without "
    "them means $KUBECONFIG or ~/.kube/config.",
)
@Option("--namespace", default="kube-system", help="The namespace we run in; the Lease of the leader lives there.")
@node_name_option
@Option(
    "--leader-elect",
    Bool(),
    default=False,
    help="Act only while holding the Lease k8s-spot-rescheduler. Needed as soon as there are two replicas.",
)
@Option(
    "--listen-address",
    ADDRESS,
    default="localhost:9235",
    help="Where /metrics, /healthz, /readyz and /statusz are served. A Prometheus elsewhere needs 0.0.0.0:9235.",
)
@logging_options
@ignored_options
def command(
    policy: Policy,
    timing: Timing,
    connection: Connection,
    logs: Logging,
    running_in_cluster: bool,  # noqa: FBT001 - click passes by keyword
    provider: Provider,
    listen_address: Address,
    **more: Any,
) -> int:
    """Empty on-demand nodes, round after round.

    Each round: the emptiest on-demand node whose pods may all be evicted and all fit spot nodes is drained; then
    the drain delay runs. Nothing is done while pods wait for room on spot nodes.

    Durations are Go's: 10s, 2m30s, 1h, 500ms, 0.
    """
    from rescheduler import app  # noqa: PLC0415 - the client is imported when it is needed

    own = connection.kubeconfig is None and connection.context is None
    return app.run(
        Connection(
            kubeconfig=connection.kubeconfig,
            context=connection.context,
            in_cluster=running_in_cluster and own,
            content_type=connection.content_type,
        ),
        policy,
        Running(
            timing=timing,
            provider=provider,
            listen=listen_address,
            **more,
        ),
        logs,
    )
