"""``rescheduler simulate``: its output, comparisons, and wrong usage."""

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from rescheduler.cli import cli
from rescheduler.errors import InputError, UsageError
from tests.simulation.worlds import node, workload

DOCS = Path(__file__).parents[2] / "docs"


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
    compared = ["--compare", "--min-on-demand-nodes=1", "--compare", "--spot-loss=0"]
    text = simulated("--snapshot", dump, "--manage-soft-taint", *compared, "-o", "json")
    runs = json.loads(text)["simulations"]
    assert [run["flags"] for run in runs] == ["as given", "--min-on-demand-nodes=1", "--spot-loss=0"]
    assert [run["drains"]["done"] for run in runs] == [1, 0, 1]
    assert [run["onDemandNodes"]["end"] for run in runs] == [0, 1, 0]


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
    with pytest.raises(UsageError, match="--compare"):
        simulated("--snapshot", dump, "--compare", "'open")
    with pytest.raises(InputError, match="no node matches --spot-label none"):
        simulated("--snapshot", dump, "--spot-node-label=none")


def test_the_demo_has_drains_lost_spot_nodes_and_a_failed_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo of the Makefile, for the first hours."""
    monkeypatch.chdir(DOCS.parent)
    recipe = (DOCS.parent / "Makefile").read_text().partition("/rescheduler simulate ")[2].partition(" $(ARGS)")[0]
    words = shlex.split(recipe.replace("$$", "$").replace("\\\n", ""))
    text = simulated(*words, "--for=150m")
    assert "shop/images: its new pods do not become Ready" in text
    assert "drains failed                   1 landing-timeout\n" in text
    assert "spot nodes lost                 10\n" in text
    assert int(text.partition("drains done")[2].split()[0]) >= 8
    assert "money saved, net                $" in text
