"""The options that commands share, in groups. A group hands its command one value in place of its options.

``@policy_options`` passes ``policy: Policy``, ``@connection_options`` ``connection: Connection``, ``@logging_options``
``logs: Logging``, ``@provider_options(…)`` ``provider: Provider``. Options stand in the help in the order of the
decorators.
"""

import functools
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from rescheduler.backends import BACKENDS
from rescheduler.cli.go_flags import FILE, FILE_TEXT, Bool, Duration, Option, Parsed
from rescheduler.errors import UsageError
from rescheduler.planning.policy import MoveJobs, NodeLabel, Policy
from rescheduler.settings import JSON, MEMORY_NAME, PROTOBUF, Connection, LogFormat, Logging, Provider

Command: TypeAlias = Callable[..., Any]
Decorator: TypeAlias = Callable[[Command], Command]

_POLICY: Final = Policy()
NODE_LABEL: Final = Parsed(NodeLabel.parse, "key[=value]", UsageError)


def group(name: str, make: Callable[..., Any], options: Sequence[Option]) -> Decorator:
    """*options* as one parameter *name* of the command: what *make* makes of their values, passed by keyword."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def grouped(**values: Any) -> Any:
            own = {one.to: values.pop(one.to) for one in options}
            return command(**values, **{name: make(**own)})

        decorated: Command = grouped
        for one in reversed(options):
            decorated = one(decorated)
        return decorated

    return decorate


#: As the name of a scheduler: all of them.
_ANY: Final = "*"


def _policy(planning_timeout: timedelta, move_jobs: str, scheduler_names: tuple[str, ...], **values: Any) -> Policy:
    if values["on_demand_label"] == values["spot_label"]:
        raise UsageError(
            f"--on-demand-node-label and --spot-node-label are both {values['spot_label']}: expected two labels"
        )
    if "" in scheduler_names:
        raise UsageError("--scheduler-name: expected a name, or '*' for all schedulers")
    return Policy(
        planning_timeout=planning_timeout.total_seconds(),
        move_jobs=MoveJobs(move_jobs),
        scheduler_names=() if _ANY in scheduler_names else scheduler_names,
        **values,
    )


policy_options = group(
    "policy",
    _policy,
    (
        Option(
            "--on-demand-node-label",
            NODE_LABEL,
            to="on_demand_label",
            default=str(_POLICY.on_demand_label),
            help="Label of the nodes that are emptied: key, or key=value. A node that carries the spot label "
            "too is a spot node.",
        ),
        Option(
            "--spot-node-label",
            NODE_LABEL,
            to="spot_label",
            default=str(_POLICY.spot_label),
            help="Label of the nodes that pods are moved to: key, or key=value.",
        ),
        Option(
            "--delete-non-replicated-pods",
            Bool(),
            default=False,
            help="Evict pods that have no controller as well. Nothing creates them again: they are lost. Off, such "
            "a pod keeps its node from being emptied.",
        ),
        Option(
            "--skip-nodes-with-local-storage",
            Bool(),
            default=True,
            help="Leave nodes alone on which a pod keeps data in an emptyDir or a hostPath, which a move loses. "
            "As in Cluster Autoscaler.",
        ),
        Option(
            "--skip-nodes-with-system-pods",
            Bool(),
            default=True,
            help="Leave nodes alone that run a kube-system pod without a PodDisruptionBudget (DaemonSets do not "
            "count). As in Cluster Autoscaler.",
        ),
        Option(
            "--min-on-demand-nodes",
            click.IntRange(min=0),
            default=_POLICY.min_on_demand_nodes,
            help="Leave at least so many on-demand nodes with their pods, as headroom for a spot outage. Only "
            "nodes count that are Ready, run pods of their own (DaemonSets do not count), and are neither drained nor "
            "removed. 0: every one may be emptied.",
        ),
        Option(
            "--move-jobs",
            click.Choice([one.value for one in MoveJobs]),
            default=_POLICY.move_jobs.value,
            help="Which pods of Jobs may be evicted. Kubernetes counts an evicted pod as failed. tolerant: those whose "
            "Job has enough failures left (backoffLimit, backoffLimitPerIndex), or a podFailurePolicy that ignores "
            "disruptions. always: all of them. never: none of them.",
        ),
        Option(
            "--scheduler-name",
            to="scheduler_names",
            multiple=True,
            default=_POLICY.scheduler_names,
            metavar="NAME",
            help="Schedulers whose pods may be evicted, once for each (spec.schedulerName); they replace the default. "
            "Where pods go is predicted by the default scheduler's rules, so name only others with the same rules. "
            "'*': all schedulers.",
        ),
        Option(
            "--planning-timeout",
            Duration(),
            default="2s",
            help="How long a plan may be improved over first-fit. 0: first-fit only. Two seconds pay on "
            "thousands of nodes and are not noticed beside a housekeeping interval.",
        ),
        Option(
            "--allow-fragile-plans",
            Bool(),
            default=False,
            help="Drain also where the pods fit only if the scheduler chooses the planned nodes. Off, a plan must "
            "hold however the scheduler's scoring and its ties fall.",
        ),
        Option(
            "--allow-returning-plans",
            Bool(),
            default=False,
            help="Drain also where, by forecast, the scheduler puts more than half of the pods on nodes that are not "
            "spot. Such drains are not followed by --failure-pause then.",
        ),
        Option(
            "--allow-control-plane",
            Bool(),
            default=False,
            help="Drain nodes with a control-plane label as well, if they carry the on-demand label. Their machines "
            "are never removed. Off, they stay.",
        ),
    ),
)

soft_taint_option: Final = Option(
    "--manage-soft-taint",
    Bool(),
    default=False,
    help="Keep a PreferNoSchedule taint on the on-demand nodes, so that pods which move do not come back to them "
    "while spot has room. Off, that taint is taken off again where this program has put it.",
)


def provider_options(what: str) -> Decorator:
    """The system that owns machines, as ``provider: Provider``; *what* says what becomes of it."""
    return group(
        "provider",
        _provider,
        (
            Option("--cloud-provider", click.Choice(list(BACKENDS)), default="none", help=what),
            Option(
                "--cloud-config",
                FILE,
                metavar="FILE",
                help="Configuration of the cloud provider; its page in docs/ has the keys.",
            ),
            Option(
                "--nodes",
                metavar="MIN:MAX:GROUP",
                multiple=True,
                help="A node group of the cloud provider and its sizes, once for each, as Cluster Autoscaler takes it; "
                "for cloud providers that know no groups by themselves (cherryservers, stackpoint).",
            ),
            Option(
                "--cluster-name",
                default="",
                help="The cluster's name, where the cloud provider marks its machines with it.",
            ),
        ),
    )


def _provider(cloud_provider: str, cloud_config: Path | None, nodes: tuple[str, ...], cluster_name: str) -> Provider:
    return Provider(cloud_provider, cloud_config, nodes, cluster_name)


node_name_option: Final = Option(
    "--node-name",
    default="",
    metavar="NAME",
    help="The node that this program runs on, which is never drained: it would take itself away in the middle. The "
    "shipped manifests set it by the environment. Empty: none.",
)

namespace_option: Final = Option(
    "--namespace",
    default="kube-system",
    help="The namespace that the daemon runs in; the leader's Lease and the memory live there.",
)

memory_name_option: Final = Option(
    "--memory-name",
    default=MEMORY_NAME,
    metavar="NAME",
    help="The ConfigMap that keeps what restarts must not forget: the drain delay, cooldowns, pauses, what drains "
    "still owe, and how often pods were moved. The chart names it after the release.",
)

connection_options = group(
    "connection",
    Connection,
    (
        Option(
            "--kubeconfig",
            FILE_TEXT,
            metavar="FILE",
            help="Kubeconfig with the cluster's address and our credentials. Without it: the ServiceAccount in a "
            "pod, elsewhere $KUBECONFIG or ~/.kube/config.",
        ),
        Option("--context", metavar="NAME", help="Context of the kubeconfig; without it its current-context."),
        Option(
            "--kube-api-content-type",
            click.Choice([PROTOBUF, JSON]),
            to="content_type",
            default=PROTOBUF,
            metavar="TYPE",
            help=f"Encoding in which objects are asked of the API server: {PROTOBUF}, which is smaller, or {JSON}.",
        ),
    ),
)

#: The highest verbosity that changes anything.
_MOST_VERBOSE: Final = 4


def _verbosity(text: str) -> int:
    """Any integer, as glog takes it."""
    if not re.fullmatch(r"[-+]?[0-9]{1,18}", text):
        raise ValueError(f"{text!r}: expected an integer")
    return min(max(int(text), 0), _MOST_VERBOSE)


logging_options = group(
    "logs",
    lambda v, log_format: Logging(verbosity=v, format=LogFormat(log_format)),
    (
        Option(
            "--v",
            Parsed(_verbosity, "integer"),
            short="-v",
            default="0",
            help="How much is logged, 0 to 4: 0 drains and what went wrong, 2 what an operator wants (each "
            "round's outcome and reasons; recommended), 3 every eviction and pod, 4 every detail.",
        ),
        Option(
            "--log-format",
            click.Choice([one.value for one in LogFormat]),
            default=LogFormat.TEXT.value,
            help="Log lines for people (text) or for collectors (json, one object a line), on standard error.",
        ),
    ),
)
