"""Commands that act on a daemon find it, and never act where none is. With a scripted API server."""

import base64
import shlex
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from rescheduler import cli
from rescheduler.cli.plan_data import FromDaemon, daemon_of
from rescheduler.clock import SystemClock
from rescheduler.planning.money.savings import SavingsLedger
from rescheduler.planning.money.savings_form import dump_ledger
from rescheduler.planning.pauses import PAUSE_REASON, PAUSED
from rescheduler.settings import LEASE, POOL_LEASE, ApiServerConnection
from tests.kube.edge import ReceivedRequest, Reply, ScriptedApiServer, serving, status

GROUP = "/apis/coordination.k8s.io/v1"
COMMANDS = ("pause", "resume", "status", "savings")


class Installations:
    """Leases, ConfigMaps, and the Nodes, of which there are none."""

    def __init__(self, edge: ScriptedApiServer, kubeconfig: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.leases: dict[tuple[str, str], dict[str, Any]] = {}
        self.ledgers: dict[tuple[str, str], dict[str, Any]] = {}
        self._edge, self._kubeconfig, self._capfd = edge, kubeconfig, capfd
        edge.on("GET", f"{GROUP}/leases", lambda _: Reply({"items": list(self.leases.values())}))
        edge.on("GET", "/api/v1/nodes", Reply({"metadata": {"resourceVersion": "1"}, "items": []}))
        for namespace in ("spot-rescheduler", "kube-system"):
            self.absent(namespace)

    def absent(self, namespace: str, name: str = LEASE) -> None:
        """Let reads of a Lease and of the ConfigMaps beside it find what there is, or 404."""
        path = f"{GROUP}/namespaces/{namespace}/leases/{name}"
        self._edge.on("GET", path, lambda _: self._answer(namespace, name))
        self._edge.on("PATCH", path, lambda request: self._patch(namespace, name, request))
        beside = [name.replace(LEASE, f"spot-rescheduler-{part}") for part in ("memory", "savings")]
        self.config_maps(namespace, "spot-rescheduler-memory", "spot-rescheduler-savings", *beside)

    def lease(self, namespace: str, name: str = LEASE, holder: str = "pod-a_1", **metadata: Any) -> None:
        if (namespace, name) not in self.leases:
            self.absent(namespace, name)
        known = {"namespace": namespace, "name": name, "resourceVersion": "1", **metadata}
        self.leases[namespace, name] = {"metadata": known, "spec": {"holderIdentity": holder}}

    def ledger(self, namespace: str, name: str) -> None:
        binary = {"savings": base64.b64encode(dump_ledger(SavingsLedger())).decode()}
        self.ledgers[namespace, name] = {"metadata": {"resourceVersion": "1"}, "binaryData": binary}

    def config_maps(self, namespace: str, *names: str) -> None:
        """Let reads of ConfigMaps find what there is, or 404."""
        for name in names:
            path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
            self._edge.on("GET", path, partial(self._config_map, (namespace, name)))

    def _config_map(self, key: tuple[str, str], _: ReceivedRequest) -> Reply:
        known = self.ledgers.get(key)
        return status(404, "not found") if known is None else Reply(known)

    def _answer(self, namespace: str, name: str) -> Reply:
        known = self.leases.get((namespace, name))
        return status(404, "not found") if known is None else Reply(known)

    def _patch(self, namespace: str, name: str, request: ReceivedRequest) -> Reply:
        metadata = self.leases[namespace, name]["metadata"]
        notes = metadata.get("annotations", {}) | request.body["metadata"]["annotations"]
        metadata["annotations"] = {key: text for key, text in notes.items() if text is not None}
        return Reply(self.leases[namespace, name])

    def paused(self) -> list[tuple[str, str]]:
        return [key for key, known in self.leases.items() if known["metadata"].get("annotations", {}).get(PAUSED)]

    def __call__(self, *arguments: str) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main([*arguments, f"--kubeconfig={self._kubeconfig}"])
        out, error = self._capfd.readouterr()
        assert [request.method for request in self._edge.requests if request.method not in ("GET", "PATCH")] == []
        return ended.value.code, out, error


@pytest.fixture
def edge() -> Iterator[ScriptedApiServer]:
    with serving() as served:
        yield served


@pytest.fixture
def run(edge: ScriptedApiServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Installations:
    kubeconfig = tmp_path / "kubeconfig"
    named = {"clusters": [{"name": "c", "cluster": {"server": edge.url}}], "users": [{"name": "u", "user": {}}]}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    kubeconfig.write_text(yaml.safe_dump({**named, "contexts": [context], "current-context": "c"}))
    return Installations(edge, kubeconfig, capfd)


@pytest.mark.parametrize("namespace", ["spot-rescheduler", "kube-system", "team-a"])
@pytest.mark.parametrize("flags", [(), ("-n",), ("--namespace",)])
def test_the_only_installation_is_found(run: Installations, namespace: str, flags: tuple[str, ...]) -> None:
    run.lease(namespace)
    run.lease("other", "cluster-autoscaler")
    where = [*flags, namespace] if flags else []
    assert run("pause", *where) == (0, f"Lease {namespace}/{LEASE}: drains are paused\n", "")
    assert run.paused() == [(namespace, LEASE)]
    code, out, error = run("status", *where)
    assert (code, out.partition("\n")[0], error) == (0, f"Installation  {namespace}/{LEASE}", "")
    assert run("resume", *where) == (0, f"Lease {namespace}/{LEASE}: drains are no longer paused\n", "")


@pytest.mark.parametrize("name", [f"{LEASE}-eu", f"eu-{LEASE}", "eu-spot-rescheduler"])
def test_a_lease_with_another_name_is_found(run: Installations, name: str) -> None:
    run.lease("team-a", name)
    for namespace in ("spot-rescheduler", "kube-system"):
        run.absent(namespace, name)
    run.absent("team-a")
    for where in ((), ("-n=team-a",), (f"--lease-name={name}",)):
        assert run("pause", *where)[:2] == (0, f"Lease team-a/{name}: drains are paused\n")


@pytest.mark.parametrize(
    "marks",
    [
        {"labels": {"app.kubernetes.io/name": "spot-rescheduler"}},
        {"annotations": {"spot-rescheduler/memory": "mover-memory"}},
    ],
)
def test_a_lease_is_known_by_what_the_chart_and_the_daemon_write(run: Installations, marks: dict[str, Any]) -> None:
    run.lease("team-a", "mover", **marks)
    assert run("pause")[:2] == (0, "Lease team-a/mover: drains are paused\n")


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        (POOL_LEASE, {}),
        (f"eu-{POOL_LEASE}-a", {}),
        ("ours", {"app.kubernetes.io/name": "spot-rescheduler", "app.kubernetes.io/component": "pool"}),
    ],
)
@pytest.mark.parametrize("holder", ["", "pod-a_1"])
def test_the_lease_of_machines_is_no_installation(
    run: Installations, name: str, labels: dict[str, str], holder: str
) -> None:
    """It has a holder while a machine is ordered away, and none beside a dry run."""
    run.lease("team-a", holder=holder)
    run.lease("team-a", name, holder=holder, labels=labels)
    code, out, _ = run("pause", "--force")
    assert (code, out.startswith(f"Lease team-a/{LEASE}: drains are paused")) == (0, True)
    assert run.paused() == [("team-a", LEASE)]


