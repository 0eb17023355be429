"""What is special about Auto Scaling groups; `test_conformance` has the rules of all providers."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from devcluster.aws.app import KEY, application, failure
from devcluster.aws.cloud import AwsCloud, AwsCloudSettings, Ec2Instance, ScalingGroup
from devcluster.standin.faults import Fault
from devcluster.standin.server import StandinServer
from rescheduler import errors
from rescheduler.clock import SystemClock
from rescheduler.net.config_files import Endpoint
from rescheduler.net.http_errors import NoResponse, Unsent
from rescheduler.providers.aws import AwsProvider, load
from rescheduler.providers.base import (
    AboveMaximum,
    Accepted,
    AlreadyGone,
    BelowMinimum,
    Deleted,
    DeleteOutcome,
    Failed,
    NodeRef,
    Refusal,
    Refused,
    UnknownGroup,
)
from tests.providers import pki
from tests.providers.awses import GROUP, SECRET, TERMINATE, TOKEN, credentials, node_of, provider_of, serving
from tests.providers.clocks import StepClock


class Account:
    """One provider and its stand-in, whose group on-demand has three instances."""

    def __init__(self, server: StandinServer[AwsCloud], clock: StepClock, provider: AwsProvider) -> None:
        self.server, self.cloud, self.clock, self.provider = server, server.cloud, clock, provider

    @property
    def group(self) -> ScalingGroup:
        return self.cloud.groups[GROUP]

    @property
    def first(self) -> Ec2Instance:
        return self.cloud.instances["i-00000000000000000"]

    def ends(self, node: NodeRef | None = None, within: float = 600.0, **more: Any) -> DeleteOutcome:
        node = node or node_of(self.first)
        deadline = self.clock.monotonic() + within
        return self.provider.delete_nodes(GROUP, [node], deadline=deadline, **more)[node.name]

    def forecast(self) -> str:
        """Return why the node of the first instance would not be drained; "" if it would."""
        node, deadline = node_of(self.first), self.clock.monotonic() + 600
        group = self.provider.group_for(node, deadline=deadline)
        if group is None:
            refused = self.provider.refusal_without_group(node, deadline=deadline)
        else:
            refused = self.provider.refusals(group.id, [node], deadline=deadline).get(node.name)
        return refused.detail if refused else ""

    def orders(self) -> int:
        return sum(TERMINATE.encode() in request.body for request in self.server.faulty_app.requests)

    def fault(self, action: str, **fault: Any) -> None:
        self.server.faulty_app.inject(Fault(path="/", sends=f"Action={action}", **fault))


@contextmanager
def account(size: int = 3, settings: dict[str, Any] | None = None, **group: Any) -> Iterator[Account]:
    clock = StepClock()
    with serving(clock, **(settings or {})) as server:
        server.cloud.add_group(GROUP, size, **group)
        provider = provider_of(server.url, clock)
        try:
            yield Account(server, clock, provider)
        finally:
            provider.close()


def shares(base: int, percent: int) -> dict[str, int]:
    return {"OnDemandBaseCapacity": base, "OnDemandPercentageAboveBaseCapacity": percent}


WARM_POOL = {"WarmPoolConfiguration": {"InstanceReusePolicy": {"ReuseOnScaleIn": True}}}
MIXED = "buys on-demand and spot instances: it would buy an on-demand instance again"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"distribution": {}}, ""),
        ({"distribution": shares(0, 100)}, ""),
        ({"distribution": shares(0, 0)}, ""),
        ({"distribution": shares(10, 0)}, ""),
        ({"distribution": shares(2, 0)}, MIXED),
        ({"distribution": shares(0, 50)}, MIXED),
        (
            {"more": {"Operator": {"Principal": "a.amazonaws.com"}}},
            "is managed by a.amazonaws.com: nobody else may change it",
        ),
        (
            {"more": WARM_POOL | {"WarmPoolSize": 2}},
            "has a warm pool that takes back its instances: they would not end",
        ),
        ({"more": {"WarmPoolConfiguration": {"MinSize": 1}}}, ""),
        ({"suspended": {"Terminate"}}, "has suspended the process Terminate"),
        ({"suspended": {"Launch", "AZRebalance", "ReplaceUnhealthy"}}, ""),
        ({"min_size": 3}, "must keep 3, 2 would be left"),
        ({"max_size": 2, "distribution": shares(2, 0)}, ""),
    ],
)
def test_groups_whose_instances_may_be_ended(changes: dict[str, Any], why: str) -> None:
    with account(**changes) as aws:
        assert (aws.forecast() or "-").endswith(why or "-")
        outcome = aws.ends()
        assert (why in outcome.detail) if isinstance(outcome, Refused) else (not why and isinstance(outcome, Deleted))
        assert (aws.orders(), aws.group.desired) == ((0, 3) if why else (1, 2))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"protected": True}, "i-00000000000000000 is protected from scale-in"),
        ({"state": "Standby"}, "is in the state Standby, not InService"),
        ({"state": "Detaching"}, "is in the state Detaching, not InService"),
        ({"state": "ReplacingRootVolume"}, "is in the state ReplacingRootVolume, not InService"),
        ({"state": "Detached"}, "no Auto Scaling group with the tags k8s.io/cluster-autoscaler/enabled"),
        ({"weight": "2"}, "counts its capacity in other units than instances"),
    ],
)
def test_instances_that_are_not_ended(change: dict[str, Any], why: str) -> None:
    """AWS itself would end instances that are protected or in Standby."""
    with account() as aws:
        vars(aws.first).update(change)
        assert why in aws.forecast()
        assert isinstance(aws.ends(), Refused)
        assert (aws.orders(), aws.cloud.ended) == (0, [])


def test_an_instance_in_standby_does_not_count_towards_the_minimum() -> None:
    with account(min_size=2) as aws:
        aws.cloud.alive(GROUP)[2].state, aws.group.desired = "Standby", 2
        assert "must keep 2, 1 would be left" in aws.forecast()


Change = Callable[[Account], None]


def raise_minimum(aws: Account) -> None:
    aws.group.min_size = 3


def scale_in(aws: Account) -> None:
    """Another client lowers the desired capacity, and AWS can end no instance yet."""
    aws.group.desired = 2
    aws.group.suspended.add("Terminate")


def protect(aws: Account) -> None:
    aws.first.protected = True


def mix(aws: Account) -> None:
    aws.group.distribution = shares(1, 0)


@pytest.mark.parametrize("change", [raise_minimum, scale_in, protect, mix])
def test_a_change_after_the_plan_is_seen_before_the_order(change: Change) -> None:
    """The change happens after the first read of the deletion, right before the last one."""
    with account(min_size=2) as aws:
        assert aws.forecast() == ""
        answer, reads = aws.cloud.answer, iter(range(9))

        def changed(action: str, params: Any) -> dict[str, Any]:
            if action == "DescribeAutoScalingGroups" and next(reads) == 1:
                change(aws)
            return answer(action, params)

        aws.cloud.answer = changed  # type: ignore[method-assign]
        assert isinstance(aws.ends(), Refused)
        assert (aws.orders(), aws.cloud.ended) == (0, [])


def test_no_order_is_sent_while_aws_scales_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS could end the same instance: then the desired capacity would be lowered twice."""
    with account(4) as aws:
        monkeypatch.setattr(aws.cloud, "_run_processes", lambda: None)
        aws.group.desired = 3
        why = f"Auto Scaling group {GROUP} has 4 instances and a desired capacity of 3: AWS ends some"
        assert aws.forecast() == why
        assert aws.ends(within=60.0) == Failed(f"aws: {why}", retryable=True)
        aws.cloud.end(aws.cloud.alive(GROUP)[3], by_aws=True)
        assert isinstance(aws.ends(), Deleted)
        assert (aws.orders(), aws.group.desired, len(aws.cloud.alive(GROUP))) == (1, 2, 2)


