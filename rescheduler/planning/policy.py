"""What the user wants of planning, as one value; the flags of the commands fill it."""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from rescheduler.errors import UsageError
from rescheduler.planning.cooldowns import Cooldown
from rescheduler.planning.outcome import Blocker

#: What the API server takes for a label, so that a slip is told and not taken for "no node has it".
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class NodeLabel:
    """A label by which nodes are told: ``key``, or ``key=value``."""

    key: str
    value: str | None = None

    @classmethod
    def parse(cls, text: str) -> "NodeLabel":
        """Raises :class:`~rescheduler.errors.UsageError`."""
        key, equals, value = text.partition("=")
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise UsageError(f"node label {text!r}: expected key or key=value, as labels are written")
        return cls(key, value if equals else None)

    def matches(self, labels: Mapping[str, str]) -> bool:
        found = labels.get(self.key)
        return found is not None if self.value is None else found == self.value

    def __str__(self) -> str:
        return self.key if self.value is None else f"{self.key}={self.value}"


class MoveJobs(enum.StrEnum):
    """Which pods of Jobs may be evicted: an evicted pod counts as failed, and a Job allows a number of failures."""

    TOLERANT = "tolerant"  #: those whose Job does not fail for it
    ALWAYS = "always"  #: all of them
    NEVER = "never"  #: none of them


#: The scheduler of pods that name none.
DEFAULT_SCHEDULER: Final = "default-scheduler"


@dataclass(frozen=True, slots=True)
class Policy:
    on_demand_label: NodeLabel = NodeLabel("node-role.kubernetes.io/worker")
    spot_label: NodeLabel = NodeLabel("node-role.kubernetes.io/spot-worker")  #: a node with both labels is spot
    delete_non_replicated_pods: bool = False
    skip_nodes_with_local_storage: bool = True
    skip_nodes_with_system_pods: bool = True
    min_on_demand_nodes: int = 0
    budgets_in_steps: bool = False  #: a budget that allows one eviction is good for several, one after the other
    planning_timeout: float = 2.0  #: seconds that may be spent on a better answer than first-fit
    allow_fragile_plans: bool = False
    allow_returning_plans: bool = False  #: also plans by which most pods land on nodes that are not spot
    allow_control_plane: bool = False  #: nodes with a control-plane label may be drained; their machines stay
    move_jobs: MoveJobs = MoveJobs.TOLERANT
    scheduler_names: tuple[str, ...] = (DEFAULT_SCHEDULER,)  #: whose pods may be evicted; empty: of any scheduler
    pod_eviction_timeout: float = 120.0  #: seconds for each step of a budget that is passed in steps
    max_graceful_termination: float = 120.0  #: seconds at most, of a pod's own grace period


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What else decides, beside the snapshot and the policy."""

    now: datetime
    cooling: Mapping[str, Cooldown] = field(default_factory=dict)  #: node → why it is left alone, and until when
    holder: str = ""  #: who we are in the marks on drained nodes
    own: str = ""  #: the node that we run on; "" outside of the cluster
    ordered: frozenset[str] = frozenset()  #: nodes whose machines may have been ordered away
    ending: frozenset[str] = frozenset()  #: nodes whose machines will soon be taken away by the cloud
    #: Node → what forbids its drain beside the snapshot: facts that are read only for candidates.
    vetoes: Mapping[str, tuple[Blocker, ...]] = field(default_factory=dict)
    #: Nodes that run nothing any more, and whose machines may have been ordered away: they need not be Ready.
    emptied: frozenset[str] = frozenset()
