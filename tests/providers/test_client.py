"""The client's calls to the reference cloudpool, with every error."""

import contextlib
import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from devcluster.cloudpool.server import CloudpoolServer
from devcluster.standin.faults import Fault
from rescheduler import errors
from rescheduler.cloudpool.client import error_text
from rescheduler.cloudpool.matching import Machine, MachinePool, Membership, moment
from rescheduler.net.http_errors import InvalidResponse, Missing, RequestRejected, ServerFault
from tests.providers.clocks import START, StepClock
from tests.providers.cloudpools import document, section, serving, settings
from tests.providers.pool_client import FullPoolClient, PoolStatus, ServiceState

DEADLINE = 600.0
API = ["v5", "multipool"]


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@contextlib.contextmanager
def client(server: CloudpoolServer, clock: StepClock, **changes: Any) -> Iterator[FullPoolClient]:
    pool_client = FullPoolClient(section(server.url, api=server.pool.settings.api, **changes), Path(), clock)
    try:
        yield pool_client
    finally:
        pool_client.close()


def states(server: CloudpoolServer, clock: StepClock) -> list[str]:
    return [machine.state(clock.now()) for machine in server.pool.machines()]


def first(server: CloudpoolServer, clock: StepClock) -> str:
    return server.pool.machines()[0].id(clock.now())


@pytest.mark.parametrize("api", API)
def test_the_pool_and_its_size_are_read(api: str, clock: StepClock) -> None:
    with serving(settings(api=api), clock) as server, client(server, clock) as pool:
        seen = pool.pool(deadline=DEADLINE)
        size = pool.size(deadline=DEADLINE)
        assert [machine.id for machine in seen.machines] == [machine.id(START) for machine in server.pool.machines()]
        assert {(machine.machine_state, machine.membership, machine.active) for machine in seen.machines} == {
            ("RUNNING", Membership(), True)
        }
        assert (size.desired_size, size.allocated, size.active) == (3, 3, 3)
        assert moment(size.timestamp) == START


@pytest.mark.parametrize("api", API)
def test_the_size_is_set_and_reached(api: str, clock: StepClock) -> None:
    with serving(settings(api=api), clock) as server, client(server, clock) as pool:
        pool.set_size(5, deadline=DEADLINE)
        assert (pool.size(deadline=DEADLINE).desired_size, states(server, clock)) == (5, ["RUNNING"] * 5)
        pool.set_size(0, deadline=DEADLINE)
        assert (pool.size(deadline=DEADLINE).desired_size, states(server, clock)) == (0, ["TERMINATED"] * 5)


@pytest.mark.parametrize("api", API)
@pytest.mark.parametrize(("decrement", "desired"), [(True, 2), (False, 3)])
def test_a_machine_is_terminated(api: str, decrement: bool, desired: int, clock: StepClock) -> None:
    with serving(settings(api=api), clock) as server, client(server, clock) as pool:
        pool.terminate(first(server, clock), decrement=decrement, deadline=DEADLINE)
        assert states(server, clock) == ["TERMINATED", "RUNNING", "RUNNING"]
        assert pool.size(deadline=DEADLINE).desired_size == desired


@pytest.mark.parametrize("api", API)
def test_a_machine_is_detached_and_attached(api: str, clock: StepClock) -> None:
    with serving(settings(api=api, refresh_interval=0), clock) as server, client(server, clock) as pool:
        machine = first(server, clock)
        pool.detach(machine, decrement=True, deadline=DEADLINE)
        assert states(server, clock) == ["RUNNING"] * 3
        assert machine not in [listed.id for listed in pool.pool(deadline=DEADLINE).machines]
        assert pool.size(deadline=DEADLINE).desired_size == 2
        pool.attach(machine, deadline=DEADLINE)
        assert machine in [listed.id for listed in pool.pool(deadline=DEADLINE).machines]
        assert pool.size(deadline=DEADLINE).desired_size == 3


@pytest.mark.parametrize("api", API)
def test_states_are_set(api: str, clock: StepClock) -> None:
    with serving(settings(api=api, refresh_interval=0), clock) as server, client(server, clock) as pool:
        machine = first(server, clock)
        pool.set_service_state(machine, ServiceState.UNHEALTHY, deadline=DEADLINE)
        pool.set_membership(machine, Membership(active=False, evictable=False), deadline=DEADLINE)
        seen = pool.pool(deadline=DEADLINE).machines[0]
        assert (seen.service_state, seen.membership) == ("UNHEALTHY", Membership(active=False, evictable=False))
        assert (seen.allocated, seen.active) == (True, False)


