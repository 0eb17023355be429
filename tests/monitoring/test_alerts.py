"""Tests of the shipped alerts, on series of the real exporter, in Prometheus's own engines."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.debian import Prometheus
from tests.monitoring.engines import ExpectedAlert, QueryServer, serving_recording, unexpected_alerts, unexpected_texts
from tests.monitoring.recording import EVERY, Recording, record
from tests.monitoring.scenarios import AFTER_A_DAY, DAY, END, INCIDENTS, PAUSE, TROUBLE, alerts

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "deploy" / "components" / "alerts" / "rules.yaml").read_text(encoding="utf-8"))["spec"]
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
METRICS = frozenset(re.findall(r"spot_rescheduler_\w+", str(RULES)))
PAGE = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")

#: (cluster, alert) for each alert that must fire.
EXPECTED = {(cluster, alert) for cluster, incident in INCIDENTS.items() for alert in incident.alerts}


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record({cluster: incident.scripts for cluster, incident in INCIDENTS.items()}, METRICS, END + 1)


@pytest.fixture(scope="module")
def server(
    recording: Recording, prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[QueryServer]:
    with serving_recording(prometheus, tmp_path_factory.mktemp("prometheus"), recording) as running:
        yield running


def test_every_alert_has_an_incident() -> None:
    assert {alert for _, alert in EXPECTED} == set(ALERTS)


def test_exactly_the_expected_alerts_fire(recording: Recording, prometheus: Prometheus, tmp_path: Path) -> None:
    at_end = {(cluster, alert) for cluster, alert in EXPECTED if alert not in AFTER_A_DAY}
    expected: dict[int, set[tuple[str, str]]] = {10: set(), TROUBLE - 1: set(), END: at_end}
    assert unexpected_alerts(prometheus, tmp_path, RULES, recording, expected) == ""


def test_the_alert_about_a_pause_fires_after_a_day(prometheus: Prometheus, tmp_path: Path) -> None:
    """No other alert fires during the pause: a paused daemon completes its rounds."""
    after = TROUBLE + DAY + EVERY
    recording = record({PAUSE: INCIDENTS[PAUSE].scripts}, METRICS, after + 1)
    expected = {END: set(), TROUBLE + DAY - 1: set(), after: {(PAUSE, alert) for alert in AFTER_A_DAY}}
    assert unexpected_alerts(prometheus, tmp_path, RULES, recording, expected) == ""


#: Cluster and alert → the labels by which it is grouped further, the summary, and the description with its numbers.
TEXTS: dict[tuple[str, str], tuple[dict[str, str], str, str]] = {
    ("rounds stop", "Stalled"): (
        {},
        "spot-rescheduler has not completed a round for half an hour",
        (
            "The last round without errors ended 1h 7m 0s ago. The log has the cause. /readyz reports whether the "
            "cluster can be read, and errors_total counts errors by type."
        ),
    ),
    ("two replicas lead", "SeveralLeaders"): (
        {},
        "spot-rescheduler has 2 leaders instead of one",
        (
            "Several replicas act as leader. Check whether all of them use the same Lease, and whether leader election "
            "is on."
        ),
    ),
    ("the first drain fails", "DrainFailed"): (
        {"cause": "eviction-timeout"},
        "A drain failed: eviction-timeout",
        (
            "Drains that failed within an hour: 1. Each was rolled back, and its node is schedulable again. /statusz "
            "and the Events of the node name the pods."
        ),
    ),
    ("replacement pods do not run", "LandingPending"): (
        {},
        "Replacement pods of a drain do not run",
        (
            "3 replacement pods of earlier drains have not been Ready for 30 minutes. Nodes with pods of the "
            "same owners are not drained. The log and rescheduler status name the owners."
        ),
    ),
    ("a machine stays", "MachineNotRemoved"): (
        {"backend": "cloudpool"},
        "cloudpool failed to remove the machine of a drained node",
        "The node is schedulable again and continues to cost money. Its Events have the response of the backend.",
    ),
}


def test_the_texts_name_the_failed_operation(recording: Recording, prometheus: Prometheus, tmp_path: Path) -> None:
    expected = []
    for (cluster, name), (labels, summary, description) in TEXTS.items():
        (alert,) = alerts(name)
        target = {"cluster": cluster, "namespace": "spot-rescheduler", "job": "spot-rescheduler"}
        texts = {"summary": summary, "description": description}
        runbook = {"runbook_url": ALERTS[alert]["annotations"]["runbook_url"]}
        severity = ALERTS[alert]["labels"]["severity"]
        expected.append(ExpectedAlert(alert, target | labels, texts | runbook, severity))
    assert unexpected_texts(prometheus, tmp_path, RULES, recording, END, expected) == ""


def test_an_alert_fires_if_no_replica_was_ever_scraped(prometheus: Prometheus, tmp_path: Path) -> None:
    expected = {5: set(), 15: {("", alert) for alert in alerts("Missing")}}
    assert unexpected_alerts(prometheus, tmp_path, RULES, Recording(frozenset()), expected) == ""


@pytest.mark.parametrize("alert", ALERTS)
def test_queries_find_the_clusters_with_problems(alert: str, server: QueryServer) -> None:
    samples = server(ALERTS[alert]["expr"], END)
    assert {(sample["metric"]["cluster"], alert) for sample in samples} == {
        (cluster, name) for cluster, name in EXPECTED if name == alert
    }
    assert all({"cluster", "namespace", "job"} <= sample["metric"].keys() for sample in samples)


@pytest.mark.parametrize("alert", ALERTS)
def test_queries_find_no_problems_before_they_begin(alert: str, server: QueryServer) -> None:
    assert server(ALERTS[alert]["expr"], TROUBLE - 1) == []


@pytest.mark.parametrize("alert", ALERTS)
def test_the_texts_of_an_alert_use_only_its_labels(alert: str) -> None:
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
