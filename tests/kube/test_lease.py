"""Leader election: the decision, and the thread with a Lease that others modify."""

import contextlib
import datetime as dt
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rescheduler.errors import NotLeading
from rescheduler.kube.client import Client
from rescheduler.kube.elector import Elector, Seat, identity
from rescheduler.kube.lease import (
    AcquireLease,
    LeaseRecord,
    LeaseStep,
    ObservedLease,
    RenewLease,
    WaitForHolder,
    decide,
    held,
    released,
)
from tests.kube.conftest import HastyClock, eventually
from tests.kube.edge import ReceivedRequest, Reply, ScriptedApiServer, StallReply, status

NOW = dt.datetime(2026, 5, 4, 3, 2, 1, 5, tzinfo=dt.UTC)
STAMP = "2026-05-04T03:02:01.000005Z"


def record(holder: str | None, seconds: int | None = 15, renewed: str = "before") -> LeaseRecord:
    return LeaseRecord(holder_identity=holder, lease_duration_seconds=seconds, renew_time=renewed)


DECISIONS: dict[str, tuple[ObservedLease | None, float, LeaseStep]] = {
    "no Lease": (None, 0.0, AcquireLease()),
    "released": (ObservedLease(record(""), 100.0), 100.0, AcquireLease()),
    "never held": (ObservedLease(record(None), 100.0), 100.0, AcquireLease()),
    "ours": (ObservedLease(record("me"), 100.0), 100.0, RenewLease()),
    "ours, long not renewed": (ObservedLease(record("me"), 100.0), 900.0, RenewLease()),
    "another's": (ObservedLease(record("you"), 100.0), 114.9, WaitForHolder("you")),
    "another's, expired": (ObservedLease(record("you"), 100.0), 115.0, AcquireLease()),
    "another's, with a longer duration": (ObservedLease(record("you", 60), 100.0), 159.9, WaitForHolder("you")),
    "another's, without a duration": (ObservedLease(record("you", None), 100.0), 114.9, WaitForHolder("you")),
    "another's, with a duration of 0": (ObservedLease(record("you", 0), 100.0), 100.0, AcquireLease()),
}


@pytest.mark.parametrize(("seen", "now", "expected"), DECISIONS.values(), ids=DECISIONS)
def test_the_decision_depends_on_the_observed_lease(
    seen: ObservedLease | None, now: float, expected: LeaseStep
) -> None:
    assert decide(seen, "me", now) == expected


def test_only_an_observed_change_extends_the_time_of_a_holder() -> None:
    first = ObservedLease(record("you", renewed="year 3000"), 100.0)
    assert first.again(record("you", renewed="year 3000"), 110.0) == first
    assert first.again(record("you", renewed="year 1970"), 110.0) == ObservedLease(
        record("you", renewed="year 1970"), 110.0
    )


def test_acquired_renewed_and_released_leases_are_written_as_these_records() -> None:
    record = held(None, "me", NOW)
    assert record == LeaseRecord("me", 15, STAMP, STAMP, 0)
    later = NOW + dt.timedelta(seconds=2)
    assert held(record, "me", later) == LeaseRecord("me", 15, STAMP, "2026-05-04T03:02:03.000005Z", 0)
    assert held(record, "you", later) == LeaseRecord(
        "you", 15, "2026-05-04T03:02:03.000005Z", "2026-05-04T03:02:03.000005Z", 1
    )
    assert released(record, later) == LeaseRecord("", 1, STAMP, "2026-05-04T03:02:03.000005Z", 0)


PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"


