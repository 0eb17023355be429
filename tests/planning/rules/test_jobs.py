"""Tests of evictions that could fail a Job, according to the Job controller's counts."""

import pytest

from predicates.objects import Pod
from rescheduler.planning.controllers import Disruption, JobFacts
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import MoveJobs
from rescheduler.planning.rules.pod_traits import INDEX_FAILURES, job_blocker, pods_by_job
from tests.planning.builders import pod, snapshot

TOLERANT, ALWAYS, NEVER = MoveJobs.TOLERANT, MoveJobs.ALWAYS, MoveJobs.NEVER


def pods(*index_failures: str | None) -> list[Pod]:
    """Return one pod of a Job for each number of earlier failures of its index; None means no index."""
    cluster = snapshot(
        pod(f"p-{n}", "od", owner="batch/v1/Job", annotations={} if count is None else {INDEX_FAILURES: count})
        for n, count in enumerate(index_failures)
    )
    return list(cluster.pods.values())


ONE, TWO = pods(None), pods(None, None)

#: case: facts of the Job, its pods on the node, --move-jobs → the pod that must stay
FACTS: dict[str, tuple[JobFacts, list[Pod], MoveJobs, str | None]] = {
    "no failure is allowed": (JobFacts(backoff_limit=0), ONE, TOLERANT, "default/p-0"),
    "one failure is left": (JobFacts(backoff_limit=1), ONE, TOLERANT, None),
    "one failure is left, two pods on the node": (JobFacts(backoff_limit=1), TWO, TOLERANT, "default/p-0"),
    "two failures are left, two pods on the node": (JobFacts(backoff_limit=2), TWO, TOLERANT, None),
    "all failures are used up": (JobFacts(backoff_limit=3, failures=3), ONE, TOLERANT, "default/p-0"),
    "all but one are": (JobFacts(backoff_limit=3, failures=2), ONE, TOLERANT, None),
    "it has failed already": (JobFacts(backoff_limit=3, failures=4), ONE, TOLERANT, "default/p-0"),
    "Kubernetes' default": (JobFacts(), TWO, TOLERANT, None),
    "disruptions are ignored": (JobFacts(backoff_limit=0, disruption=Disruption.IGNORED), TWO, TOLERANT, None),
    "disruptions are ignored, indexes too": (
        JobFacts(backoff_limit_per_index=0, disruption=Disruption.IGNORED),
        pods("3"),
        TOLERANT,
        None,
    ),
    "an eviction fails it at once": (JobFacts(disruption=Disruption.FAILS), ONE, TOLERANT, "default/p-0"),
    "an eviction fails it at once, and may": (JobFacts(disruption=Disruption.FAILS), ONE, ALWAYS, None),
    "an index may not fail at all": (
        JobFacts(backoff_limit=2**31 - 1, backoff_limit_per_index=0),
        pods("0"),
        TOLERANT,
        "default/p-0",
    ),
    "an index may fail once": (JobFacts(backoff_limit=2**31 - 1, backoff_limit_per_index=1), pods("0"), TOLERANT, None),
    "an index has failed once, one failure allowed": (
        JobFacts(backoff_limit=2**31 - 1, backoff_limit_per_index=1),
        pods("1"),
        TOLERANT,
        "default/p-0",
    ),
    "one index of two": (
        JobFacts(backoff_limit=2**31 - 1, backoff_limit_per_index=2),
        pods("1", "2"),
        TOLERANT,
        "default/p-1",
    ),
    "an invalid count": (JobFacts(backoff_limit_per_index=1), pods("many"), TOLERANT, None),
    "a pod without a count": (JobFacts(backoff_limit_per_index=0), ONE, TOLERANT, "default/p-0"),
    "the Job's limit also applies to an Indexed Job": (
        JobFacts(backoff_limit=1, backoff_limit_per_index=5),
        pods("0", "0"),
        TOLERANT,
        "default/p-0",
    ),
    "none of its pods are on this node": (JobFacts(backoff_limit=0), [], TOLERANT, None),
    "always": (JobFacts(backoff_limit=0, backoff_limit_per_index=0), TWO, ALWAYS, None),
    "never has its own rule": (JobFacts(backoff_limit=0), TWO, NEVER, None),
}


@pytest.mark.parametrize(("facts", "here", "move_jobs", "stays"), FACTS.values(), ids=FACTS)
def test_a_job_that_could_fail_blocks_its_pod(
    facts: JobFacts, here: list[Pod], move_jobs: MoveJobs, stays: str | None
) -> None:
    blocker = job_blocker(facts, here, move_jobs)
    assert (blocker and (blocker.reason, blocker.pod)) == (stays and (Reason.JOB_WOULD_FAIL, stays))


def test_pods_of_a_node_are_grouped_by_job() -> None:
    cluster = snapshot(
        [
            pod("p-0", "od", owner="batch/v1/Job"),
            pod("p-1", "od", owner="Job"),
            pod("p-2", "od", owner="batch/v1/Job", deleted=True),
            pod("p-3", "od", owner="batch.volcano.sh/v1alpha1/Job"),
            pod("p-4", "od"),
            pod("p-5", "od", owner=None),
        ]
    )
    by_job = pods_by_job(cluster.pods_on["od"].values())
    assert {uid: [mover.name for mover in pods] for uid, pods in by_job.items()} == {"uid-of-p": ["p-0", "p-1"]}


def test_details_contain_the_counts_and_the_remedies() -> None:
    advice = "a podFailurePolicy that ignores the condition DisruptionTarget, or --move-jobs=always, allows eviction"
    assert job_blocker(JobFacts(3, failures=2), TWO, TOLERANT) == Blocker(
        Reason.JOB_WOULD_FAIL,
        "its Job fails after more than 3 pod failures (backoffLimit): it has 2, and 2 of its pods are on this node; "
        + advice,
        "default/p-0",
    )
    assert job_blocker(JobFacts(9, 1), pods("0", "1"), TOLERANT) == Blocker(
        Reason.JOB_WOULD_FAIL,
        "its next failure fails its index of the Job: 1 of 1 (backoffLimitPerIndex); " + advice,
        "default/p-1",
    )
