"""Tests of peerings, with liqoctl as a real program, and of its callers."""

import datetime as dt
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rescheduler.errors import Conflict, UsageError
from rescheduler.liqo.node_manager.catalog import RemoteCluster
from rescheduler.liqo.node_manager.liqoctl import Liqoctl, PeeringFailed, Tool
from rescheduler.liqo.node_manager.service import NoCapacity
from rescheduler.liqo.node_manager.upkeep import Peering
from tests.cluster.waiting import alive, eventually
from tests.liqo_services.builders import Bench, cluster
from tests.liqo_services.kubeconfigs import kubeconfig

TOKEN = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjAxMjM0NTY3ODkwMTIzNDU2Nzg5In0.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl"
ROME = cluster("rome", kubeconfig=kubeconfig())

#: Records its arguments and the content of its file.
RECORDING = """
for one in "$@"; do case "$one" in --remote-kubeconfig=*) file="${one#*=}";; esac; done
stat -c %a "$file" > "$0.mode"
cp "$file" "$0.config"
for one in "$@"; do echo "$one"; done > "$0.arguments"
env > "$0.environment"
echo call >> "$0.calls"
"""
SLOW = """
sleep 600 & echo $! > "$0.child"
wait
"""


class Script:
    """A scripted liqoctl, with its files in the same folder."""

    def __init__(self, folder: Path) -> None:
        self.path, self.state = folder / "liqoctl", folder / "state"
        self.does(RECORDING)

    def does(self, body: str) -> None:
        self.path.write_text(f"#!/bin/sh\n{body}")
        self.path.chmod(0o755)

    def wrote(self, name: str) -> list[str]:
        file = self.path.with_name(f"liqoctl.{name}")
        return file.read_text().splitlines() if file.exists() else []

    def tool(self, timeout: float = 60, **fields: object) -> Liqoctl:
        return Liqoctl(Tool(str(self.path), self.state, timeout=timeout, **fields))  # type: ignore[arg-type]

    def left(self) -> list[Path]:
        return list((self.state / "kubeconfigs").iterdir())


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def test_a_peering_is_established_with_arguments_and_a_private_file(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCHEDULER_ANYTHING", "ours")
    tool = script.tool(kubeconfig="/local", context="here", namespace="liqo2", arguments=("--gw-client-port=1",))
    tool.peer(ROME)
    verb, remote, *others = script.wrote("arguments")
    assert (verb, remote.partition("=")[0]) == ("peer", "--remote-kubeconfig")
    assert others == [
        "--namespace=liqo2",
        "--skip-confirm",
        "--kubeconfig=/local",
        "--context=here",
        "--create-resource-slice=false",
        "--timeout=60s",
        "--gw-client-port=1",
    ]
    assert script.wrote("mode") == ["600"]
    assert "\n".join(script.wrote("config")) + "\n" == ROME.kubeconfig
    assert not [line for line in script.wrote("environment") if line.startswith("RESCHEDULER_")]
    assert script.left() == []


def test_a_cluster_behind_a_nat_has_the_gateway_on_our_side(script: Script) -> None:
    script.tool().peer(cluster("rome", kubeconfig=kubeconfig(), has_nat=True))
    assert script.wrote("arguments")[-2:] == ["--gw-server-service-location", "Consumer"]


def test_a_peering_is_ended(script: Script) -> None:
    script.tool().unpeer(ROME)
    assert [argument for argument in script.wrote("arguments") if "remote" not in argument] == [
        "unpeer",
        "--namespace=liqo",
        "--skip-confirm",
        "--timeout=60s",
    ]


ARGUMENTS = ("--networking-disabled", "--mtu", "1300", "--gw-client-address=10.0.0.1", "--wait=false", "--user=me")


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        ("peer", ["--networking-disabled", "--mtu", "1300", "--gw-client-address=10.0.0.1", "--user=me"]),
        ("unpeer", ["--wait=false", "--user=me"]),
    ],
)
def test_further_arguments_are_passed_to_commands_that_support_them(
    script: Script, verb: str, expected: list[str]
) -> None:
    """An unknown flag is rejected: flags of peer alone must not prevent an unpeering."""
    tool = script.tool(arguments=ARGUMENTS)
    (tool.peer if verb == "peer" else tool.unpeer)(ROME)
    assert script.wrote("arguments")[-len(expected) - 1 :] == ["--timeout=60s", *expected]


def test_failures_are_reported_without_secrets(script: Script) -> None:
    script.does(f'printf "\\033[31mERRO\\033[0m\\n  cannot log in with {TOKEN}\\n\\n"; exit 3')
    with pytest.raises(PeeringFailed) as failure:
        script.tool().peer(ROME)
    assert str(failure.value) == "liqoctl peer for cluster rome exited with 3: cannot log in with ***"


