"""The reference cloudpool is what the facts say of elastisys' server: states, sizes, caches, restarts."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.local.cloudpool.errors import CloudError, NotFound
from deploy.local.cloudpool.faults import Fault
from deploy.local.cloudpool.pool import Pool, Termination
from tests.backends.clocks import START, StepClock
from tests.backends.cloudpools import document, serving, settings
from tests.cluster.waiting import eventually

SLOW = {"requestDelay": "10s", "launchDelay": "20s", "terminationDelay": "5s", "forgetDelay": "60s"}


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@contextmanager
def pool(clock: StepClock, **changes: Any) -> Iterator[Pool]:
    made = Pool(settings(**{"refresh_interval": 0, **changes}), clock)
    try:
        yield made
    finally:
        made.close()


def listed(of: Pool) -> list[str]:
    return [machine["machineState"] for machine in of.pool()["machines"]]


def ids(of: Pool) -> list[str]:
    return [machine["id"] for machine in of.pool()["machines"]]


def test_the_life_of_a_machine(clock: StepClock) -> None:
    with pool(clock, pool=document(**SLOW), desired_size=1) as one:
        seen = []
        for seconds in (0, 9, 1, 19, 1):
            clock.advance(seconds)
            seen.append(listed(one))
        assert seen == [["REQUESTED"], ["REQUESTED"], ["PENDING"], ["PENDING"], ["RUNNING"]]
        one.terminate(ids(one)[0], decrement=True)
        seen = []
        for seconds in (0, 5, 59, 1):
            clock.advance(seconds)
            seen.append(listed(one))
        assert seen == [["TERMINATING"], ["TERMINATED"], ["TERMINATED"], []]


def test_requests_beyond_the_quota_are_rejected(clock: StepClock) -> None:
    with pool(clock, pool=document(quota=2)) as one:
        assert listed(one) == ["RUNNING", "RUNNING", "REJECTED"]
        assert one.size() == {"timestamp": "2024-05-01T12:00:00.000Z", "desiredSize": 3, "allocated": 2, "active": 2}


def test_shrinking_takes_requests_first_then_the_newest(clock: StepClock) -> None:
    with pool(clock, pool=document(requestDelay="10s"), desired_size=1) as one:
        clock.advance(10)
        one.set_size(2)
        clock.advance(10)
        one.set_size(3)
        one.set_size(1)
        assert listed(one) == ["RUNNING", "TERMINATED", "TERMINATED"]


def test_shrinking_spares_the_protected(clock: StepClock) -> None:
    with pool(clock) as one:
        for machine in ids(one):
            one.set_membership(machine, active=True, evictable=False)
        one.set_size(0)
        assert (listed(one), one.size()["desiredSize"]) == (["RUNNING"] * 3, 0)


def test_disposable_machines_are_replaced_at_the_next_resize(clock: StepClock) -> None:
    with pool(clock, pool=document(forgetDelay="1h")) as one:
        one.set_membership(ids(one)[0], active=False, evictable=True)
        assert listed(one) == ["RUNNING"] * 3
        clock.advance(60)
        assert listed(one) == ["TERMINATED", "RUNNING", "RUNNING", "RUNNING"]


def test_machines_that_await_service_are_replaced_and_kept(clock: StepClock) -> None:
    with pool(clock) as one:
        one.set_membership(ids(one)[0], active=False, evictable=False)
        clock.advance(60)
        assert listed(one) == ["RUNNING"] * 4
        assert one.size()["active"] == 3


def test_a_termination_without_decrement_is_replaced(clock: StepClock) -> None:
    with pool(clock, pool=document(forgetDelay="1h")) as one:
        one.terminate(ids(one)[0], decrement=False)
        clock.advance(60)
        assert listed(one) == ["TERMINATED", "RUNNING", "RUNNING", "RUNNING"]


def test_a_size_that_was_never_set_is_the_number_of_active_machines(clock: StepClock) -> None:
    with pool(clock, desired_size=None) as one:
        assert one.size()["desiredSize"] == 0


def test_the_view_is_as_old_as_the_interval_and_says_so(clock: StepClock) -> None:
    with pool(clock, refresh_interval=30) as one:
        machine = ids(one)[0]
        one.terminate(machine, decrement=True)
        clock.advance(29)
        assert (one.pool()["timestamp"], listed(one)) == ("2024-05-01T12:00:00.000Z", ["RUNNING"] * 3)
        clock.advance(1)
        assert (one.pool()["timestamp"], listed(one)[0]) == ("2024-05-01T12:00:30.000Z", "TERMINATED")


@pytest.mark.parametrize(("second", "answer"), [("error", CloudError), ("ok", None)])
def test_a_second_termination_within_the_cached_view(
    second: str, answer: type[Exception] | None, clock: StepClock
) -> None:
    with pool(clock, refresh_interval=30, second_termination=second) as one:
        machine = ids(one)[0]
        one.terminate(machine, decrement=True)
        if answer:
            with pytest.raises(answer):
                one.terminate(machine, decrement=True)
            assert one.size()["desiredSize"] == 2
        else:
            one.terminate(machine, decrement=True)
            assert one.size()["desiredSize"] == 1
        clock.advance(30)
        with pytest.raises(NotFound):
            one.terminate(machine, decrement=True)


def test_a_cloud_that_is_down_is_covered_up_for_a_while(clock: StepClock) -> None:
    with pool(clock, refresh_interval=30) as one:
        one.cloud_down = True
        clock.advance(299)
        assert one.pool()["timestamp"] == "2024-05-01T12:00:00.000Z"
        clock.advance(1)
        with pytest.raises(CloudError):
            one.pool()


def test_a_restart_keeps_machines_and_configuration(clock: StepClock, tmp_path: Path) -> None:
    database = str(tmp_path / "pool.db")
    with pool(clock, database=database) as one:
        one.set_size(5)
        one.terminate(ids(one)[0], decrement=True)
        before = one.pool(), one.size(), one.config(), one.status()
    with pool(clock, database=database, desired_size=1) as one:
        assert (one.pool(), one.size(), one.config(), one.status()) == before


def stopped_and_started(one: Pool) -> None:
    one.stop()
    one.start()


#: what makes the pool forget its desired size
FORGETTING: dict[str, Callable[[Pool], None]] = {
    "a stop": stopped_and_started,
    "a configuration": lambda one: one.set_config({"name": "pool", "quota": 3}),
}


@pytest.mark.parametrize("by", FORGETTING)
def test_a_desired_size_is_forgotten_and_derived_from_the_active_machines(by: str, clock: StepClock) -> None:
    with pool(clock, pool=document(quota=3), refresh_interval=30) as one:
        one.set_size(9)
        assert one.size()["desiredSize"] == 9
        FORGETTING[by](one)
        assert one.size()["desiredSize"] == 3


def test_a_restart_forgets_the_desired_size(clock: StepClock, tmp_path: Path) -> None:
    database = str(tmp_path / "pool.db")
    with pool(clock, database=database, pool=document(quota=3)) as one:
        one.set_size(9)
    with pool(clock, database=database) as one:
        assert one.size()["desiredSize"] == 3


def test_an_update_refreshes_the_view_and_then_acts(clock: StepClock) -> None:
    """What it launches is missing in the view until the next refresh, although the view is from this moment."""
    with pool(clock, refresh_interval=30) as one:
        clock.advance(7)
        one.set_size(4)
        assert (one.pool()["timestamp"], len(listed(one)), len(one.machines())) == ("2024-05-01T12:00:07.000Z", 3, 4)
        clock.advance(23)
        assert len(listed(one)) == 4


def test_a_timestamp_is_taken_after_the_listing(clock: StepClock) -> None:
    with pool(clock, refresh_interval=30, list_delay=5) as one:
        machine = ids(one)[0]
        clock.advance(32)
        one.terminate(machine, decrement=True)
        clock.advance(3)
        assert (one.pool()["timestamp"], listed(one)[0]) == ("2024-05-01T12:00:35.000Z", "RUNNING")


@pytest.mark.parametrize(("policy", "left"), [("NEWEST", [0, 1]), ("OLDEST", [2, 3])])
def test_a_resize_chooses_by_the_policy(policy: str, left: list[int], clock: StepClock) -> None:
    with pool(clock, pool=document(victimSelectionPolicy=policy), desired_size=2) as one:
        clock.advance(60)
        one.set_size(4)
        clock.advance(60)
        one.set_size(2)
        assert [listed(one)[index] for index in left] == ["RUNNING", "RUNNING"]
        assert [ended.by_resize for ended in one.terminations] == [True, True]


def test_sizes_are_read_and_set_while_machines_start(clock: StepClock) -> None:
    """The second size is worked towards when the first start has ended: by then there is a machine more."""
    slow = document(startBlocks="120s", victimSelectionPolicy="OLDEST")
    with pool(clock, pool=slow, refresh_interval=30) as one:
        clock.advance(10)
        one.set_size(4)
        assert one.size()["active"] == 3
        one.set_size(3)
        clock.advance(119)
        assert ([ended.machine for ended in one.terminations], one.size()["desiredSize"]) == ([], 3)
        clock.advance(1)
        assert [machine.state(clock.now()) for machine in one.machines()].count("TERMINATED") == 1
        assert (one.machines()[3].state(clock.now()), one.size()["desiredSize"]) == ("RUNNING", 3)


def test_a_termination_waits_until_machines_have_started(clock: StepClock) -> None:
    with pool(clock, pool=document(startBlocks="120s", endBlocks="60s"), refresh_interval=30) as one:
        clock.advance(10)
        one.set_size(4)
        one.terminate(ids(one)[0], decrement=True)
        assert ((clock.now() - START).total_seconds(), one.size()["desiredSize"]) == (190.0, 3)


@pytest.mark.parametrize("replaced", [True, False])
def test_a_termination_that_fails_after_the_deed_loses_its_decrement(*, replaced: bool, clock: StepClock) -> None:
    """The next update launches a replacement, unless it is terminated again before."""
    with pool(clock, refresh_interval=30, second_termination="ok") as one:
        machine = ids(one)[0]
        one.failing_terminations = 1
        with pytest.raises(CloudError, match="failed to terminate"):
            one.terminate(machine, decrement=True)
        assert one.size()["desiredSize"] == 3
        if not replaced:
            one.terminate(machine, decrement=True)
        clock.advance(90)
        assert (one.size()["desiredSize"], len(one.machines())) == ((3, 4) if replaced else (2, 3))


def test_who_ended_with_which_pods_is_kept(clock: StepClock) -> None:
    with pool(clock) as one:
        one.pods_on = lambda node: [f"default/of-{node}"]
        one.save(one.machines()[0], joined=True)
        one.terminate(ids(one)[0], decrement=True)
        assert one.terminations == [Termination("pool-1", START, by_resize=False, pods=("default/of-pool-1",))]


#: fact: (method, path, content type, body, status, whether the API's form of an error comes back)
WIRE: dict[str, tuple[str, str, str, str, int, bool]] = {
    "an unknown path": ("GET", "/nowhere", "", "", 404, False),
    "a method that a path has not": ("DELETE", "/pool", "", "", 405, False),
    "a body of another type": ("POST", "/pool/size", "text/plain", "{}", 415, False),
    "a body without a type": ("POST", "/pool/size", "", "{}", 415, False),
    "no JSON": ("POST", "/pool/size", "application/json", "{", 400, True),
    "a size below zero": ("POST", "/pool/size", "application/json", '{"desiredSize": -1}', 400, True),
    "a size that is no number": ("POST", "/pool/size", "application/json", '{"desiredSize": "1"}', 400, True),
    "no machine": ("POST", "/pool/terminate", "application/json", "{}", 400, True),
    "a machine that is none": ("POST", "/pool/terminate", "application/json", '{"machineId": "x"}', 404, True),
    "a service state that is none": (
        "POST",
        "/pool/serviceState",
        "application/json; charset=utf-8",
        '{"machineId": "x", "serviceState": "FINE"}',
        500,
        True,
    ),
}


@pytest.mark.parametrize("fact", WIRE)
def test_errors_on_the_wire(fact: str, clock: StepClock) -> None:
    method, path, kind, body, status, formed = WIRE[fact]
    headers = {"content-type": kind} if kind else {}
    with serving(settings(), clock) as server:
        answer = httpx.request(method, server.url + path, content=body, headers=headers, timeout=60)
        assert answer.status_code == status
        assert (list(answer.json()) == ["message", "detail"]) if formed else ("message" not in answer.text)


def test_successes_on_the_wire(clock: StepClock) -> None:
    with serving(settings(), clock) as server:
        posted = httpx.post(f"{server.url}/pool/size", json={"desiredSize": 4}, timeout=60)
        assert (posted.status_code, posted.content) == (200, b"")
        answer = httpx.get(f"{server.url}/pool", timeout=60)
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["date"] == START.strftime("%a, %d %b %Y %H:%M:%S GMT")
        assert answer.text.startswith('{\n  "timestamp": "2024-05-01T12:00:00.000Z",\n  "machines": [\n')
        assert "null" not in answer.text


def test_a_size_that_is_left_out_empties_the_pool(clock: StepClock) -> None:
    with serving(settings(), clock) as server:
        assert httpx.post(f"{server.url}/pool/size", json={}, timeout=60).status_code == 200
        assert server.pool.size()["desiredSize"] == 0


def test_the_multipool_lists_its_instance_and_has_no_machines_below_pool(clock: StepClock) -> None:
    with serving(settings(api="multipool"), clock) as server:
        assert httpx.get(server.url.removesuffix("/pool"), timeout=60).json() == [server.url]
        wrong = httpx.post(f"{server.url}/pool/terminate", json={"machineId": "x"}, timeout=60)
        assert (wrong.status_code, wrong.text) == (404, "Not Found")


def test_it_is_broken_on_demand_where_that_is_allowed(clock: StepClock) -> None:
    with serving(settings(), clock) as server:
        assert httpx.post(f"{server.url}/-/cloud", json={"down": True}, timeout=60).status_code == 404
    with serving(settings(admin=True), clock) as server:
        assert httpx.post(f"{server.url}/-/cloud", json={"down": True}, timeout=60).status_code == 200
        assert server.pool.cloud_down
        fault = {"path": "/pool", "method": "GET", "status": 418}
        assert httpx.post(f"{server.url}/-/faults", json=fault, timeout=60).status_code == 200
        assert httpx.get(f"{server.url}/pool", timeout=60).status_code == 418


@pytest.mark.parametrize("kind", ["reset", "hang"])
def test_broken_connections(kind: Any, clock: StepClock) -> None:
    with serving(settings(), clock) as server:
        server.face.inject(Fault(path="/pool/size", kind=kind, acted=True))
        with pytest.raises(httpx.TransportError):
            httpx.post(f"{server.url}/pool/size", json={"desiredSize": 4}, timeout=httpx.Timeout(60, read=0.5))
        eventually(lambda: server.pool.size()["desiredSize"] == 4)


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The server as a process of its own, and its URL."""
    command = [sys.executable, "-m", "deploy.local.cloudpool", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield child, child.stdout.readline().strip()
        finally:
            child.kill()


def test_a_process_that_is_killed_and_started_again(tmp_path: Path) -> None:
    config = tmp_path / "pool.yaml"
    config.write_text("pool: {name: demo}\ndesiredSize: 2\nrefreshInterval: 0s\n")
    arguments = ["--config", str(config), "--without-cluster", "--database", str(tmp_path / "pool.db")]
    with process(*arguments) as (child, url):
        httpx.post(f"{url}/pool/size", json={"desiredSize": 4}, timeout=60).raise_for_status()
        before = httpx.get(f"{url}/pool", timeout=60).json()
        child.send_signal(signal.SIGKILL)
    with process(*arguments) as (child, url):
        after = httpx.get(f"{url}/pool", timeout=60).json()
        assert [machine["id"] for machine in after["machines"]] == [machine["id"] for machine in before["machines"]]
        assert len(after["machines"]) == 4
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=120) == 0