@pytest.mark.parametrize("api", API)
def test_the_configuration_is_set_and_the_pool_is_started_and_stopped(api: str, clock: StepClock) -> None:
    with serving(settings(api=api, pool=None, desired_size=None), clock) as server, client(server, clock) as pool:
        assert pool.status(deadline=DEADLINE) == PoolStatus(started=False, configured=False)
        with pytest.raises(Missing, match="no configuration has been set"):
            pool.config(deadline=DEADLINE)
        pool.set_config({"name": "p", "cloudProvider": "GCE", "launchDelay": "1m0s"}, deadline=DEADLINE)
        pool.start(deadline=DEADLINE)
        pool.start(deadline=DEADLINE)
        assert pool.status(deadline=DEADLINE) == PoolStatus(started=True, configured=True)
        assert pool.config(deadline=DEADLINE)["cloudProvider"] == "GCE"
        assert pool.size(deadline=DEADLINE).desired_size == 0
        pool.stop(deadline=DEADLINE)
        assert pool.status(deadline=DEADLINE) == PoolStatus(started=False, configured=True)


Call = Callable[[FullPoolClient, str], object]

#: All calls that require a started pool; the second argument is a machine.
ON_POOL: dict[str, Call] = {
    "GET pool": lambda pool, _: pool.pool(deadline=DEADLINE),
    "GET size": lambda pool, _: pool.size(deadline=DEADLINE),
    "POST size": lambda pool, _: pool.set_size(3, deadline=DEADLINE),
    "terminate": lambda pool, machine: pool.terminate(machine, decrement=True, deadline=DEADLINE),
    "detach": lambda pool, machine: pool.detach(machine, decrement=True, deadline=DEADLINE),
    "attach": lambda pool, machine: pool.attach(machine, deadline=DEADLINE),
    "service state": lambda pool, machine: pool.set_service_state(machine, ServiceState.BOOTING, deadline=DEADLINE),
    "membership": lambda pool, machine: pool.set_membership(machine, Membership(), deadline=DEADLINE),
}
ON_MACHINE = ["terminate", "detach", "attach", "service state", "membership"]


@pytest.mark.parametrize("call", ON_POOL)
@pytest.mark.parametrize(("api", "error", "status"), [("v5", ServerFault, 500), ("multipool", RequestRejected, 400)])
def test_calls_before_the_start_of_the_pool_are_errors(
    call: str, api: str, error: type[errors.ReschedulerError], status: int, clock: StepClock
) -> None:
    raised = pytest.raises(error, match=rf": {status} .*: attempt to use the cloud pool before it was started$")
    with serving(settings(api=api, started=False), clock) as server, client(server, clock) as pool, raised:
        ON_POOL[call](pool, "i-1")


@pytest.mark.parametrize("call", ON_MACHINE)
@pytest.mark.parametrize("api", API)
def test_calls_for_an_unknown_machine_are_errors(call: str, api: str, clock: StepClock) -> None:
    with serving(settings(api=api), clock) as server, client(server, clock) as pool:
        with pytest.raises(Missing, match=r": 404 Not Found: .*i-nobody"):
            ON_POOL[call](pool, "i-nobody")
        assert (states(server, clock), server.pool.size()["desiredSize"]) == (["RUNNING"] * 3, 3)


@pytest.mark.parametrize("call", ["terminate", "detach"])
def test_calls_for_a_protected_machine_are_errors(call: str, clock: StepClock) -> None:
    with serving(settings(refresh_interval=0), clock) as server, client(server, clock) as pool:
        machine = first(server, clock)
        pool.set_membership(machine, Membership(active=True, evictable=False), deadline=DEADLINE)
        with pytest.raises(ServerFault, match=r": 502 Bad Gateway: machine .* is not evictable"):
            ON_POOL[call](pool, machine)
        assert (states(server, clock), server.pool.size()["desiredSize"]) == (["RUNNING"] * 3, 3)


@pytest.mark.parametrize("call", [*ON_MACHINE, "GET pool", "GET size"])
def test_calls_during_a_long_outage_of_the_cloud_are_errors(call: str, clock: StepClock) -> None:
    with serving(settings(pool_update=9999), clock) as server, client(server, clock) as pool:
        machine = first(server, clock)
        server.pool.cloud_down = True
        clock.advance(301)
        with pytest.raises(ServerFault, match=r": 502 Bad Gateway: .*: the cloud's API cannot be reached"):
            ON_POOL[call](pool, machine)


@pytest.mark.parametrize("keys", [[], {}, {"name": 1}, {"name": "p", "launchDelay": 5}, {"name": "p", "unknown": True}])
def test_an_invalid_configuration_is_rejected(keys: Any, clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock) as pool:
        with pytest.raises(RequestRejected, match=": 400 Bad Request: the configuration is not"):
            pool.set_config(keys, deadline=DEADLINE)
        assert server.pool.config()["name"] == "pool"


