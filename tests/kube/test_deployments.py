"""Roll-outs of Deployments: what is read, changed and restored, and who may do so."""

import json
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from predicates.snapshot import Snapshot
from rescheduler.clock import SystemClock
from rescheduler.draining.actions import AskSurge, FollowSurge, ReadSurge, RevertSurge, SurgeMark
from rescheduler.draining.events import Done, NotDone, Outcome, RolledTemplate, SurgeRead, SurgeReverted, SurgeSeen
from rescheduler.errors import Conflict, Forbidden, InputError, NotFound, ReschedulerError, Retryable
from rescheduler.execution.rollouts import Rollouts
from rescheduler.kube.deployments import RESTARTED_AT, Deployments, LiveDeployment, SurgeableDeployments, live
from rescheduler.observe.events import InvolvedNode
from rescheduler.planning.outcome import PodRef, Surge
from rescheduler.planning.policy import Surging
from tests.planning.builders import pod, snapshot

NODE = InvolvedNode("od-1", "uid-od-1")
SURGE = Surge("shop", "web", "uid-web", 1, (PodRef("shop", "web-1", "uid-web-1"),))


def deployment(**changes: Any) -> dict[str, Any]:
    """Return a Deployment whose pod runs. *changes* are ``template``, annotations of its template, and ``status``."""
    template: dict[str, Any] = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main"}]}}
    if annotations := changes.get("template"):
        template["metadata"]["annotations"] = annotations
    status = {"observedGeneration": 3, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
    return {
        "metadata": {"namespace": "shop", "name": "web", "uid": "uid-web", "resourceVersion": "7", "generation": 3},
        "spec": {"replicas": 1, "template": template, "progressDeadlineSeconds": 120, "minReadySeconds": 5},
        "status": status | changes.get("status", {}),
    }


@dataclass
class FakeApi:
    """One Deployment, whose template is changed as a merge patch would."""

    stored: dict[str, Any] = field(default_factory=deployment)
    errors: list[ReschedulerError] = field(default_factory=list)  #: of the next requests
    written: list[str | None] = field(default_factory=list)

    def read(self, namespace: str, name: str) -> LiveDeployment:
        self._fail()
        return live(f"get deployments {namespace}/{name}", json.dumps(self.stored).encode())

    def annotate(self, read: LiveDeployment, value: str | None) -> None:
        self._fail()
        assert read.deployment.metadata.resource_version == self.stored["metadata"]["resourceVersion"]
        annotations = self.stored["spec"]["template"]["metadata"].setdefault("annotations", {})
        annotations.pop(RESTARTED_AT, None)
        if value is not None:
            annotations[RESTARTED_AT] = value
        self.stored["metadata"]["generation"] += 1
        self.written.append(value)

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)

    def complete(self) -> None:
        self.stored["status"]["observedGeneration"] = self.stored["metadata"]["generation"]

    @property
    def rollouts(self) -> Rollouts:
        return Rollouts(cast("Deployments", self), SystemClock(), NODE)


def begun(api: FakeApi) -> SurgeMark:
    """Read the Deployment and change its template."""
    read = api.rollouts.perform(ReadSurge(SURGE)).event
    assert isinstance(read, SurgeRead)
    assert not read.fault
    assert api.rollouts.perform(AskSurge(read.mark)).event == Done(AskSurge)
    return read.mark


@pytest.mark.parametrize("before", [{}, {RESTARTED_AT: "2020-01-01T00:00:00Z"}, {"team": "web"}])
def test_a_template_that_is_restored_is_identical(before: dict[str, str]) -> None:
    api = FakeApi(deployment(template=before))
    original = live("get", json.dumps(api.stored).encode())
    mark = begun(api)
    assert api.rollouts.perform(FollowSurge(mark)).event == SurgeSeen(RolledTemplate.OURS)

    result = api.rollouts.perform(RevertSurge(mark))

    assert result.event == SurgeReverted()
    assert [type(each).__name__ for each in result.reports] == ["SurgeEnded"]
    restored = live("get", json.dumps(api.stored).encode())
    assert (restored.value, restored.digest) == (original.value, original.digest)
    assert api.written == [mark.wanted, before.get(RESTARTED_AT)]


def test_each_request_can_be_repeated() -> None:
    api = FakeApi()
    mark = begun(api)
    assert api.rollouts.perform(AskSurge(mark)).event == Done(AskSurge)
    api.rollouts.perform(RevertSurge(mark))
    assert api.rollouts.perform(RevertSurge(mark)).event == SurgeReverted()
    assert api.written == [mark.wanted, None]