def test_an_instance_above_the_desired_capacity_does_not_count_towards_the_minimum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with account(min_size=2) as aws:
        monkeypatch.setattr(aws.cloud, "_run_processes", lambda: None)
        aws.group.desired = 2
        assert aws.forecast() == f"group {GROUP} must keep 2, 1 would be left"
        assert isinstance(aws.ends(), Refused)


def test_an_order_waits_for_the_lifecycle_hook() -> None:
    with account(settings={"hook": 3600.0}) as aws:
        outcome = aws.ends(within=900.0)
        assert outcome == Accepted("the system accepted the order; listed as deleting")
        aws.clock.advance(3600)
        assert aws.ends() == Deleted("no longer there")
        assert (aws.orders(), aws.group.desired, aws.cloud.ec2_state(aws.first)) == (1, 2, "terminated")


@pytest.mark.parametrize("unlisted", [True, False])
def test_a_removal_is_confirmed_only_when_ec2_has_terminated_the_instance(unlisted: bool) -> None:
    with account(settings={"terminating": 700.0, "unlisted": unlisted}) as aws:
        assert isinstance(aws.ends(within=300.0), Accepted)
        node = node_of(aws.first, ordered_at=aws.clock.now())
        aws.provider = provider_of(aws.server.url, aws.clock)
        assert isinstance(aws.ends(node, within=20.0), Accepted)
        assert aws.ends(node).result in {"deleted", "alreadygone"}
        assert aws.cloud.ec2_state(aws.first) == "terminated"
        aws.provider.close()