@pytest.mark.parametrize("command", ["pause", "resume", "status"])
@pytest.mark.parametrize("second", ["team-b", "kube-system"])
def test_several_installations_are_listed_with_the_command_of_each(
    run: Installations, command: str, second: str
) -> None:
    first = "spot-rescheduler" if second == "kube-system" else "team-a"
    run.lease(first)
    run.lease(second, *([] if second == "kube-system" else [f"{LEASE}-eu"]))
    code, out, error = run(command, "--context=c")
    assert (code, out, error.count("\n")) == (1, "", 1)
    assert f"rescheduler {command} --context=c --kubeconfig=" in error
    assert f"-n {first};" in error
    assert error.endswith(f"-n {second}{'' if second == 'kube-system' else f' --lease-name={LEASE}-eu'}\n")
    assert run.paused() == []
    printed = shlex.split(error.strip().rpartition("; rescheduler ")[2])
    assert run(*printed)[0] == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_created_where_nothing_is_installed(run: Installations, command: str) -> None:
    run.absent("nowhere")
    code, out, error = run(command, "-n=nowhere")
    assert (code, out, error.count("\n")) == (1, "", 1)
    assert error == (f"rescheduler: Lease nowhere/{LEASE} does not exist; no daemon holds one in any namespace\n")
    assert run(command)[0] == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_the_place_of_the_daemon_is_named(run: Installations, command: str) -> None:
    run.lease("team-a")
    run.absent("nowhere")
    code, out, error = run(command, "-n", "nowhere")
    assert (code, out) == (1, "")
    assert f"Lease nowhere/{LEASE} does not exist; daemons that hold a Lease: rescheduler {command} " in error
    assert error.endswith("-n team-a\n")
    assert "nowhere" not in error.partition("daemons that")[2]


