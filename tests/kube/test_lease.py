"""Leader election as a decision, and as a thread against a Lease that others write to."""

import datetime as dt
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rescheduler.errors import NotLeading
from rescheduler.kube.client import Client
from rescheduler.kube.elector import Elector, identity
from rescheduler.kube.lease import Acquire, Record, Renew, Seen, Step, Wait, decide, held, released
from tests.kube.conftest import HastyClock, eventually
from tests.kube.edge import Edge, Reply, Request, Stall, status

NOW = dt.datetime(2026, 5, 4, 3, 2, 1, 5, tzinfo=dt.UTC)
STAMP = "2026-05-04T03:02:01.000005Z"


def record(holder: str | None, seconds: int | None = 15, renewed: str = "before") -> Record:
    return Record(holder_identity=holder, lease_duration_seconds=seconds, renew_time=renewed)


DECISIONS: dict[str, tuple[Seen | None, float, Step]] = {
    "no Lease": (None, 0.0, Acquire()),
    "given back": (Seen(record(""), 100.0), 100.0, Acquire()),
    "never held": (Seen(record(None), 100.0), 100.0, Acquire()),
    "ours": (Seen(record("me"), 100.0), 100.0, Renew()),
    "ours, long not renewed": (Seen(record("me"), 100.0), 900.0, Renew()),
    "another's": (Seen(record("you"), 100.0), 114.9, Wait("you")),
    "another's, run out": (Seen(record("you"), 100.0), 115.0, Acquire()),
    "another's, with a longer promise": (Seen(record("you", 60), 100.0), 159.9, Wait("you")),
    "another's, without a promise": (Seen(record("you", None), 100.0), 114.9, Wait("you")),
    "another's, promising nothing": (Seen(record("you", 0), 100.0), 100.0, Acquire()),
}


@pytest.mark.parametrize(("seen", "now", "expected"), DECISIONS.values(), ids=DECISIONS)
def test_what_to_do_about_a_lease(seen: Seen | None, now: float, expected: Step) -> None:
    assert decide(seen, "me", now) == expected


def test_only_a_change_that_we_see_starts_a_holder_s_time_anew() -> None:
    first = Seen(record("you", renewed="year 3000"), 100.0)
    assert first.again(record("you", renewed="year 3000"), 110.0) == first
    assert first.again(record("you", renewed="year 1970"), 110.0) == Seen(record("you", renewed="year 1970"), 110.0)


def test_records_that_are_written() -> None:
    made = held(None, "me", NOW)
    assert made == Record("me", 15, STAMP, STAMP, 0)
    later = NOW + dt.timedelta(seconds=2)
    assert held(made, "me", later) == Record("me", 15, STAMP, "2026-05-04T03:02:03.000005Z", 0)
    assert held(made, "you", later) == Record(
        "you", 15, "2026-05-04T03:02:03.000005Z", "2026-05-04T03:02:03.000005Z", 1
    )
    assert released(made, later) == Record("", 1, STAMP, "2026-05-04T03:02:03.000005Z", 0)


PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"


class LeaseServer:
    """One Lease, with the optimistic concurrency of the real one."""

    def __init__(self, edge: Edge) -> None:
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
        """Nobody may create it again."""
        self.spec, self.creatable = None, False

    def get(self, _: Request) -> Reply:
        with self.lock:
            if self.spec is None:
                return status(404)
            return Reply({"metadata": {"resourceVersion": str(self.version)}, "spec": self.spec})

    def create(self, request: Request) -> Reply:
        with self.lock:
            if not self.creatable:
                return status(403)
            return self.write(request.body["spec"]) if self.spec is None else status(409)

    def patch(self, request: Request) -> Reply:
        with self.lock:
            if self.spec is None:
                return status(404)
            if request.body["metadata"]["resourceVersion"] != str(self.version):
                return status(409)
            return self.write(request.body["spec"])


class SettableClock(HastyClock):
    """Monotonic time stands still until it is moved."""

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


def test_the_first_leads_the_second_waits_and_leads_when_the_lease_is_given_back(edge: Edge, client: Client) -> None:
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


def test_a_dead_leader_s_lease_is_taken_after_its_time_and_not_before(edge: Edge, client: Client) -> None:
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


def test_a_leader_stops_leading_by_itself_while_the_server_hangs(edge: Edge, client: Client) -> None:
    lease = LeaseServer(edge)
    clock = SettableClock()
    with electing(client, clock) as elector:
        eventually(lambda: elector.leading)
        with lease.lock:  # every answer hangs from here on
            clock.seconds = 9.9
            assert elector.leading
            clock.seconds = 10.0
            assert not elector.leading
        eventually(lambda: elector.leading)


