"""``rescheduler run``: the daemon."""

import math
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import click

from rescheduler.cli.compat import compat_option
from rescheduler.cli.go_flags import Bool, DurationType, GoCommand, Option, Parsed, format_duration
from rescheduler.cli.options import (
    connection_options,
    group,
    lease_name_option,
    logging_options,
    memory_name_option,
    namespace_option,
    node_name_option,
    policy_options,
    provider_options,
    savings_name_option,
    soft_taint_option,
)
from rescheduler.cli.prices import price_options
from rescheduler.cli.room_options import room_options
from rescheduler.errors import UsageError
from rescheduler.planning.drain_windows import DrainWindow, parse_window
from rescheduler.planning.policy import Policy
from rescheduler.planning.prices import PriceList
from rescheduler.settings import (
    ApiServerConnection,
    ListenAddress,
    Logging,
    MakeRoom,
    Provider,
    RoomSettings,
    Running,
    Timing,
)

ADDRESS: Final = Parsed(ListenAddress.parse, "host:port", UsageError)
SECOND: Final = timedelta(seconds=1)


class WindowType(Parsed):
    """A drain window. In the environment, windows are separated by semicolons, because they contain spaces."""

    envvar_list_splitter = ";"

    def __init__(self) -> None:
        super().__init__(parse_window, "window", UsageError)


#: Flags of glog and of old deployments. They are accepted and ignored.
IGNORED: Final = (
    "--logtostderr",
    "--alsologtostderr",
    "--stderrthreshold",
    "--vmodule",
    "--log-backtrace-at",
    "--log-dir",
)
_SWITCHES: Final = ("--logtostderr", "--alsologtostderr")

#: Settings with an initial value and a maximum (``…_max``).
_DOUBLING: Final = ("failure_pause", "node_cooldown", "return_wait")


def _timing(**values: Any) -> Timing:
    for first in _DOUBLING:
        longest = f"{first}_max"
        if values[longest] < values[first]:
            flags = (f"--{name.replace('_', '-')}={format_duration(values[name])}" for name in (longest, first))
            raise UsageError(" is shorter than ".join(flags))
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
            DurationType(least=timedelta(milliseconds=100)),
            default="10s",
            help="Pause between two rounds. A round without a drain sends one or two small reads to the API server.",
        ),
        Option(
            "--node-drain-delay",
            DurationType(),
            default="10m",
            help="Pause after a drain, so that moved pods settle and an autoscaler can remove the node. It also "
            "follows a failed drain that evicted a pod. Restarts do not shorten it. 0: none.",
        ),
        Option(
            "--pod-eviction-timeout",
            DurationType(least=SECOND),
            default="2m",
            help="How long a rejected eviction (for example, by a PodDisruptionBudget) is retried before the "
            "drain fails. It applies to each step of a drain. A node is not drained if a budget allows only "
            "some of its pods to be evicted at a time and their replacement pods would not be Ready within "
            "this time.",
        ),
        Option(
            "--max-graceful-termination",
            DurationType(least=SECOND),
            default="2m",
            help="Maximum grace period of evicted pods; a pod's own grace period applies if it is shorter. If a "
            "pod still exists half a minute after its grace period, the drain fails.",
        ),
        Option(
            "--pending-patience",
            DurationType(),
            default="10m",
            help="No node is drained while pods are pending that could run on a spot node; pods that have been "
            "pending for longer than this are ignored. 0: pending pods do not delay drains.",
        ),
        Option(
            "--landing-timeout",
            DurationType(least=SECOND),
            default="10m",
            help="How long the replacements of evicted pods may take to run, from the last eviction. A drain "
            "succeeds, and its machine is removed, only after that; if they take longer, the drain fails.",
        ),
        Option(
            "--failure-pause",
            DurationType(),
            default="10m",
            help="Pause of all drains after a drain whose replacement pods did not run in time, or most of whose "
            "pods returned to on-demand nodes. It doubles with each consecutive failure; a successful drain "
            "resets it. 0: none.",
        ),
        Option("--failure-pause-max", DurationType(), default="4h", help="Maximum of --failure-pause."),
        Option(
            "--node-cooldown",
            DurationType(),
            default="5m",
            help="How long a node is not drained after its drain failed, while others are. It doubles with each "
            "consecutive failure. 0: the node is retried immediately.",
        ),
        Option("--node-cooldown-max", DurationType(), default="2h", help="Maximum of --node-cooldown."),
        Option(
            "--return-wait",
            DurationType(),
            default="10m",
            help="How long the pods of a controller are not moved after they returned to an on-demand node. It "
            "doubles with each further return. 0: none.",
        ),
        Option(
            "--return-wait-max",
            DurationType(),
            default="24h",
            help="Maximum of --return-wait; returns are forgotten when this time has passed after the last wait.",
        ),
        Option(
            "--max-moves-per-pod-per-day",
            Parsed(_moves, "number"),
            default="3",
            help="Maximum number of moves of each replica in 24 hours, on average over a controller's replicas. "
            "0: no limit.",
        ),
        Option(
            "--spot-settle",
            DurationType(),
            default="10m",
            help="Pause after a tenth of the spot nodes, and at least two, were lost within five minutes: gone, "
            "not Ready, or about to be interrupted. More losses are likely then. Nodes that an autoscaler "
            "removes or that are cordoned do not count. 0: none.",
        ),
    ),
)


