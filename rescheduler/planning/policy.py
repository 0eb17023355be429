"""The user's settings for planning, as one value that is filled from the command-line flags."""

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import msgspec

from predicates.nodes import LearnedRefusals
from predicates.objects import LabelSelector, Requirement
from predicates.scheduler import DEFAULT_NAME, UnknownPlugin
from predicates.selectors import EVERYTHING, Selector, compile_selector
from predicates.texts import quoted
from rescheduler.errors import UsageError
from rescheduler.planning.money.move_costs import NO_HISTORY, MoveHistory
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.node_labels import NodeLabels, named_set, parts
from rescheduler.planning.outcome import Blocker
from rescheduler.planning.pauses import DrainWindow
from rescheduler.planning.pools import POOL_LABELS
from rescheduler.planning.waits import Cooldown

# The namespaces whose pods may be evicted. Pure.

#: The label that the API server sets on each namespace.
NAME_LABEL: Final = "kubernetes.io/metadata.name"

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_EXPECTED: Final = "expected requirements such as team=web, team!=ci, team, '!team' or 'team in (web, shop)'"


@dataclass(frozen=True, slots=True)
class NamespaceScope:
    """The namespaces whose pods may be evicted: they are named, not excluded, and match the selector."""

    included: frozenset[str] = frozenset()  #: names; empty: all
    excluded: frozenset[str] = frozenset()
    selector: Selector = EVERYTHING
    selector_text: str = ""  #: the selector as it was given

    @property
    def everything(self) -> bool:
        """Whether the pods of all namespaces may be evicted."""
        return not (self.included or self.excluded) and self.selector.everything

    def why_excluded(self, name: str, labels: Mapping[str, str]) -> str:
        """Return why pods of the namespace *name*, which has these *labels*, must not be evicted, or ""."""
        if name in self.excluded:
            return f"--exclude-namespaces contains its namespace {name}"
        if self.included and name not in self.included:
            return f"--namespaces does not contain its namespace {name}"
        if not self.selector.matches({NAME_LABEL: name, **labels}):
            return f"its namespace {name} does not match --namespace-selector={self.selector_text}"
        return ""


ALL_NAMESPACES: Final = NamespaceScope()


def is_label(name: str) -> bool:
    """Return whether *name* is a DNS label, as the names of namespaces and volumes are."""
    return _NAME.fullmatch(name) is not None


