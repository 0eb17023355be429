"""``python -m tests.providers.aws_faults --faults=10000``: deletions and orders of room at AWS with random faults.

Requests are lost before or after they take effect, answered late, throttled or failed; lists lag behind; processes are
killed; other clients change groups and instances before each read; AWS' own processes launch, end and rebalance. After
each request that ends an instance, an observer checks the group in the stand-in itself. Each course has a seed.
"""

import random
import sys
from collections import Counter
from dataclasses import replace
from typing import Any, Final

import click
import httpx2

from devcluster.aws.app import answered, failure
from devcluster.aws.cloud import AwsCloud, AwsCloudSettings, Ec2Instance, ScalingGroup
from rescheduler.errors import ReschedulerError
from rescheduler.net.http_errors import HttpResponse, NoResponse, Unsent
from rescheduler.providers.aws import AwsProvider
from rescheduler.providers.base import AlreadyGone, Deleted, DeleteOutcome, Failed, NodeRef, Refused
from tests.providers.awses import GROUP, credentials, node_of, provider_of
from tests.providers.clocks import StepClock

ZONES: Final = ("eu-west-1a", "eu-west-1b", "eu-west-1c")
_SPOT: Final = "spot"
_FAULTS: Final = (
    "throttled",
    "busy",
    "forbidden",
    "failed",
    "failed-late",
    "lost",
    "lost-late",
    "slow",
    "unsent",
    "killed",
    "killed-late",
)


#: The status and code of the responses to requests that have no effect.
_REJECTIONS: Final = {
    "throttled": (400, "Throttling"),
    "busy": (400, "ScalingActivityInProgress"),
    "forbidden": (403, "ExpiredToken"),
    "failed": (500, "InternalFailure"),
}


class Killed(BaseException):
    """The process ends here."""


