"""``rescheduler run``: the daemon."""

from dataclasses import replace
from typing import Any

import click

from rescheduler.cli.compat import compat_option
from rescheduler.cli.go_flags import Bool, GoCommand, Option, Parsed
from rescheduler.cli.options import (
    ADDRESS,
    connection_options,
    ignored_options,
    lease_name_option,
    logging_options,
    memory_name_option,
    namespace_option,
    node_name_option,
    provider_options,
    savings_name_option,
    scheduling_options,
    soft_taint_option,
)
from rescheduler.cli.policy_options import policy_options
from rescheduler.cli.prices import price_options
from rescheduler.cli.room_options import room_options
from rescheduler.cli.scheduler_config import with_profiles
from rescheduler.cli.timing_options import timing_options
from rescheduler.errors import UsageError
from rescheduler.planning.drain_windows import DrainWindow, parse_window
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.policy import Policy
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


class WindowType(Parsed):
    """A drain window. In the environment, semicolons separate windows, because windows contain spaces."""

    envvar_list_splitter = ";"

    def __init__(self) -> None:
        super().__init__(parse_window, "window", UsageError)


def _check_room(room: RoomSettings, provider: Provider, *, once: bool) -> None:
    """Raise UsageError if the other flags do not allow making room."""
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
    "--migrating-webhooks",
    click.Choice(["block", "wait"]),
    default="block",
    help="What to do if an admission webhook denies an eviction with 429, which KubeVirt does while it moves the "
    "virtual machine by itself. block: the node is not drained (eviction-refused). wait: the eviction is requested, "
    "and the pod has until --landing-timeout to leave.",
)
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
@scheduling_options
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
    """Drain on-demand nodes in rounds.

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
        ),
        replace(with_profiles(policy, more["scheduling"]), drain_windows=drain_windows),
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
