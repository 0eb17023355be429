"""``@policy_options``: which nodes may be drained and which pods evicted; and the options for prices."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from rescheduler.cli.console import warn
from rescheduler.cli.go_flags import FILE, Bool, DurationType, Option, Parsed
from rescheduler.cli.options import group
from rescheduler.errors import InputError, UsageError
from rescheduler.net import files
from rescheduler.planning.money import commitments, prices
from rescheduler.planning.money.commitments import Commitment
from rescheduler.planning.money.prices import PriceKey, PriceList
from rescheduler.planning.movements import LONGEST_REST
from rescheduler.planning.node_labels import NodeLabels, label_key
from rescheduler.planning.policy import (
    DrainOrder,
    Leftovers,
    MoveJobs,
    Policy,
    Surging,
    is_label,
    namespace_scope,
    parse_headroom,
    parse_names,
)
from rescheduler.planning.pool_shares import parse_share
from rescheduler.settings import Scheduling

_POLICY: Final = Policy()
_NAMES: Final = Parsed(parse_names, "names", UsageError)
_PRICE: Final = Parsed(prices.price, "price")


class _NodeLabelsType(Parsed):
    """A selector of nodes. In the environment, semicolons separate selectors, which contain spaces and commas."""

    envvar_list_splitter = ";"

    def __init__(self) -> None:
        super().__init__(NodeLabels.parse, "selector", UsageError)


NODE_LABELS: Final = _NodeLabelsType()

#: The scheduler name that stands for all schedulers.
ANY_SCHEDULER: Final = "*"


def _policy(
    on_demand_label: tuple[NodeLabels, ...],
    spot_label: tuple[NodeLabels, ...],
    planning_timeout: timedelta,
    max_node_age: timedelta,
    max_graceful_termination: timedelta,
    drain_order: str,
    min_worth: Decimal,
    move_jobs: str,
    surge: str,
    leftovers: str,
    leftover_rest: timedelta,
    scheduler_names: tuple[str, ...],
    spot_pool_labels: tuple[str, ...],
    ignore_local_volumes: tuple[tuple[str, ...], ...],
    namespaces: tuple[tuple[str, ...], ...],
    exclude_namespaces: tuple[tuple[str, ...], ...],
    namespace_selector: str,
    eviction: str,
    **values: Any,
) -> Policy:
    on_demand, spot = NodeLabels.any_of(on_demand_label), NodeLabels.any_of(spot_label)
    check_labels(on_demand, spot)
    if "" in scheduler_names:
        raise UsageError("--scheduler-name: expected a name, or '*' for all schedulers")
    return Policy(
        on_demand_label=on_demand,
        spot_label=spot,
        planning_timeout=planning_timeout.total_seconds(),
        max_node_age=max_node_age.total_seconds(),
        max_graceful_termination=max_graceful_termination.total_seconds(),
        drain_order=DrainOrder(drain_order),
        min_worth=float(min_worth),
        move_jobs=MoveJobs(move_jobs),
        surge=Surging(surge),
        leftovers=Leftovers(leftovers),
        leftover_rest=leftover_rest.total_seconds(),
        eviction_requests=eviction == "request",
        spot_pool_labels=tuple(dict.fromkeys(spot_pool_labels)),
        scheduler_names=() if ANY_SCHEDULER in scheduler_names else scheduler_names,
        ignore_local_volumes=tuple(dict.fromkeys(chain(*ignore_local_volumes))),
        namespaces=namespace_scope(chain(*namespaces), chain(*exclude_namespaces), namespace_selector),
        **values,
    )


def check_labels(on_demand: NodeLabels, spot: NodeLabels) -> None:
    """Raise UsageError if both kinds of nodes have the same labels."""
    if on_demand.same_as(spot):
        raise UsageError(f"--on-demand-node-label and --spot-node-label are both {spot}: expected two labels")


def _volume_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if not is_label(name):
            raise UsageError(f"volume {name!r}: expected at most 63 lower-case letters, digits and '-'")
    return names


policy_options = group(
    "policy",
    _policy,
    (
        Option(
            "--on-demand-node-label",
            NODE_LABELS,
            to="on_demand_label",
            multiple=True,
            default=_POLICY.on_demand_label.selectors,
            help="Label of the nodes to drain: key, key=value, key!=value, !key, 'key in (a,b)' or 'key notin (a,b)', "
            "as in kubectl get -l; a comma means and. Repeatable: a node with any of them. A node that also matches "
            "the spot label is a spot node. In the environment, semicolons separate several.",
        ),
        Option(
            "--spot-node-label",
            NODE_LABELS,
            to="spot_label",
            multiple=True,
            default=_POLICY.spot_label.selectors,
            help="Label of the nodes to which pods are moved, in the same syntax. Repeatable.",
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
            "--ignore-local-volumes",
            Parsed(_volume_names, "names", UsageError),
            multiple=True,
            metavar="NAME,…",
            help="Names of local volumes whose data never matters, such as those that a service mesh adds to its pods. "
            "Repeatable.",
        ),
        Option(
            "--skip-nodes-with-system-pods",
            Bool(),
            default=True,
            help="Do not drain nodes with kube-system pods that have no PodDisruptionBudget (DaemonSet pods are "
            "ignored). As in Cluster Autoscaler.",
        ),
        Option(
            "--skip-nodes-with-custom-controller-pods",
            Bool(),
            default=False,
            help="Do not drain nodes with pods whose owner is not a built-in controller. If false, such owners are "
            "followed like Deployments; pods that run to completion still block their node.",
        ),
        Option(
            "--eviction",
            click.Choice(["api", "request"]),
            default="api",
            help="How evictions are asked for. api: with the eviction API. request: with an EvictionRequest "
            "(lifecycle.k8s.io), which the components in spec.evictionResponders of the pod handle; with the eviction "
            "API where nobody handles it.",
        ),
        Option(
            "--skip-single-replicas",
            Bool(),
            default=False,
            help="Do not drain nodes with a pod that is its controller's only replica, because the workload would be "
            "interrupted until the replacement runs.",
        ),
        Option(
            "--max-graceful-termination",
            DurationType(least=timedelta(seconds=1)),
            default="2m",
            help="Do not drain nodes with a pod that asks for more time to terminate. If a pod still exists half a "
            "minute after its grace period, the drain fails.",
        ),
        Option(
            "--shorten-grace-periods",
            Bool(),
            default=False,
            help="Evict such pods all the same, with --max-graceful-termination as their grace period: they are killed "
            "before they have finished.",
        ),
        Option(
            "--require-known-architecture",
            Bool(),
            default=False,
            help="Use no spot nodes of an architecture, or build of Windows, that no on-demand node has: images may "
            "not exist for it. Otherwise such spot nodes come last.",
        ),
        Option(
            "--surge",
            click.Choice([value.value for value in Surging]),
            default=_POLICY.surge.value,
            help="Which pods of Deployments are moved by a rolling update instead of an eviction: the new pod runs "
            "before the old one ends. opt-in: those with the annotation spot-rescheduler/surge. blocked: also those "
            "that a PodDisruptionBudget or --skip-single-replicas never lets go. off: none.",
        ),
        Option(
            "--surge-max-replicas",
            click.IntRange(min=1),
            default=_POLICY.surge_max_replicas,
            help="A rolling update replaces all pods of a Deployment. One with more replicas than this is rolled out "
            "only if most of its pods are on the drained node.",
        ),
        Option(
            "--leftovers",
            click.Choice([value.value for value in Leftovers]),
            default=_POLICY.leftovers.value,
            help="What is done about nodes that stay only because of pods that must not run on spot nodes. move: such "
            "pods move to on-demand nodes that stay, and all others to spot nodes. plan: plans show what that would "
            "free. off: neither.",
        ),
        Option(
            "--leftover-rest",
            DurationType(most=LONGEST_REST),
            default="24h",
            help="For how long a pod that moved to another on-demand node (--leftovers=move) is not moved again.",
        ),
        Option(
            "--expendable-pods-priority-cutoff",
            click.IntRange(-(2**31), 2**31 - 1),
            default=_POLICY.expendable_pods_priority_cutoff,
            help="Pods with a priority below this value are expendable: they do not keep their node, are not evicted, "
            "and end with the machine. As in Cluster Autoscaler.",
        ),
        Option(
            "--namespaces",
            _NAMES,
            multiple=True,
            metavar="NAME,…",
            help="Only evict pods of these namespaces; a pod of another one blocks its node. Repeatable. Default: all.",
        ),
        Option(
            "--exclude-namespaces",
            _NAMES,
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
            "cost: those with the highest price; nodes without a price come last, by vCPU and memory, largest "
            "first. age: the oldest. worth: those that save the most money for a moved pod (see --min-worth); nodes "
            "without a price come last, those whose pods cost the fewest moves first.",
        ),
        Option(
            "--min-worth",
            Parsed(prices.per_move, "amount"),
            default="0",
            metavar="AMOUNT",
            help="Leave a node (not-worth-it) that saves less than this per month for a moved pod, in the currency of "
            "the prices. Pods that are costly to move count more, see docs/money.md. Nodes without a price are not "
            "judged. 0: off.",
        ),
        Option(
            "--max-node-age",
            DurationType(),
            default="0",
            help="Drain on-demand nodes that are at least this old before all others, such as 720h. They are "
            "drained only if their pods fit on spot nodes, like any other node. 0: off.",
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
            "--startup-taint",
            to="startup_taints",
            multiple=True,
            metavar="KEY",
            help="Taint that spot nodes have only while they start: such nodes accept no pods yet. Repeatable. "
            "Taints of Cilium, of CSI drivers, of the GPU operator and with Cluster Autoscaler's prefixes are known. "
            "As in Cluster Autoscaler.",
        ),
        Option(
            "--spot-pool-label",
            Parsed(label_key, "key", UsageError),
            to="spot_pool_labels",
            multiple=True,
            default=_POLICY.spot_pool_labels,
            metavar="KEY",
            help="Label of spot nodes that tells their pool: machines of one pool are usually reclaimed together. "
            "Repeatable; replaces the default, zone and instance type.",
        ),
        Option(
            "--max-share-per-spot-pool",
            Parsed(parse_share, "percent", UsageError),
            default="100%",
            metavar="PERCENT",
            help="Do not drain a node if the forecast puts more than this share of a controller's replicas on one pool "
            "of spot nodes, such as 50%. It is rounded down; one replica is always allowed. 100%: no limit.",
        ),
        Option(
            "--fallback-headroom",
            Parsed(parse_headroom, "headroom", UsageError),
            default="0%",
            metavar="PERCENT",
            help="Leave a node (fallback-headroom) if its drain would leave less than this free for the pods of lost "
            "spot nodes, on all nodes that stay: a share of what pods on spot nodes request, such as 10%, or "
            "largest-pool: what the pods of any one pool request, outside of the pool. 0%: nothing.",
        ),
        Option(
            "--fallback-nodes-per-minute",
            click.IntRange(0, 1000),
            default=_POLICY.fallback_nodes_per_minute,
            help="How many nodes an autoscaler adds in the first minute after the loss of spot nodes, each like the "
            "largest on-demand node that stays, or of each NodePool and group of the provider up to its maximum. "
            "--survive counts them as places for pods without volumes, devices and rules about other pods. 0: none.",
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


# The options for prices, and the price file.

_T = TypeVar("_T")

_LONGEST_CURRENCY: Final = 16


def read_prices(path: Path) -> dict[PriceKey, Decimal]:
    """Return the prices in *path*, a file or a folder. Raises UsageError that names the file and the line.

    A folder is a mounted ConfigMap: `rescheduler prices --config-map` may not have written its file yet.
    """
    file = files.price_file(path)
    if file != path and not file.exists():
        warn(f"warning: --prices {files.printable(path)}: the folder has no file {file.name} yet: no prices are known")
        return {}
    return _parsed_file("--prices", file, prices.parse)


def _parsed_file(flag: str, path: Path, parse: Callable[[str], _T]) -> _T:
    try:
        return parse(files.read_text(path))
    except OSError as error:
        raise UsageError(f"{flag} {files.printable(path)}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{flag} {files.printable(path)}: expected UTF-8 text") from error
    except InputError as error:
        raise UsageError(f"{flag} {files.printable(path)}: {error}") from error


def read_commitments(path: Path) -> tuple[Commitment, ...]:
    """Return the commitments in the file *path*. Raises UsageError that names the file and the line."""
    return _parsed_file("--commitments", path, commitments.parse)


def _currency(text: str) -> str:
    if len(text) > _LONGEST_CURRENCY or not text.isprintable():
        raise ValueError(f"{text!r}: expected at most {_LONGEST_CURRENCY} printable characters, such as USD")
    return text.strip()


def _price_list(
    prices: Path | None,
    currency: str,
    price_per_vcpu: Decimal | None,
    price_per_gib: Decimal | None,
    spot_price_per_vcpu: Decimal | None,
    spot_price_per_gib: Decimal | None,
    commitments_file: Path | None,
    commitments_from_nodes: tuple[Commitment, ...],
) -> PriceList:
    return PriceList(
        by_type=read_prices(prices) if prices is not None else {},
        per_vcpu=price_per_vcpu,
        per_gib=price_per_gib,
        spot_per_vcpu=spot_price_per_vcpu,
        spot_per_gib=spot_price_per_gib,
        currency=currency,
        commitments=(
            *(read_commitments(commitments_file) if commitments_file is not None else ()),
            *commitments_from_nodes,
        ),
        file=str(prices or ""),
    )


#: Passes ``prices: PriceList`` to the command. The file is read when the command starts.
price_options = group(
    "prices",
    _price_list,
    (
        Option(
            "--prices",
            FILE,
            metavar="FILE",
            help="Prices per hour: CSV with the columns instance_type,zone,capacity_type,price (zone is optional; "
            "capacity_type is on-demand or spot), or a JSON array of objects with the same keys.",
        ),
        Option(
            "--commitments",
            FILE,
            to="commitments_file",
            metavar="FILE",
            help="On-demand nodes that are paid anyway (reserved instances, Savings Plans, committed-use discounts): "
            "CSV with the columns instance (a type or a family), region, count or per_hour, and until. Such nodes are "
            "worth nothing and are drained last.",
        ),
        Option(
            "--commitments-from-nodes",
            Parsed(commitments.from_nodes, "nodes"),
            multiple=True,
            metavar="[TYPE=]N",
            help="The first N on-demand nodes of an instance type, or of each, are paid anyway. Repeatable.",
        ),
        Option(
            "--price-per-vcpu",
            _PRICE,
            help="Price per hour of a vCPU of on-demand nodes, for nodes that have no other price.",
        ),
        Option("--price-per-gib", _PRICE, help="Price per hour of a GiB of memory of on-demand nodes, likewise."),
        Option("--spot-price-per-vcpu", _PRICE, help="Price per hour of a vCPU of spot nodes, likewise."),
        Option("--spot-price-per-gib", _PRICE, help="Price per hour of a GiB of memory of spot nodes, likewise."),
        Option(
            "--currency",
            Parsed(_currency, "currency"),
            default="",
            metavar="TEXT",
            help="The currency of all prices, such as USD. It is shown as given.",
        ),
    ),
)


def with_profiles(policy: Policy, scheduling: Scheduling) -> Policy:
    """Return *policy* with the profiles of the scheduler, whose pods may be evicted."""
    names = tuple(profile.name for profile in scheduling.profiles)
    return replace(policy, profiles=names, unknown_plugins=scheduling.unknown)
