"""The reference cloudpool behaves like elastisys' server: states, sizes, caches, restarts."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

from devcluster.cloudpool.__main__ import main
from devcluster.cloudpool.errors import CloudError, ResourceNotFound
from devcluster.cloudpool.pool import ReferencePool
from devcluster.cloudpool.state import Termination
from devcluster.standin.faults import Fault
from tests.cluster.waiting import eventually
from tests.providers.clocks import START, StepClock
from tests.providers.cloudpools import document, serving, settings

SLOW = {"requestDelay": "10s", "launchDelay": "20s", "terminationDelay": "5s", "forgetDelay": "60s"}


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@contextmanager
def pool(clock: StepClock, **changes: Any) -> Iterator[ReferencePool]:
    created = ReferencePool(settings(**{"refresh_interval": 0, **changes}), clock)
    try:
        yield created
    finally:
        created.close()


def listed(cloudpool: ReferencePool) -> list[str]:
    return [machine["machineState"] for machine in cloudpool.pool()["machines"]]


def ids(cloudpool: ReferencePool) -> list[str]:
    return [machine["id"] for machine in cloudpool.pool()["machines"]]


def test_a_machine_passes_through_all_states(clock: StepClock) -> None:
    with pool(clock, pool=document(**SLOW), desired_size=1) as cloudpool:
        seen = []
        for seconds in (0, 9, 1, 19, 1):
            clock.advance(seconds)
            seen.append(listed(cloudpool))
        assert seen == [["REQUESTED"], ["REQUESTED"], ["PENDING"], ["PENDING"], ["RUNNING"]]
        cloudpool.terminate(ids(cloudpool)[0], decrement=True)
        seen = []
        for seconds in (0, 5, 59, 1):
            clock.advance(seconds)
            seen.append(listed(cloudpool))
        assert seen == [["TERMINATING"], ["TERMINATED"], ["TERMINATED"], []]


def test_requests_beyond_the_quota_are_rejected(clock: StepClock) -> None:
    with pool(clock, pool=document(quota=2)) as cloudpool:
        assert listed(cloudpool) == ["RUNNING", "RUNNING", "REJECTED"]
        assert cloudpool.size() == {
            "timestamp": "2024-05-01T12:00:00.000Z",
            "desiredSize": 3,
            "allocated": 2,
            "active": 2,
        }


def test_shrinking_takes_requests_first_then_the_newest(clock: StepClock) -> None:
    with pool(clock, pool=document(requestDelay="10s"), desired_size=1) as cloudpool:
        clock.advance(10)
        cloudpool.set_size(2)
        clock.advance(10)
        cloudpool.set_size(3)
        cloudpool.set_size(1)
        assert listed(cloudpool) == ["RUNNING", "TERMINATED", "TERMINATED"]


def test_shrinking_spares_the_protected(clock: StepClock) -> None:
    with pool(clock) as cloudpool:
        for machine in ids(cloudpool):
            cloudpool.set_membership(machine, active=True, evictable=False)
        cloudpool.set_size(0)
        assert (listed(cloudpool), cloudpool.size()["desiredSize"]) == (["RUNNING"] * 3, 0)


def test_disposable_machines_are_replaced_at_the_next_resize(clock: StepClock) -> None:
    with pool(clock, pool=document(forgetDelay="1h")) as cloudpool:
        cloudpool.set_membership(ids(cloudpool)[0], active=False, evictable=True)
        assert listed(cloudpool) == ["RUNNING"] * 3
        clock.advance(60)
        assert listed(cloudpool) == ["TERMINATED", "RUNNING", "RUNNING", "RUNNING"]


def test_machines_that_need_service_are_replaced_and_kept(clock: StepClock) -> None:
    with pool(clock) as cloudpool:
        cloudpool.set_membership(ids(cloudpool)[0], active=False, evictable=False)
        clock.advance(60)
        assert listed(cloudpool) == ["RUNNING"] * 4
        assert cloudpool.size()["active"] == 3


def test_a_termination_without_decrement_is_replaced(clock: StepClock) -> None:
    with pool(clock, pool=document(forgetDelay="1h")) as cloudpool:
        cloudpool.terminate(ids(cloudpool)[0], decrement=False)
        clock.advance(60)
        assert listed(cloudpool) == ["TERMINATED", "RUNNING", "RUNNING", "RUNNING"]


def test_the_default_size_is_the_number_of_active_machines(clock: StepClock) -> None:
    with pool(clock, desired_size=None) as cloudpool:
        assert cloudpool.size()["desiredSize"] == 0


def test_the_view_is_as_old_as_the_interval_and_has_its_timestamp(clock: StepClock) -> None:
    with pool(clock, refresh_interval=30) as cloudpool:
        machine = ids(cloudpool)[0]
        cloudpool.terminate(machine, decrement=True)
        clock.advance(29)
        assert (cloudpool.pool()["timestamp"], listed(cloudpool)) == ("2024-05-01T12:00:00.000Z", ["RUNNING"] * 3)
        clock.advance(1)
        assert (cloudpool.pool()["timestamp"], listed(cloudpool)[0]) == ("2024-05-01T12:00:30.000Z", "TERMINATED")


@pytest.mark.parametrize(("second", "answer"), [("error", CloudError), ("ok", None)])
def test_the_cloud_determines_whether_a_second_termination_fails(
    second: str, answer: type[Exception] | None, clock: StepClock
) -> None:
    with pool(clock, refresh_interval=30, second_termination=second) as cloudpool:
        machine = ids(cloudpool)[0]
        cloudpool.terminate(machine, decrement=True)
        if answer:
            with pytest.raises(answer):
                cloudpool.terminate(machine, decrement=True)
            assert cloudpool.size()["desiredSize"] == 2
        else:
            cloudpool.terminate(machine, decrement=True)
            assert cloudpool.size()["desiredSize"] == 1
        clock.advance(30)
        with pytest.raises(ResourceNotFound):
            cloudpool.terminate(machine, decrement=True)


def test_a_short_outage_of_the_cloud_is_hidden(clock: StepClock) -> None:
    with pool(clock, refresh_interval=30) as cloudpool:
        cloudpool.cloud_down = True
        clock.advance(299)
        assert cloudpool.pool()["timestamp"] == "2024-05-01T12:00:00.000Z"
        clock.advance(1)
        with pytest.raises(CloudError):
            cloudpool.pool()


def test_a_restart_keeps_machines_and_configuration(clock: StepClock, tmp_path: Path) -> None:
    database = str(tmp_path / "pool.db")
    with pool(clock, database=database) as cloudpool:
        cloudpool.set_size(5)
        cloudpool.terminate(ids(cloudpool)[0], decrement=True)
        before = cloudpool.pool(), cloudpool.size(), cloudpool.config(), cloudpool.status()
    with pool(clock, database=database, desired_size=1) as cloudpool:
        assert (cloudpool.pool(), cloudpool.size(), cloudpool.config(), cloudpool.status()) == before


def stopped_and_started(pool: ReferencePool) -> None:
    pool.stop()
    pool.start()


#: events after which the pool loses its desired size
FORGETTING: dict[str, Callable[[ReferencePool], None]] = {
    "a stop": stopped_and_started,
    "a configuration": lambda cloudpool: cloudpool.set_config({"name": "pool", "quota": 3}),
}


@pytest.mark.parametrize("event", FORGETTING)
def test_a_lost_desired_size_is_derived_from_the_active_machines(event: str, clock: StepClock) -> None:
    with pool(clock, pool=document(quota=3), refresh_interval=30) as cloudpool:
        cloudpool.set_size(9)
        assert cloudpool.size()["desiredSize"] == 9
        FORGETTING[event](cloudpool)
        assert cloudpool.size()["desiredSize"] == 3


def test_a_restart_loses_the_desired_size(clock: StepClock, tmp_path: Path) -> None:
    database = str(tmp_path / "pool.db")
    with pool(clock, database=database, pool=document(quota=3)) as cloudpool:
        cloudpool.set_size(9)
    with pool(clock, database=database) as cloudpool:
        assert cloudpool.size()["desiredSize"] == 3


def test_an_update_refreshes_the_view_and_then_acts(clock: StepClock) -> None:
    """Machines that it launches are missing in the view until the next refresh, although the view is current."""
    with pool(clock, refresh_interval=30) as cloudpool:
        clock.advance(7)
        cloudpool.set_size(4)
        assert (cloudpool.pool()["timestamp"], len(listed(cloudpool)), len(cloudpool.machines())) == (
            "2024-05-01T12:00:07.000Z",
            3,
            4,
        )
        clock.advance(23)
        assert len(listed(cloudpool)) == 4


def test_a_timestamp_is_taken_after_the_listing(clock: StepClock) -> None:
    with pool(clock, refresh_interval=30, list_delay=5) as cloudpool:
        machine = ids(cloudpool)[0]
        clock.advance(32)
        cloudpool.terminate(machine, decrement=True)
        clock.advance(3)
        assert (cloudpool.pool()["timestamp"], listed(cloudpool)[0]) == ("2024-05-01T12:00:35.000Z", "RUNNING")


@pytest.mark.parametrize(("policy", "remaining"), [("NEWEST", [0, 1]), ("OLDEST", [2, 3])])
def test_a_resize_selects_victims_by_the_policy(policy: str, remaining: list[int], clock: StepClock) -> None:
    with pool(clock, pool=document(victimSelectionPolicy=policy), desired_size=2) as cloudpool:
        clock.advance(60)
        cloudpool.set_size(4)
        clock.advance(60)
        cloudpool.set_size(2)
        assert [listed(cloudpool)[index] for index in remaining] == ["RUNNING", "RUNNING"]
        assert [ended.by_resize for ended in cloudpool.terminations] == [True, True]


def test_sizes_are_read_and_set_while_machines_start(clock: StepClock) -> None:
    """The second size is processed after the first start; by then one more machine runs."""
    slow = document(startBlocks="120s", victimSelectionPolicy="OLDEST")
    with pool(clock, pool=slow, refresh_interval=30) as cloudpool:
        clock.advance(10)
        cloudpool.set_size(4)
        assert cloudpool.size()["active"] == 3
        cloudpool.set_size(3)
        clock.advance(119)
        assert ([ended.machine for ended in cloudpool.terminations], cloudpool.size()["desiredSize"]) == ([], 3)
        clock.advance(1)
        assert [machine.state(clock.now()) for machine in cloudpool.machines()].count("TERMINATED") == 1
        assert (cloudpool.machines()[3].state(clock.now()), cloudpool.size()["desiredSize"]) == ("RUNNING", 3)


def test_a_termination_waits_until_machines_have_started(clock: StepClock) -> None:
    with pool(clock, pool=document(startBlocks="120s", endBlocks="60s"), refresh_interval=30) as cloudpool:
        clock.advance(10)
        cloudpool.set_size(4)
        cloudpool.terminate(ids(cloudpool)[0], decrement=True)
        assert ((clock.now() - START).total_seconds(), cloudpool.size()["desiredSize"]) == (190.0, 3)


@pytest.mark.parametrize("replaced", [True, False])
def test_a_termination_that_fails_late_loses_its_decrement(*, replaced: bool, clock: StepClock) -> None:
    """The next update launches a replacement, unless the machine is terminated again before."""
    with pool(clock, refresh_interval=30, second_termination="ok") as cloudpool:
        machine = ids(cloudpool)[0]
        cloudpool.failing_terminations = 1
        with pytest.raises(CloudError, match="failed to terminate"):
            cloudpool.terminate(machine, decrement=True)
        assert cloudpool.size()["desiredSize"] == 3
        if not replaced:
            cloudpool.terminate(machine, decrement=True)
        clock.advance(90)
        assert (cloudpool.size()["desiredSize"], len(cloudpool.machines())) == ((3, 4) if replaced else (2, 3))


def test_terminations_and_their_pods_are_recorded(clock: StepClock) -> None:
    with pool(clock) as cloudpool:
        cloudpool.pods_on = lambda node: [f"default/of-{node}"]
        cloudpool.save(cloudpool.machines()[0], joined=True)
        cloudpool.terminate(ids(cloudpool)[0], decrement=True)
        assert cloudpool.terminations == [Termination("pool-1", START, by_resize=False, pods=("default/of-pool-1",))]


#: fact: (method, path, content type, body, status, whether the response has the API's error format)
WIRE: dict[str, tuple[str, str, str, str, int, bool]] = {
    "an unknown path": ("GET", "/nowhere", "", "", 404, False),
    "a method that a path does not support": ("DELETE", "/pool", "", "", 405, False),
    "a body of another type": ("POST", "/pool/size", "text/plain", "{}", 415, False),
    "a body without a type": ("POST", "/pool/size", "", "{}", 415, False),
    "not JSON": ("POST", "/pool/size", "application/json", "{", 400, True),
    "a size below zero": ("POST", "/pool/size", "application/json", '{"desiredSize": -1}', 400, True),
    "a size that is not a number": ("POST", "/pool/size", "application/json", '{"desiredSize": "1"}', 400, True),
    "no machine": ("POST", "/pool/terminate", "application/json", "{}", 400, True),
    "an unknown machine": ("POST", "/pool/terminate", "application/json", '{"machineId": "x"}', 404, True),
    "an unknown service state": (
        "POST",
        "/pool/serviceState",
        "application/json; charset=utf-8",
        '{"machineId": "x", "serviceState": "FINE"}',
        500,
        True,
    ),
}


@pytest.mark.parametrize("fact", WIRE)
def test_errors_have_the_format_of_the_api(fact: str, clock: StepClock) -> None:
    method, path, kind, body, status, formed = WIRE[fact]
    headers = {"content-type": kind} if kind else {}
    with serving(settings(), clock) as server:
        answer = httpx2.request(method, server.url + path, content=body, headers=headers, timeout=60)
        assert answer.status_code == status
        assert (list(answer.json()) == ["message", "detail"]) if formed else ("message" not in answer.text)


def test_successful_responses_have_the_format_of_the_api(clock: StepClock) -> None:
    with serving(settings(), clock) as server:
        posted = httpx2.post(f"{server.url}/pool/size", json={"desiredSize": 4}, timeout=60)
        assert (posted.status_code, posted.content) == (200, b"")
        answer = httpx2.get(f"{server.url}/pool", timeout=60)
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["date"] == START.strftime("%a, %d %b %Y %H:%M:%S GMT")
        assert answer.text.startswith('{\n  "timestamp": "2024-05-01T12:00:00.000Z",\n  "machines": [\n')
        assert "null" not in answer.text


def test_a_missing_size_empties_the_pool(clock: StepClock) -> None:
    with serving(settings(), clock) as server:
        assert httpx2.post(f"{server.url}/pool/size", json={}, timeout=60).status_code == 200
        assert server.pool.size()["desiredSize"] == 0


def test_the_multipool_lists_its_instance_and_has_no_machines_below_pool(clock: StepClock) -> None:
    with serving(settings(api="multipool"), clock) as server:
        assert httpx2.get(server.url.removesuffix("/pool"), timeout=60).json() == [server.url]
        wrong = httpx2.post(f"{server.url}/pool/terminate", json={"machineId": "x"}, timeout=60)
        assert (wrong.status_code, wrong.text) == (404, "Not Found")


def test_faults_can_be_injected_if_allowed(clock: StepClock) -> None:
    with serving(settings(), clock) as server:
        assert httpx2.post(f"{server.url}/-/cloud", json={"down": True}, timeout=60).status_code == 404
    with serving(settings(admin=True), clock) as server:
        assert httpx2.post(f"{server.url}/-/cloud", json={"down": True}, timeout=60).status_code == 200
        assert server.pool.cloud_down
        fault = {"path": "/pool", "method": "GET", "status": 418}
        assert httpx2.post(f"{server.url}/-/faults", json=fault, timeout=60).status_code == 200
        assert httpx2.get(f"{server.url}/pool", timeout=60).status_code == 418


@pytest.mark.parametrize("kind", ["reset", "hang"])
def test_a_request_may_take_effect_although_its_connection_breaks(kind: Any, clock: StepClock) -> None:
    with serving(settings(), clock) as server:
        server.faulty_app.inject(Fault(path="/pool/size", kind=kind, acted=True))
        with pytest.raises(httpx2.TransportError):
            httpx2.post(f"{server.url}/pool/size", json={"desiredSize": 4}, timeout=httpx2.Timeout(60, read=0.5))
        eventually(lambda: server.pool.size()["desiredSize"] == 4)


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the server as a process and return its URL."""
    command = [sys.executable, "-m", "devcluster.cloudpool", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield child, child.stdout.readline().strip()
        finally:
            child.kill()


def test_a_killed_process_restarts_with_its_state(tmp_path: Path) -> None:
    config = tmp_path / "pool.yaml"
    config.write_text("pool: {name: demo}\ndesiredSize: 2\nrefreshInterval: 0s\n")
    arguments = ["--config", str(config), "--without-cluster", "--database", str(tmp_path / "pool.db")]
    with process(*arguments) as (child, url):
        httpx2.post(f"{url}/pool/size", json={"desiredSize": 4}, timeout=60).raise_for_status()
        before = httpx2.get(f"{url}/pool", timeout=60).json()
        child.send_signal(signal.SIGKILL)
    with process(*arguments) as (child, url):
        after = httpx2.get(f"{url}/pool", timeout=60).json()
        assert [machine["id"] for machine in after["machines"]] == [machine["id"] for machine in before["machines"]]
        assert len(after["machines"]) == 4
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=120) == 0