def test_a_complete_roll_out_is_not_undone() -> None:
    api = FakeApi()
    mark = begun(api)
    api.complete()
    assert api.rollouts.perform(FollowSurge(mark)).event == SurgeSeen(RolledTemplate.OURS, complete=True)
    assert api.rollouts.perform(RevertSurge(mark)).event == SurgeReverted(complete=True)
    assert api.written == [mark.wanted]


CHANGES = {
    "another image": lambda stored: stored["spec"]["template"]["spec"]["containers"].append({"name": "new"}),
    "another restart": lambda stored: stored["spec"]["template"]["metadata"]["annotations"].update({RESTARTED_AT: "x"}),
    "another label": lambda stored: stored["spec"]["template"]["metadata"]["labels"].update({"a": "b"}),
    "another Deployment of this name": lambda stored: stored["metadata"].update({"uid": "uid-other"}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_template_that_another_client_has_changed_is_left_alone(change: Any) -> None:
    api = FakeApi()
    mark = begun(api)
    change(api.stored)
    theirs = deepcopy(api.stored)

    seen = api.rollouts.perform(FollowSurge(mark)).event
    assert isinstance(seen, SurgeSeen)
    assert seen.template in (RolledTemplate.THEIRS, RolledTemplate.GONE)
    assert api.rollouts.perform(RevertSurge(mark)).event == SurgeReverted()
    assert isinstance(api.rollouts.perform(AskSurge(mark)).event, NotDone)
    assert api.stored == theirs


def test_a_change_that_another_client_has_removed_is_not_made_again() -> None:
    api = FakeApi()
    mark = begun(api)
    api.stored["spec"]["template"]["metadata"]["annotations"].pop(RESTARTED_AT)
    assert api.rollouts.perform(FollowSurge(mark)).event == SurgeSeen(RolledTemplate.UNTOUCHED)
    assert api.rollouts.perform(RevertSurge(mark)).event == SurgeReverted()
    assert api.written == [mark.wanted]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"paused": True}, "is paused"),
        ({"replicas": 3}, "is rolling out"),
        ({"strategy": {"type": "Recreate"}}, "is Recreate"),
    ],
)
def test_a_deployment_that_changed_after_the_plan_does_not_roll_out(change: dict[str, Any], fault: str) -> None:
    api = FakeApi()
    read = api.rollouts.perform(ReadSurge(SURGE)).event
    assert isinstance(read, SurgeRead)
    api.stored["spec"] |= change

    refused = api.rollouts.perform(AskSurge(read.mark)).event
    assert isinstance(refused, NotDone)
    assert fault in refused.why
    again = api.rollouts.perform(ReadSurge(SURGE)).event
    assert isinstance(again, SurgeRead)
    assert fault in again.fault
    assert not api.written


def test_a_deployment_that_was_scaled_up_is_planned_again() -> None:
    status = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
    api = FakeApi(deployment(status=status))
    api.stored["spec"]["replicas"] = 2
    read = api.rollouts.perform(ReadSurge(SURGE)).event
    assert isinstance(read, SurgeRead)
    assert "has 2 replicas, and the plan was made for 1" in read.fault


@pytest.mark.parametrize(("replicas", "at_once", "seconds"), [(1, 1, 125), (3, 1, 375), (3, 2, 250), (3, 9, 125)])
def test_its_own_deadlines_are_respected(replicas: int, at_once: int, seconds: int) -> None:
    """Each new pod that becomes available is progress, after which `progressDeadlineSeconds` begin anew."""
    api = FakeApi()
    api.stored["spec"] |= {"replicas": replicas, "strategy": {"rollingUpdate": {"maxSurge": at_once}}}
    read = api.rollouts.perform(ReadSurge(SURGE)).event
    assert isinstance(read, SurgeRead)
    assert read.progress_seconds == seconds


def test_conditions_are_read_only_once_they_are_about_this_roll_out() -> None:
    exceeded = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "late"}
    refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}
    api = FakeApi()
    mark = begun(api)
    api.stored["status"] |= {"conditions": [exceeded, refused], "availableReplicas": 0}
    assert api.rollouts.perform(FollowSurge(mark)).event == SurgeSeen(RolledTemplate.OURS)
    api.complete()
    assert api.rollouts.perform(FollowSurge(mark)).event == SurgeSeen(
        RolledTemplate.OURS, fault="late", refusal="quota"
    )


def test_a_replica_set_that_cannot_be_created_is_a_refusal() -> None:
    api = FakeApi()
    mark = begun(api)
    refused = {"type": "Progressing", "status": "False", "reason": "ReplicaSetCreateError", "message": "quota"}
    api.stored["status"] |= {"conditions": [refused], "updatedReplicas": 0}
    assert api.rollouts.perform(FollowSurge(mark)).event == SurgeSeen(RolledTemplate.OURS, refusal="quota")


