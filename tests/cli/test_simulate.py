"""``rescheduler simulate``: its output, comparisons, and wrong usage."""

import datetime as dt
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rescheduler.cli import cli, simulate
from rescheduler.cli.run import command as run_command
from rescheduler.clock import SystemClock
from rescheduler.durations import Backoff
from rescheduler.errors import InputError, UsageError
from rescheduler.housekeeping.command_reads import Installation, InstallationStatus
from rescheduler.planning.memory import Memory
from rescheduler.planning.pools import PoolLosses
from rescheduler.settings import ApiServerConnection
from tests.simulation.worlds import node, workload

DOCS = Path(__file__).parents[2] / "docs"
HOUR = dt.timedelta(hours=1)


@pytest.fixture
def dump(tmp_path: Path) -> str:
    items = [node("od-1"), node("spot-1", spot=True), node("spot-2", spot=True), workload("Deployment", "web", 6)]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(file)


def simulated(*args: str) -> str:
    result = CliRunner().invoke(cli, ["simulate", "--spot-loss=0", "--for=1h", *args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_figures_of_one_run(dump: str) -> None:
    text = simulated("--snapshot", dump, "--manage-soft-taint")
    assert "node od-1: drained in " in text
    assert "drains done                     1\n" in text
    assert "on-demand nodes                 1 → 0" in text


def test_settings_are_compared_on_the_same_cluster(dump: str) -> None:
    compared = ["--compare", "--min-on-demand-nodes=1", "--compare", "--dry-run"]
    text = simulated("--snapshot", dump, "--manage-soft-taint", *compared, "-o", "json")
    runs = json.loads(text)["simulations"]
    assert [run["flags"] for run in runs] == ["as given", "--min-on-demand-nodes=1", "--dry-run"]
    assert [run["drains"]["done"] for run in runs] == [1, 0, 0]
    assert [run["onDemandNodes"]["end"] for run in runs] == [0, 1, 1]


def test_events_happen_at_their_time(dump: str, tmp_path: Path) -> None:
    events = tmp_path / "events.yaml"
    events.write_text("- {at: 10m, scale: default/web, replicas: 8}\n- {at: 20m, lose: 1}\n- {at: 30m, kill: daemon}\n")
    course = json.loads(simulated("--snapshot", dump, "--events", str(events), "-o", "json"))["simulations"][0][
        "course"
    ]
    texts = {line["text"]: line["seconds"] for line in course}
    assert texts["default/web: scaled from 6 to 8"] == 600
    assert texts["1 spot node interrupted"] == 1200
    assert texts["the daemon is killed and started again"] == 1800


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("at: 1h", "expected a list of events"),
        ("- 5", "event 1: expected a mapping with the key at"),
        ("- {scale: a/b, replicas: 1}", "event 1: at: None: expected a duration"),
        ("- {at: soon, kill: x}", "event 1: at: 'soon'"),
        ("- {at: 1h}", "event 1: expected exactly one of scale, "),
        ("- {at: 1h, kill: x, over: 1h}", "event 1: over is not a key of kill"),
        ("- {at: 1h, scale: a/b, replicas: 1}", "event 1: scale: there is no Deployment or StatefulSet a/b"),
        ("- {at: 1h, scale: default/web, replicas: some}", "event 1: replicas: expected a number of at least 0"),
        ("{", "expected YAML"),
    ],
)
def test_a_wrong_events_file(dump: str, tmp_path: Path, content: str, message: str) -> None:
    events = tmp_path / "events.yaml"
    events.write_text(content)
    with pytest.raises(InputError) as raised:
        simulated("--snapshot", dump, "--events", str(events))
    assert message in str(raised.value)
    assert str(events) in str(raised.value)


def test_wrong_usage(dump: str) -> None:
    with pytest.raises(UsageError, match="--make-room=provider: not simulated"):
        simulated("--snapshot", dump, "--make-room=provider")
    with pytest.raises(InputError, match="no node matches --spot-node-label none"):
        simulated("--snapshot", dump, "--spot-node-label=none")
    with pytest.raises(UsageError, match="--spot-loss=measured: expected a cluster with a daemon"):
        simulated("--snapshot", dump, "--spot-loss=measured")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("'open", "No closing quotation"),
        ("--seed=3", "--seed is the same in all runs; expected flags of rescheduler run"),
        ("--spot-loss 0.5", "--spot-loss is the same in all runs"),
        ("-o json", "--output is the same in all runs"),
        ("--no-such-flag", "No such option"),
        ("survive=pool", "unexpected extra argument"),
        ("--node-drain-delay=soon", "--node-drain-delay"),
        ("--survive", "requires an argument"),
        ("--make-room=provider", "not simulated; expected placeholders or off"),
    ],
)
def test_wrong_flags_to_compare(dump: str, flags: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        simulated("--snapshot", dump, "--compare", flags)
    assert message in str(raised.value)


@pytest.mark.parametrize("rate", ["-1", "often", "inf", "nan", "zone-a/m5=", "zone-a/m5=-3"])
def test_a_wrong_rate_of_losses(dump: str, rate: str) -> None:
    result = CliRunner().invoke(cli, ["simulate", "--snapshot", dump, f"--spot-loss={rate}"])
    assert result.exit_code == 2
    assert "expected losses per node and day such as 0.5, POOL=RATE, or measured" in result.output


def test_losses_of_a_pool_without_spot_nodes(dump: str) -> None:
    with pytest.raises(InputError, match="--spot-loss: no spot node is of pool 'zone-x/m5'; expected one of "):
        simulated("--snapshot", dump, "--spot-loss=zone-x/m5=3")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"metadata": {"name": "n"}, "spec": None}, ""),
        ({"metadata": {"name": "n"}, "spec": {"taints": [{"effect": "NoSchedule"}]}}, ""),
        ({"metadata": {"name": "n"}, "status": None}, ""),
        ({"metadata": None}, "Node"),
        ({"metadata": {"name": "n"}, "spec": {"taints": 5}}, "Node"),
    ],
)
def test_nodes_with_unusual_fields(dump: str, broken: dict[str, Any], message: str, tmp_path: Path) -> None:
    items = json.loads(Path(dump).read_text())["items"]
    (tmp_path / "list").write_text(json.dumps({"kind": "List", "items": [*items, {"kind": "Node", **broken}]}))
    if not message:
        assert "drains done" in simulated("--snapshot", str(tmp_path / "list"))
        return
    with pytest.raises(InputError, match=message):
        simulated("--snapshot", str(tmp_path / "list"))