@pytest.mark.parametrize("command", ["pause", "resume", "status"])
def test_that_leases_may_not_be_listed_is_said(
    edge: ScriptedApiServer, tmp_path: Path, capfd: Any, command: str
) -> None:
    edge.on("GET", f"{GROUP}/leases", status(403, 'cannot list resource "leases"'))
    kubeconfig = tmp_path / "kubeconfig"
    named = {"clusters": [{"name": "c", "cluster": {"server": edge.url}}], "current-context": "c"}
    kubeconfig.write_text(yaml.safe_dump({**named, "contexts": [{"name": "c", "context": {"cluster": "c"}}]}))
    for namespace in ("spot-rescheduler", "kube-system"):
        edge.on("GET", f"{GROUP}/namespaces/{namespace}/leases/{LEASE}", status(403, "no"))
    with pytest.raises(SystemExit) as ended:
        cli.main([command, f"--kubeconfig={kubeconfig}"])
    error = capfd.readouterr().err
    assert (ended.value.code, error.count("\n")) == (1, 1)
    assert "other namespaces were not searched: list leases in all namespaces: " in error


def test_a_stopped_daemon_is_paused_only_by_force(run: Installations) -> None:
    run.lease("team-a", holder="")
    for where in ((), ("-n", "team-a")):
        code, out, error = run("pause", *where)
        assert (code, out, "--force" in error, f"team-a/{LEASE}" in error) == (1, "", True, True)
    assert run.paused() == []
    assert run("resume", "-n", "team-a")[0] == 1
    assert run("pause", "--force", "--reason=x")[:2] == (
        0,
        f"Lease team-a/{LEASE}: drains are paused: x (no daemon holds the Lease)\n",
    )
    assert run.leases["team-a", LEASE]["metadata"]["annotations"] == {PAUSED: "true", PAUSE_REASON: "x"}
    code, out, error = run("status", "-n", "team-a")
    assert (code, "Leader        none" in out) == (1, True)
    assert error.startswith(f"rescheduler: no daemon holds Lease team-a/{LEASE}: ")
    assert run("resume", "-n", "team-a")[0] == 0


def test_a_pause_replaces_an_earlier_one_with_its_reason(run: Installations) -> None:
    run.lease("team-a")
    assert run("pause", "--reason=a release", "--for=1h")[0] == 0
    assert run("pause")[:2] == (0, f"Lease team-a/{LEASE}: drains are paused\n")
    assert run.leases["team-a", LEASE]["metadata"]["annotations"] == {PAUSED: "true"}
    assert run("resume")[1] == f"Lease team-a/{LEASE}: drains are no longer paused\n"
    assert run("resume")[1] == f"Lease team-a/{LEASE}: drains are not paused\n"


def daemon_pod(name: str, phase: str = "Running", env: str = "", *args: str) -> dict[str, Any]:
    variables = [{"name": "RESCHEDULER_DRY_RUN", "value": env}] if env else []
    container = {"name": "main", "args": ["run", *args], "env": variables}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}, "status": {"phase": phase}}


