"""``rescheduler run``: the daemon."""

import functools
import math
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import click

from rescheduler import providers
from rescheduler.cli.cluster_source import compat_option
from rescheduler.cli.go_flags import Bool, DurationType, GoCommand, Option, Parsed, format_duration
from rescheduler.cli.options import (
    ADDRESS,
    Command,
    allowed_host_option,
    connection_options,
    group,
    ignored_options,
    lease_name_option,
    logging_options,
    memory_name_option,
    namespace_option,
    node_name_option,
    plan_command,
    pool_lease_option,
    provider_options,
    savings_name_option,
    scheduling_options,
    soft_taint_option,
)
from rescheduler.cli.policy_options import policy_options, price_options, with_profiles
from rescheduler.errors import UsageError
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.pauses import DrainWindow, parse_window
from rescheduler.planning.policy import Policy, Survive
from rescheduler.providers import ADDS_NONE
from rescheduler.settings import (
    PAUSE_IMAGE,
    ApiServerConnection,
    ListenAddress,
    Logging,
    MakeRoom,
    Provider,
    RoomSettings,
    Running,
    Timing,
)

# ``@timing_options``: intervals, timeouts and pauses of the daemon. It passes ``timing: Timing``.

_SECOND: Final = timedelta(seconds=1)

#: Settings that have an initial value and a maximum (``…_max``).
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
            DurationType(least=_SECOND),
            default="2m",
            help="How long a rejected eviction (for example, by a PodDisruptionBudget) is retried before the "
            "drain fails. It applies to each step of a drain. A node is not drained if a budget allows only "
            "some of its pods to be evicted at a time and their replacement pods would not be Ready within "
            "this time.",
        ),
        Option(
            "--pending-patience",
            DurationType(),
            default="10m",
            help="Plans leave pending pods the room that they fit. The pods of a namespace that the scheduler leaves "
            "pending for longer than this, although they fit, take none: something else keeps them. With "
            "--wait-for-pending-pods, the pods of a namespace delay drains for this long at most.",
        ),
        Option(
            "--wait-for-pending-pods",
            Bool(),
            default=False,
            help="No node is drained while pods are pending that could run on a spot node.",
        ),
        Option(
            "--landing-timeout",
            DurationType(least=_SECOND),
            default="10m",
            help="How long the replacements of evicted pods may take to run, from the last eviction. A drain "
            "succeeds, and its machine is removed, only after that; if they take longer, the drain fails.",
        ),
        Option(
            "--failure-pause",
            DurationType(),
            default="10m",
            help="How long the pods of an owner are not moved after its replacement pods did not run in time after "
            "a drain (not-recovered); after a second owner of a namespace, also the pods of this namespace. It "
            "doubles with each consecutive failure; a successful drain of its pods resets it. 0: none. It is also the "
            "pause of all drains after most pods of a drain returned to on-demand nodes.",
        ),
        Option(
            "--failure-pause-max",
            DurationType(),
            default="24h",
            help="Maximum of --failure-pause; at most 4h for the pause of all drains.",
        ),
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
            help="Maximum of --return-wait; returns expire when this time has passed after the last wait.",
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
        Option(
            "--spot-pool-cooldown",
            DurationType(),
            default="10m",
            help="Time for which the free room of a pool of spot nodes does not count for plans after the pool lost a "
            "node: gone, not Ready for 5m, or about to be interrupted. It doubles with each further loss, up to "
            "6h. 0: none. See --spot-pool-label.",
        ),
    ),
)


# The options for making room on spot nodes.

_MOST: Final = 1000
_LONGEST_IMAGE: Final = 255


def _image(text: str) -> str:
    if not text or len(text) > _LONGEST_IMAGE or not text.isprintable() or " " in text:
        raise ValueError(f"{text!r}: expected an image, such as {PAUSE_IMAGE}")
    return text


def _room(
    make_room: str,
    max_placeholders: int,
    room_timeout: timedelta,
    placeholder_image: str,
    max_spot_nodes_per_hour: int,
) -> RoomSettings:
    mode = MakeRoom(make_room)
    return RoomSettings(mode, max_placeholders, room_timeout, placeholder_image, max_spot_nodes_per_hour)


#: Passes ``room: RoomSettings`` to the command.
room_options = group(
    "room",
    _room,
    (
        Option(
            "--make-room",
            click.Choice([mode.value for mode in MakeRoom]),
            default=MakeRoom.OFF.value,
            help="How room is made for an on-demand node whose pods do not fit on the spot nodes, if no node can be "
            "drained. placeholders: pods of the same shape are created in the namespace spot-rescheduler-room, so that "
            "the cluster's autoscaler adds spot nodes; the drain begins when all of them run there. provider: "
            "spot nodes are requested from the cloud provider (--cloud-provider); the drain begins when they are "
            "Ready; with karpenter the same as placeholders. off: no room is made.",
        ),
        Option(
            "--max-placeholders",
            click.IntRange(1, _MOST),
            default=50,
            help="Maximum number of placeholders. No room is made for nodes with more pods to move.",
        ),
        Option(
            "--room-timeout",
            DurationType(least=timedelta(seconds=1)),
            default="15m",
            help="How long placeholders may take to run on spot nodes. After that, they are removed and no others are "
            "created for 15m, which doubles with each consecutive timeout, up to 4h.",
        ),
        Option(
            "--placeholder-image",
            Parsed(_image, "image"),
            default=PAUSE_IMAGE,
            metavar="IMAGE",
            help="Image of placeholders, for clusters that cannot pull the default. It must run without arguments as a "
            "user that is not root.",
        ),
        Option(
            "--max-spot-nodes-per-hour",
            click.IntRange(1, _MOST),
            default=10,
            help="Maximum number of spot nodes requested from the cloud provider within an hour, with "
            "--make-room=provider.",
        ),
    ),
)


