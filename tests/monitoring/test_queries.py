"""The shipped alerts and the dashboard use existing metrics; promtool checks when the alerts fire."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from devcluster.debian import Prometheus
from rescheduler.observe.metrics import PREFIX, Metrics

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = yaml.safe_load((DEPLOY / "components" / "alerts" / "rules.yaml").read_text())["spec"]
DASHBOARD = json.loads((DEPLOY / "dashboards" / "spot-rescheduler.json").read_text())

#: Alert → series in promtool's notation (start+step×count, one minute per step), and the minute at which it fires.
FIRING = {
    "SpotReschedulerMissing": (["up 0x60"], 15),
    "SpotReschedulerStalled": (["last_success_timestamp_seconds 0x60"], 40),
    "SpotReschedulerLeaders": (["leader{pod='a'} 1x60", "leader{pod='b'} 1x60"], 15),
    "SpotReschedulerDrainsFail": (["drain_failures_total{cause='eviction-timeout'} 0+0.2x60"], 40),
    "SpotReschedulerMachineNotRemoved": (["node_removals_total{backend='cloudpool',result='failed'} 0x10 1x50"], 20),
    "SpotReschedulerPodsComeBack": (["returned_pods_total 0+1x400", "evicted_pods_total 0+2x400"], 390),
}
#: A day without problems.
QUIET = [
    "build_info 1x400",
    "last_success_timestamp_seconds 0+60x400",
    "leader{pod='a'} 1x400",
    "leader{pod='b'} 0x400",
    "drain_failures_total{cause='eviction-timeout'} 1x400",
    "drain_failures_total{cause='refused'} 0+0.2x400",
    "node_removals_total{backend='cloudpool',result='deleted'} 0+1x400",
    "node_removals_total{backend='cloudpool',result='refused'} 0+0.2x400",
    "returned_pods_total 0+0.1x400",
    "evicted_pods_total 0+2x400",
]


def alerts() -> Iterator[dict[str, Any]]:
    for group in RULES["groups"]:
        yield from group["rules"]


def queries() -> Iterator[str]:
    yield from (alert["expr"] for alert in alerts())
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "5m")


def exposed() -> set[str]:
    """Return every metric name that a page of the daemon can show."""
    registry = CollectorRegistry()
    Metrics(registry)
    names = set()
    for family in registry.collect():
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        names |= {family.name + suffix for suffix in suffixes}
    return names


def test_every_query_uses_existing_metrics() -> None:
    asked = {name for query in queries() for name in re.findall(rf"{PREFIX}\w+", query)}
    assert asked
    assert asked <= exposed()


def test_prometheus_parses_every_query(prometheus: Prometheus, tmp_path: Path) -> None:
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries())]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    checked = subprocess.run([prometheus.promtool, "check", "rules", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert f"{len(rules)} rules found" in checked.stdout


def test_every_alert_has_a_case() -> None:
    assert [alert["alert"] for alert in alerts()] == list(FIRING)


@pytest.mark.parametrize("alert", FIRING)
def test_an_alert_fires(alert: str, prometheus: Prometheus, tmp_path: Path) -> None:
    series, minute = FIRING[alert]
    assert fires(alert, series, minute, prometheus, tmp_path)


@pytest.mark.parametrize("alert", FIRING)
def test_no_alert_fires_without_problems(alert: str, prometheus: Prometheus, tmp_path: Path) -> None:
    assert not fires(alert, QUIET, 390, prometheus, tmp_path)


def fires(alert: str, series: list[str], minute: int, prometheus: Prometheus, folder: Path) -> bool:
    """Return whether *alert* fires at *minute*; promtool must confirm exactly one of the two answers."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(RULES))
    query = {"expr": f"count(ALERTS{{alertname='{alert}', alertstate='firing'}})", "eval_time": f"{minute}m"}
    inputs = []
    for line in series:
        name, _, values = line.rpartition("} ") if "}" in line else line.rpartition(" ")
        full = (PREFIX if name != "up" else "") + name + ("}" if "}" in line else "")
        inputs.append({"series": full.replace("'", '"'), "values": values})
    answers = {
        expected: promtool_passes(prometheus, folder, inputs, {**query, "exp_samples": samples})
        for expected, samples in ((True, [{"labels": "{}", "value": 1}]), (False, []))
    }
    assert sum(answers.values()) == 1, answers
    return answers[True]


def promtool_passes(
    prometheus: Prometheus, folder: Path, series: list[dict[str, str]], expected: dict[str, Any]
) -> bool:
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [expected]}
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}))
    command = [str(prometheus.promtool), "test", "rules", str(file)]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0