def test_a_pool_without_a_configuration_cannot_start(clock: StepClock) -> None:
    with (
        serving(settings(pool=None), clock) as server,
        client(server, clock) as pool,
        pytest.raises(
            RequestRejected, match=": 400 Bad Request: attempt to start the cloud pool before it was configured"
        ),
    ):
        pool.start(deadline=DEADLINE)


def test_requests_have_the_documented_form(clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock) as pool:
        machine = first(server, clock)
        pool.terminate(machine, decrement=True, deadline=DEADLINE)
        pool.set_size(4, deadline=DEADLINE)
        sent = [(request.method, request.path, json.loads(request.body)) for request in server.faulty_app.requests]
        assert sent == [
            ("POST", "/pool/terminate", {"machineId": machine, "decrementDesiredSize": True}),
            ("POST", "/pool/size", {"desiredSize": 4}),
        ]


def test_an_order_is_sent_only_once(clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock) as pool:
        machine = first(server, clock)
        for call in (pool.terminate, pool.detach):
            server.faulty_app.inject(*(Fault(path=f"/pool/{call.__name__}", kind=kind) for kind in ("reset", "answer")))
            for _ in range(2):
                with pytest.raises(errors.Retryable):
                    call(machine, decrement=True, deadline=DEADLINE)
        assert len(server.faulty_app.requests) == 4


#: fact: (body of GET /pool, parsed machines)
READ: dict[str, tuple[object, list[Machine]]] = {
    "no machines": ({"timestamp": "2024-05-01T12:00:00Z", "machines": []}, []),
    "the minimum": ({"machines": [{"id": "a", "machineState": "RUNNING"}]}, [Machine(id="a", machine_state="RUNNING")]),
    "nulls": (
        {
            "timestamp": None,
            "machines": [{"id": "a", "machineState": "RUNNING", "membershipStatus": None, "privateIps": None}],
        },
        [Machine(id="a", machine_state="RUNNING")],
    ),
    "unknown keys and states": (
        {"x": 1, "machines": [{"id": "a", "machineState": "SUSPENDED", "y": {}}]},
        [Machine(id="a", machine_state="SUSPENDED")],
    ),
    "odd times": (
        {"timestamp": "yesterday", "machines": [{"id": "a", "machineState": "RUNNING", "launchTime": ""}]},
        [Machine(id="a", machine_state="RUNNING", launch_time="")],
    ),
}


@pytest.mark.parametrize("fact", READ)
def test_unusual_machines_are_read_leniently(fact: str, clock: StepClock) -> None:
    body, expected = READ[fact]
    with serving(settings(), clock) as server, client(server, clock) as pool:
        server.faulty_app.inject(Fault(path="/pool", method="GET", status=200, body=json.dumps(body)))
        assert pool.pool(deadline=DEADLINE).machines == expected


@pytest.mark.parametrize(
    "body",
    [
        {"machines": [{"machineState": "RUNNING"}]},
        {"machines": [{"id": "a"}]},
        {"machines": [{"id": 7, "machineState": "RUNNING"}]},
        {"machines": None},
        {},
        [],
    ],
)
def test_an_invalid_pool_is_an_error(body: object, clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock) as pool:
        server.faulty_app.inject(Fault(path="/pool", method="GET", status=200, body=json.dumps(body)))
        with pytest.raises(InvalidResponse, match="GET /pool: the response does not match the API"):
            pool.pool(deadline=DEADLINE)


#: membershipStatus: (active, evictable)
MEMBERSHIPS = {
    "null": (True, True),
    "{}": (True, True),
    '{"active": false}': (False, True),
    '{"evictable": false}': (True, False),
    '{"active": null, "evictable": null}': (True, True),
    '{"evictable": "yes"}': (True, False),
    '{"evictable": 1}': (True, False),
    '"blessed"': (False, False),
    "[]": (False, False),
}


@pytest.mark.parametrize("text", MEMBERSHIPS)
def test_an_invalid_protection_counts_as_protected(text: str) -> None:
    body = f'{{"machines": [{{"id": "a", "machineState": "RUNNING", "membershipStatus": {text}}}]}}'
    (machine,) = msgspec.json.decode(body, type=MachinePool).machines
    assert machine.membership == Membership(*MEMBERSHIPS[text])


