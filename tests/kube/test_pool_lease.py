"""The Lease of a pool: one process has a turn at a time, also if a process ends or its orders are in doubt."""

import contextlib
import datetime as dt
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rescheduler.errors import NoTurn
from rescheduler.kube.client import Client
from rescheduler.kube.elector import PoolLease
from rescheduler.settings import PoolLeaseName
from tests.kube.conftest import eventually
from tests.kube.edge import ScriptedApiServer, status
from tests.kube.test_lease import PATH, LeaseServer, SettableClock

NAME = PoolLeaseName("ns", "l")
SETTLE = 60.0


class PassingClock(SettableClock):
    """A clock on which the waits of the test's thread take less time than they should."""

    def wait(self, seconds: float, until: threading.Event) -> bool:
        if threading.current_thread() is not threading.main_thread():
            return until.wait(0.01)
        ended = until.wait(0.1)
        self.seconds += min(seconds, 0.1)
        return ended


@contextlib.contextmanager
def process(client: Client, clock: SettableClock) -> Iterator[PoolLease]:
    with contextlib.closing(PoolLease(client, clock, NAME)) as lease:
        yield lease


def certain() -> bool:
    return False


def in_doubt() -> bool:
    return True


def has_turn(lease: PoolLease, seconds: float = 5.0) -> bool:
    try:
        with lease.hold(seconds, SETTLE, certain):
            return True
    except NoTurn:
        return False


def test_a_turn_ends_before_the_next_one_begins(edge: ScriptedApiServer, client: Client) -> None:
    server, clock = LeaseServer(edge), PassingClock()
    with process(client, clock) as first, process(client, clock) as second:
        with first.hold(5.0, SETTLE, certain) as confirm:
            confirm()
            assert server.holder
            assert not has_turn(second)
        assert server.holder == ""
        assert has_turn(second)
        assert has_turn(first)


def test_threads_of_a_process_have_turns_one_after_the_other(edge: ScriptedApiServer, client: Client) -> None:
    LeaseServer(edge)
    with (
        process(client, PassingClock()) as lease,
        lease.hold(5.0, SETTLE, certain),
        pytest.raises(NoTurn, match=r"^lease ns/l: another change is in progress$"),
        lease.hold(0.05, SETTLE, certain),
    ):
        pass


def test_after_an_order_in_doubt_only_the_same_process_has_a_turn(edge: ScriptedApiServer, client: Client) -> None:
    server, clock = LeaseServer(edge), PassingClock()
    with process(client, clock) as first, process(client, clock) as second:
        with first.hold(5.0, SETTLE, in_doubt):
            pass
        assert server.holder
        assert server.spec is not None
        assert server.spec["leaseDurationSeconds"] == 75
        with (
            pytest.raises(
                NoTurn, match=r"^lease ns/l: it is held by .*, which may be ordering machines of the same pool$"
            ),
            second.hold(5.0, SETTLE, certain),
        ):
            pass
        clock.seconds += 60
        assert not has_turn(second, 5.0)
        clock.seconds += 20
        assert has_turn(second)


def test_the_same_process_releases_a_turn_that_was_in_doubt(edge: ScriptedApiServer, client: Client) -> None:
    server, clock = LeaseServer(edge), PassingClock()
    with process(client, clock) as first, process(client, clock) as second:
        with first.hold(5.0, SETTLE, in_doubt):
            pass
        assert has_turn(first)
        assert server.holder == ""
        assert has_turn(second)


def test_a_process_started_again_has_a_turn_at_once_and_others_wait(edge: ScriptedApiServer, client: Client) -> None:
    """An order of the killed process may still take effect, which the others do not know of."""
    server, clock = LeaseServer(edge), PassingClock()
    with process(client, clock) as killed, killed.hold(5.0, SETTLE, in_doubt):
        pass
    with process(client, clock) as again, process(client, clock) as other:
        assert has_turn(again)
        assert server.holder
        assert not has_turn(other)
        clock.seconds += 80
        assert has_turn(again)
        assert has_turn(other)


