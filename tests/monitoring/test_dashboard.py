"""Tests of the Grafana dashboard: each panel has data in a real Prometheus, on series of the real exporter."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from devcluster.debian import Prometheus
from rescheduler.observe.metric_families import PREFIX
from rescheduler.observe.metrics import Metrics
from rescheduler.planning.outcome import LandingOutcome
from tests.monitoring.engines import QueryServer, serving_recording
from tests.monitoring.recording import EVERY, record
from tests.monitoring.scenarios import END, busy, standby

FILE = Path(__file__).parents[2] / "deploy" / "dashboards" / "spot-rescheduler.json"
BOARD = json.loads(FILE.read_text(encoding="utf-8"))
PANELS: dict[str, dict[str, Any]] = {panel["title"]: panel for panel in BOARD["panels"] if panel["type"] != "row"}
VARIABLES = {variable["name"]: variable for variable in BOARD["templating"]["list"]}


def exposed() -> frozenset[str]:
    """Return the names of all metrics on the daemon's page."""
    registry = CollectorRegistry()
    Metrics(registry)
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
    return frozenset(
        family.name + suffix for family in registry.collect() for suffix in suffixes.get(family.type, [""])
    )


def asked(title: str) -> set[str]:
    """Return the metrics that the panel *title* shows."""
    return {name for target in PANELS[title]["targets"] for name in re.findall(rf"{PREFIX}\w+", target["expr"])}


def filled(query: str, cluster: str = "busy", job: str = ".*") -> str:
    """Return *query* as Grafana sends it for a period that contains the whole day."""
    values = {"$cluster": cluster, "$job": job, "$__rate_interval": "10m", "$__range": f"{END}m"}
    for name, value in values.items():
        query = query.replace(name, value)
    return query


@pytest.fixture(scope="module")
def server(prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueryServer]:
    recording = record({"busy": {"a": busy, "b": standby}}, exposed(), END + 1)
    with serving_recording(prometheus, tmp_path_factory.mktemp("prometheus"), recording) as running:
        yield running


def shown(server: QueryServer, title: str, **variables: str) -> dict[tuple[str, ...], float]:
    """Return the series of the panel *title*: the highest value by the values of the labels."""
    series = {}
    for target in PANELS[title]["targets"]:
        for labels, value in server.highest(filled(target["expr"], **variables), END, EVERY):
            series[target["refId"], *labels.values()] = value
    return series


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_has_data(title: str, server: QueryServer) -> None:
    series = shown(server, title)
    targets = {target["refId"] for target in PANELS[title]["targets"]}
    assert {key[0] for key, value in series.items() if value > 0} == targets


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_shows_only_the_selected_cluster_and_job(title: str, server: QueryServer) -> None:
    assert shown(server, title, cluster="other") == {}
    assert shown(server, title, job="other") == {}


def test_all_drains_are_counted(server: QueryServer) -> None:
    (target,) = PANELS["Drains in this period"]["targets"]
    samples = server(filled(target["expr"]), END)
    assert {sample["metric"]["result"]: round(float(sample["value"][1])) for sample in samples} == {
        "success": 5,
        "failure": 1,
    }


def test_only_the_leader_is_shown(server: QueryServer) -> None:
    (target,) = PANELS["Leader"]["targets"]
    assert [sample["metric"]["pod"] for sample in server(filled(target["expr"]), END)] == ["a"]
    assert ("A", "not-leading") not in {key for key, value in shown(server, "Waits and cooldowns").items() if value}


def test_the_landings_are_shown_by_outcome(server: QueryServer) -> None:
    series = shown(server, "Placement of moved pods")
    assert series.keys() == {("A", outcome.value) for outcome in LandingOutcome} | {("B",)}


@pytest.mark.parametrize("title", PANELS)
def test_every_query_uses_the_variables(title: str) -> None:
    for target in PANELS[title]["targets"]:
        selectors = re.findall(rf"{PREFIX}\w+({{[^}}]*}})?", target["expr"])
        assert selectors
        assert all(selector.startswith('{cluster=~"$cluster",job=~"$job"') for selector in selectors)


def test_every_query_uses_existing_metrics() -> None:
    assert {name for title in PANELS for name in asked(title)} - exposed() == set()


def test_the_variables_list_clusters_and_jobs() -> None:
    assert list(VARIABLES) == ["datasource", "cluster", "job"]
    queries = {name: variable["query"]["query"] for name, variable in VARIABLES.items() if name != "datasource"}
    assert queries == {
        "cluster": f"label_values({PREFIX}build_info, cluster)",
        "job": f'label_values({PREFIX}build_info{{cluster=~"$cluster"}}, job)',
    }
    # Without a label cluster, the value of "All" must match the empty value.
    assert {VARIABLES[name]["allValue"] for name in queries} == {".*"}


def test_the_panels_do_not_overlap() -> None:
    occupied: dict[tuple[int, int], str] = {}
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = [(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
        assert [occupied[cell] for cell in cells if cell in occupied] == []
        occupied |= dict.fromkeys(cells, panel["title"])
    assert [panel["id"] for panel in BOARD["panels"]] == list(range(1, len(BOARD["panels"]) + 1))
