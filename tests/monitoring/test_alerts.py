"""Tests of the shipped alerts, on series of the real exporter, in Prometheus's own engines."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.debian import Prometheus
from tests.monitoring.engines import QueryServer, serving_recording, unlike_expected
from tests.monitoring.recording import Recording, record
from tests.monitoring.scenarios import END, INCIDENTS, TROUBLE, alerts

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "deploy" / "components" / "alerts" / "rules.yaml").read_text(encoding="utf-8"))["spec"]
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
PAGE = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")

#: (cluster, alert) for each alert that must fire.
EXPECTED = {(cluster, alert) for cluster, incident in INCIDENTS.items() for alert in incident.alerts}


@pytest.fixture(scope="module")
def recording() -> Recording:
    metrics = frozenset(re.findall(r"spot_rescheduler_\w+", str(RULES)))
    return record({cluster: incident.scripts for cluster, incident in INCIDENTS.items()}, metrics, END + 1)


@pytest.fixture(scope="module")
def server(
    recording: Recording, prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[QueryServer]:
    with serving_recording(prometheus, tmp_path_factory.mktemp("prometheus"), recording) as running:
        yield running


def test_every_alert_has_an_incident() -> None:
    assert {alert for _, alert in EXPECTED} == set(ALERTS)


def test_exactly_the_expected_alerts_fire(recording: Recording, prometheus: Prometheus, tmp_path: Path) -> None:
    expected: dict[int, set[tuple[str, str]]] = {10: set(), TROUBLE - 1: set(), END: EXPECTED}
    assert unlike_expected(prometheus, tmp_path, RULES, recording, expected) == ""


def test_an_alert_fires_if_no_replica_was_ever_scraped(prometheus: Prometheus, tmp_path: Path) -> None:
    expected = {5: set(), 15: {("", alert) for alert in alerts("Missing")}}
    assert unlike_expected(prometheus, tmp_path, RULES, Recording(frozenset()), expected) == ""


@pytest.mark.parametrize("alert", ALERTS)
def test_a_server_finds_the_clusters_in_trouble(alert: str, server: QueryServer) -> None:
    samples = server(ALERTS[alert]["expr"], END)
    assert {(sample["metric"]["cluster"], alert) for sample in samples} == {
        (cluster, name) for cluster, name in EXPECTED if name == alert
    }
    assert all({"cluster", "namespace", "job"} <= sample["metric"].keys() for sample in samples)


@pytest.mark.parametrize("alert", ALERTS)
def test_a_server_finds_no_trouble_before_it_begins(alert: str, server: QueryServer) -> None:
    assert server(ALERTS[alert]["expr"], TROUBLE - 1) == []


@pytest.mark.parametrize("alert", ALERTS)
def test_the_texts_of_an_alert(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    shown = re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))
    grouped = {label for labels in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in labels.split(", ")}
    assert set(shown) <= grouped


def test_every_alert_has_its_entry_in_the_documentation() -> None:
    assert re.findall(r"^## (SpotRescheduler\w+)$", PAGE, re.MULTILINE) == list(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_the_runbook_is_the_entry_in_the_documentation(alert: str) -> None:
    """GitHub and the site derive the anchor of a heading of one word by lower case."""
    repository = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["repo_url"]
    runbook = ALERTS[alert]["annotations"]["runbook_url"]
    assert runbook == f"{repository}/blob/main/docs/alerts.md#{alert.lower()}"


def test_the_documentation_has_the_severities() -> None:
    table = dict(re.findall(r"^\| \[(\w+)\]\(#\w+\) \| (\w+) \|", PAGE, re.MULTILINE))
    assert table == {alert: rule["labels"]["severity"] for alert, rule in ALERTS.items()}