@pytest.mark.parametrize("acted", [True, False])
def test_an_order_without_a_response_is_repeated_only_if_the_instance_stays(acted: bool) -> None:
    with account(settings={"lag": 60.0}) as aws:
        aws.fault("Terminate", kind="reset", acted=acted)
        assert aws.ends().result in {"deleted", "alreadygone"}
        assert (aws.orders(), aws.group.desired) == (1 if acted else 2, 2)


@pytest.mark.parametrize("after", [5.0, 500.0])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("code", ["ExpiredToken", "UnauthorizedOperation"])
def test_an_order_stays_accepted_while_ec2_must_not_be_asked(code: str, restarted: bool, after: float) -> None:
    with account(settings={"terminating": 3000.0, "unlisted": True}) as aws:
        aws.fault("DescribeInstances", status=403, body=failure(code, "may not"), times=999)
        outcome = aws.ends(within=20.0)
        assert isinstance(outcome, Accepted)
        assert code in outcome.detail
        node = node_of(aws.first, ordered_at=aws.clock.now())
        if restarted:
            aws.provider = provider_of(aws.server.url, aws.clock)
        aws.clock.advance(after)
        outcome = aws.ends(node, within=20.0)
        assert (isinstance(outcome, Accepted), aws.orders()) == (True, 1)
        assert isinstance(aws.ends(node_of(aws.first, provider_id="aws:///eu-west-1a/i-00000000")), Refused)


@pytest.mark.parametrize("restarted", [False, True])
def test_an_order_is_confirmed_when_its_group_is_gone(restarted: bool) -> None:
    with account(1, settings={"unlisted": True, "terminating": 60.0}) as aws:
        assert isinstance(aws.ends(within=10.0), Accepted)
        node = node_of(aws.first, ordered_at=aws.clock.now())
        aws.group.tags.clear()
        if restarted:
            aws.provider = provider_of(aws.server.url, aws.clock)
        assert isinstance(aws.ends(node, within=10.0), Accepted)
        assert aws.ends(node).result in {"deleted", "alreadygone"}
        with pytest.raises(UnknownGroup):
            aws.ends(NodeRef("b", "aws:///eu-west-1a/i-00000000"))


def test_an_instance_that_a_lifecycle_policy_retains() -> None:
    """It runs on after its order, and a person has to end it."""
    with account(settings={"hook": 30.0}) as aws:
        aws.first.retained = True
        outcome = aws.ends()
        assert isinstance(outcome, Accepted)
        why = f"instance {aws.first.id} is in the state Terminating:Retained: the lifecycle policy of its group keeps"
        assert outcome.detail.startswith(f"the system accepted the order; listed as deleting: {why}")
        assert aws.forecast().startswith(why)
        assert aws.orders() == 1