def test_all_flags_of_run_are_accepted(dump: str) -> None:
    known = {name for param in simulate.command.params for name in param.opts}
    assert {name for param in run_command.params for name in param.opts} <= known
    process = ["--lease-name=other", "-n", "shop", "-v=4", "--leader-elect=false", "--logtostderr", "--log-format=json"]
    cloud = ["--cloud-provider=cloudpool", "--cloud-config=/none", "--listen-address=0.0.0.0:1", "--pod-name=a"]
    plain = simulated("--snapshot", dump, "-o", "json")
    assert simulated("--snapshot", dump, "-o", "json", *process, *cloud) == plain


def test_losses_of_one_pool(tmp_path: Path) -> None:
    zones = {"zone-a": "1", "zone-b": "2"}
    labels = [{"topology.kubernetes.io/zone": zone, "node.kubernetes.io/instance-type": "m5"} for zone in zones]
    nodes = [node(f"spot-{label['topology.kubernetes.io/zone']}", spot=True, **label) for label in labels]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "items": [node("od-1"), *nodes]}))
    text = simulated("--snapshot", str(file), "--spot-loss=zone-b/m5=500", "-o", "json")
    lost = [line["text"] for line in json.loads(text)["simulations"][0]["course"] if "the cloud takes" in line["text"]]
    assert lost
    assert all("zone-b" in text for text in lost)


def test_the_rates_that_the_daemon_has_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = PoolLosses().observed(
        {"a/m5": 100.0, "b/m5": 100.0}, {"a/m5": 5}, SystemClock().now(), Backoff(HOUR, HOUR)
    )
    status = InstallationStatus(SystemClock().now(), Installation("n", "l", "m"), memory=Memory(pools=losses))
    monkeypatch.setattr(simulate, "daemon_of", lambda *_: status)
    given = [("measured", 0.0), ("c/m5", 2.0)]
    everywhere, by_pool = simulate.spot_losses(given, None, ApiServerConnection())
    assert everywhere == 0.0
    assert by_pool == {"a/m5": pytest.approx(5 / 100 * 24, rel=0.01), "b/m5": 0.0, "c/m5": 2.0}
    monkeypatch.setattr(simulate, "daemon_of", lambda *_: replace(status, memory=None))
    with pytest.raises(InputError, match="the memory of the daemon cannot be read"):
        simulate.spot_losses(given, None, ApiServerConnection())


def test_a_page_with_pictures(dump: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    flags = ["--manage-soft-taint", "--compare", "--dry-run", "--price-per-vcpu=0.05", "--spot-price-per-vcpu=0.01"]
    assert "drains done " in simulated("--snapshot", dump, *flags, "--output-file", str(page))
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    for title in ("On-demand nodes", "Spot nodes", "Pods below the wanted number", "Cost of all nodes in "):
        assert f'aria-label="{title}' in text
    assert 'aria-label="On-demand nodes: 1 to 0; 1 to 1"' in text
    assert "node od-1: drained in " in text
    assert "://" not in text
    assert simulated("--snapshot", dump, *flags, "--output-file=-") == text
    with pytest.raises(UsageError, match="none is not a directory"):
        simulated("--snapshot", dump, f"--output-file={tmp_path}/none/page.html")
    with pytest.raises(UsageError, match="cannot write there: it is a directory; expected a file"):
        simulated("--snapshot", dump, f"--output-file={tmp_path}")


def test_the_demo_has_drains_lost_spot_nodes_and_a_failed_drain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The demo of the Makefile, for the first hours."""
    monkeypatch.chdir(DOCS.parent)
    recipe = (DOCS.parent / "Makefile").read_text().partition("/rescheduler simulate ")[2].partition(" $(ARGS)")[0]
    words = shlex.split(recipe.replace("$$", "$").replace("\\\n", ""))
    text = simulated(*words, "--for=150m", f"--output-file={tmp_path}/page.html")
    assert "shop/images" in (tmp_path / "page.html").read_text()
    assert "shop/images: its new pods do not become Ready" in text
    assert "drains failed                   1 landing-timeout\n" in text
    assert "spot nodes lost                 10\n" in text
    assert int(text.partition("drains done")[2].split()[0]) >= 8
    assert "money saved, net                $" in text