class LeaseServer:
    """An in-memory Lease with optimistic concurrency."""

    def __init__(self, edge: ScriptedApiServer) -> None:
        self.spec: dict[str, Any] | None = None
        self.version = 0
        self.creatable = True
        self.lock = threading.Lock()
        edge.on("GET", f"{PATH}/l", self.get)
        edge.on("POST", PATH, self.create)
        edge.on("PATCH", f"{PATH}/l", self.patch)

    @property
    def holder(self) -> str | None:
        with self.lock:
            return self.spec["holderIdentity"] if self.spec is not None else None

    def write(self, spec: dict[str, Any]) -> Reply:
        self.version += 1
        self.spec = {**(self.spec or {}), **spec}
        return Reply({"metadata": {"resourceVersion": str(self.version)}, "spec": self.spec})

    def delete(self) -> None:
        """Delete the Lease, and forbid its creation."""
        self.spec, self.creatable = None, False

    def get(self, _: ReceivedRequest) -> Reply:
        with self.lock:
            if self.spec is None:
                return status(404)
            return Reply({"metadata": {"resourceVersion": str(self.version)}, "spec": self.spec})

    def create(self, request: ReceivedRequest) -> Reply:
        with self.lock:
            if not self.creatable:
                return status(403)
            return self.write(request.body["spec"]) if self.spec is None else status(409)

    def patch(self, request: ReceivedRequest) -> Reply:
        with self.lock:
            if self.spec is None:
                return status(404)
            if request.body["metadata"]["resourceVersion"] != str(self.version):
                return status(409)
            return self.write(request.body["spec"])


class SettableClock(HastyClock):
    """A clock whose monotonic time changes only when the test advances it."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


@contextmanager
def electing(client: Client, clock: HastyClock) -> Iterator[Elector]:
    elector = Elector(client, clock, "ns", "l", identity())
    elector.start()
    try:
        yield elector
    finally:
        elector.stop(60.0)


def test_the_first_leads_and_the_second_leads_after_the_release(edge: ScriptedApiServer, client: Client) -> None:
    lease = LeaseServer(edge)
    clock = SettableClock()
    with electing(client, clock) as first:
        eventually(lambda: first.leading)
        with electing(client, clock) as second:
            eventually(lambda: second.holder == first.identity)
            assert not second.leading
            first.stop(60.0)
            assert not first.leading
            eventually(lambda: second.leading)
            assert lease.spec is not None
            assert (lease.holder, lease.spec["leaseTransitions"]) == (second.identity, 1)
    assert lease.holder == ""


def test_the_lease_of_a_dead_leader_is_acquired_after_its_duration(edge: ScriptedApiServer, client: Client) -> None:
    lease = LeaseServer(edge)
    lease.write({"holderIdentity": "dead", "leaseDurationSeconds": 15, "renewTime": "2999-01-01T00:00:00.000000Z"})
    clock = SettableClock()
    with electing(client, clock) as elector:
        eventually(lambda: elector.holder == "dead")
        clock.seconds = 14.9
        asked = len(edge.seen(path=f"{PATH}/l"))
        eventually(lambda: len(edge.seen(path=f"{PATH}/l")) > asked + 3)
        assert (lease.holder, elector.leading) == ("dead", False)
        clock.seconds = 15.0
        eventually(lambda: elector.leading)
        assert lease.holder == elector.identity


def test_a_missing_lease_that_may_not_be_created_is_named_with_a_command(
    edge: ScriptedApiServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The shipped Role has no permission to create Leases. Once the Lease exists, the election continues."""
    edge.on("GET", f"{PATH}/l", status(404, "not found"))
    edge.on("POST", PATH, status(403, 'leases.coordination.k8s.io is forbidden: User "x" cannot create'))
    command = (
        "kubectl create -f - <<< '"
        '{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"namespace": "ns", "name": "l"}}\''
    )
    with electing(client, HastyClock()) as elector:
        eventually(lambda: elector.missing)
        assert elector.missing == f"lease ns/l is missing; create it with: {command}"
        assert not elector.leading
        LeaseServer(edge).write({})
        eventually(lambda: elector.leading)
        assert elector.missing == ""
    message = 'create lease ns/l: leases.coordination.k8s.io is forbidden: User "x" cannot create (403)'
    named = f"lease ns/l is missing; create it with: {command}"
    assert caplog.records[0].getMessage() == f"lease ns/l: {message}; {named}"