def test_short_and_truncated_credentials_are_masked(script: Script) -> None:
    user = {"username": "me", "password": "sesame", "nested": [{"token": "barley"}]}
    config = kubeconfig(user, {"proxy-url": "http://proxy:oats@proxy.example"})
    script.does(f"echo me sesame barley http://proxy:oats@proxy.example {'x ' * 140}{TOKEN}; exit 3")
    with pytest.raises(PeeringFailed) as failure:
        script.tool().peer(cluster("rome", kubeconfig=config))
    message = str(failure.value)
    assert "exited with 3: *** *** *** *** x x" in message
    assert not any(secret in message for secret in ("sesame", "barley", "oats", TOKEN[:5]))
    assert script.left() == []


def test_a_timeout_kills_the_process_and_its_children(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rescheduler.liqo.node_manager.liqoctl._SPARE_SECONDS", 0.0)
    script.does(SLOW)
    with pytest.raises(PeeringFailed, match="liqoctl peer for cluster rome timed out"):
        script.tool(timeout=5).peer(ROME)
    eventually(lambda: not any(alive(int(child)) for child in script.wrote("child")))
    assert script.left() == []


def test_running_commands_are_terminated_at_the_stop(script: Script) -> None:
    script.does(SLOW)
    tool = script.tool()
    failures: list[str] = []

    def peer() -> None:
        try:
            tool.peer(ROME)
        except PeeringFailed as error:
            failures.append(str(error))

    thread = threading.Thread(target=peer)
    thread.start()
    eventually(lambda: script.wrote("child"))
    tool.close()
    thread.join(60)
    assert failures == ["liqoctl peer for cluster rome exited with -15"]
    eventually(lambda: not any(alive(int(child)) for child in script.wrote("child")))
    assert script.left() == []
    with pytest.raises(PeeringFailed, match="stopping"):
        tool.peer(ROME)


def test_a_kubeconfig_with_an_exec_plugin_is_rejected(script: Script) -> None:
    harmful = kubeconfig(user={"exec": {"command": "rm", "apiVersion": "client.authentication.k8s.io/v1"}})
    with pytest.raises(PeeringFailed, match=r"rome: kubeconfig\.users\[0\]\.user\.exec: this field is not allowed"):
        script.tool().peer(cluster("rome", kubeconfig=harmful))
    assert script.wrote("arguments") == []


def test_files_of_a_killed_process_are_removed(script: Script) -> None:
    folder = script.state / "kubeconfigs"
    folder.mkdir(parents=True)
    (folder / "left.yaml").write_text("secret")
    script.tool()
    assert script.left() == []
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_missing_program_is_a_usage_error(script: Script, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--liqoctl nothing: expected a program that can be run"):
        Liqoctl(Tool("nothing", tmp_path))


class Peered:
    """The bench with liqoctl."""

    def __init__(self, script: Script, unpeer_after: dt.timedelta | None = None) -> None:
        self.bench = Bench(ROME, draining=0)
        self.bench.liqo.peers.clear()
        self.bench.peers = True
        self.bench.restart()
        self.script = script
        self.peering = Peering(self.bench.ports, script.tool(), self.bench.upkeep, self.bench.service, unpeer_after)

    def round(self, seconds: float = 0) -> None:
        """Run a round, and wait for the work that it started."""
        self.bench.clock.advance(seconds)
        clusters = self.bench.upkeep.step()
        self.peering.establish(clusters.awaited)
        self.peering.release(clusters.used)
        eventually(self.peering.idle)

    def close(self) -> None:
        self.peering.close()
        self.bench.store.close()


@pytest.fixture
def peered(script: Script) -> Iterator[Peered]:
    bench_ = Peered(script, dt.timedelta(minutes=10))
    yield bench_
    bench_.close()


def test_the_first_machine_establishes_the_peering_and_later_ones_use_it(peered: Peered) -> None:
    bench = peered.bench
    [name] = bench.service.increase("STANDARD", 1)
    peered.round()
    peered.round()  # not visible in Liqo yet; must not be repeated
    assert (peered.script.wrote("calls"), bench.liqo.pieces) == (["call"], {})
    bench.liqo.peers.add("rome")
    peered.round()
    assert bench.liqo.names("rome") == [name]
    bench.service.increase("STANDARD", 1)
    peered.round()
    assert (len(bench.liqo.names("rome")), peered.script.wrote("calls")) == (2, ["call"])


def test_a_failed_peering_releases_the_reservations(peered: Peered) -> None:
    peered.script.does("echo no route; exit 1")
    bench = peered.bench
    bench.service.increase("STANDARD", 2)
    peered.round()
    errors = {machine.error.message for machine in bench.service.view().members("STANDARD") if machine.error}
    assert (bench.errors(), errors) == (["NO_PEERING"] * 2, {"liqoctl peer for cluster rome exited with 1: no route"})
    assert bench.store.failures()["rome"].count == 1
    peered.round(60)
    assert bench.size() == 0


def test_a_restart_during_a_peering_repeats_it(script: Script, tmp_path: Path) -> None:
    bench = Bench(ROME, database=str(tmp_path / "db"))
    bench.liqo.peers.clear()
    bench.peers = True
    bench.restart()
    [name] = bench.service.increase("STANDARD", 1)
    bench.restart()
    peering = Peering(bench.ports, script.tool(), bench.upkeep, bench.service)
    peering.establish(bench.upkeep.step().awaited)
    eventually(lambda: peering.idle() and script.wrote("calls"))
    bench.liqo.peers.add("rome")
    bench.step()
    assert bench.liqo.names("rome") == [name]
    peering.close()
    bench.store.close()


def test_a_stop_during_a_peering_fails_no_machine(script: Script, peered: Peered) -> None:
    script.does(SLOW)
    bench = peered.bench
    bench.service.increase("STANDARD", 1)
    peered.peering.establish(bench.upkeep.step().awaited)
    eventually(lambda: script.wrote("child"))
    peered.peering.close()
    assert (bench.size(), bench.errors(), bench.store.failures()) == (1, [], {})
    assert bench.upkeep.step().awaited == {"rome"}


def test_an_own_peering_without_slices_is_ended_after_a_delay(peered: Peered) -> None:
    bench = peered.bench
    [name] = bench.service.increase("STANDARD", 1)
    peered.round()
    bench.liqo.peers.add("rome")
    peered.round()
    peered.round(3600)
    bench.service.remove("STANDARD", name)
    peered.round()
    peered.round(599)
    assert peered.script.wrote("calls") == ["call"]
    peered.round(1)
    assert (peered.script.wrote("arguments")[0], bench.store.peerings()) == ("unpeer", [])


def test_an_ended_peering_can_be_established_again_at_once(script: Script) -> None:
    peered = Peered(script, dt.timedelta(seconds=10))
    bench = peered.bench
    [name] = bench.service.increase("STANDARD", 1)
    peered.round()
    bench.liqo.peers.add("rome")
    peered.round()
    bench.service.remove("STANDARD", name)
    peered.round()
    peered.round(10)
    assert (script.wrote("arguments")[0], bench.store.peerings()) == ("unpeer", [])
    bench.liqo.peers.clear()
    bench.service.increase("STANDARD", 1)
    peered.round()
    assert (script.wrote("arguments")[0], bench.store.peerings()) == ("peer", ["rome"])
    peered.close()


def test_a_cluster_whose_peering_is_ending_is_not_used(peered: Peered) -> None:
    bench = peered.bench
    bench.liqo.peers.add("rome")
    bench.store.peered("rome")
    peered.script.does(SLOW)
    bench.clock.advance(1)
    peered.peering.release(())
    bench.clock.advance(3600)
    peered.peering.release(())
    eventually(lambda: peered.script.wrote("child"))
    with pytest.raises(NoCapacity, match="rome: its peering is being ended"):
        bench.service.increase("STANDARD", 1)
    peered.peering.close()
    bench.service.increase("STANDARD", 1)
    with pytest.raises(Conflict, match="cluster rome: it is in use again"), bench.service.without_requests_to("rome"):
        pass


def test_a_foreign_peering_is_kept(peered: Peered) -> None:
    peered.bench.liqo.peers.add("rome")
    peered.round()
    peered.round(10_000)
    assert peered.script.wrote("calls") == []


def test_a_foreign_slice_keeps_a_peering(peered: Peered) -> None:
    bench = peered.bench
    bench.store.peered("rome")
    bench.liqo.add("theirs", "", "rome")
    peered.round()
    peered.round(10_000)
    assert peered.script.wrote("calls") == []


def test_a_reservation_in_a_cluster_that_is_no_longer_listed_fails(peered: Peered) -> None:
    bench = peered.bench
    bench.service.increase("STANDARD", 1)
    bench.catalog.listed = []
    peered.round()
    assert (bench.size(), bench.errors()) == (1, [])
    peered.round(900)
    assert bench.errors() == ["NOT_READY_IN_TIME"]


def test_a_cluster_is_printed_without_its_secret() -> None:
    assert "sesame" not in repr(RemoteCluster("rome", {}, kubeconfig=kubeconfig()))