@pytest.mark.parametrize("before", [0.0, 300.0])
def test_an_instance_that_aws_itself_ends_is_not_saved(before: float) -> None:
    with account(settings={"hook": 30.0}) as aws:
        aws.cloud.end(aws.first, by_aws=True)
        aws.clock.advance(before)
        outcome = aws.ends()
        assert isinstance(outcome, AlreadyGone)
        assert outcome.unshrunk == "its system or another client ended it, and its group may launch another"
        assert aws.orders() == 0


def test_an_instance_that_leaves_the_group_after_a_lost_order_is_refused_in_the_end() -> None:
    with account() as aws:
        aws.fault("Terminate", kind="reset")
        assert isinstance(aws.ends(within=20.0), Accepted)
        aws.first.state, aws.group.desired = "Detached", 2
        assert isinstance(aws.ends(within=20.0), Accepted)
        outcome = aws.ends()
        assert (isinstance(outcome, Refused), aws.orders(), aws.cloud.runs(aws.first)) == (True, 1, True)


def test_an_order_that_an_earlier_process_gave_before_it_ended_is_not_repeated() -> None:
    """Its mark is old, and the list does not show its last order yet."""
    with account(settings={"lag": 60.0}) as aws:
        intent = aws.clock.now()
        aws.clock.advance(3000)
        aws.cloud.answer(
            "TerminateInstanceInAutoScalingGroup",
            {"InstanceId": aws.first.id, "ShouldDecrementDesiredCapacity": "true"},
        )
        aws.first.protected = True
        assert aws.ends(node_of(aws.first, ordered_at=intent)).result in {"deleted", "alreadygone"}
        assert (aws.orders(), aws.group.desired) == (0, 2)


def test_zones_stay_balanced() -> None:
    """Otherwise, AWS would end an instance of another zone, with its pods."""
    zones = ("eu-west-1a", "eu-west-1b")
    with account(4, zones=zones) as aws:
        (first, other, same, _) = aws.cloud.alive(GROUP)
        assert isinstance(aws.ends(), Deleted)
        third = node_of(same)
        refused = aws.provider.refusals(GROUP, [third], deadline=aws.clock.monotonic() + 60)[third.name]
        assert (refused.reason, "AZRebalance would end one there" in refused.detail) == (Refusal.PROTECTED, True)
        assert isinstance(aws.ends(third), Refused)
        assert isinstance(aws.ends(node_of(other)), Deleted)
        assert isinstance(aws.ends(third), Deleted)
        assert [by_aws for _, by_aws in aws.cloud.ended] == [False] * 3
        assert first.left_at is not None


@pytest.mark.parametrize(
    ("provider_id", "why"),
    [
        ("aws:///us-east-1a/i-0123456789abcdef0", "is in region us-east-1, and this daemon manages region eu-west-1"),
        ("aws:///us-west-2-lax-1a/i-0123456789abcdef0", "is in region us-west-2, and"),
        (
            "aws:///eu-west-1a/i-0123456789abcdef0",
            "no Auto Scaling group with the tags k8s.io/cluster-autoscaler/enabl",
        ),
        ("aws:///eu-west-1a/0123456789-abc/fargate-ip-10-0-0-1", "is not that of an EC2 instance"),
        ("kwok://node", "'kwok://node' is not that of an EC2 instance"),
        ("", "'' is not that of an EC2 instance"),
    ],
)
def test_nodes_of_no_group(provider_id: str, why: str) -> None:
    with account() as aws:
        node = NodeRef("a", provider_id)
        assert aws.provider.group_for(node, deadline=600) is None
        refused = aws.provider.refusal_without_group(node, deadline=600)
        assert refused is not None
        assert (refused.reason, why in refused.detail) == (Refusal.NOT_IN_GROUP, True)


