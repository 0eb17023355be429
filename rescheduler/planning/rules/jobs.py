"""Checks whether evictions could make a Job fail.

The Job controller (``pkg/controller/job/job_controller.go``) counts an evicted pod as failed. It fails the Job when
there are more failures than ``backoffLimit``. It fails an index of an Indexed Job when a pod fails whose index already
has ``backoffLimitPerIndex`` or more failures.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from predicates.objects import Pod
from rescheduler.planning.controllers import ControllerState, Disruption, JobFacts
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import MoveJobs
from rescheduler.planning.rules.pod_traits import is_job

#: The annotation on pods of Jobs with ``backoffLimitPerIndex``: the earlier failures of their index.
INDEX_FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"

_ADVICE: Final = (
    "a podFailurePolicy that ignores the condition DisruptionTarget, or --move-jobs=always, allows eviction"
)


def pods_by_job(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Group the Job pods among a node's *pods* by the UID of their Job. Pods that are being deleted are left out."""
    by_uid: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.owner is not None and is_job(pod.owner) and not pod.cls.terminating:
            by_uid.setdefault(pod.owner.uid, []).append(pod)
    return by_uid


def job_blockers(states: Iterable[ControllerState], pods: Iterable[Pod], move_jobs: MoveJobs) -> tuple[Blocker, ...]:
    """Return a blocker for each Job in *states* that could fail if *pods*, all from one node, were evicted."""
    by_job = pods_by_job(pods)
    facts = ((state.job, by_job.get(state.controller.uid, ())) for state in states)
    blockers = (job_blocker(job, job_pods, move_jobs) for job, job_pods in facts if job is not None)
    return tuple(blocker for blocker in blockers if blocker is not None)


def job_blocker(facts: JobFacts, pods: Sequence[Pod], move_jobs: MoveJobs) -> Blocker | None:
    """Return a blocker if evicting *pods*, all of one Job and on one node, could make the Job fail, or None.

    :attr:`MoveJobs.NEVER` is handled by a rule in ``pod_rules``, because it does not depend on the Job's state.
    """
    if not pods or move_jobs is not MoveJobs.TOLERANT or facts.disruption is Disruption.IGNORED:
        return None
    if facts.disruption is Disruption.FAILS:
        detail = "its Job has a podFailurePolicy with a FailJob or FailIndex rule that an eviction may match"
        return Blocker(Reason.JOB_WOULD_FAIL, f"{detail}; {_ADVICE}", pods[0].key)
    remaining = facts.backoff_limit - facts.failures
    if remaining < len(pods):
        detail = (
            f"its Job fails after more than {facts.backoff_limit} pod failures (backoffLimit): it has "
            f"{facts.failures}, and {len(pods)} of its pods are on this node"
        )
        return Blocker(Reason.JOB_WOULD_FAIL, f"{detail}; {_ADVICE}", pods[0].key)
    limit = facts.backoff_limit_per_index
    pod = None if limit is None else next((pod for pod in pods if index_failures(pod) >= limit), None)
    if pod is None:
        return None
    detail = f"its next failure fails its index of the Job: {index_failures(pod)} of {limit} (backoffLimitPerIndex)"
    return Blocker(Reason.JOB_WOULD_FAIL, f"{detail}; {_ADVICE}", pod.key)


def index_failures(pod: Pod) -> int:
    """Return the number of earlier failures of the pod's index. As in the Job controller, it is 0 if invalid."""
    text = pod.annotations.get(INDEX_FAILURES, "")
    return int(text) if text.isascii() and text.isdigit() else 0