#: fact: (arguments after --config, content of the file, what is said)
MISUSE = {
    "no cluster and none wanted": ([], "{}", "Error: expected one of --kubeconfig FILE and --without-cluster"),
    "no kubeconfig": (["--kubeconfig=/nowhere"], "{}", "Invalid kube-config file. No configuration found."),
    "an unknown key": (["--without-cluster"], "pools: 1", "Object contains unknown field `pools`"),
    "a file that is none": (["--without-cluster"], None, "cannot be read: No such file or directory"),
}


@pytest.mark.parametrize("fact", MISUSE)
def test_misuse(fact: str, tmp_path: Path) -> None:
    arguments, content, said = MISUSE[fact]
    config = tmp_path / "pool.yaml"
    if content is not None:
        config.write_text(content)
    with process("--config", str(config), *arguments) as (child, _):
        _, errors = child.communicate(timeout=120)
    assert (child.returncode, errors.strip().splitlines()[-1].endswith(said)) == (2, True)
    assert "Traceback" not in errors


def test_states_are_json_of_the_documented_fields(clock: StepClock) -> None:
    with pool(clock, desired_size=1) as one:
        (machine,) = json.loads(json.dumps(one.pool()))["machines"]
        assert machine == {
            "id": ids(one)[0],
            "machineState": "RUNNING",
            "membershipStatus": {"active": True, "evictable": True},
            "serviceState": "UNKNOWN",
            "cloudProvider": "AWS-EC2",
            "region": "eu-north-1a",
            "machineSize": "m5.large",
            "requestTime": "2024-05-01T12:00:00.000Z",
            "launchTime": "2024-05-01T12:00:00.000Z",
            "publicIps": [],
            "privateIps": ["10.77.0.2"],
            "metadata": {"instanceId": ids(one)[0], "placement": {"availabilityZone": "eu-north-1a"}},
        }
