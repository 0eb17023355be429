"""``rescheduler run``: the daemon."""

import math
import re
from datetime import timedelta
from typing import Any, Final

import click

from rescheduler.cli.compat import compat_option
from rescheduler.cli.go_flags import Bool, Duration, GoCommand, Option, Parsed, format_duration
from rescheduler.cli.options import (
    connection_options,
    group,
    logging_options,
    memory_name_option,
    namespace_option,
    node_name_option,
    policy_options,
    provider_options,
    soft_taint_option,
)
from rescheduler.errors import UsageError
from rescheduler.planning.policy import Policy
from rescheduler.settings import LEASE, Address, Connection, Logging, Provider, Running, Timing, object_name

ADDRESS: Final = Parsed(Address.parse, "host:port", UsageError)
NAME: Final = Parsed(object_name, "name", UsageError)
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

#: A first value, and the longest that it grows to.
_DOUBLING: Final = ("failure_pause", "node_cooldown", "return_wait")


def _timing(**values: Any) -> Timing:
    for first in _DOUBLING:
        longest = f"{first}_max"
        if values[longest] < values[first]:
            told = (f"--{name.replace('_', '-')}={format_duration(values[name])}" for name in (longest, first))
            raise UsageError(" is shorter than ".join(told))
    return Timing(**values)


def _moves(text: str) -> float:
    limit = float(text) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else -1.0
    if not 0 <= limit < math.inf:
        raise ValueError(f"{text!r}: expected a number such as 3 or 0.5; 0: no limit")
    return limit


timing_options = group(
    "timing",
    _timing,
    (
        Option(
            "--housekeeping-interval",
            Duration(least=timedelta(milliseconds=100)),
            default="10s",
            help="Pause between two rounds. A round that drains nothing costs the API server one or two small reads.",
        ),
        Option(
            "--node-drain-delay",
            Duration(),
            default="10m",
            help="Pause after a drain, for the moved pods to settle and for an autoscaler to remove the node. A drain "
            "that failed is followed by it if it evicted a pod. Restarts do not shorten it. 0: none.",
        ),
        Option(
            "--pod-eviction-timeout",
            Duration(least=SECOND),
            default="2m",
            help="How long an eviction that is refused for now (by a PodDisruptionBudget, say) is retried; then the "
            "drain has failed. It holds for each step of a drain. A node is not drained where a budget allows only "
            "some of its pods to go at a time and their replacement pods would not be Ready in that time.",
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
        Option(
            "--landing-timeout",
            Duration(least=SECOND),
            default="10m",
            help="How long the replacements of evicted pods may take to run, from the last eviction. Until then the "
            "drain is no success and the machine stays; where they take longer, the drain has failed.",
        ),
        Option(
            "--failure-pause",
            Duration(),
            default="10m",
            help="Pause of all drains after one whose replacement pods did not run in time, or whose pods mostly came "
            "back to on-demand nodes. Each further one in a row doubles it; a good one ends it. 0: no pause.",
        ),
        Option("--failure-pause-max", Duration(), default="4h", help="The longest that --failure-pause grows to."),
        Option(
            "--node-cooldown",
            Duration(),
            default="5m",
            help="How long a node is left alone after its drain failed, while others have their turn. Each further "
            "failure in a row doubles it. 0: the node is tried again at once.",
        ),
        Option("--node-cooldown-max", Duration(), default="2h", help="The longest that --node-cooldown grows to."),
        Option(
            "--return-wait",
            Duration(),
            default="10m",
            help="How long the pods of a controller are not moved after they came back to an on-demand node. Each "
            "further return doubles it, so that pods that something pushes back are moved less and less. 0: no wait.",
        ),
        Option(
            "--return-wait-max",
            Duration(),
            default="24h",
            help="The longest that --return-wait grows to; returns are forgotten so long after the last wait.",
        ),
        Option(
            "--max-moves-per-pod-per-day",
            Parsed(_moves, "number"),
            default="3",
            help="How often in 24 hours each replica of a controller is moved at most, on average over its replicas. "
            "0: no limit.",
        ),
        Option(
            "--spot-settle",
            Duration(),
            default="10m",
            help="Pause after a tenth of the spot nodes, and at least two, were lost within five minutes: gone, not "
            "Ready, or about to be interrupted. More are often lost soon after. Nodes that an autoscaler removes, or "
            "that are cordoned, are not lost. 0: none.",
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
@compat_option
@policy_options
@timing_options
@soft_taint_option
@provider_options("Who takes the emptied nodes: none leaves them, schedulable, to whatever autoscaler there is.")
@Option("--dry-run", Bool(), default=False, help="Decide and report only: nothing in the cluster is changed.")
@Option(
    "--once",
    Bool(),
    default=False,
    help="One round, then exit: 0 when a node was drained and its pods run again, or none could be; 1 when the drain "
    "failed, or when another replica leads for longer than 2m. The Lease is held for the round.",
)
@connection_options
@Option(
    "--running-in-cluster",
    Bool(),
    default=True,
    help="Use the ServiceAccount of the pod we run in. Off when --kubeconfig or --context is given; off without "
    "them means $KUBECONFIG or ~/.kube/config.",
)
@namespace_option
@memory_name_option
@Option(
    "--lease-name",
    NAME,
    default=LEASE,
    help="The Lease by which replicas elect their leader. Namespace and Lease name are the identity of an "
    "installation: two installations in one cluster need different ones.",
)
@Option(
    "--pod-name",
    default="",
    metavar="NAME",
    help="The pod that this program runs in; its name is part of the holder's identity in the Lease, and the fencing "
    "policy compares it. The shipped manifests set it by the environment. Empty: the host name takes its place.",
)
@node_name_option
@Option(
    "--leader-elect",
    Bool(),
    default=True,
    help="Act only while holding the Lease. A dry run needs none. Off, nothing keeps two replicas from acting at the "
    "same time.",
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

    Each round: the emptiest on-demand node whose pods may all be evicted and all fit spot nodes is drained, a few
    pods at a time. The drain succeeds when its pods run again elsewhere; then the drain delay runs. A drain that
    fails opens its node again. Nothing is drained while replacement pods of an earlier drain do not run, or while
    pods wait for room on spot nodes.

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
