"""Options shared by several commands, in groups. Each group passes one value to its command instead of its options.

``@policy_options`` passes ``policy: Policy``, ``@connection_options`` ``connection: Connection``, ``@logging_options``
``logs: Logging``, ``@provider_options(…)`` ``provider: Provider``. The help lists the options in the order of the
decorators.
"""

import functools
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from rescheduler.cli.go_flags import FILE, FILE_TEXT, Bool, DurationType, Option, Parsed
from rescheduler.errors import UsageError
from rescheduler.planning.namespaces import namespace_scope, parse_names
from rescheduler.planning.node_labels import NodeLabels
from rescheduler.planning.policy import DrainOrder, MoveJobs, Policy
from rescheduler.providers import BACKENDS
from rescheduler.settings import (
    JSON,
    LEASE,
    MEMORY_NAME,
    PROTOBUF,
    SAVINGS_NAME,
    ApiServerConnection,
    LogFormat,
    Logging,
    Provider,
    object_name,
)

Command: TypeAlias = Callable[..., Any]
Decorator: TypeAlias = Callable[[Command], Command]

_POLICY: Final = Policy()
NAMES: Final = Parsed(parse_names, "names", UsageError)
NODE_LABELS: Final = Parsed(NodeLabels.parse, "selector", UsageError)


