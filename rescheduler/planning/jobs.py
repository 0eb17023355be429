"""Whether the eviction of its pods could fail a Job.

The Job controller (``pkg/controller/job/job_controller.go``) counts an evicted pod as failed. It fails the Job once
there are more failures than ``backoffLimit``, and an index of an Indexed Job once a pod fails that carries a count of
``backoffLimitPerIndex`` or more earlier failures.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from predicates.objects import Pod
from rescheduler.planning.controllers import ControllerState, Disruption, JobFacts
from rescheduler.planning.drainability import of_job
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import MoveJobs

#: On pods of Jobs with ``backoffLimitPerIndex``: how often a pod of their index has failed before.
INDEX_FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"

_ADVICE: Final = (
    "a podFailurePolicy that ignores the condition DisruptionTarget, or --move-jobs=always, would let it go"
)


def pods_by_job(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Those of a node's *pods* that belong to Jobs and are not being deleted, by the UID of the Job."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.owner is not None and of_job(pod) and not pod.cls.terminating:
            found.setdefault(pod.owner.uid, []).append(pod)
    return found


def job_blockers(states: Iterable[ControllerState], pods: Iterable[Pod], move_jobs: MoveJobs) -> tuple[Blocker, ...]:
    """Why *pods*, which would move from one node, must stay: one reason for each Job of *states* that could fail."""
    by_job = pods_by_job(pods)
    facts = ((state.job, by_job.get(state.controller.uid, ())) for state in states)
    blockers = (job_blocker(job, here, move_jobs) for job, here in facts if job is not None)
    return tuple(blocker for blocker in blockers if blocker is not None)


def job_blocker(facts: JobFacts, pods: Sequence[Pod], move_jobs: MoveJobs) -> Blocker | None:
    """Why *pods*, all of one Job and on one node, must stay; None where their eviction cannot fail the Job.

    :attr:`MoveJobs.NEVER` needs no facts: it is a rule of ``drainability``.
    """
    if not pods or move_jobs is not MoveJobs.TOLERANT or facts.disruption is Disruption.IGNORED:
        return None
    if facts.disruption is Disruption.FAILS:
        why = "its Job has a podFailurePolicy with a FailJob or FailIndex rule that an eviction may match"
        return Blocker(Reason.JOB_WOULD_FAIL, f"{why}; {_ADVICE}", pods[0].key)
    left = facts.backoff_limit - facts.failures
    if left < len(pods):
        why = (
            f"its Job fails after more than {facts.backoff_limit} pod failures (backoffLimit): it has "
            f"{facts.failures}, and {len(pods)} of its pods are here"
        )
        return Blocker(Reason.JOB_WOULD_FAIL, f"{why}; {_ADVICE}", pods[0].key)
    limit = facts.backoff_limit_per_index
    last = None if limit is None else next((pod for pod in pods if index_failures(pod) >= limit), None)
    if last is None:
        return None
    why = f"its index of the Job fails with its next failure: {index_failures(last)} of {limit} (backoffLimitPerIndex)"
    return Blocker(Reason.JOB_WOULD_FAIL, f"{why}; {_ADVICE}", last.key)


def index_failures(pod: Pod) -> int:
    """Earlier failures of the pod's index. As in the Job controller, what is no count is 0."""
    text = pod.annotations.get(INDEX_FAILURES, "")
    return int(text) if text.isascii() and text.isdigit() else 0
