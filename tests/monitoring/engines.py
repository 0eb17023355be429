"""Prometheus's own engines over recorded series: promtool for alerts with their delays, a server for queries."""

import contextlib
import math
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import yaml
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from devcluster.debian import Prometheus
from devcluster.ports import reserve
from tests.monitoring.recording import EVERY, Recording

_READY_SECONDS: Final = 120


def unexpected_alerts(
    prometheus: Prometheus,
    folder: Path,
    rules: Mapping[str, Any],
    recording: Recording,
    expected: Mapping[int, set[tuple[str, str]]],
) -> str:
    """Return promtool's report if the alerts differ from *expected*, (cluster, alert) by minute; otherwise ""."""
    checks = [
        {
            "expr": 'group by (cluster, alertname) (ALERTS{alertstate="firing"})',
            "eval_time": f"{minute}m",
            "exp_samples": [
                {"labels": _labels({"cluster": cluster, "alertname": alert} if cluster else {"alertname": alert})}
                | {"value": 1}
                for cluster, alert in firing
            ],
        }
        for minute, firing in expected.items()
    ]
    series = recording.input_series(max(expected) + 1)
    return _report(prometheus, folder, rules, [{"input_series": series, "promql_expr_test": checks}])


@dataclass(frozen=True)
class ExpectedAlert:
    """A firing alert with its texts. *labels* are those besides the severity."""

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    severity: str


def unexpected_texts(
    prometheus: Prometheus,
    folder: Path,
    rules: Mapping[str, Any],
    recording: Recording,
    minute: int,
    expected: Iterable[ExpectedAlert],
) -> str:
    """Return promtool's report if an alert has other labels or texts at *minute* than expected; "" if none has.

    The label ``cluster`` of an alert determines which part of *recording* is used.
    """
    tests = []
    for alert in expected:
        fired = {
            "exp_labels": {**alert.labels, "severity": alert.severity},
            "exp_annotations": dict(alert.annotations),
        }
        check = {"alertname": alert.name, "eval_time": f"{minute}m", "exp_alerts": [fired]}
        series = recording.of_cluster(alert.labels["cluster"]).input_series(minute + 1)
        tests.append({"input_series": series, "alert_rule_test": [check]})
    return _report(prometheus, folder, rules, tests)


def _report(prometheus: Prometheus, folder: Path, rules: Mapping[str, Any], tests: Iterable[Mapping[str, Any]]) -> str:
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    timed = [{"interval": f"{EVERY}m", **test} for test in tests]
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": timed}))
    command = [str(prometheus.promtool), "test", "rules", str(file)]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return "" if ended.returncode == 0 else ended.stdout + ended.stderr


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


class QueryServer:
    """A Prometheus server for queries about a recording."""

    def __init__(self, url: str) -> None:
        self._client = httpx2.Client(base_url=url, trust_env=False, timeout=60)

    def __call__(self, query: str, minute: int) -> list[dict[str, Any]]:
        """Return the samples of *query* at *minute*. Raises httpx2.HTTPStatusError if Prometheus rejects it."""
        response = self._client.get("/api/v1/query", params={"query": query, "time": str(minute * 60)})
        samples: list[dict[str, Any]] = response.raise_for_status().json()["data"]["result"]
        return samples

    def highest(self, query: str, minutes: int, step: int) -> list[tuple[dict[str, str], float]]:
        """Return the labels and the highest value of each series of *query*, evaluated every *step* minutes.

        Raises httpx2.HTTPStatusError if Prometheus rejects it.
        """
        period = {"start": "0", "end": str(minutes * 60), "step": str(step * 60)}
        response = self._client.get("/api/v1/query_range", params={"query": query} | period)
        series = response.raise_for_status().json()["data"]["result"]
        numbers = [(each["metric"], [float(value) for _, value in each["values"]]) for each in series]
        return [(labels, max((v for v in values if not math.isnan(v)), default=math.nan)) for labels, values in numbers]

    def wait(self) -> None:
        """Wait until the server is ready. Raises httpx2.HTTPError if it is not ready in time."""
        attempts = Retrying(
            retry=retry_if_exception_type(httpx2.HTTPError),
            wait=wait_fixed(0.1),
            stop=stop_after_delay(_READY_SECONDS),
            reraise=True,
        )
        attempts(lambda: self._client.get("/-/ready").raise_for_status())

    def close(self) -> None:
        self._client.close()


@contextlib.contextmanager
def serving_recording(prometheus: Prometheus, folder: Path, recording: Recording) -> Iterator[QueryServer]:
    """Run a Prometheus server whose database contains *recording*."""
    config, page, data = folder / "prometheus.yml", folder / "openmetrics", folder / "data"
    config.write_text("{}")
    page.write_text(recording.openmetrics())
    subprocess.run([prometheus.promtool, "tsdb", "create-blocks-from", "openmetrics", page, data], check=True)
    with contextlib.ExitStack() as parts:
        address = f"127.0.0.1:{reserve(parts)}"
        command = [
            str(prometheus.prometheus),
            f"--config.file={config}",
            f"--storage.tsdb.path={data}",
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address={address}",
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        parts.callback(process.wait)
        parts.callback(process.kill)
        server = QueryServer(f"http://{address}")
        parts.callback(server.close)
        server.wait()
        yield server
