"""The programs behind ``make scale`` on a small cluster: all measurements work, but their values are not checked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from predicates.snapshot import Snapshot
from rescheduler.clock import SystemClock
from rescheduler.errors import Expired
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from rescheduler.kube.state import ClusterState, read_cluster
from tests.kube.conftest import eventually
from tests.scale.extras import avoid_spot
from tests.scale.figures import ScaleFigures
from tests.scale.growth import growth
from tests.scale.measuring import with_eviction
from tests.scale.rounds import requested, slowest, watched
from tests.scale.server import StandIn, standin
from tests.scale.server import eventually as eventually_running
from tests.scale.subjects import daemon, informers

NODES, PODS = 50, 500
SECONDS = 180.0  #: timeout of the tests


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with standin(tmp_path_factory.mktemp("standin"), NODES, PODS) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: StandIn) -> Client:
    return Client(Kubeconfig(str(server.kubeconfig)), SystemClock())


def _places(snapshot: Snapshot) -> dict[str, str]:
    """Return the node of each pod."""
    return {key: pod.node_name or "" for key, pod in snapshot.pods.items()}


def _figures(subject: str, nodes: int, round_idle: float | None) -> ScaleFigures:
    """Return figures that grow with the cluster."""
    value = float(nodes)
    return ScaleFigures(
        subject, "stand-in", nodes, 10 * nodes, value, value, value, value, value, value, value, round_idle
    )


def test_the_cluster_is_listed_completely(client: Client) -> None:
    snapshot = read_cluster(client, SystemClock())
    assert (len(snapshot.nodes.row), len(snapshot.pods), snapshot.unreadable) == (NODES, PODS, ())


@pytest.mark.parametrize("page_size", [7, 499, 500], ids=str)
@pytest.mark.parametrize("kind", ["status", "turnover"])
def test_a_watch_has_all_changes(server: StandIn, client: Client, page_size: int, kind: str) -> None:
    state = ClusterState(client, SystemClock(), page_size=page_size)
    state.start()
    try:
        eventually(lambda: state.synced)
        assert server.churn(kind, rate=300, seconds=1) == 300
        expected = _places(read_cluster(client, SystemClock()))
        eventually(lambda: _places(state.snapshot()) == expected)
        assert state.errors == {}
    finally:
        state.stop(60.0)


def test_a_watch_from_before_the_first_event_has_expired(client: Client) -> None:
    query = {"watch": "true", "resourceVersion": "1"}
    with pytest.raises(Expired, match="too old resource version: 1"):
        client.stream("watch pods", "/api/v1/pods", query=query, idle_seconds=30)


def test_the_informers_of_client_go_read_the_same_cluster(server: StandIn, tmp_path: Path) -> None:
    with informers(server.kubeconfig, tmp_path) as subject:
        eventually_running(subject.ready, subject.process, SECONDS)
        assert f"synced {PODS} pods" in subject.process.log.read_text()


def test_the_daemon_plans_and_reports_its_rounds(server: StandIn, tmp_path: Path) -> None:
    flags = ("--dry-run", "--housekeeping-interval=200ms")
    with daemon(server.kubeconfig, tmp_path, *flags) as subject:
        eventually_running(subject.ready, subject.process, SECONDS)
        with watched(subject) as rounds, requested(subject, "/statusz") as requests:
            eventually_running(lambda: rounds.plannings and requests, subject.process, SECONDS)
        assert rounds.longest is not None
        assert min(rounds.longest, slowest(requests)) > 0
    assert [call for call in server.calls() if call["verb"] not in ("GET", "POST")] == []


def test_a_drain_is_measured_from_its_mark_to_its_last_eviction(server: StandIn, tmp_path: Path) -> None:
    measured = with_eviction(_figures("daemon", NODES, 0.0), server, tmp_path, SECONDS)
    assert measured.eviction is not None
    assert measured.eviction > 0
    on_demand = [call["path"] for call in server.calls() if call["verb"] == "PATCH" and "/nodes/od-" in call["path"]]
    assert len(set(on_demand)) == 1


def test_spot_nodes_are_avoided_after_a_taint(server: StandIn, client: Client) -> None:
    avoid_spot(server)
    nodes = list(read_cluster(client, SystemClock()).nodes)
    tainted = {node.name for node in nodes if any(taint.effect == "PreferNoSchedule" for taint in node.spec.taints)}
    assert tainted == {node.name for node in nodes if node.name.startswith("spot-")}


def test_the_picture_has_a_line_for_each_program_and_figure() -> None:
    runs = [
        _figures(subject, nodes, idle)
        for nodes in (500, 1000)
        for subject, idle in (("daemon", 1.0), ("informers", None))
    ]
    document = growth(runs)
    assert document.count("<polyline") == 2 * 8
    assert document.count("<circle") == 2 * (2 * 7 + 1)