class AwsCourse:
    """One course: the account, the process that deletes, and what may happen to both."""

    def __init__(self, seed: int) -> None:
        self.random, self.clock = random.Random(seed), StepClock()
        draw = self.random.choice
        settings = AwsCloudSettings(
            lag=draw([0.0, 4.0, 40.0]), hook=draw([0.0, 30.0, 400.0]), unlisted=draw([True, False]),
            launching=draw([0.0, 30.0]),
        )  # fmt: skip
        self.cloud = AwsCloud(settings, self.clock)
        self.minimum = self.random.randrange(4)
        zones = ZONES[: self.random.randrange(1, 4)]
        self.cloud.add_group(GROUP, self.random.randrange(self.minimum, 8), min_size=self.minimum, zones=zones)
        self.cloud.add_group(_SPOT, 2, spot=True, stock=self.random.randrange(4))
        self.faults = self.random.randrange(4, 24)
        self.happened: Counter[str] = Counter()
        self.allowed: set[str] = set()
        self.provider = self._start()

    def _start(self) -> AwsProvider:
        provider = provider_of("http://127.0.0.1:1", self.clock)
        for service in ("autoscaling", "ec2"):
            _, sender = provider._client._connection(service)
            sender.exchange = self._exchange  # type: ignore[method-assign, assignment]
        return provider

    def _exchange(self, _method: str, _path: str, body: bytes, headers: dict[str, str], **_: Any) -> HttpResponse:
        """Answer a request in place of the network, perhaps with a fault."""
        fault = self._fault()
        if b"Describe" in body and self.faults and self.random.random() < 0.3:
            self._foreign_change()
        if fault in ("lost", "killed", "unsent"):
            raise {"lost": NoResponse("lost"), "killed": Killed(), "unsent": Unsent("unsent")}[fault]
        if fault in _REJECTIONS:
            status, code = _REJECTIONS[fault]
            return _response(status, failure(code, fault))
        status, text = self._acted(headers["Authorization"], body)
        if fault == "slow":
            self.clock.advance(self.random.choice([1.0, 50.0]))
        if fault in ("lost-late", "killed-late"):
            raise NoResponse("lost") if fault == "lost-late" else Killed
        return _response(500, failure("InternalFailure", fault)) if fault == "failed-late" else _response(status, text)

    def _fault(self) -> str:
        if not self.faults or self.random.random() < 0.4:
            return ""
        self.faults -= 1
        fault = self.random.choice(_FAULTS)
        self.happened[fault] += 1
        return fault

    def _acted(self, authorization: str, body: bytes) -> tuple[int, str]:
        """Let the request take effect, and check what it did."""
        changes = b"Describe" not in body
        self.cloud.answer("DescribeInstances", {"InstanceIds": []})  # AWS' own processes have nothing left to do
        before = {group.name: (len(self.cloud.alive(group.name)), group.desired) for group in self._groups()}
        leaving, ended = {each.id for each in self._instances() if each.left_at}, len(self.cloud.ended)
        status, text = answered(self.cloud, authorization, body)
        if changes:
            for name, by_aws in self.cloud.ended[ended:]:
                assert not by_aws, f"AWS ended {name} because of {body!r}"
                assert name in self.allowed, f"{name} was ended without our mark"
                assert not self.cloud.instances[name].protected, f"{name} is protected"
            for group in self._groups():
                self._check(group, *before[group.name])
            if b"Terminate" in body and status == 200:
                assert not [name for name in leaving if name.encode() in body], "an instance that leaves was ordered"
        return status, text

    def _check(self, group: ScalingGroup, alive: int, desired: int) -> None:
        left = len(self.cloud.alive(group.name))
        assert left >= min(group.min_size, alive), f"{left} of at least {group.min_size} are left in {group.name}"
        assert min(group.min_size, desired) <= group.desired <= group.max_size, f"{group.name} wants {group.desired}"
        if left < alive or group.desired < desired:
            assert "Terminate" not in group.suspended or group.name == _SPOT, f"{group.name} suspends Terminate"

    def _foreign_change(self) -> None:
        """Let another client or AWS change something, as between any two reads."""
        group, draw = self.cloud.groups[GROUP], self.random
        instance = draw.choice(list(self._instances()) or [None])
        change = draw.randrange(9)
        self.happened[f"change {change}"] += 1
        match change:
            case 0:
                group.desired = max(group.min_size, group.desired - 1)
            case 1:
                group.desired = min(group.max_size, group.desired + 1)
            case 2:
                group.min_size = draw.randint(0, group.desired)
            case 3:
                group.suspended ^= {draw.choice(["Terminate", "Launch", "AZRebalance"])}
            case 4 if instance:
                instance.protected = not instance.protected
            case 5 if instance and instance.group == GROUP and not instance.left_at:
                instance.state = "Standby" if instance.state == "InService" else "InService"
            case 6 if instance and instance.group == GROUP and group.desired > group.min_size and not instance.left_at:
                instance.state, group.desired = "Detached", group.desired - (instance.state == "InService")
            case 7 if instance:
                instance.left_at = instance.left_at or self.clock.now()  # a spot interruption, or EC2 ended it
            case 8:
                group.distribution = draw.choice(
                    [None, {"OnDemandBaseCapacity": 1, "OnDemandPercentageAboveBaseCapacity": draw.choice([0, 50])}]
                )

    def _groups(self) -> list[ScalingGroup]:
        return [*self.cloud.groups.values()]

    def _instances(self) -> list[Ec2Instance]:
        return [*self.cloud.instances.values()]

    def run(self) -> None:
        """Delete some instances as the daemon does, order room and give it back; afterwards, everything is quiet."""
        nodes = [node_of(each) for each in self.cloud.alive(GROUP)]
        for node in self.random.sample(nodes, min(len(nodes), self.random.randrange(1, 4))):
            self._delete(node)
            if self.random.random() < 0.4:
                self._make_room()
        self.faults = 0
        self.provider.close()

    def _delete(self, node: NodeRef) -> None:
        """Order the deletion until there is an outcome that ends the drain."""
        key, intent = node.provider_id.rpartition("/")[2], self.clock.now()
        for _ in range(40):
            try:
                outcome = self._once(node, key)
            except (Killed, ReschedulerError) as error:
                if isinstance(error, Killed):
                    self.provider = self._start()
                    node = replace(node, ordered_at=intent)
                continue
            instance, by_us = self.cloud.instances[key], (key, False) in self.cloud.ended
            if isinstance(outcome, Deleted | AlreadyGone):
                assert self.cloud.ec2_state(instance) == "terminated", f"{key} is {outcome}"
                return
            if isinstance(outcome, Refused | Failed):
                assert not by_us or instance.state == "Detached", f"{key} was ended, and is {outcome}"
                self.allowed.discard(key)
                return
            self.clock.advance(self.random.choice([10.0, 100.0, 500.0]))
        raise AssertionError(f"{key} has no outcome after all faults")

    def _once(self, node: NodeRef, key: str) -> DeleteOutcome:
        def may_end(_: NodeRef) -> None:
            self.allowed.add(key)

        deadline = self.clock.monotonic() + self.random.choice([5.0, 60.0, 600.0])
        return self.provider.delete_nodes(GROUP, [node], deadline=deadline, may_end=may_end)[node.name]

    def _make_room(self) -> None:
        for verb, delta in ((self.provider.increase_size, 2), (self.provider.decrease_target_size, -2)):
            try:
                verb(_SPOT, delta, deadline=self.clock.monotonic() + 60)
            except Killed:
                self.provider = self._start()
            except ReschedulerError:
                continue
            self.clock.advance(10)


def _response(status: int, text: str) -> HttpResponse:
    return HttpResponse(status, httpx2.Headers({"content-type": "text/xml"}), text.encode())


def courses(faults: int, first: int) -> tuple[int, Counter[str]]:
    """Run courses from the seed *first* on until there were *faults*; return the next seed, and what happened."""
    happened: Counter[str] = Counter()
    seed = first
    with credentials():
        while sum(happened[fault] for fault in _FAULTS) < faults:
            course = AwsCourse(seed)
            try:
                course.run()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error
            happened.update(course.happened)
            seed += 1
    return seed, happened


@click.command()
@click.option("--faults", default=10_000, show_default=True)
@click.option("--seed", default=1, show_default=True, help="The first seed.")
def main(faults: int, seed: int) -> None:
    """Run courses until there were this many faults. Exit code 1: a course broke a rule."""
    try:
        end, happened = courses(faults, seed)
    except AssertionError as error:
        sys.exit(str(error))
    click.echo(f"seeds {seed} to {end - 1}: {dict(sorted(happened.items()))}")


if __name__ == "__main__":
    main()
