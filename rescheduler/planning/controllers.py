"""Topmost controllers of pods: who recreates a pod after its eviction, and what the API server says of them.

A Deployment's pod names a ReplicaSet as its controller; the ReplicaSet names the Deployment. Drains count
replacement pods per topmost controller, because a roll-out or a scale-down acts there.
"""

import enum
from dataclasses import dataclass

import msgspec


class Controller(msgspec.Struct, frozen=True, order=True):
    """A topmost controller, identified by its UID."""

    namespace: str
    kind: str  #: with its API group where a kind of Kubernetes has the same name: ``Job.batch.volcano.sh``
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.name}"


class Disruption(enum.Enum):
    """What the eviction of one of its pods does to a Job, by its podFailurePolicy."""

    COUNTS = enum.auto()  #: a failure, which counts against the backoff limits
    IGNORED = enum.auto()
    FAILS = enum.auto()  #: the Job, or the pod's index, may fail at once


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What decides whether a disrupted pod counts as a failure of its Job."""

    backoff_limit: int = 6  #: pod failures after which the Job fails
    backoff_limit_per_index: int | None = None  #: the same for each index of an Indexed Job
    failures: int = 0  #: pod failures so far, with container restarts where ``restartPolicy`` is OnFailure
    disruption: Disruption = Disruption.COUNTS


@dataclass(frozen=True, slots=True)
class ControllerState:
    """A topmost controller as the API server has it."""

    controller: Controller
    #: UIDs that its pods carry as their controller: its own, or those of its ReplicaSets that were looked up.
    owner_uids: frozenset[str]
    wanted: int | None = None  #: pods that it wants now; None: this kind cannot be read
    template: str = ""  #: a digest of its pod template; "" where it cannot be read
    exists: bool = True  #: False once it is deleted, or being deleted
    suspended: bool = False
    refusal: str = ""  #: why it cannot create pods: a ReplicaFailure condition or a FailedCreate event
    succeeded: int = 0  #: pods that ended with success, of a kind whose `wanted` does not already count them
    job: JobFacts | None = None  #: of a Job only

    @property
    def ordered(self) -> bool:
        """Whether it replaces its pods one at a time, under their old names."""
        return self.controller.kind.partition(".")[0] == "StatefulSet"