def test_a_leader_stops_leading_by_itself_while_the_server_hangs(edge: ScriptedApiServer, client: Client) -> None:
    lease = LeaseServer(edge)
    clock = SettableClock()
    with electing(client, clock) as elector:
        eventually(lambda: elector.leading)
        with lease.lock:  # blocks every response from now on
            clock.seconds = 9.9
            assert elector.leading
            clock.seconds = 10.0
            assert not elector.leading
        eventually(lambda: elector.leading)


class LapsingLeaseServer(LeaseServer):
    """Once told to, it rejects a renewal; its next response takes so long that the Lease ends meanwhile."""

    def __init__(self, edge: ScriptedApiServer, clock: SettableClock) -> None:
        super().__init__(edge)
        self.clock, self.rejects, self.is_slow = clock, False, False

    def get(self, request: ReceivedRequest) -> Reply:
        if self.is_slow:
            self.clock.seconds += 10.0
            self.is_slow = False
        return super().get(request)

    def patch(self, request: ReceivedRequest) -> Reply:
        if not self.rejects:
            return super().patch(request)
        self.rejects, self.is_slow = False, True
        return status(403)


def test_a_lease_that_is_lost_and_acquired_within_one_step_is_told(edge: ScriptedApiServer, client: Client) -> None:
    clock, told = SettableClock(), list[bool]()
    lease = LapsingLeaseServer(edge, clock)
    with electing(client, clock) as elector:
        eventually(lambda: elector.leading)
        elector.changed = lambda: told.append(elector.leading)
        lease.rejects = True
        eventually(lambda: told == [True])
        assert clock.seconds == 10.0


def test_writes_of_a_leader_complete_before_another_replica_may_lead(edge: ScriptedApiServer, client: Client) -> None:
    lease = LeaseServer(edge)
    clock = SettableClock()
    clock.seconds = 100.0
    with electing(client, clock) as elector:
        with pytest.raises(NotLeading, match=r"^the lease ns/l is not held by this replica$"):
            elector.seconds_left()
        assert elector.deadline == float("-inf")
        eventually(lambda: elector.leading)
        with lease.lock:  # blocks every renewal from now on
            assert elector.deadline == 113.0
            clock.seconds = 109.9
            assert elector.seconds_left() == pytest.approx(3.1)
            clock.seconds = 110.0
            with pytest.raises(NotLeading):
                elector.seconds_left()
        eventually(lambda: elector.leading)
        assert elector.deadline == 123.0


def test_the_fence_may_lag_for_five_seconds_after_the_lease_was_acquired(
    edge: ScriptedApiServer, client: Client
) -> None:
    LeaseServer(edge)
    clock = SettableClock()
    with electing(client, clock) as elector:
        assert not elector.fence_may_lag
        eventually(lambda: elector.leading)
        clock.seconds = 4.9
        assert elector.fence_may_lag
        eventually(lambda: elector.deadline == pytest.approx(17.9))  # a renewal acquires nothing
        clock.seconds = 5.0
        assert not elector.fence_may_lag


TAKEN: dict[str, Callable[[LeaseServer], object]] = {
    "taken": lambda lease: lease.write({"holderIdentity": "thief"}),
    "deleted": lambda lease: lease.delete(),
}


@pytest.mark.parametrize("happens", TAKEN.values(), ids=TAKEN)
def test_a_leader_whose_lease_is_deleted_sends_no_more_writes(
    edge: ScriptedApiServer, client: Client, happens: Callable[[LeaseServer], object]
) -> None:
    lease = LeaseServer(edge)
    with electing(client, SettableClock()) as elector:
        eventually(lambda: elector.leading)
        with lease.lock:
            happens(lease)
        eventually(lambda: not elector.leading)
        with pytest.raises(NotLeading):
            elector.seconds_left()


def test_an_identity_starts_with_the_name_of_the_pod() -> None:
    first, second = identity("web-5d9-x2x"), identity("web-5d9-x2x")
    assert first.split("_")[0] == second.split("_")[0] == "web-5d9-x2x"
    assert first != second
    assert identity().split("_")[0] == socket.gethostname()