class WindowType(Parsed):
    """A drain window. In the environment, semicolons separate windows, because windows contain spaces."""

    envvar_list_splitter = ";"

    def __init__(self) -> None:
        super().__init__(parse_window, "window", UsageError)


def _room_of(room: RoomSettings, provider: Provider, *, once: bool) -> RoomSettings:
    """Return the settings with this provider: Karpenter adds nodes for placeholders, not on request.

    Raises UsageError if the other flags do not allow making room.
    """
    if room.mode is MakeRoom.PROVIDER and provider.name == "none":
        raise UsageError("--make-room=provider: expected --cloud-provider, the cloud provider that adds spot nodes")
    if once and room.mode is not MakeRoom.OFF:
        raise UsageError(f"--once --make-room={room.mode}: expected a daemon, which later removes what is not used")
    placed = room.mode is MakeRoom.PROVIDER and provider.name in ADDS_NONE
    return replace(room, mode=MakeRoom.PLACEHOLDERS) if placed else room


#: How drains go on, beside the options of policy and timing.
_DRAINING: Final = (
    Option(
        "--predict",
        click.Choice(["template", "dry-run"]),
        default="template",
        help="How the replacements of a candidate's pods are predicted. template: from the pod template, what "
        "admission added to the running pod, LimitRanges, VerticalPodAutoscalers and the classes of priorities and "
        "runtimes. dry-run: a pod of each controller is created in a dry run, which runs all admission webhooks and "
        "policies. Needs deploy/components/predict.",
    ),
    Option(
        "--migrating-webhooks",
        click.Choice(["block", "wait"]),
        default="block",
        help="What to do if an admission webhook denies an eviction with 429, which KubeVirt does while it moves the "
        "virtual machine by itself. block: the node is not drained (eviction-refused). wait: the eviction is "
        "requested, and the pod has until --landing-timeout to leave.",
    ),
    Option(
        "--survive",
        click.Choice([value.value for value in Survive]),
        default=Survive.OFF.value,
        help="Leave a node (would-not-survive) if after its drain the loss of any one pool of spot nodes (zone and "
        "instance type, see --spot-pool-label), or of all spot nodes of any one zone, would leave pods without a "
        "place, although it would not now.",
    ),
    Option(
        "--report-node-conditions",
        Bool(),
        default=False,
        help="Write the condition DrainInProgress to the status of the node that is drained, and remove it when the "
        "drain ends. Requires permission to patch nodes/status.",
    ),
    Option(
        "--drain-window",
        WindowType(),
        to="drain_windows",
        multiple=True,
        metavar="WINDOW",
        help="When drains may start: [DAYS] HH:MM-HH:MM [ZONE], such as 'Mon-Fri 09:00-17:00 Europe/Stockholm', or "
        "'22:00-06:00' (every day, UTC). Repeatable; in the environment separated by semicolons. A drain that has "
        "started is finished. Default: always.",
    ),
)


def drain_options(command: Command) -> Command:
    """Add the options of drains to *command*."""
    for option in reversed(_DRAINING):
        command = option(command)
    return command


@compat_option
@policy_options
@timing_options
@soft_taint_option
@provider_options("Cloud provider that removes empty nodes. none: they stay schedulable for an autoscaler to remove.")
@drain_options
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
@pool_lease_option
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
@allowed_host_option
@logging_options
@ignored_options
def _start(
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
    survive: str,
    **more: Any,
) -> tuple[ApiServerConnection, Policy, Running, Logging, PriceList]:
    """Drain on-demand nodes in rounds.

    In each round, the first on-demand node (see --drain-order) whose pods may all be evicted and all fit on spot nodes
    is drained, a few pods at a time. The drain succeeds when its pods run again elsewhere; then the drain
    delay starts. After a failed drain the node is schedulable again. No node is drained while replacement pods of
    an earlier drain are missing, or while pending pods wait for room on spot nodes.

    Durations are Go durations: 10s, 2m30s, 1h, 500ms, 0.
    """
    room = _room_of(room, provider, once=more["once"])
    own = connection.kubeconfig is None and connection.context is None
    return (
        ApiServerConnection(
            kubeconfig=connection.kubeconfig,
            context=connection.context,
            in_cluster=running_in_cluster and own,
        ),
        replace(with_profiles(policy, more["scheduling"]), drain_windows=drain_windows, survive=Survive(survive)),
        Running(
            timing=timing,
            provider=provider,
            listen=listen_address,
            room=room,
            plan_command=plan_command(elsewhere=True),
            **more,
        ),
        logs,
        prices,
    )


@click.command("run", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@functools.wraps(_start)
def command(**flags: Any) -> int:
    from rescheduler.housekeeping import composition  # noqa: PLC0415 - the client is imported on demand

    return composition.run(*_start(**flags))


def check(context: click.Context) -> None:
    """Raise UsageError if the daemon would reject the flags in *context* of this command at its start.

    The files that flags name are not read: they are those of the daemon's machine.
    """
    flags = context.params | {"prices": None, "commitments_file": None}
    if flags["scheduler_config"] is not None:
        flags |= {"scheduler_config": None, "assumed": ()}
    with context:
        _, _, running, _, _ = _start(**flags)
    named = running.provider
    providers.check(named.name, named.config, named.nodes, named.cluster_name)