def test_a_pause_ends_a_roll_out_that_is_not_complete() -> None:
    api = FakeApi()
    mark = begun(api)
    api.stored["spec"]["paused"] = True
    api.stored["status"] |= {"updatedReplicas": 0}
    seen = SurgeSeen(RolledTemplate.OURS, fault="it was paused during its roll-out")
    assert api.rollouts.perform(FollowSurge(mark)).event == seen
    api.complete()
    assert api.rollouts.perform(FollowSurge(mark)).event == seen
    api.stored["status"] |= {"updatedReplicas": 1}
    assert api.rollouts.perform(FollowSurge(mark)).event == SurgeSeen(RolledTemplate.OURS, complete=True)


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        ({"type": "Recreate"}, "the strategy of Deployment shop/web is Recreate, which ends old pods first"),
        (
            {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
            "for 1 replica, Deployment shop/web has maxSurge 1 and maxUnavailable 1 after rounding",
        ),
        (
            {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "10%"}},
            "for 1 replica, Deployment shop/web has maxSurge 0 and maxUnavailable 1 after rounding",
        ),
        (
            {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "100%"}},
            "for 1 replica, Deployment shop/web has maxSurge 1 and maxUnavailable 1 after rounding",
        ),
        ({"rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 0}}, ""),
    ],
    ids=["Recreate", "maxUnavailable", "no maxSurge", "in percent", "more at once"],
)
def test_limits_that_change_during_a_roll_out_are_seen(strategy: dict[str, Any], why: str) -> None:
    api = FakeApi()
    mark = begun(api)
    api.stored["spec"]["strategy"] = strategy
    api.stored["status"] |= {"updatedReplicas": 0}
    assert api.rollouts.perform(FollowSurge(mark)).event == SurgeSeen(RolledTemplate.OURS, downtime=why)
    api.complete()
    api.stored["status"] |= {"updatedReplicas": 1}
    assert api.rollouts.perform(FollowSurge(mark)).event == SurgeSeen(RolledTemplate.OURS, complete=True)


def test_errors_become_events() -> None:
    def failing(*errors: ReschedulerError) -> Rollouts:
        return FakeApi(errors=list(errors)).rollouts

    mark = SurgeMark("shop", "web", "uid-web", "now")
    assert failing(Retryable("503")).perform(ReadSurge(SURGE)).event == NotDone(ReadSurge, "503", Outcome.UNKNOWN)
    assert failing(Forbidden("403")).perform(AskSurge(mark)).event == NotDone(AskSurge, "403", Outcome.UNKNOWN)
    assert failing(Forbidden("403")).perform(RevertSurge(mark)).event == NotDone(RevertSurge, "403")
    assert failing(Retryable("503")).perform(RevertSurge(mark)).event == NotDone(RevertSurge, "503", Outcome.UNKNOWN)
    assert failing(NotFound("404")).perform(RevertSurge(mark)).event == SurgeReverted()
    assert failing(NotFound("404")).perform(FollowSurge(mark)).event == SurgeSeen(RolledTemplate.GONE)
    api = FakeApi()
    wanted = begun(api)
    api.errors = [Conflict("409")]
    assert api.rollouts.perform(RevertSurge(wanted)).event == SurgeReverted()
    with pytest.raises(InputError):
        live("get", b'{"metadata": 1}')


# The permission


@dataclass
class FakeClient:
    """Answers reviews of rights, and lists no Deployments."""

    allowed: bool
    reviews: int = 0

    def request(self, act: str, *_: object, **__: object) -> Any:
        body = b'{"items": []}'
        if "selfsubjectaccessreviews" in act:
            self.reviews += 1
            body = json.dumps({"status": {"allowed": self.allowed}}).encode()
        return type("Answer", (), {"body": body})()


@pytest.mark.parametrize(
    ("surge", "asks", "warnings"),
    [
        (Surging.BLOCKED, False, 1),
        (Surging.OPT_IN, True, 1),
        (Surging.OPT_IN, False, 0),
        (Surging.OFF, True, 0),
    ],
)
def test_a_missing_permission_is_said_once_where_a_roll_out_is_wanted(
    surge: Surging, asks: bool, warnings: int
) -> None:
    annotations = {"spot-rescheduler/surge": "true"} if asks else {}
    cluster: Snapshot = snapshot([pod("web-1", "od-1", annotations=annotations)])
    said: list[str] = []
    client = FakeClient(allowed=False)
    deployments = SurgeableDeployments(client, SystemClock(), surge, said.append)  # type: ignore[arg-type]  # a stand-in
    for _ in range(3):
        deployments.refresh(cluster)
        deployments._next = 0.0
    assert len(said) == warnings
    assert all("missing permission: list deployments.apps, patch deployments.apps" in text for text in said)
    assert not cluster.of("Deployment")
    assert bool(client.reviews) is (surge is not Surging.OFF)