def _ignored(flag: str) -> Option:
    kind = Bool() if flag in _SWITCHES else None
    return Option(flag, kind, hidden=True, expose_value=False, help="Accepted for compatibility and ignored.")


def ignored_options(command: Any) -> Any:
    """Add the flags of :data:`IGNORED` to *command*."""
    for flag in IGNORED:
        command = _ignored(flag)(command)
    return command


def _check_room(room: RoomSettings, provider: Provider, *, once: bool) -> None:
    """Raise UsageError if room cannot be made with the other flags."""
    if room.mode is MakeRoom.PROVIDER and provider.name == "none":
        raise UsageError("--make-room=provider: expected --cloud-provider, the cloud provider that adds spot nodes")
    if once and room.mode is not MakeRoom.OFF:
        raise UsageError(f"--once --make-room={room.mode}: expected a daemon, which later removes what is not used")


@click.command("run", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@compat_option
@policy_options
@timing_options
@soft_taint_option
@provider_options("Cloud provider that removes empty nodes. none: they stay schedulable for an autoscaler to remove.")
@Option(
    "--drain-window",
    WindowType(),
    to="drain_windows",
    multiple=True,
    metavar="WINDOW",
    help="When drains may start: [DAYS] HH:MM-HH:MM [ZONE], such as 'Mon-Fri 09:00-17:00 Europe/Stockholm', or "
    "'22:00-06:00' (every day, UTC). Repeatable; in the environment separated by semicolons. A drain that has started "
    "is finished. Default: always.",
)
@price_options
@room_options
@Option("--dry-run", Bool(), default=False, help="Only plan and report: nothing in the cluster is changed.")
@Option(
    "--once",
    Bool(),
    default=False,
    help="Run one round, then exit: 0 if a node was drained and its pods run again, or if no node could be "
    "drained; 1 if the drain failed, or if another replica is the leader for longer than 2m. The Lease is "
    "held during the round.",
)
@connection_options
@Option(
    "--running-in-cluster",
    Bool(),
    default=True,
    help="Use the ServiceAccount of the pod that this program runs in. Ignored if --kubeconfig or --context is "
    "given. If false, $KUBECONFIG or ~/.kube/config is used.",
)
@namespace_option
@memory_name_option
@savings_name_option
@lease_name_option
@Option(
    "--pod-name",
    default="",
    metavar="NAME",
    help="The pod that this program runs in. Its name is part of the holder identity in the Lease, and the "
    "fencing policy compares it. The shipped manifests set it in the environment. Empty: the host name is "
    "used.",
)
@node_name_option
@Option(
    "--leader-elect",
    Bool(),
    default=True,
    help="Act only while holding the Lease. A dry run needs no Lease. If false, two replicas may act at the same time.",
)
@Option(
    "--listen-address",
    ADDRESS,
    default="localhost:9235",
    help="Address of /metrics, /healthz, /readyz and /statusz. Use 0.0.0.0:9235 for a Prometheus outside of the pod.",
)
@logging_options
@ignored_options
def command(
    policy: Policy,
    timing: Timing,
    connection: ApiServerConnection,
    logs: Logging,
    running_in_cluster: bool,  # noqa: FBT001 - click passes by keyword
    provider: Provider,
    prices: PriceList,
    listen_address: ListenAddress,
    drain_windows: tuple[DrainWindow, ...],
    room: RoomSettings,
    **more: Any,
) -> int:
    """Drain on-demand nodes, round by round.

    In each round, the first on-demand node (see --drain-order) whose pods may all be evicted and all fit on spot nodes
    is drained, a few pods at a time. The drain succeeds when its pods run again elsewhere; then the drain
    delay starts. After a failed drain the node is schedulable again. No node is drained while replacement pods of
    an earlier drain are missing, or while pending pods wait for room on spot nodes.

    Durations are Go durations: 10s, 2m30s, 1h, 500ms, 0.
    """
    _check_room(room, provider, once=more["once"])
    from rescheduler.housekeeping import composition  # noqa: PLC0415 - the client is imported on demand

    own = connection.kubeconfig is None and connection.context is None
    return composition.run(
        ApiServerConnection(
            kubeconfig=connection.kubeconfig,
            context=connection.context,
            in_cluster=running_in_cluster and own,
            content_type=connection.content_type,
        ),
        replace(policy, drain_windows=drain_windows),
        Running(
            timing=timing,
            provider=provider,
            listen=listen_address,
            room=room,
            **more,
        ),
        logs,
        prices,
    )
