"""Peerings: liqoctl as a program that is really run, and what calls it."""

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from rescheduler.errors import Conflict, UsageError
from rescheduler.liqo.nodemanager.clusters import RemoteCluster
from rescheduler.liqo.nodemanager.liqoctl import Liqoctl, PeeringFailed, Tool
from rescheduler.liqo.nodemanager.peering import Peering
from rescheduler.liqo.nodemanager.service import NoCapacity
from tests.liqo.builders import Bench, cluster
from tests.liqo.kubeconfigs import kubeconfig

TOKEN = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjAxMjM0NTY3ODkwMTIzNDU2Nzg5In0.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl"
ROME = cluster("rome", kubeconfig=kubeconfig())

#: Notes how it was called, and what it could read.
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
    """A liqoctl of ours, with files beside it that it writes."""

    def __init__(self, folder: Path) -> None:
        self.path, self.state = folder / "liqoctl", folder / "state"
        self.does(RECORDING)

    def does(self, body: str) -> None:
        self.path.write_text(f"#!/bin/sh\n{body}")
        self.path.chmod(0o755)

    def wrote(self, name: str) -> list[str]:
        file = self.path.with_name(f"liqoctl.{name}")
        return file.read_text().splitlines() if file.exists() else []

    def tool(self, timeout: float = 60, **more: object) -> Liqoctl:
        return Liqoctl(Tool(str(self.path), self.state, timeout=timeout, **more))  # type: ignore[arg-type]

    def left(self) -> list[Path]:
        return list((self.state / "kubeconfigs").iterdir())


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def eventually(found: Callable[[], object]) -> None:
    again = retry_if_result(lambda result: not result)
    Retrying(retry=again, stop=stop_after_delay(60), wait=wait_fixed(0.02))(found)


def runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_peering_is_made_with_a_list_of_arguments_and_a_private_file(
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
    assert [one for one in script.wrote("arguments") if "remote" not in one] == [
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
def test_further_arguments_reach_the_commands_that_know_them(script: Script, verb: str, expected: list[str]) -> None:
    """A flag that is not known is refused: peer's own ones must not keep it from ending a peering."""
    tool = script.tool(arguments=ARGUMENTS)
    (tool.peer if verb == "peer" else tool.unpeer)(ROME)
    assert script.wrote("arguments")[-len(expected) - 1 :] == ["--timeout=60s", *expected]


def test_what_went_wrong_is_told_without_secrets(script: Script) -> None:
    script.does(f'printf "\\033[31mERRO\\033[0m\\n  cannot log in with {TOKEN}\\n\\n"; exit 3')
    with pytest.raises(PeeringFailed) as failure:
        script.tool().peer(ROME)
    assert str(failure.value) == "liqoctl peer for cluster rome ended with 3: cannot log in with ***"


def test_short_credentials_are_secrets_too_and_so_is_the_half_of_a_long_one(script: Script) -> None:
    user = {"username": "me", "password": "sesame", "nested": [{"token": "barley"}]}
    config = kubeconfig(user, {"proxy-url": "http://proxy:oats@proxy.example"})
    script.does(f"echo me sesame barley http://proxy:oats@proxy.example {'x ' * 140}{TOKEN}; exit 3")
    with pytest.raises(PeeringFailed) as failure:
        script.tool().peer(cluster("rome", kubeconfig=config))
    said = str(failure.value)
    assert "ended with 3: *** *** *** *** x x" in said
    assert not any(secret in said for secret in ("sesame", "barley", "oats", TOKEN[:5]))
    assert script.left() == []


def test_what_takes_too_long_is_ended_with_all_its_children(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rescheduler.liqo.nodemanager.liqoctl._SPARE_SECONDS", 0.0)
    script.does(SLOW)
    with pytest.raises(PeeringFailed, match="liqoctl peer for cluster rome took too long"):
        script.tool(timeout=5).peer(ROME)
    eventually(lambda: not [child for child in script.wrote("child") if runs(child)])
    assert script.left() == []


def test_what_runs_is_ended_when_we_stop(script: Script) -> None:
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
    assert failures == ["liqoctl peer for cluster rome ended with -15"]
    eventually(lambda: not runs(*script.wrote("child")))
    assert script.left() == []
    with pytest.raises(PeeringFailed, match="stopping"):
        tool.peer(ROME)


def test_a_kubeconfig_that_runs_programs_is_not_passed_on(script: Script) -> None:
    harmful = kubeconfig(user={"exec": {"command": "rm", "apiVersion": "client.authentication.k8s.io/v1"}})
    with pytest.raises(PeeringFailed, match=r"rome: kubeconfig\.users\[0\]\.user\.exec: this field is not allowed"):
        script.tool().peer(cluster("rome", kubeconfig=harmful))
    assert script.wrote("arguments") == []


def test_what_a_killed_process_left_is_removed(script: Script) -> None:
    folder = script.state / "kubeconfigs"
    folder.mkdir(parents=True)
    (folder / "left.yaml").write_text("secret")
    script.tool()
    assert script.left() == []
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_program_that_is_not_there_is_wrong_use(script: Script, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--liqoctl nothing: expected a program that can be run"):
        Liqoctl(Tool("nothing", tmp_path))


class Peered:
    """The bench, with liqoctl beside it."""

    def __init__(self, script: Script, unpeer_after: dt.timedelta | None = None) -> None:
        self.bench = Bench(ROME, draining=0)
        self.bench.liqo.peers.clear()
        self.bench.peers = True
        self.bench.restart()
        self.script = script
        self.peering = Peering(self.bench.ports, script.tool(), self.bench.upkeep, self.bench.service, unpeer_after)

    def round(self, seconds: float = 0) -> None:
        """What a round does, to the end of what it has begun."""
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
    made = Peered(script, dt.timedelta(minutes=10))
    yield made
    made.close()


def test_a_first_machine_makes_the_peering_and_the_next_one_uses_it(peered: Peered) -> None:
    bench = peered.bench
    [name] = bench.service.increase("STANDARD", 1)
    peered.round()
    peered.round()  # Liqo has not told of it yet: nothing is made twice
    assert (peered.script.wrote("calls"), bench.liqo.pieces) == (["call"], {})
    bench.liqo.peers.add("rome")
    peered.round()
    assert bench.liqo.names("rome") == [name]
    bench.service.increase("STANDARD", 1)
    peered.round()
    assert (len(bench.liqo.names("rome")), peered.script.wrote("calls")) == (2, ["call"])


def test_a_peering_that_fails_gives_the_reservations_back(peered: Peered) -> None:
    peered.script.does("echo no route; exit 1")
    bench = peered.bench
    bench.service.increase("STANDARD", 2)
    peered.round()
    errors = {one.error.message for one in bench.service.view().members("STANDARD") if one.error}
    assert (bench.errors(), errors) == (["NO_PEERING"] * 2, {"liqoctl peer for cluster rome ended with 1: no route"})
    assert bench.store.failures()["rome"].count == 1
    peered.round(60)
    assert bench.size() == 0


def test_a_restart_in_the_middle_peers_again(script: Script, tmp_path: Path) -> None:
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


def test_a_stop_in_the_middle_fails_nobody(script: Script, peered: Peered) -> None:
    script.does(SLOW)
    bench = peered.bench
    bench.service.increase("STANDARD", 1)
    peered.peering.establish(bench.upkeep.step().awaited)
    eventually(lambda: script.wrote("child"))
    peered.peering.close()
    assert (bench.size(), bench.errors(), bench.store.failures()) == (1, [], {})
    assert bench.upkeep.step().awaited == {"rome"}


def test_a_peering_of_ours_is_ended_when_its_last_slice_has_long_gone(peered: Peered) -> None:
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


def test_a_peering_that_was_ended_is_made_again_at_once(script: Script) -> None:
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


def test_nothing_is_asked_of_a_cluster_whose_peering_is_being_ended(peered: Peered) -> None:
    bench = peered.bench
    bench.liqo.peers.add("rome")
    bench.store.peered("rome")
    peered.script.does(SLOW)
    bench.clock.advance(1)
    peered.peering.release(())
    bench.clock.advance(3600)
    peered.peering.release(())
    eventually(lambda: peered.script.wrote("child"))
    with pytest.raises(NoCapacity, match="rome: its peering is ending"):
        bench.service.increase("STANDARD", 1)
    peered.peering.close()
    bench.service.increase("STANDARD", 1)
    with pytest.raises(Conflict, match="cluster rome: it is used again"), bench.service.sparing("rome"):
        pass


def test_a_peering_of_somebody_else_is_left(peered: Peered) -> None:
    peered.bench.liqo.peers.add("rome")
    peered.round()
    peered.round(10_000)
    assert peered.script.wrote("calls") == []


def test_a_slice_of_somebody_else_keeps_a_peering(peered: Peered) -> None:
    bench = peered.bench
    bench.store.peered("rome")
    bench.liqo.add("theirs", "", "rome")
    peered.round()
    peered.round(10_000)
    assert peered.script.wrote("calls") == []


def test_a_cluster_that_is_listed_no_more_waits_in_vain(peered: Peered) -> None:
    bench = peered.bench
    bench.service.increase("STANDARD", 1)
    bench.catalog.listed = []
    peered.round()
    assert (bench.size(), bench.errors()) == (1, [])
    peered.round(900)
    assert bench.errors() == ["NOT_READY_IN_TIME"]


def test_a_cluster_is_shown_without_its_secret() -> None:
    assert "sesame" not in repr(RemoteCluster("rome", {}, kubeconfig=kubeconfig()))
