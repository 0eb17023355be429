"""``@timing_options``: intervals, timeouts and pauses of the daemon. It passes ``timing: Timing``."""

import math
import re
from datetime import timedelta
from typing import Any, Final

from rescheduler.cli.go_flags import DurationType, Option, Parsed, format_duration
from rescheduler.cli.options import group
from rescheduler.errors import UsageError
from rescheduler.settings import Timing

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
            "--max-graceful-termination",
            DurationType(least=_SECOND),
            default="2m",
            help="Maximum grace period of evicted pods; a pod's own grace period applies if it is shorter. If a "
            "pod still exists half a minute after its grace period, the drain fails.",
        ),
        Option(
            "--pending-patience",
            DurationType(),
            default="10m",
            help="No node is drained while pods are pending that could run on a spot node; pods that have been "
            "pending for longer than this are ignored, and so are those of a namespace whose pods have delayed drains "
            "for so long. 0: pending pods do not delay drains.",
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
    ),
)
