"""The daemon's flags that the invariants depend on, and the violations."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from devcluster.manifests import ON_DEMAND, SPOT
from rescheduler.settings import LEASE

#: The invariants by number.
TITLES: Final = {
    1: "an evicted pod has a Ready successor within the landing timeout",
    2: "no more of an owner's pods are missing than a wave allows",
    3: "no eviction that a budget, an opt-out or a rule forbids",
    4: "one drain at a time, and writes by the Lease's holder only",
    5: "no mark without a live drain",
    6: "a machine is terminated only when its pods run elsewhere",
    7: "never below the minimum, on-demand nodes only",
    8: "machine, Node and desired size agree in the end",
    9: "moves per pod and day within the limit",
    10: "a namespace's missing pods hold no other node for longer than the landing timeout",
    11: "no machine is ordered while anything that left its node, in whichever drain, is unpaid",
    12: "no machine is ordered while a moved pod's node has its notice and no other place is proven",
    13: "no pod that moved to another on-demand node is moved again within the rest",
}


@dataclass(frozen=True, slots=True)
class Rules:
    """The daemon's flags, and the tolerances of the watchdog. All times are in seconds."""

    landing_timeout: float = 600.0
    minimum: int = 0
    drain_delay: float = 0.0
    moves_per_pod_and_day: float = 3.0  #: 0: no limit
    leftover_rest: float = 86400.0
    on_demand: str = ON_DEMAND  #: label of on-demand nodes: KEY or KEY=VALUE
    spot: str = SPOT
    nodes: str = ""  #: label of the watched nodes; "": all
    delete_non_replicated_pods: bool = False
    skip_system_pods: bool = True
    skip_local_storage: bool = True
    scheduler_names: tuple[str, ...] = ("default-scheduler",)
    namespace: str = "default"  #: namespace of the Lease
    lease: str = LEASE  #: "" for a program without a Lease, such as the cloudpool proxy
    agent: str = "spot-rescheduler/"  #: prefix of the user agent
    user: str = ""  #: the full user name of the daemon's ServiceAccount; "": any
    #: Maximum age of the daemon's view of the cluster. Later changes do not count as violations.
    lag: float = 10.0
    #: Maximum time from the last check of a node to its machine's termination; a tolerating pod may be bound in
    #: between.
    look: float = 10.0
    #: How long replacement pods must have been Ready when a machine is ordered; conditions have whole seconds. Daemons
    #: before this rule, whose histories are stored, ordered earlier: 0.
    staying: float = 0.0
    #: Whether the second owner of a drain waits until the first pod's successor is Ready. Earlier daemons, whose
    #: histories are stored, waited until it was bound.
    first_runs: bool = False
    #: Whether a namespace loses its next pod only when those before have bound successors, and no pod is evicted while
    #: successors are lost. Earlier daemons, whose histories are stored, evicted all pods of a step together.
    paced: bool = False
    #: Time for the daemon's actions after a deadline, such as removing marks or a takeover.
    slack: float = 30.0
    #: Maximum age of a taint without an annotation, or an annotation without a taint.
    leftover: float = 15.0
    #: Maximum time for which a mark exists after its `until` has passed.
    abandoned: float = 90.0
    #: Maximum time after a takeover at which earlier writes may complete.
    takeover: float = 1.0

    @property
    def identity(self) -> str:
        """The identity of the installation in its marks."""
        return f"{self.namespace}/{self.lease}" if self.lease else ""


@dataclass(frozen=True, slots=True)
class Violation:
    """A violation of an invariant."""

    invariant: int
    at: datetime
    what: str  #: one sentence that names the objects

    def __str__(self) -> str:
        return f"{self.at:%H:%M:%S.%f} invariant {self.invariant} ({TITLES[self.invariant]}): {self.what}"