#: fact: (arguments after --config, content of the file, message)
MISUSE = {
    "neither a cluster nor --without-cluster": (
        [],
        "{}",
        "Error: expected one of --kubeconfig FILE and --without-cluster",
    ),
    "an unknown key": (["--without-cluster"], "pools: 1", "Object contains unknown field `pools`; did you mean pool?"),
    "a missing file": (["--without-cluster"], None, "cannot be read: No such file or directory"),
}


@pytest.mark.parametrize("fact", MISUSE)
def test_misuse_is_reported_in_one_line(fact: str, tmp_path: Path) -> None:
    arguments, content, message = MISUSE[fact]
    config = tmp_path / "pool.yaml"
    if content is not None:
        config.write_text(content)
    done = CliRunner().invoke(main, ["--config", str(config), *arguments])
    assert (done.exit_code, done.output.strip().splitlines()[-1].endswith(message)) == (2, True)


def test_a_missing_kubeconfig_is_reported_in_one_line(tmp_path: Path) -> None:
    config = tmp_path / "pool.yaml"
    config.write_text("{}")
    with process("--config", str(config), "--kubeconfig=/nowhere") as (child, _):
        _, errors = child.communicate(timeout=120)
    assert (child.returncode, errors) == (2, "Error: Invalid kube-config file. No configuration found.\n")


def test_states_are_json_of_the_documented_fields(clock: StepClock) -> None:
    with pool(clock, desired_size=1) as cloudpool:
        (machine,) = json.loads(json.dumps(cloudpool.pool()))["machines"]
        assert machine == {
            "id": ids(cloudpool)[0],
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
            "metadata": {"instanceId": ids(cloudpool)[0], "placement": {"availabilityZone": "eu-north-1a"}},
        }