def group(name: str, make: Callable[..., Any], options: Sequence[Option]) -> Decorator:
    """Combine *options* into one parameter *name* of the command.

    *make* creates its value from theirs, passed by keyword.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def grouped(**values: Any) -> Any:
            own = {option.to: values.pop(option.to) for option in options}
            return command(**values, **{name: make(**own)})

        decorated: Command = grouped
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


#: The scheduler name that stands for all schedulers.
_ANY: Final = "*"


def _policy(
    planning_timeout: timedelta,
    max_node_age: timedelta,
    drain_order: str,
    move_jobs: str,
    scheduler_names: tuple[str, ...],
    namespaces: tuple[tuple[str, ...], ...],
    exclude_namespaces: tuple[tuple[str, ...], ...],
    namespace_selector: str,
    **values: Any,
) -> Policy:
    if values["on_demand_label"].same_as(values["spot_label"]):
        raise UsageError(
            f"--on-demand-node-label and --spot-node-label are both {values['spot_label']}: expected two labels"
        )
    if "" in scheduler_names:
        raise UsageError("--scheduler-name: expected a name, or '*' for all schedulers")
    return Policy(
        planning_timeout=planning_timeout.total_seconds(),
        max_node_age=max_node_age.total_seconds(),
        drain_order=DrainOrder(drain_order),
        move_jobs=MoveJobs(move_jobs),
        scheduler_names=() if _ANY in scheduler_names else scheduler_names,
        namespaces=namespace_scope(chain(*namespaces), chain(*exclude_namespaces), namespace_selector),
        **values,
    )


policy_options = group(
    "policy",
    _policy,
    (
        Option(
            "--on-demand-node-label",
            NODE_LABELS,
            to="on_demand_label",
            default=str(_POLICY.on_demand_label),
            help="Label of the nodes to drain: key, key=value, key!=value or !key, as in kubectl get -l; a comma means "
            "and. A node that also matches the spot label is a spot node.",
        ),
        Option(
            "--spot-node-label",
            NODE_LABELS,
            to="spot_label",
            default=str(_POLICY.spot_label),
            help="Label of the nodes to move pods to, in the same syntax.",
        ),
        Option(
            "--delete-non-replicated-pods",
            Bool(),
            default=False,
            help="Also evict pods without a controller. Nothing recreates them, so they are lost. If false, such "
            "a pod prevents its node from being drained.",
        ),
        Option(
            "--skip-nodes-with-local-storage",
            Bool(),
            default=True,
            help="Do not drain nodes with pods that store data in an emptyDir or hostPath volume, which would be "
            "lost. As in Cluster Autoscaler.",
        ),
        Option(
            "--skip-nodes-with-system-pods",
            Bool(),
            default=True,
            help="Do not drain nodes with kube-system pods that have no PodDisruptionBudget (DaemonSet pods are "
            "ignored). As in Cluster Autoscaler.",
        ),
        Option(
            "--skip-single-replicas",
            Bool(),
            default=False,
            help="Do not drain nodes with a pod that is the only one of its controller, because it is interrupted "
            "until its replacement runs.",
        ),
        Option(
            "--namespaces",
            NAMES,
            multiple=True,
            metavar="NAME,…",
            help="Only evict pods of these namespaces; a pod of another one blocks its node. Repeatable. Default: all.",
        ),
        Option(
            "--exclude-namespaces",
            NAMES,
            multiple=True,
            metavar="NAME,…",
            help="Do not evict pods of these namespaces; such a pod blocks its node. Repeatable.",
        ),
        Option(
            "--namespace-selector",
            default="",
            metavar="SELECTOR",
            help="Only evict pods of namespaces with these labels, such as team=web,!critical. A pod of another "
            "namespace blocks its node. Default: all.",
        ),
        Option(
            "--min-on-demand-nodes",
            click.IntRange(min=0),
            default=_POLICY.min_on_demand_nodes,
            help="Keep at least this many on-demand nodes with their pods, as headroom for a spot outage. A node "
            "counts if it is Ready, runs pods (DaemonSet pods are ignored), and is neither drained nor "
            "removed. 0: all of them may be drained.",
        ),
        Option(
            "--drain-order",
            click.Choice([value.value for value in DrainOrder]),
            default=_POLICY.drain_order.value,
            help="Which on-demand nodes are drained first. least-requested: those with the least requested CPU. "
            "cost: those with the highest price; nodes without a price come after, by vCPU and memory, largest "
            "first. age: the oldest.",
        ),
        Option(
            "--max-node-age",
            DurationType(),
            default="0",
            help="Drain on-demand nodes that are at least this old before all others, such as 720h. They are "
            "drained only if their pods fit on spot nodes, as any other node. 0: off.",
        ),
        Option(
            "--move-jobs",
            click.Choice([value.value for value in MoveJobs]),
            default=_POLICY.move_jobs.value,
            help="Which pods of Jobs may be evicted. Kubernetes counts an evicted pod as failed. tolerant: pods "
            "whose Job allows enough failures (backoffLimit, backoffLimitPerIndex) or has a "
            "podFailurePolicy that ignores disruptions. always: all pods. never: none.",
        ),
        Option(
            "--scheduler-name",
            to="scheduler_names",
            multiple=True,
            default=_POLICY.scheduler_names,
            metavar="NAME",
            help="Scheduler whose pods may be evicted (spec.schedulerName). Repeatable; replaces the default. "
            "Placements are predicted with the default scheduler's rules, so only name schedulers with the "
            "same rules. '*': all schedulers.",
        ),
        Option(
            "--planning-timeout",
            DurationType(),
            default="2s",
            help="Time limit for improving a plan beyond first-fit. 0: first-fit only. Two seconds improve plans "
            "for thousands of nodes and are short compared with --housekeeping-interval.",
        ),
        Option(
            "--allow-fragile-plans",
            Bool(),
            default=False,
            help="Also drain a node if its pods fit only when the scheduler chooses the planned nodes. If false, "
            "a plan must work regardless of scoring and tie-breaking.",
        ),
        Option(
            "--allow-returning-plans",
            Bool(),
            default=False,
            help="Also drain a node if the scheduler is expected to place more than half of its pods on nodes "
            "that are not spot. Such drains do not start --failure-pause.",
        ),
        Option(
            "--allow-control-plane",
            Bool(),
            default=False,
            help="Also drain nodes with a control-plane label, if they have the on-demand label. Their machines "
            "are never removed. If false, they are not drained.",
        ),
    ),
)

soft_taint_option: Final = Option(
    "--manage-soft-taint",
    Bool(),
    default=False,
    help="Maintain a PreferNoSchedule taint on the on-demand nodes, so that moved pods do not return to them "
    "while spot nodes have room. If false, the taint is removed from nodes where this program added it.",
)


def provider_options(description: str) -> Decorator:
    """Return the options of the cloud provider. *description* is the help of ``--cloud-provider``."""
    return group(
        "provider",
        _provider,
        (
            Option("--cloud-provider", click.Choice(list(BACKENDS)), default="none", help=description),
            Option(
                "--cloud-config",
                FILE,
                metavar="FILE",
                help="Configuration file of the cloud provider; its keys are documented in docs/.",
            ),
            Option(
                "--nodes",
                metavar="MIN:MAX:GROUP",
                multiple=True,
                help="Node group of the cloud provider and its size limits, in the format of Cluster Autoscaler. "
                "Repeatable. For cloud providers that cannot list their groups (cherryservers, stackpoint).",
            ),
            Option(
                "--cluster-name",
                default="",
                help="Name of the cluster, if the cloud provider tags its machines with it.",
            ),
        ),
    )


def _provider(cloud_provider: str, cloud_config: Path | None, nodes: tuple[str, ...], cluster_name: str) -> Provider:
    return Provider(cloud_provider, cloud_config, nodes, cluster_name)


node_name_option: Final = Option(
    "--node-name",
    default="",
    metavar="NAME",
    help="The node that this program runs on. It is never drained, because that would interrupt the drain "
    "itself. The shipped manifests set it in the environment. Empty: none.",
)

namespace_option: Final = Option(
    "--namespace",
    default="kube-system",
    help="The namespace that the daemon runs in, with its Lease and its memory ConfigMap.",
)

lease_name_option: Final = Option(
    "--lease-name",
    Parsed(object_name, "name", UsageError),
    default=LEASE,
    help="The Lease for leader election. Namespace and Lease name identify an installation: two installations in "
    "one cluster need different ones.",
)

memory_name_option: Final = Option(
    "--memory-name",
    default=MEMORY_NAME,
    metavar="NAME",
    help="The ConfigMap with the state that must survive restarts: the drain delay, cooldowns, pauses, owed "
    "replacement pods, and how often pods were moved. The chart derives the name from the release.",
)

savings_name_option: Final = Option(
    "--savings-name",
    Parsed(object_name, "name", UsageError),
    default=SAVINGS_NAME,
    metavar="NAME",
    help="The ConfigMap with the ledger of savings. The chart derives the name from the release.",
)

connection_options = group(
    "connection",
    ApiServerConnection,
    (
        Option(
            "--kubeconfig",
            FILE_TEXT,
            metavar="FILE",
            help="Kubeconfig with the cluster's address and credentials. Default: the ServiceAccount in a pod, "
            "otherwise $KUBECONFIG or ~/.kube/config.",
        ),
        Option("--context", metavar="NAME", help="Context of the kubeconfig; default: its current-context."),
        Option(
            "--kube-api-content-type",
            click.Choice([PROTOBUF, JSON]),
            to="content_type",
            default=PROTOBUF,
            metavar="TYPE",
            help=f"Encoding of objects read from the API server: {PROTOBUF}, which is smaller, or {JSON}.",
        ),
    ),
)

#: The highest verbosity; larger values are the same.
_MOST_VERBOSE: Final = 4


def _verbosity(text: str) -> int:
    """Parse any integer, as glog does."""
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
            help="Log verbosity, 0 to 4. 0: drains and errors; 2: results and reasons of each round "
            "(recommended); 3: every eviction and pod; 4: all details.",
        ),
        Option(
            "--log-format",
            click.Choice([value.value for value in LogFormat]),
            default=LogFormat.TEXT.value,
            help="Log format on standard error: text, or json with one object per line.",
        ),
    ),
)