def test_the_region_of_the_first_node_is_taken_if_nothing_else_says_one() -> None:
    with account() as aws:
        provider = provider_of(aws.server.url, aws.clock, region="")
        with pytest.raises(errors.ConfigError, match="aws: region: expected it in --cloud-config, in AWS_REGION"):
            provider.groups(deadline=600)
        provider.refresh(deadline=600)
        assert provider.group_for(node_of(aws.first), deadline=600) == aws.provider.groups(deadline=600)[0]
        provider.close()


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_the_region_of_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with credentials():
        monkeypatch.setenv(name, "ap-south-1")
        provider = load(None, StepClock())
        assert isinstance(provider, AwsProvider)
        refused = provider.refusal_without_group(NodeRef("a", "aws:///eu-west-1a/i-00000000"), deadline=0)
        assert refused is not None
        assert refused.detail.endswith("this daemon manages region ap-south-1")


def test_all_pages_and_all_names_are_read(caplog: pytest.LogCaptureFixture) -> None:
    with account() as aws:
        names = [f"group-{number}" for number in range(220)]
        for name in names:
            aws.cloud.add_group(name, 0)
        assert [group.id for group in aws.provider.groups(deadline=600)] == [GROUP, *names]
        named = provider_of(aws.server.url, aws.clock, names=tuple(names))
        assert [group.id for group in named.groups(deadline=600)] == names
        missing = provider_of(aws.server.url, aws.clock, names=(GROUP, "absent"))
        for _ in range(2):
            assert [group.id for group in missing.groups(deadline=600)] == [GROUP]
            aws.clock.advance(60)
        assert caplog.text.count("aws: groups: region eu-west-1 has no Auto Scaling group absent") == 1
        refused = missing.refusal_without_group(NodeRef("a", "aws:///eu-west-1a/i-00000000"), deadline=600)
        assert refused is not None
        assert refused.detail.endswith("has its instance i-00000000; the region has no group absent")
        named.close()
        missing.close()


def test_groups_are_chosen_by_all_tags() -> None:
    with account() as aws:
        key = "k8s.io/cluster-autoscaler/prod"
        aws.cloud.add_group("prod", 0, tags={key: "owned", "team": "a"})
        for tags, found in (({key: ""}, ["prod"]), ({key: "", "team": "a"}, ["prod"]), ({key: "shared"}, [])):
            provider = provider_of(aws.server.url, aws.clock, tags=tags)
            assert [group.id for group in provider.groups(deadline=600)] == found
            provider.close()


@pytest.mark.parametrize(
    ("code", "status", "kind", "text"),
    [
        ("Throttling", 400, errors.RateLimited, "Throttling: some text"),
        ("RequestLimitExceeded", 503, errors.RateLimited, "RequestLimitExceeded: some text"),
        ("ScalingActivityInProgress", 400, errors.RateLimited, "some text"),
        ("AccessDenied", 403, errors.AuthError, "403 AccessDenied: some text"),
        ("SignatureDoesNotMatch", 403, errors.AuthError, "403 SignatureDoesNotMatch"),
        ("ExpiredToken", 400, errors.AuthError, "400 ExpiredToken"),
        ("InternalFailure", 500, NoResponse, "some text"),
        ("ValidationError", 400, errors.Permanent, "400 ValidationError: some text"),
    ],
)
def test_what_an_error_of_aws_means(code: str, status: int, kind: type[Exception], text: str) -> None:
    """A message that may quote the signed request, with its token, is left out."""
    with account() as aws:
        aws.fault("Describe", status=status, body=failure(code, "some text"), times=9)
        with pytest.raises(kind) as raised:
            aws.provider.groups(deadline=600)
        assert str(raised.value).endswith(text)


def test_an_order_that_aws_rejects_ends_nothing() -> None:
    with account(settings={"keeps_minimum": True}) as aws:
        aws.fault("Terminate", status=400, body=failure("ValidationError", "Currently, desiredSize equals minSize"))
        assert aws.ends() == Failed(
            "aws: TerminateInstanceInAutoScalingGroup: 400 ValidationError: Currently, desiredSize equals minSize",
            retryable=False,
        )
        assert aws.group.desired == 3


@pytest.mark.parametrize("body", ["", "<", "{}", "<DescribeAutoScalingGroupsResponse/>", "<a><b></a>"])
def test_an_answer_of_another_form_is_an_error(body: str) -> None:
    with account() as aws:
        aws.fault("Describe", status=200, body=body, times=9)
        with pytest.raises(errors.BackendUnavailable, match="aws: DescribeAutoScalingGroups: "):
            aws.provider.groups(deadline=600)


