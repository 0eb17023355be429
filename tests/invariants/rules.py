"""What an outsider knows of a daemon by its command line, and what it is found to have done wrong."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from deploy.local.manifests import ON_DEMAND, SPOT
from rescheduler.settings import LEASE

#: What each invariant forbids; the keys are the numbers of violations.
TITLES: Final = {
    1: "an evicted pod has a Ready successor within the landing timeout",
    2: "no more of an owner's pods are missing than a wave allows",
    3: "no eviction that a budget, an opt-out or a rule forbids",
    4: "one drain at a time, and writes by the Lease's holder only",
    5: "no mark without a live drain",
    6: "a machine is ordered away only when its pods run elsewhere",
    7: "never below the minimum, on-demand nodes only",
    8: "machine, Node and desired size agree in the end",
    9: "moves per pod and day within the limit",
}


@dataclass(frozen=True, slots=True)
class Rules:
    """The daemon's flags, and the tolerances of the observer. All times in seconds."""

    landing_timeout: float = 600.0
    minimum: int = 0
    moves_per_pod_and_day: float = 3.0  #: 0: no limit
    on_demand: str = ON_DEMAND  #: label of on-demand nodes: KEY or KEY=VALUE
    spot: str = SPOT
    nodes: str = ""  #: label of the nodes that the observer looks at; "": all
    delete_non_replicated_pods: bool = False
    skip_system_pods: bool = True
    skip_local_storage: bool = True
    scheduler_names: tuple[str, ...] = ("default-scheduler",)
    namespace: str = "default"  #: of the Lease
    lease: str = LEASE  #: "" for a program without one, such as the cloudpool proxy
    agent: str = "spot-rescheduler/"  #: how the user agent begins
    user: str = ""  #: the whole user name of the daemon's ServiceAccount; "": any
    #: How old the daemon's view of the cluster may be. What changed later cannot be held against it.
    lag: float = 10.0
    #: Between the last look at a node and the order of its machine; a pod that tolerates the taint may come then.
    look: float = 10.0
    #: For what the daemon has to do once a deadline has passed: the marks come off, a new leader takes over.
    slack: float = 30.0
    #: A taint without an annotation, or an annotation without a taint, is not older than this.
    leftover: float = 15.0
    #: An annotation whose promise (`until`) has passed is not older than this.
    abandoned: float = 90.0
    #: Writes that were sent before a takeover may be handled so long after it.
    takeover: float = 1.0

    @property
    def identity(self) -> str:
        """The installation, as its marks name it."""
        return f"{self.namespace}/{self.lease}" if self.lease else ""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that must not happen, and did."""

    invariant: int
    at: datetime
    what: str  #: one sentence that names the objects

    def __str__(self) -> str:
        return f"{self.at:%H:%M:%S.%f} invariant {self.invariant} ({TITLES[self.invariant]}): {self.what}"
