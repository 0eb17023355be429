"""What the proxy counts."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from prometheus_client import CollectorRegistry

from rescheduler.observe.events import Chosen, NodeRef
from rescheduler.planning.outcome import Blocker, Plan, Reason, Rejected
from rescheduler.proxy.app import Patience
from rescheduler.proxy.metrics import NAME, ProxyMetrics
from tests.cluster.waiting import eventually
from tests.proxy.backend import Asked, Backend, failing, proxying, running

SIZE = b'{"desiredSize": 1}'


@pytest.fixture
def backend() -> Iterator[Backend]:
    with running(Backend()) as made:
        yield made


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def counted(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    """The samples of a metric that are not zero, by the values of their labels."""
    samples = [sample for family in registry.collect() for sample in family.samples]
    return {tuple(one.labels.values()): one.value for one in samples if one.name == f"{NAME}{name}" and one.value}


def test_requests_by_route_and_code(backend: Backend, registry: CollectorRegistry) -> None:
    asked = Asked(failing(503, "not read yet"))
    with proxying(backend.url, asked, token=lambda: "right", metrics=ProxyMetrics(registry)) as url:
        shown = {"authorization": "Bearer right"}
        httpx.get(f"{url}/pool", headers=shown, timeout=60)
        httpx.get(f"{url}/pool", timeout=60)
        backend.status = 404
        httpx.get(f"{url}/nothing", headers=shown, timeout=60)
        httpx.post(f"{url}/pool/size", content=SIZE, headers=shown, timeout=60)
        httpx.post(f"{url}/pool/size", content=b"{}", headers=shown, timeout=60)
        httpx.post(f"{url}/other/terminate", content=b"{}", headers=shown, timeout=60)
    assert counted(registry, "requests_total") == {
        ("forward", "200"): 1,
        ("forward", "401"): 1,
        ("forward", "404"): 1,
        ("size", "503"): 1,
        ("size", "400"): 1,
        ("forbidden", "500"): 1,
    }
    assert counted(registry, "forward_duration_seconds_count") == {(): 2}


#: what an update says, or how it fails: its result
RESULTS = [(lambda: "", "done"), (lambda: "1 of 2 machines were removed: why", "partly"), (failing(502, "x"), "failed")]


@pytest.mark.parametrize(("does", "result"), RESULTS, ids=[result for _, result in RESULTS])
def test_updates_by_result(does: Callable[[], str], result: str, backend: Backend, registry: CollectorRegistry) -> None:
    with proxying(backend.url, Asked(does), metrics=ProxyMetrics(registry)) as url:
        httpx.post(f"{url}/pool/size", content=SIZE, timeout=60)
        httpx.post(f"{url}/pool/terminate", content=b'{"machineId": "i-1"}', timeout=60)
    assert counted(registry, "updates_total") == {("size", result): 1, ("terminate", result): 1}
    assert counted(registry, "update_duration_seconds_count") == {("size",): 1, ("terminate",): 1}


def test_updates_that_wait_and_those_whose_turn_never_came(backend: Backend, registry: CollectorRegistry) -> None:
    entered, opened = threading.Event(), threading.Event()

    def hold() -> str:
        entered.set()
        assert opened.wait(120)
        return ""

    metrics = ProxyMetrics(registry)
    with (
        proxying(backend.url, Asked(hold), patience=Patience(60.0, 60.0), metrics=metrics) as url,
        ThreadPoolExecutor(2) as clients,
    ):
        first = clients.submit(httpx.post, f"{url}/pool/size", content=SIZE, timeout=60)
        assert entered.wait(60)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/pool/size", content=SIZE, timeout=httpx.Timeout(60, read=0.5))
        second = clients.submit(httpx.post, f"{url}/pool/size", content=SIZE, timeout=60)
        eventually(lambda: counted(registry, "requests_total") == {("size", "none"): 1})
        eventually(lambda: counted(registry, "updates_waiting") == {(): 1})
        opened.set()
        assert [first.result().status_code, second.result().status_code] == [200, 200]
    assert counted(registry, "updates_total") == {("size", "client-gone"): 1, ("size", "done"): 2}
    assert counted(registry, "updates_waiting") == {}


def test_victims_and_the_reasons_of_those_that_stay(registry: CollectorRegistry) -> None:
    metrics = ProxyMetrics(registry)
    blockers = (Blocker(Reason.LOCAL_STORAGE, "why", "default/a"), Blocker(Reason.NO_ROOM, "why", "default/b"))
    nodes = {name: NodeRef(name, name) for name in ("a", "b")}
    metrics(Chosen((Plan("a", ()),), (Rejected("b", blockers),), nodes))
    assert counted(registry, "victims_total") == {(): 1}
    assert counted(registry, "rejections_total") == {("local-storage",): 1}
