"""Prometheus's own engines over recorded series: promtool for alerts with their delays, a server for queries."""

import contextlib
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import yaml

from devcluster.debian import Prometheus
from devcluster.ports import reserve
from tests.monitoring.recording import EVERY, Recording


def unlike_expected(
    prometheus: Prometheus,
    folder: Path,
    rules: Mapping[str, Any],
    recording: Recording,
    expected: Mapping[int, set[tuple[str, str]]],
) -> str:
    """Return promtool's report if other alerts fire than *expected*: by minute, (cluster, alert); "" if none does."""
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
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    test = {"interval": f"{EVERY}m", "input_series": series, "promql_expr_test": checks}
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}))
    command = [str(prometheus.promtool), "test", "rules", str(file)]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return "" if ended.returncode == 0 else ended.stdout + ended.stderr


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


class QueryServer:
    """A Prometheus server that answers queries about a recording."""

    def __init__(self, url: str) -> None:
        self._client = httpx2.Client(base_url=url, trust_env=False, timeout=60)

    def __call__(self, query: str, minute: int) -> list[dict[str, Any]]:
        """Return the samples of *query* at *minute*. Raises httpx2.HTTPStatusError if Prometheus rejects it."""
        answer = self._client.get("/api/v1/query", params={"query": query, "time": str(minute * 60)})
        samples: list[dict[str, Any]] = answer.raise_for_status().json()["data"]["result"]
        return samples

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the server is ready. Raises ChildProcessError if it ends."""
        while process.poll() is None:
            with contextlib.suppress(httpx2.TransportError):
                if self._client.get("/-/ready").is_success:
                    return
            time.sleep(0.1)
        raise ChildProcessError(f"prometheus ended with the code {process.returncode}")

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
        server.wait(process)
        yield server
