"""Jobs as API objects: wanted pods, counted failures, ignored disruptions."""

from typing import Any

import msgspec
import pytest

from rescheduler.kube.workloads import JobObject, JobPod, restarts, wanted
from rescheduler.planning.controllers import Disruption, JobFacts, job_facts

Fields = dict[str, Any]


def job(spec: Fields | None = None, status: Fields | None = None) -> JobObject:
    return msgspec.json.decode(
        msgspec.json.encode({"metadata": {"uid": "job"}, "spec": spec or {}, "status": status or {}}), type=JobObject
    )


def condition(kind: str, status: str = "True") -> Fields:
    return {"conditions": [{"type": kind, "status": status}]}


WANTED: dict[str, tuple[Fields, Fields, int]] = {
    "as the API defaults it": ({}, {}, 1),
    "parallelism": ({"parallelism": 3, "completions": 9}, {}, 3),
    "fewer completions than that are left": ({"parallelism": 3, "completions": 9}, {"succeeded": 7}, 2),
    "pods that have succeeded and are not in the count yet": (
        {"parallelism": 3, "completions": 9},
        {"succeeded": 7, "uncountedTerminatedPods": {"succeeded": ["a"]}},
        1,
    ),
    "all completions": ({"parallelism": 3, "completions": 3}, {"succeeded": 3}, 0),
    "a work queue without a success": ({"parallelism": 3}, {"active": 1}, 3),
    "a work queue after the first success": ({"parallelism": 3}, {"active": 2, "succeeded": 1}, 2),
    "nulls": ({"parallelism": 2, "completions": None}, {"uncountedTerminatedPods": None, "conditions": None}, 2),
    "suspended": ({"parallelism": 3, "suspend": True}, {}, 0),
    "complete": ({"parallelism": 3, "completions": 9}, condition("Complete"), 0),
    "failed": ({"parallelism": 3, "completions": 9}, condition("Failed"), 0),
    "about to fail": ({"parallelism": 3, "completions": 9}, condition("FailureTarget"), 0),
    "resumed": ({"parallelism": 3, "completions": 9}, condition("Suspended", "False"), 3),
}


@pytest.mark.parametrize(("spec", "status", "expected"), WANTED.values(), ids=WANTED)
def test_the_desired_number_of_pods_of_a_job_is_computed(spec: Fields, status: Fields, expected: int) -> None:
    assert wanted(job(spec, status)) == expected


DISRUPTED: Fields = {"type": "DisruptionTarget", "status": "True"}
IGNORE: Fields = {"action": "Ignore", "onPodConditions": [DISRUPTED]}


def on_codes(action: str, operator: str, *codes: int) -> Fields:
    return {"action": action, "onExitCodes": {"containerName": "main", "operator": operator, "values": codes}}


FACTS: dict[str, tuple[Fields, Fields, int, JobFacts]] = {
    "as the API defaults it": ({}, {}, 0, JobFacts()),
    "limits": (
        {"backoffLimit": 0, "backoffLimitPerIndex": 1},
        {},
        0,
        JobFacts(backoff_limit=0, backoff_limit_per_index=1),
    ),
    "failures, restarts": (
        {"backoffLimit": 9},
        {"failed": 2, "uncountedTerminatedPods": {"failed": ["a", "b"]}},
        3,
        JobFacts(backoff_limit=9, failures=7),
    ),
    "a policy that ignores disruptions": (
        {"podFailurePolicy": {"rules": [IGNORE]}},
        {},
        0,
        JobFacts(disruption=Disruption.IGNORED),
    ),
    "managed by another controller": (
        {"managedBy": "example.com/jobs"},
        {},
        0,
        JobFacts(managed_by="example.com/jobs"),
    ),
    "managed by the built-in one": ({"managedBy": "kubernetes.io/job-controller"}, {}, 0, JobFacts()),
}


