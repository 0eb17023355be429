"""The user's settings for planning, as one value that is filled from the command-line flags."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from predicates.scheduler import UnknownPlugin
from rescheduler.planning.cooldowns import Cooldown
from rescheduler.planning.deadlines import Deadlines
from rescheduler.planning.drain_windows import DrainWindow
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.namespaces import ALL_NAMESPACES, NamespaceScope
from rescheduler.planning.node_labels import NodeLabels
from rescheduler.planning.outcome import Blocker


class DrainOrder(enum.StrEnum):
    """The order in which on-demand nodes are considered for a drain."""

    LEAST_REQUESTED = "least-requested"  #: the least requested CPU first, as in k8s-spot-rescheduler
    COST = "cost"  #: the highest price first
    AGE = "age"  #: the oldest first


class MoveJobs(enum.StrEnum):
    """Which pods of Jobs may be evicted.

    An evicted pod counts as failed, and a Job tolerates a limited number of failures.
    """

    TOLERANT = "tolerant"  #: those whose eviction cannot fail the Job
    ALWAYS = "always"  #: all of them
    NEVER = "never"  #: none of them


#: The scheduler of pods without ``schedulerName``.
DEFAULT_SCHEDULER: Final = "default-scheduler"


#: The default labels of k8s-spot-rescheduler.
ON_DEMAND_LABEL: Final = NodeLabels.parse("node-role.kubernetes.io/worker")
SPOT_LABEL: Final = NodeLabels.parse("node-role.kubernetes.io/spot-worker")


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
    scheduler_names: tuple[str, ...] = (DEFAULT_SCHEDULER,)  #: schedulers whose pods may be evicted; empty means all
    profiles: tuple[str, ...] = ()  #: schedulers whose profiles are known; their pods may be evicted as well
    unknown_plugins: tuple[UnknownPlugin, ...] = ()  #: pods that they concern are not evicted
    pod_eviction_timeout: float = 120.0  #: seconds for each step, if evictions under a budget are made in steps
    max_graceful_termination: float = 120.0  #: upper limit of a pod's grace period, in seconds
    namespaces: NamespaceScope = ALL_NAMESPACES  #: whose pods may be evicted
    #: Pods with a lower priority do not keep their node: they end with it.
    expendable_pods_priority_cutoff: int = -10
    #: Keys of taints that spot nodes only have while they start, in addition to the known ones.
    startup_taints: tuple[str, ...] = ()
    skip_single_replicas: bool = False  #: a pod that is the only one of its controller stays
    drain_windows: tuple[DrainWindow, ...] = ()  #: when drains may start; empty: always
    drain_order: DrainOrder = DrainOrder.LEAST_REQUESTED
    max_node_age: float = 0.0  #: seconds; nodes that are older come first in any order; 0: off


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
    prices: PriceList = field(default_factory=PriceList)  #: for the drain order ``cost``
    #: Namespaces whose nodes come last in the drain order, those with the largest number at the end.
    last: Mapping[str, int] = field(default_factory=dict)
    #: The instants that rules compared with *now*.
    deadlines: Deadlines = field(default_factory=Deadlines, repr=False, compare=False)