def parse_names(text: str) -> tuple[str, ...]:
    """Parse names of namespaces, separated by commas. Raises UsageError."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if not is_label(name):
            raise UsageError(f"namespace {name!r}: expected at most 63 lower-case letters, digits and '-'")
    return names


def parse_selector(text: str) -> Selector:
    """Parse a label selector in the syntax of ``kubectl --selector``. Raises UsageError."""
    requirements = tuple(_requirement(part.strip(), text) for part in parts(text))
    selector = compile_selector(LabelSelector(match_expressions=requirements))
    if selector.error:
        raise UsageError(f"label selector {text!r}: {selector.error}")
    return selector


def namespace_scope(included: Iterable[str], excluded: Iterable[str], selector: str = "") -> NamespaceScope:
    """Return the scope for these names and the label selector; "" matches all namespaces.

    Raises UsageError if a namespace is both included and excluded.
    """
    scope = NamespaceScope(
        frozenset(included), frozenset(excluded), parse_selector(selector) if selector else EVERYTHING, selector
    )
    if overlap := scope.included & scope.excluded:
        raise UsageError(
            f"namespace {min(overlap)!r}: expected in --namespaces or in --exclude-namespaces, not in both"
        )
    return scope


def _requirement(part: str, text: str) -> Requirement:
    if (listed := named_set(part)) is not None:
        key, negated, values = listed
        return Requirement(key=key, operator="NotIn" if negated else "In", values=values)
    for sign, operator in (("!=", "NotIn"), ("==", "In"), ("=", "In")):
        key, separator, value = part.partition(sign)
        if separator:
            return Requirement(key=key.strip(), operator=operator, values=(value.strip(),))
    key = part.removeprefix("!").strip()
    if not key or " " in key or "(" in key:
        raise UsageError(f"label selector {text!r}: {part!r}: {_EXPECTED}")
    return Requirement(key=key, operator="DoesNotExist" if part.startswith("!") else "Exists")


# The current time for rules, and the instant until which their results stay valid if nothing else changes.


#: Later than any deadline.
FOREVER: Final = datetime.max.replace(tzinfo=UTC)


class Deadlines:
    """Tracks the first instant at which a result can change only because time has passed."""

    def __init__(self) -> None:
        self._next: datetime | None = None

    def take(self) -> datetime | None:
        """Return the earliest instant recorded since the last call, or None."""
        first, self._next = self._next, None
        return first

    def record(self, instant: datetime) -> None:
        """Record an *instant* in the future at which a result may change."""
        if self._next is None or instant < self._next:
            self._next = instant


class Now:
    """The current time, which rules can only compare with. Each instant in the future becomes a deadline."""

    __slots__ = ("_deadlines", "_now")

    def __init__(self, now: datetime, deadlines: Deadlines | None = None) -> None:
        self._now = now
        self._deadlines = Deadlines() if deadlines is None else deadlines

    def reached(self, instant: datetime) -> bool:
        """Return whether it is *instant* or later."""
        if self._now < instant:
            self._deadlines.record(instant)
            return False
        return True

    def passed(self, instant: datetime) -> bool:
        """Return whether it is later than *instant*."""
        if self._now <= instant:
            self._deadlines.record(instant)
            return False
        return True


class DrainOrder(enum.StrEnum):
    """The order in which on-demand nodes are considered for a drain."""

    LEAST_REQUESTED = "least-requested"  #: the least requested CPU first, as in k8s-spot-rescheduler
    COST = "cost"  #: the highest price first
    AGE = "age"  #: the oldest first
    WORTH = "worth"  #: the most money for a moved pod first


class MoveJobs(enum.StrEnum):
    """Which pods of Jobs may be evicted.

    An evicted pod counts as failed, and a Job tolerates a limited number of failures.
    """

    TOLERANT = "tolerant"  #: those whose eviction cannot fail the Job
    ALWAYS = "always"  #: all of them
    NEVER = "never"  #: none of them


class Surging(enum.StrEnum):
    """Which pods a drain moves by a rolling update of their Deployment instead of an eviction."""

    OFF = "off"  #: none
    OPT_IN = "opt-in"  #: those whose template or Deployment asks for it
    BLOCKED = "blocked"  #: also those that a budget, or the rule about single replicas, never lets go


#: The default labels of k8s-spot-rescheduler.
ON_DEMAND_LABEL: Final = NodeLabels.parse("node-role.kubernetes.io/worker")
SPOT_LABEL: Final = NodeLabels.parse("node-role.kubernetes.io/spot-worker")


class Survive(enum.StrEnum):
    """What may be lost at once: nothing, any pool of spot nodes, or all spot nodes of any zone."""

    OFF = "off"
    POOL = "pool"
    ZONE = "zone"


_PERCENT: Final = re.compile(r"([0-9]{1,4})%")
LARGEST_POOL: Final = "largest-pool"


@dataclass(frozen=True, slots=True)
class FallbackHeadroom:
    """The room that plans leave for the pods of lost spot nodes; by default none, which is False."""

    percent: int = 0  #: of what pods on spot nodes request
    largest_pool: bool = False  #: what the pods of each pool request, outside of the pool

    def __bool__(self) -> bool:
        return self.largest_pool or self.percent > 0

    def __str__(self) -> str:
        """Return the value of the flag."""
        return LARGEST_POOL if self.largest_pool else f"{self.percent}%"


def parse_headroom(text: str) -> FallbackHeadroom:
    """Parse a percentage such as ``10%``, or ``largest-pool``. Raises UsageError."""
    if text.strip() == LARGEST_POOL:
        return FallbackHeadroom(largest_pool=True)
    if (matched := _PERCENT.fullmatch(text.strip())) is None:
        raise UsageError(f"{quoted(text)}: expected a percentage such as 10%, or {LARGEST_POOL}")
    return FallbackHeadroom(int(matched[1]))


class Leftovers(enum.StrEnum):
    """What is done about pods that must not run on spot nodes, and that keep nodes whose other pods could go there."""

    OFF = "off"  #: nothing
    PLAN = "plan"  #: plans show what moving them together would free
    MOVE = "move"  #: they are moved to on-demand nodes that stay


class Destination(enum.StrEnum):
    """Where the pods of drained nodes may go."""

    SPOT = "spot"  #: from on-demand nodes to spot nodes
    OTHERS = "others"  #: from any node to any other node outside of the control plane that is Ready


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings for planning. Defaults are those of the flags."""

    on_demand_label: NodeLabels = ON_DEMAND_LABEL
    #: A node that matches both labels is a spot node.
    spot_label: NodeLabels = SPOT_LABEL
    delete_non_replicated_pods: bool = False
    skip_nodes_with_local_storage: bool = True
    ignore_local_volumes: tuple[str, ...] = ()  #: names of volumes whose data may always be lost
    skip_nodes_with_system_pods: bool = True
    skip_nodes_with_custom_controller_pods: bool = False
    min_on_demand_nodes: int = 0
    budgets_in_steps: bool = False  #: use budgets that allow one eviction for several pods, in steps
    planning_timeout: float = 2.0  #: seconds that may be spent on better plans than first-fit
    allow_fragile_plans: bool = False
    allow_returning_plans: bool = False  #: also execute plans that move most pods to nodes that are not spot
    allow_control_plane: bool = False  #: nodes with a control-plane label may be drained; their machines stay
    move_jobs: MoveJobs = MoveJobs.TOLERANT
    scheduler_names: tuple[str, ...] = (DEFAULT_NAME,)  #: schedulers whose pods may be evicted; empty means all
    profiles: tuple[str, ...] = ()  #: schedulers whose profiles are known; their pods may be evicted as well
    unknown_plugins: tuple[UnknownPlugin, ...] = ()  #: pods that they concern are not evicted
    pod_eviction_timeout: float = 120.0  #: seconds for each step, if evictions under a budget are made in steps
    max_graceful_termination: float = 120.0  #: seconds; a pod that asks for more to terminate stays
    require_known_architecture: bool = False  #: spot nodes of a kind that no on-demand node has are no targets
    shorten_grace_periods: bool = False  #: it is evicted with this limit instead
    namespaces: NamespaceScope = ALL_NAMESPACES  #: whose pods may be evicted
    #: Pods with a lower priority do not keep their node: they end with it.
    expendable_pods_priority_cutoff: int = -10
    #: Keys of taints that spot nodes only have while they start, in addition to the known ones.
    startup_taints: tuple[str, ...] = ()
    max_share_per_spot_pool: int = 100  #: percent of a controller's replicas on one pool of spot nodes; 100: no limit
    spot_pool_labels: tuple[str, ...] = POOL_LABELS  #: keys of the labels whose values are the pool of a spot node
    eviction_requests: bool = False  #: evictions are asked for with EvictionRequests, which other components handle
    skip_single_replicas: bool = False  #: a pod that is the only one of its controller stays
    surge: Surging = Surging.OPT_IN
    surge_max_replicas: int = 3  #: of a Deployment that rolls out, unless most of its pods are on the drained node
    drain_windows: tuple[DrainWindow, ...] = ()  #: when drains may start; empty: always
    drain_order: DrainOrder = DrainOrder.LEAST_REQUESTED
    min_worth: float = 0.0  #: money per month for a moved pod, below which a node stays; 0: off
    max_node_age: float = 0.0  #: seconds; nodes that are older come first in any order; 0: off
    fallback_headroom: FallbackHeadroom = FallbackHeadroom()
    fallback_nodes_per_minute: int = (
        0  #: that an autoscaler adds after a loss, like the largest on-demand node that stays
    )
    leftovers: Leftovers = Leftovers.PLAN
    leftover_rest: float = 86_400.0  #: seconds for which a pod that moved to an on-demand node is not moved again
    survive: Survive = Survive.OFF  #: no plan may break the certificate that the loss of any of these is survived
    destination: Destination = Destination.SPOT
    system_pods_stay: bool = False  #: pods of kube-system end with their node
    keep_any_local_volume: bool = False  #: emptyDir in memory counts, too, and is reported before anything else
    wait_for_terminating: bool = False  #: pods that are being deleted block no node unless they are overdue
    #: The controllers in the snapshot are judged. False in the daemon: it reads those of the node that it is about to
    #: drain.
    judge_controllers: bool = False
    one_reason_per_pod: bool = False  #: only the first reason against the eviction of each pod is reported

    @property
    def needs_prices(self) -> bool:
        """Whether plans depend on prices, apart from commitments."""
        by_price = self.drain_order in (DrainOrder.COST, DrainOrder.WORTH) or self.min_worth > 0
        return by_price or self.leftovers is Leftovers.MOVE

    def of_drains(self, eviction: float) -> "Policy":
        """Return the policy of a process that carries out its plans: a drain evicts the pods of a budget in steps.

        The evictions of a step are retried for *eviction* seconds.
        """
        return replace(self, budgets_in_steps=True, pod_eviction_timeout=eviction)


