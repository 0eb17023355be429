"""Metrics of the proxy."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from prometheus_client import CollectorRegistry

from rescheduler.cloudpool.proxy.app import ClientTimeouts
from rescheduler.cloudpool.proxy.paths import NAME, ProxyMetrics, UpdateResult
from rescheduler.observe.events import Chosen, InvolvedNode
from rescheduler.planning.outcome import Blocker, Plan, Reason, Rejected
from tests.cluster.waiting import eventually
from tests.proxy.backend import JSON, Backend, RecordedUpdates, failing, proxying

SIZE = b'{"desiredSize": 1}'


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def counted(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a metric that are not zero, by label values."""
    samples = [sample for family in registry.collect() for sample in family.samples]
    return {
        tuple(sample.labels.values()): sample.value
        for sample in samples
        if sample.name == f"{NAME}{name}" and sample.value
    }


def test_counters_start_at_zero() -> None:
    registry = CollectorRegistry()
    ProxyMetrics(registry)
    zeros = {
        (sample.name.removeprefix(NAME), *sample.labels.values())
        for family in registry.collect()
        if family.type == "counter"
        for sample in family.samples
        if sample.value == 0
    }
    updates = {
        ("updates_total", operation, result.value)
        for operation in ("size", "terminate", "detach", "membership")
        for result in UpdateResult
    }
    assert {zero for zero in zeros if zero[0] == "updates_total"} == updates
    assert {zero for zero in zeros if zero[0] == "rejections_total"} == {
        ("rejections_total", reason.value) for reason in Reason
    }
    assert {("requests_total", "size", "503"), ("requests_total", "forward", "none"), ("victims_total",)} <= zeros


def test_requests_are_counted_by_route_and_code(backend: Backend, registry: CollectorRegistry) -> None:
    asked = RecordedUpdates(failing(503, "not read yet"))
    with proxying(backend.url, asked, token=lambda: "right", metrics=ProxyMetrics(registry)) as url:
        shown = {"authorization": "Bearer right"}
        httpx2.get(f"{url}/pool", headers=shown, timeout=60)
        httpx2.get(f"{url}/pool", timeout=60)
        backend.status = 404
        httpx2.get(f"{url}/nothing", headers=shown, timeout=60)
        httpx2.post(f"{url}/pool/size", content=SIZE, headers=shown | JSON, timeout=60)
        httpx2.post(f"{url}/pool/size", content=b"{}", headers=shown | JSON, timeout=60)
        httpx2.post(f"{url}/other/terminate", content=b"{}", headers=shown | JSON, timeout=60)
    assert counted(registry, "requests_total") == {
        ("forward", "200"): 1,
        ("forward", "401"): 1,
        ("forward", "404"): 1,
        ("size", "503"): 1,
        ("size", "400"): 1,
        ("forbidden", "500"): 1,
    }
    assert counted(registry, "forward_duration_seconds_count") == {(): 2}


#: result or failure of an update: label value
RESULTS = [(lambda: "", "done"), (lambda: "1 of 2 machines were removed: why", "partly"), (failing(502, "x"), "failed")]


@pytest.mark.parametrize(("does", "result"), RESULTS, ids=[result for _, result in RESULTS])
def test_updates_are_counted_by_result(
    does: Callable[[], str], result: str, backend: Backend, registry: CollectorRegistry
) -> None:
    with proxying(backend.url, RecordedUpdates(does), metrics=ProxyMetrics(registry)) as url:
        httpx2.post(f"{url}/pool/size", content=SIZE, headers=JSON, timeout=60)
        httpx2.post(f"{url}/pool/terminate", content=b'{"machineId": "i-1"}', headers=JSON, timeout=60)
    assert counted(registry, "updates_total") == {("size", result): 1, ("terminate", result): 1}
    assert counted(registry, "update_duration_seconds_count") == {("size",): 1, ("terminate",): 1}


def test_waiting_and_timed_out_updates_are_counted(backend: Backend, registry: CollectorRegistry) -> None:
    entered, opened = threading.Event(), threading.Event()

    def hold() -> str:
        entered.set()
        assert opened.wait(120)
        return ""

    metrics = ProxyMetrics(registry)
    with (
        proxying(backend.url, RecordedUpdates(hold), patience=ClientTimeouts(60.0, 60.0), metrics=metrics) as url,
        ThreadPoolExecutor(2) as clients,
    ):
        first = clients.submit(httpx2.post, f"{url}/pool/size", content=SIZE, headers=JSON, timeout=60)
        assert entered.wait(60)
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(f"{url}/pool/size", content=SIZE, headers=JSON, timeout=httpx2.Timeout(60, read=0.5))
        second = clients.submit(httpx2.post, f"{url}/pool/size", content=SIZE, headers=JSON, timeout=60)
        eventually(lambda: counted(registry, "requests_total") == {("size", "none"): 1})
        eventually(lambda: counted(registry, "updates_waiting") == {(): 1})
        opened.set()
        assert [first.result().status_code, second.result().status_code] == [200, 200]
    assert counted(registry, "updates_total") == {("size", "client-gone"): 1, ("size", "done"): 2}
    assert counted(registry, "updates_waiting") == {}


def test_victims_and_blockers_are_counted(registry: CollectorRegistry) -> None:
    metrics = ProxyMetrics(registry)
    blockers = (Blocker(Reason.LOCAL_STORAGE, "why", "default/a"), Blocker(Reason.NO_ROOM, "why", "default/b"))
    nodes = {name: InvolvedNode(name, name) for name in ("a", "b")}
    metrics(Chosen((Plan("a", ()),), (Rejected("b", blockers),), nodes))
    assert counted(registry, "victims_total") == {(): 1}
    assert counted(registry, "rejections_total") == {("local-storage",): 1}