def test_a_server_that_never_answers_is_left_at_the_deadline() -> None:
    """With the real clock: neither botocore nor the client waits longer, or sends the order again."""
    clock = SystemClock()
    with serving(clock) as server:
        server.cloud.add_group(GROUP, 1)
        provider = provider_of(server.url, clock)
        node = node_of(server.cloud.alive(GROUP)[0])
        provider.groups(deadline=clock.monotonic() + 60)
        server.faulty_app.inject(Fault(path="/", sends=TERMINATE, kind="hang"))
        outcome = provider.delete_nodes(GROUP, [node], deadline=clock.monotonic() + 1)[node.name]
        assert isinstance(outcome, Accepted)
        assert sum(TERMINATE.encode() in request.body for request in server.faulty_app.requests) == 1
        provider.close()


def test_the_certificate_is_verified(tmp_path: Path) -> None:
    clock = SystemClock()
    pki.make(tmp_path)
    cloud = AwsCloud(AwsCloudSettings(), clock)
    cloud.add_group(GROUP, 1)
    served = StandinServer(cloud, application(cloud), ssl_certfile=tmp_path / "server.pem")
    with credentials(), served.running() as server:
        for ca, found in ((None, False), (str(tmp_path / "ca.pem"), True)):
            provider = provider_of("", clock, endpoint=Endpoint(url=server.url, ca_file=ca, attempts=1))
            if found:
                assert [group.id for group in provider.groups(deadline=clock.monotonic() + 60)] == [GROUP]
            else:
                with pytest.raises(errors.BackendUnavailable, match="certificate verify failed"):
                    provider.groups(deadline=clock.monotonic() + 60)
            provider.close()


def test_without_credentials_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with account() as aws:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name)
        for _ in range(2):
            with pytest.raises(errors.AuthError, match="aws: the credentials: none found"):
                aws.provider.groups(deadline=600)
        assert aws.server.faulty_app.requests == []
        monkeypatch.undo()
        with credentials():
            assert [group.id for group in aws.provider.groups(deadline=600)] == [GROUP]


def test_credentials_of_a_file_that_is_written_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with account() as aws:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name)
        file = tmp_path / "config"
        monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
        with pytest.raises(errors.AuthError):
            aws.provider.groups(deadline=600)
        file.write_text(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
        assert [group.id for group in aws.provider.groups(deadline=600)] == [GROUP]


@pytest.fixture
def irsa(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Account]:
    """An account whose credentials are those of IRSA. The stand-in has no token service: it rejects the request."""
    with account() as aws:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name)
        (tmp_path / "token").write_text(TOKEN)
        for name, value in {
            "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/a",
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
            "AWS_ENDPOINT_URL_STS": aws.server.url,
        }.items():
            monkeypatch.setenv(name, value)
        yield aws