def test_one_process_of_a_network_namespace_has_the_seat_until_it_ends() -> None:
    with contextlib.closing(Seat("first")) as first, contextlib.closing(Seat("first")) as second:
        assert (bool(first.tag), second.tag) == (True, "")
        assert first.is_dead(identity("pod", first.tag))
        assert not first.is_dead(identity("pod"))
        assert not second.is_dead(identity("pod", first.tag))
        assert not second.is_dead(identity("pod"))
    with contextlib.closing(Seat("first")) as third, contextlib.closing(Seat("other")) as other:
        assert third.tag == first.tag != other.tag
        assert not other.is_dead(identity("pod", third.tag)), "a process with another seat may be alive"


@pytest.mark.parametrize("mine", [True, False])
def test_the_lease_of_the_process_before_this_one_is_acquired_at_once(
    edge: ScriptedApiServer, client: Client, mine: bool
) -> None:
    """The predecessor with the same seat has ended. It is released first: see deploy/limits."""
    lease = LeaseServer(edge)
    with contextlib.closing(Seat("l")) as seat:
        before = identity("pod", seat.tag if mine else "0123456789abcdef")
        lease.write({"holderIdentity": before, "leaseDurationSeconds": 15, "renewTime": "2999-01-01T00:00:00.000000Z"})
        elector = Elector(client, SettableClock(), "ns", "l", identity("pod", seat.tag), seat.is_dead)
        elector.start()
        try:
            if mine:
                eventually(lambda: elector.leading)
            else:
                eventually(lambda: len(edge.seen(path=f"{PATH}/l")) > 3)
        finally:
            elector.stop(60.0)
    written = [request.body["spec"]["holderIdentity"] for request in edge.seen(method="PATCH")]
    assert written[:2] == (["", elector.identity] if mine else [])


def test_a_leader_that_lost_its_lease_stops_and_does_not_acquire_it(edge: ScriptedApiServer, client: Client) -> None:
    lease = LeaseServer(edge)
    clock = SettableClock()
    with electing(client, clock) as elector:
        eventually(lambda: elector.leading)
        with lease.lock:
            lease.write({"holderIdentity": "thief"})
        eventually(lambda: elector.holder == "thief")
        clock.seconds = 10.0
        assert not elector.leading
        assert lease.holder == "thief"


def test_a_lease_of_another_holder_is_not_released(edge: ScriptedApiServer, client: Client) -> None:
    lease = LeaseServer(edge)
    with electing(client, SettableClock()) as elector:
        eventually(lambda: elector.leading)
        with lease.lock:
            lease.write({"holderIdentity": "thief"})
        eventually(lambda: elector.holder == "thief")
    assert lease.holder == "thief"


class AnnotatedLeaseServer(LeaseServer):
    """Another client annotates the Lease just before its release, which only changes its version."""

    annotated = False

    def patch(self, request: ReceivedRequest) -> Reply:
        if not self.annotated and not request.body["spec"]["holderIdentity"]:
            self.annotated = True
            with self.lock:
                self.write({})
        return super().patch(request)


def test_a_lease_that_another_client_annotated_is_released(edge: ScriptedApiServer, client: Client) -> None:
    lease = AnnotatedLeaseServer(edge)
    with electing(client, SettableClock()) as elector:
        eventually(lambda: elector.leading)
    assert (lease.annotated, lease.holder) == (True, "")


def test_a_lease_acquired_during_the_shutdown_is_released(edge: ScriptedApiServer, client: Client) -> None:
    lease = LeaseServer(edge)
    elector = Elector(client, SettableClock(), "ns", "l", identity())
    with lease.lock:  # blocks the responses
        elector.start()
        eventually(lambda: edge.seen(path=f"{PATH}/l"))
        ending = threading.Thread(target=elector.stop, args=[60.0])
        ending.start()
        eventually(elector._stopping.is_set)
    ending.join(60)
    assert (lease.holder, elector.leading) == ("", False)


def test_an_api_server_that_never_responds_does_not_delay_the_shutdown(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", f"{PATH}/l", StallReply())
    elector = Elector(client, HastyClock(), "ns", "l", identity())
    elector.start()
    eventually(lambda: edge.requests)
    elector.stop(seconds=0.05)
    assert not elector.leading