DRY_RUNS = {
    "a flag": (daemon_pod("one", "Running", "", "--leader-elect", "--dry-run"), True),
    "a value": (daemon_pod("one", "Running", "", "--dry-run=true"), True),
    "one dash": (daemon_pod("one", "Running", "", "-dry-run=T"), True),
    "the last one": (daemon_pod("one", "Running", "", "--dry-run", "--dry-run=false"), False),
    "off": (daemon_pod("one", "Running", "", "--dry-run=0"), False),
    "the environment": (daemon_pod("one", "Running", "true"), True),
    "the environment, off": (daemon_pod("one", "Running", "false"), False),
    "a flag before the environment": (daemon_pod("one", "Running", "true", "--dry-run=false"), False),
    "another flag": (daemon_pod("one", "Running", "", "--dry-running"), False),
    "not running": (daemon_pod("one", "Succeeded", "", "--dry-run"), False),
}


@pytest.mark.parametrize(("found", "dry"), DRY_RUNS.values(), ids=DRY_RUNS)
def test_a_dry_run_is_found_by_its_pod(
    run: Installations, edge: ScriptedApiServer, tmp_path: Path, found: dict[str, Any], *, dry: bool
) -> None:
    run.lease("team-a", holder="")
    edge.on("GET", "/api/v1/namespaces/team-a/pods", Reply({"items": [found]}))
    code, out, error = run("status")
    assert (code, "Dry run       pod one: it drains nothing" in out, error == "") == (0 if dry else 1, dry, dry)
    assert msgspec.json.decode(run("status", "-o=json")[1])["dryRuns"] == (["one"] if dry else [])
    connection = ApiServerConnection(kubeconfig=str(tmp_path / "kubeconfig"))
    status = daemon_of(connection, FromDaemon.IF_THERE, SystemClock())
    said = None if status is None else status.why_nothing_is_drained()
    assert said == ("the daemon is a dry run (pod one)" if dry else None)


def test_a_running_daemon_is_preferred_to_a_stopped_one(run: Installations) -> None:
    run.lease("spot-rescheduler", holder="")
    run.lease("team-a")
    assert run("pause", "--force")[1] == f"Lease team-a/{LEASE}: drains are paused\n"


def test_a_holder_that_ended_without_releasing_the_lease_is_none(run: Installations) -> None:
    run.lease("team-a")
    for age, code in ((timedelta(minutes=1), 0), (timedelta(hours=1), 1)):
        renewed = (SystemClock().now() - age).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        run.leases["team-a", LEASE]["spec"]["renewTime"] = renewed
        assert (run("pause")[0], run("pause", "-n", "team-a")[0]) == (code, code)


APP, RELEASE = "app.kubernetes.io/name", "app.kubernetes.io/instance"
NAMES = {
    "a release": ({"labels": {RELEASE: "eu", APP: "spot-rescheduler"}}, LEASE, "eu-spot-rescheduler-savings"),
    "a release with the name of the chart": (
        {"labels": {RELEASE: "spot-rescheduler-eu", APP: "spot-rescheduler"}},
        LEASE,
        "spot-rescheduler-eu-savings",
    ),
    "the daemon's note": ({"annotations": {"spot-rescheduler/memory": "mine-memory"}}, LEASE, "mine-savings"),
    "a suffix": ({}, f"{LEASE}-eu", "spot-rescheduler-savings-eu"),
    "a prefix": ({}, f"eu-{LEASE}", "eu-spot-rescheduler-savings"),
    "the default": ({}, LEASE, "spot-rescheduler-savings"),
}


@pytest.mark.parametrize(("metadata", "lease", "name"), NAMES.values(), ids=NAMES)
def test_the_ledger_is_found_by_the_names_of_the_installation(
    edge: ScriptedApiServer, run: Installations, metadata: dict[str, Any], lease: str, name: str
) -> None:
    path = f"/api/v1/namespaces/team-a/configmaps/{name}"
    run.config_maps("team-a", name)
    run.ledger("team-a", name)
    run.lease("team-a", lease, holder="", **metadata)
    code, out, error = run("savings")
    assert (code, out.startswith("Nothing was saved since"), error) == (0, True, "")
    assert edge.seen("GET", path)


def test_the_ledger_of_a_daemon_without_a_lease_is_read(run: Installations) -> None:
    run.ledger("ops", "spot-rescheduler-savings")
    run.absent("ops")
    assert run("savings", "-n=ops")[0] == 0