@pytest.mark.parametrize(
    ("code", "status", "text"),
    [
        ("SignatureDoesNotMatch", 403, "403 SignatureDoesNotMatch"),
        ("ValidationError", 400, "400 ValidationError"),
        ("AccessDenied", 403, "403 AccessDenied: some text"),
        ("InvalidIdentityToken", 400, "400 InvalidIdentityToken: some text"),
    ],
)
def test_the_token_service_rejects_the_token(
    irsa: Account, code: str, status: int, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a message that may quote the request."""
    message = "some text" if "some text" in text else f"x-amz-security-token:{TOKEN}"
    irsa.fault("AssumeRole", status=status, body=failure(code, message), times=9)
    with pytest.raises(errors.AuthError) as raised:
        irsa.provider.groups(deadline=600)
    assert str(raised.value) == f"aws: AssumeRoleWithWebIdentity: {text}"
    assert TOKEN not in caplog.text + repr(raised.value.__cause__)


def test_the_token_file_is_missing(irsa: Account, tmp_path: Path) -> None:
    (tmp_path / "token").unlink()
    with pytest.raises(errors.AuthError, match=r"aws: DescribeAutoScalingGroups: the credentials: .*No such file"):
        irsa.provider.groups(deadline=600)


def test_the_token_service_does_not_respond(irsa: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    with pytest.raises(Unsent, match=r"aws: DescribeAutoScalingGroups: the credentials: .*Could not connect"):
        irsa.provider.groups(deadline=600)


def test_the_agent_of_pod_identity_is_not_up_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.RETRY_ATTEMPTS", 1)
    with account() as aws:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/v1/credentials")
        with pytest.raises(Unsent, match="aws: the credentials: Error when retrieving credentials from container-role"):
            aws.provider.groups(deadline=600)


@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR])
def test_messages_of_botocore_are_not_logged(level: int, caplog: pytest.LogCaptureFixture) -> None:
    with account():
        logging.getLogger("botocore.credentials").log(level, "%s", SECRET)
    assert SECRET not in caplog.text


@pytest.mark.parametrize(("seconds", "sent"), [(7.0, 1), (9.0, 0)])
def test_an_order_is_not_sent_long_after_the_last_read(seconds: float, sent: int) -> None:
    """Finding the credentials, while the request is signed, takes so long. Reads are sent anyway."""
    with account() as aws:
        assert aws.forecast() == ""
        client, _ = aws.provider._client._connection("autoscaling")
        slow = iter([seconds])
        client.meta.events.register(
            "before-sign.auto-scaling.TerminateInstanceInAutoScalingGroup",
            lambda **_: aws.clock.advance(next(slow, 0.0)),
        )
        aws.ends(within=9.5)
        assert aws.orders() == sent
        assert isinstance(aws.ends(), Deleted)


@pytest.mark.parametrize("url", ["http://aws.example.com", "https://aws.example.com/path"])
def test_the_endpoint_of_the_file_is_checked(url: str, tmp_path: Path) -> None:
    file = tmp_path / "aws.yaml"
    file.write_text(f"endpoint: {{url: {url}}}")
    with pytest.raises(
        errors.ConfigError, match=r"endpoint\.url: expected https, or http to a loopback address, without"
    ):
        load(file, StepClock())


@pytest.mark.parametrize("url", ["http://aws.example.com", "https://aws.example.com/path"])
def test_the_endpoint_of_the_environment_is_checked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with credentials():
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        provider = provider_of("", StepClock())
        with pytest.raises(errors.ConfigError, match="AWS_ENDPOINT_URL: expected https, or http to a loopback"):
            provider.groups(deadline=600)


def test_the_retry_mode_of_the_environment_adds_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_RETRY_MODE", "adaptive")
    with account() as aws:
        aws.provider.groups(deadline=600)
        client, _ = aws.provider._client._connection("autoscaling")
        assert (client.meta.config.retries["mode"], client.meta.config.retries["total_max_attempts"]) == ("legacy", 1)


@pytest.mark.parametrize(
    ("settings", "state", "stays"),
    [
        ({}, "InService", True),
        ({}, "Standby", True),
        ({}, "Detached", True),
        ({"hook": 900.0}, "", False),
        ({"unlisted": True, "terminating": 900.0}, "", False),
        ({"unlisted": True, "terminating": 1.0}, "", False),
    ],
)
def test_whether_an_instance_stays(settings: dict[str, Any], state: str, stays: bool) -> None:
    with account(settings=settings) as aws:
        node = node_of(aws.first)
        assert aws.provider.has_instance(node, deadline=600) is True
        aws.first.state = state or aws.first.state
        if not state:
            aws.cloud.end(aws.first, by_aws=True)
        aws.clock.advance(20)
        assert aws.provider.has_instance(node, deadline=600) is stays


def test_nothing_is_asked_about_nodes_of_no_group() -> None:
    with account() as aws:
        for provider_id in ("aws:///us-east-1a/i-00000000000000000", "aws:///eu-west-1a/i-00000000", "kwok://a", ""):
            assert aws.provider.has_instance(NodeRef("a", provider_id), deadline=600) is None
        assert "DescribeInstances" not in aws.cloud.calls


def test_an_answer_without_the_instance_says_nothing() -> None:
    with account(settings={"unlisted": True, "terminating": 900.0}) as aws:
        aws.fault("DescribeInstances", status=200, body="<DescribeInstancesResponse/>", times=999)
        assert isinstance(aws.ends(within=60.0), Accepted)
        assert isinstance(aws.ends(within=300.0), Accepted)


def test_an_instance_that_leaves_the_group_right_before_the_order_keeps_running() -> None:
    with account() as aws:

        def detach(_: NodeRef) -> None:
            aws.first.state, aws.group.desired = "Detached", 2

        assert aws.ends(may_end=detach) == Failed(
            f"aws: instance {aws.first.id} left Auto Scaling group {GROUP}", False
        )
        assert aws.cloud.runs(aws.first)


def test_a_group_that_another_reader_no_longer_finds() -> None:
    with account(spot=True) as aws:

        def read(_: NodeRef) -> None:
            aws.provider._aws._groups = {}

        assert isinstance(aws.ends(may_end=read, within=3.0), Failed)
        group = aws.provider.groups(deadline=600)[0]
        aws.provider._aws._groups = {}
        with pytest.raises(Unsent, match="is not listed any more"):
            aws.provider._aws.cancel(group, 1, deadline=600)
        with pytest.raises(Unsent, match="is not listed any more"):
            aws.provider._aws.create(group, 1, print, deadline=600)
        assert aws.orders() == 0


def test_a_long_error_of_botocore_is_cut() -> None:
    with account() as aws:
        aws.fault("Describe", status=200, body="<" + "a" * 9000, times=9)
        with pytest.raises(errors.BackendUnavailable) as raised:
            aws.provider.groups(deadline=600)
        assert len(str(raised.value)) < 700


def test_no_log_or_error_contains_the_credentials(caplog: pytest.LogCaptureFixture) -> None:
    """Below the level of botocore's own loggers, which the daemon never enables."""
    caplog.set_level(logging.DEBUG, "rescheduler")
    with account() as aws:
        aws.fault("Describe", status=403, body=failure("SignatureDoesNotMatch", f"x-amz-security-token:{TOKEN}"))
        with pytest.raises(errors.AuthError) as raised:
            aws.provider.groups(deadline=600)
        aws.ends()
        for text in (str(raised.value), repr(raised.value.__cause__), caplog.text):
            assert SECRET not in text
            assert TOKEN not in text


def test_room_is_ordered_and_what_was_not_launched_is_given_back() -> None:
    with account(2, spot=True, max_size=6, stock=1) as aws:
        aws.provider.increase_size(GROUP, 3, deadline=600)
        assert (aws.group.desired, len(aws.cloud.alive(GROUP))) == (5, 3)
        with pytest.raises(AboveMaximum):
            aws.provider.increase_size(GROUP, 2, deadline=600)
        with pytest.raises(BelowMinimum, match="2 of 3 were not launched yet, and were canceled"):
            aws.provider.decrease_target_size(GROUP, -3, deadline=600)
        assert (aws.group.desired, len(aws.cloud.alive(GROUP)), aws.cloud.ended) == (3, 3, [])


def test_a_group_that_became_mixed_is_not_lowered() -> None:
    with account(2, spot=True, stock=0) as aws:
        aws.provider.increase_size(GROUP, 2, deadline=600)
        aws.group.distribution = shares(1, 0)
        with pytest.raises(BelowMinimum, match="0 of 2 were not launched yet"):
            aws.provider.decrease_target_size(GROUP, -2, deadline=600)
        assert aws.group.desired == 4


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"suspended": {"Launch"}}, "has suspended the process Launch"), ({"distribution": shares(0, 50)}, MIXED)],
)
def test_groups_that_get_no_room(changes: dict[str, Any], why: str) -> None:
    with account(**changes) as aws:
        with pytest.raises(errors.Permanent, match=why):
            aws.provider.increase_size(GROUP, 1, deadline=600)
        assert aws.group.desired == 3


def test_boto3_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "botocore.session", None)
    with pytest.raises(errors.ConfigError, match="boto3 is not installed"):
        load(None, StepClock())
    assert botocore.session is not None