class LeaderFacts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the leader knows from its own pod, its provider and its waits. It stores this for the commands."""

    own: str = ""  #: the node that its pod runs on; "" outside of a cluster
    ends_machines: bool = False  #: whether its provider ends the machines of drained nodes; else an autoscaler does
    ending: tuple[str, ...] = ()  #: nodes whose machines the cloud will soon reclaim
    ended: tuple[str, ...] = ()  #: nodes whose machines are terminating or gone
    #: The group of the cloud provider and how many more nodes it may have, by one on-demand node of each kind.
    growth: Mapping[str, tuple[str, int]] = {}
    left_pending: tuple[str, ...] = ()  #: namespaces whose pending pods take no room


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The inputs of planning other than the snapshot and the policy."""

    now: datetime
    cooling: Mapping[str, Cooldown] = field(default_factory=dict)  #: cooldowns by node
    holder: str = ""  #: our identity in the annotation on drained nodes
    own: str = ""  #: the node that this process runs on; "" outside of a cluster
    ordered: frozenset[str] = frozenset()  #: nodes for which machine termination may have been requested
    ending: frozenset[str] = frozenset()  #: nodes whose machines the cloud will soon reclaim
    #: By node: blockers that do not follow from the snapshot but from reads made for candidates only.
    vetoes: Mapping[str, tuple[Blocker, ...]] = field(default_factory=dict)
    #: Nodes without pods for which machine termination may have been requested: they need not be Ready.
    emptied: frozenset[str] = frozenset()
    prices: PriceList = field(default_factory=PriceList)  #: for drain orders and ``--min-worth``
    history: MoveHistory = NO_HISTORY  #: of the pods that may move again
    #: Namespaces whose nodes come last in the drain order, those with the largest number at the end.
    last: Mapping[str, int] = field(default_factory=dict)
    #: Pools of spot nodes that are not trusted because they lost nodes, and until when: they are no targets.
    settling: Mapping[str, datetime] = field(default_factory=dict)
    #: When pods of owners (``namespace/UID``) first moved to on-demand nodes that stay: younger pods rest there.
    rested: Mapping[str, datetime] = field(default_factory=dict)
    refused: LearnedRefusals = field(default_factory=dict)  #: what kubelets have refused in the last day
    #: By on-demand node: the group of the cloud provider that it belongs to, and how many more nodes this may have.
    growth: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    #: Namespaces whose pending pods take no room, because the scheduler has left them pending where they fit.
    left_pending: frozenset[str] = frozenset()
    #: The instants that rules compared with *now*.
    deadlines: Deadlines = field(default_factory=Deadlines, repr=False, compare=False)