@pytest.mark.parametrize(("spec", "status", "restarted", "expected"), FACTS.values(), ids=FACTS)
def test_facts_decide_whether_an_eviction_can_fail_the_job(
    spec: Fields, status: Fields, restarted: int, expected: JobFacts
) -> None:
    made = job(spec, status)
    assert job_facts(made.spec, made.status, restarted) == expected


COUNTS, IGNORED, FAILS = Disruption

POLICIES: dict[str, tuple[list[Fields] | None, Disruption]] = {
    "no rules": (None, COUNTS),
    "disruptions are ignored": ([IGNORE], IGNORED),
    "the condition's status is the default": (
        [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}],
        IGNORED,
    ),
    "another condition is ignored": (
        [{"action": "Ignore", "onPodConditions": [{"type": "ConfigIssue", "status": "True"}]}],
        COUNTS,
    ),
    "pods that are not disrupted are ignored": (
        [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "False"}]}],
        COUNTS,
    ),
    "a code of the program fails the Job first": ([on_codes("FailJob", "In", 42), IGNORE], IGNORED),
    "the code of SIGTERM fails the Job first": ([on_codes("FailJob", "In", 42, 143), IGNORE], FAILS),
    "any code but 0 counts first": ([on_codes("Count", "NotIn", 0), IGNORE], COUNTS),
    "codes other than those of signals fail the index first": (
        [on_codes("FailIndex", "NotIn", 0, 137, 143), IGNORE],
        IGNORED,
    ),
    "a code is ignored first": ([on_codes("Ignore", "In", 143), IGNORE], IGNORED),
    "only a code is ignored": ([on_codes("Ignore", "In", 143)], COUNTS),
    "disruptions count first": ([{"action": "Count", "onPodConditions": [DISRUPTED]}, IGNORE], COUNTS),
    "disruptions fail the Job": ([{"action": "FailJob", "onPodConditions": [DISRUPTED]}], FAILS),
    "disruptions fail the index": ([{"action": "FailIndex", "onPodConditions": [DISRUPTED]}], FAILS),
    "any code but 0 fails the Job": ([on_codes("FailJob", "NotIn", 0)], FAILS),
    "a code is ignored, all others fail the Job": (
        [on_codes("Ignore", "In", 143), on_codes("FailJob", "NotIn", 0, 143)],
        FAILS,
    ),
    "disruptions count before any code but 0 fails the Job": (
        [{"action": "Count", "onPodConditions": [DISRUPTED]}, on_codes("FailJob", "NotIn", 0)],
        COUNTS,
    ),
    "later rules do not matter": ([IGNORE, on_codes("FailJob", "NotIn", 0)], IGNORED),
}


@pytest.mark.parametrize(("rules", "disruption"), POLICIES.values(), ids=POLICIES)
def test_the_failure_policy_determines_the_effect_of_an_eviction(
    rules: list[Fields] | None, disruption: Disruption
) -> None:
    made = job({"podFailurePolicy": {"rules": rules}})
    assert job_facts(made.spec, made.status, 0).disruption is disruption


def pod(phase: str, *counts: int, init: int = 0, controller: str = "job") -> JobPod:
    owners = [{"kind": "Job", "name": "j", "uid": controller, "apiVersion": "batch/v1", "controller": True}]
    status = {
        "phase": phase,
        "containerStatuses": [{"restartCount": count} for count in counts],
        "initContainerStatuses": [{"restartCount": init}],
    }
    value = {"metadata": {"name": "p", "ownerReferences": owners}, "status": status}
    return msgspec.json.decode(msgspec.json.encode(value), type=JobPod)


def test_restarts_are_those_of_containers_of_active_pods_of_the_job() -> None:
    pods = [pod("Running", 1, 2, init=4), pod("Pending", init=8), pod("Failed", 16), pod("Running", 32, controller="x")]
    assert restarts(pods, "job") == 15


@pytest.mark.parametrize(("policy", "counts"), {"OnFailure": True, "Never": False}.items())
def test_restarts_count_where_containers_are_restarted(policy: str, counts: bool) -> None:
    assert job({"template": {"spec": {"restartPolicy": policy}}}).counts_restarts is counts