def test_what_a_leader_sends_ends_before_anybody_else_may_take_its_lease(edge: Edge, client: Client) -> None:
    lease = LeaseServer(edge)
    clock = SettableClock()
    clock.seconds = 100.0
    with electing(client, clock) as elector:
        with pytest.raises(NotLeading, match=r"^the lease ns/l is not ours \(any more\)$"):
            elector.seconds_left()
        assert elector.deadline == float("-inf")
        eventually(lambda: elector.leading)
        with lease.lock:  # every renewal hangs from here on
            assert elector.deadline == 113.0
            clock.seconds = 109.9
            assert elector.seconds_left() == pytest.approx(3.1)
            clock.seconds = 110.0
            with pytest.raises(NotLeading):
                elector.seconds_left()
        eventually(lambda: elector.leading)
        assert elector.deadline == 123.0


def test_the_fence_may_lag_for_five_seconds_after_the_lease_was_acquired(edge: Edge, client: Client) -> None:
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
def test_a_leader_that_finds_its_lease_gone_sends_nothing_from_then_on(
    edge: Edge, client: Client, happens: Callable[[LeaseServer], object]
) -> None:
    lease = LeaseServer(edge)
    with electing(client, SettableClock()) as elector:
        eventually(lambda: elector.leading)
        with lease.lock:
            happens(lease)
        eventually(lambda: not elector.leading)
        with pytest.raises(NotLeading):
            elector.seconds_left()


def test_an_identity_begins_with_the_pod_s_name() -> None:
    first, second = identity("web-5d9-x2x"), identity("web-5d9-x2x")
    assert first.split("_")[0] == second.split("_")[0] == "web-5d9-x2x"
    assert first != second
    assert identity().split("_")[0] == socket.gethostname()


def test_a_leader_whose_lease_was_taken_stops_and_does_not_take_it_back(edge: Edge, client: Client) -> None:
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


def test_a_lease_that_was_taken_from_us_is_not_given_back(edge: Edge, client: Client) -> None:
    lease = LeaseServer(edge)
    with electing(client, SettableClock()) as elector:
        eventually(lambda: elector.leading)
        with lease.lock:
            lease.write({"holderIdentity": "thief"})
        eventually(lambda: elector.holder == "thief")
    assert lease.holder == "thief"


class AnnotatedLease(LeaseServer):
    """Somebody annotates it just before it is given back, which changes its version and nothing else."""

    annotated = False

    def patch(self, request: Request) -> Reply:
        if not self.annotated and not request.body["spec"]["holderIdentity"]:
            self.annotated = True
            with self.lock:
                self.write({})
        return super().patch(request)


def test_a_lease_that_somebody_annotated_is_given_back(edge: Edge, client: Client) -> None:
    lease = AnnotatedLease(edge)
    with electing(client, SettableClock()) as elector:
        eventually(lambda: elector.leading)
    assert (lease.annotated, lease.holder) == (True, "")


def test_a_lease_acquired_at_the_very_end_is_given_back_and_never_led_by(edge: Edge, client: Client) -> None:
    lease = LeaseServer(edge)
    elector = Elector(client, SettableClock(), "ns", "l", identity())
    with lease.lock:  # the answers wait
        elector.start()
        eventually(lambda: edge.seen(path=f"{PATH}/l"))
        ending = threading.Thread(target=elector.stop, args=[60.0])
        ending.start()
        eventually(elector._stopping.is_set)
    ending.join(60)
    assert (lease.holder, elector.leading) == ("", False)


def test_who_may_not_write_the_lease_never_leads_and_is_told(
    edge: Edge, client: Client, clock: HastyClock, caplog: pytest.LogCaptureFixture
) -> None:
    edge.on("GET", f"{PATH}/l", status(404))
    edge.on("POST", PATH, status(403, 'leases.coordination.k8s.io is forbidden: User "x" cannot create'))
    with electing(client, clock) as elector:
        eventually(lambda: caplog.records)
        assert not elector.leading
    said = 'create lease ns/l: leases.coordination.k8s.io is forbidden: User "x" cannot create (403)'
    assert caplog.records[0].getMessage() == f"lease ns/l: {said}"


def test_an_api_server_that_is_silent_from_the_start_does_not_hold_up_the_end(edge: Edge, client: Client) -> None:
    edge.on("GET", f"{PATH}/l", Stall())
    elector = Elector(client, HastyClock(), "ns", "l", identity())
    elector.start()
    eventually(lambda: edge.requests)
    elector.stop(seconds=0.05)
    assert not elector.leading