class WallClock(PassingClock):
    """A clock whose wall time passes, too."""

    def now(self) -> dt.datetime:
        return dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=self.seconds)


#: Seconds from the end of a process to the start of the next one → how long others then wait, of 75 s.
LATER = {0: 75, 10: 65, 40: 35, 74: 1, 75: 0, 500: 0}


@pytest.mark.parametrize("later", LATER)
def test_a_lease_that_was_taken_over_is_held_no_longer_than_needed(
    later: int, edge: ScriptedApiServer, client: Client
) -> None:
    server, clock = LeaseServer(edge), WallClock()
    with process(client, clock) as killed, killed.hold(5.0, SETTLE, in_doubt):
        pass
    clock.seconds += later
    with process(client, clock) as again:
        assert has_turn(again)
        assert server.spec is not None
        left = server.spec["leaseDurationSeconds"] if server.holder else 0
        assert LATER[later] - 2 <= left <= LATER[later]
        clock.seconds += 30
        assert has_turn(again)  # a later turn does not make the others wait longer
        assert server.holder == "" or server.spec["leaseDurationSeconds"] <= max(0, LATER[later] - 29)
        clock.seconds += left
    assert server.holder == "" or LATER[later] == 0


@pytest.mark.parametrize("over", [True, False])
def test_a_process_that_ends_releases_the_lease_unless_an_order_is_in_doubt(
    over: bool, edge: ScriptedApiServer, client: Client
) -> None:
    server, clock, doubts = LeaseServer(edge), WallClock(), [True]
    with process(client, clock) as lease:
        with lease.hold(5.0, SETTLE, lambda: doubts[0]):
            pass
        assert server.holder
        doubts[0] = not over
    assert (server.holder == "") is over


def test_a_lease_that_cannot_be_renewed_allows_no_request(edge: ScriptedApiServer, client: Client) -> None:
    server, clock = LeaseServer(edge), PassingClock()
    with (
        process(client, clock) as lease,
        lease.hold(5.0, SETTLE, certain) as confirm,
        server.lock,  # blocks every renewal from now on
    ):
        clock.seconds += 10
        with pytest.raises(NoTurn, match=r"^lease ns/l: it could not be renewed$"):
            confirm()


def test_another_holder_ends_the_turn(edge: ScriptedApiServer, client: Client) -> None:
    server, clock = LeaseServer(edge), PassingClock()
    with process(client, clock) as lease, lease.hold(5.0, SETTLE, certain) as confirm:
        server.write({"holderIdentity": "thief"})

        def lost() -> bool:
            try:
                confirm()
            except NoTurn:
                return True
            return False

        eventually(lost)
    assert server.holder == "thief"


MISSING: dict[str, Any] = {"the Lease": status(404, "not found"), "the permission": status(403, "forbidden: no get")}


@pytest.mark.parametrize("missing", MISSING)
def test_without_lease_or_permission_there_is_no_turn(edge: ScriptedApiServer, client: Client, missing: str) -> None:
    edge.on("GET", f"{PATH}/l", MISSING[missing])
    edge.on("POST", PATH, status(403, "forbidden: no create"))
    with process(client, PassingClock()) as lease:
        named = "create it with: kubectl create" if missing == "the Lease" else "forbidden: no get"
        with pytest.raises(NoTurn, match=named):
            lease.check()
        with pytest.raises(NoTurn, match=f"^lease ns/l: .*{named}"), lease.hold(5.0, SETTLE, certain):
            pass


def test_a_missing_lease_is_created_where_that_is_allowed(edge: ScriptedApiServer, client: Client) -> None:
    server = LeaseServer(edge)
    with process(client, PassingClock()) as lease:
        lease.check()
        assert server.spec == {}
        assert has_turn(lease)