#: state: (allocated, gone)
STATES = {
    "REQUESTED": (True, False),
    "PENDING": (True, False),
    "RUNNING": (True, False),
    "REJECTED": (False, True),
    "TERMINATING": (False, True),
    "TERMINATED": (False, True),
    "running": (False, False),
    "STOPPED": (False, False),
    "": (False, False),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("active", [True, False])
def test_the_state_determines_whether_a_machine_is_allocated_or_gone(state: str, active: bool) -> None:
    machine = Machine(id="a", machine_state=state, membership_status={"active": active})
    allocated, gone = STATES[state]
    assert (machine.allocated, machine.gone, machine.active) == (allocated, gone, allocated and active)


TIMES = {
    "2014-01-13T12:00:00.000Z": dt.datetime(2014, 1, 13, 12, tzinfo=dt.UTC),
    "2014-01-13T12:00:00+0100": dt.datetime(2014, 1, 13, 11, tzinfo=dt.UTC),
    "2014-01-13T12:00:00": dt.datetime(2014, 1, 13, 12, tzinfo=dt.UTC),
    "20140113T120000Z": dt.datetime(2014, 1, 13, 12, tzinfo=dt.UTC),
    "2014-01-13": dt.datetime(2014, 1, 13, tzinfo=dt.UTC),
    "": None,
    "now": None,
    "0001-01-01T00:00:00Z": None,
    "0001-01-01T00:00:00+14:00": None,
    "1970-01-01T01:00:00+01:00": None,
    "9999-12-31T23:59:59-14:00": None,
    1389614400: None,
    None: None,
}


@pytest.mark.parametrize("text", TIMES)
def test_times_are_parsed_or_unknown(text: object) -> None:
    assert moment(text) == TIMES[text]  # type: ignore[index]


#: fact: (lead of the pool's clock in seconds, time of the pool's view, time of the request, seen at: a lower bound)
AGES = {
    "a current view": (0.0, 0.0, 0.0, -1.0),
    "a view from a cache": (0.0, -20.0, 0.0, -21.0),
    "the pool's clock is ahead": (3600.0, 3580.0, 0.0, -21.0),
    "the pool's clock is behind": (-3600.0, -3620.0, 0.0, -21.0),
}


@pytest.mark.parametrize("fact", AGES)
def test_the_age_of_a_view_is_corrected_for_the_clock_of_the_pool(fact: str, clock: StepClock) -> None:
    ahead, stamped, asked, seen = AGES[fact]
    date = (START + dt.timedelta(seconds=ahead)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    timestamp = (START + dt.timedelta(seconds=stamped)).isoformat()
    body = json.dumps({"timestamp": timestamp, "machines": []})
    clock.advance(asked)
    with serving(settings(), clock) as server, client(server, clock) as pool:
        server.faulty_app.inject(Fault(path="/pool", method="GET", status=200, body=body, headers={"date": date}))
        assert pool.pool(deadline=DEADLINE).observed_at == START + dt.timedelta(seconds=seen)


#: body of GET /pool without a Date header: seen at
UNDATED = {
    '{"timestamp": "2024-05-01T12:00:00Z", "machines": []}': -5.0,
    '{"timestamp": "2024-05-01T13:00:00Z", "machines": []}': 0.0,
    '{"timestamp": "?", "machines": []}': -40.0,
    '{"timestamp": "0001-01-01T00:00:00Z", "machines": []}': -40.0,
    '{"machines": []}': -40.0,
}


@pytest.mark.parametrize("body", UNDATED)
def test_without_a_date_header_the_oldest_age_is_assumed(body: str, clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock, cacheAge="40s") as pool:
        server.faulty_app.inject(Fault(path="/pool", method="GET", status=200, body=body))
        assert pool.pool(deadline=DEADLINE).observed_at == START + dt.timedelta(seconds=UNDATED[body])


#: body of an error: text for people
MESSAGES = {
    '{"message": "no", "detail": ""}': "no",
    '{"message": "no", "detail": null}': "no",
    '{"message": "no"}': "no",
    '{"message": "no", "detail": "no"}': "no",
    '{"message": "no", "detail": "java.lang.X: why\\n\\tat a.b.C"}': "no: java.lang.X: why",
    '{"detail": "x"}': '{"detail": "x"}',
    "<html>502</html>": "<html>502</html>",
    "": "",
}


@pytest.mark.parametrize("body", MESSAGES)
def test_messages_of_error_bodies_are_read(body: str) -> None:
    assert error_text(body.encode()) == MESSAGES[body]


def test_placeholders_of_requests_get_their_ids_later(clock: StepClock) -> None:
    for cloud, early in (("AWS-AUTO-SCALING-GROUP", "i-requested1"), ("GCE", "requested-pool-1")):
        keys = document(cloudProvider=cloud, requestDelay="10s")
        served = settings(pool=keys, desired_size=1, refresh_interval=0)
        with serving(served, clock) as server, client(server, clock) as pool:
            assert [machine.id for machine in pool.pool(deadline=DEADLINE).machines] == [early]
            clock.advance(10)
            assert [machine.id for machine in pool.pool(deadline=DEADLINE).machines] != [early]
