"""The assembly of the daemon, up to the moment when its pages are served."""

from pathlib import Path
from typing import NoReturn

import httpx2
import pytest
from starlette.applications import Starlette

from rescheduler import providers
from rescheduler.clock import SystemClock
from rescheduler.errors import ConfigError, ReschedulerError
from rescheduler.housekeeping import composition
from rescheduler.housekeeping.daemon_parts import DaemonState
from rescheduler.net.server import serving
from rescheduler.observe.events import DrainStarted, Event, RoundEnded
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.policy import Policy
from rescheduler.settings import ApiServerConnection, ListenAddress, Logging, PageHosts, Running
from tests.observe.builders import NOW, OD, PLAN, ended

KUBECONFIG = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
"""


def test_the_first_scrape_has_the_metrics(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The pages are scraped as soon as their address accepts connections, before the other parts are started."""
    pages: list[str] = []

    def scraped(application: Starlette, listen: ListenAddress, hosts: PageHosts) -> NoReturn:
        with serving(application, listen, hosts=hosts) as address:
            pages.append(httpx2.get(f"http://{address}/metrics", timeout=60).text)
        raise ReschedulerError("scraped")

    monkeypatch.setattr(composition, "serving", scraped)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    connection = ApiServerConnection(str(kubeconfig), in_cluster=False)
    running = Running(listen=ListenAddress("127.0.0.1", 0))
    with pytest.raises(ReschedulerError, match="scraped"):
        composition.run(connection, Policy(), running, Logging(), PriceList(currency="EUR"))
    samples = dict(line.rsplit(" ", 1) for line in pages[0].splitlines() if not line.startswith("#"))
    expected = {
        "spot_rescheduler_leader": "0.0",
        'spot_rescheduler_drains_total{result="failure"}': "0.0",
        'spot_rescheduler_cooldown_active{kind="paused"}': "0.0",
    }
    assert {name: samples.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ((), "SIGTERM: exiting"),
        ((DrainStarted(OD, PLAN),), "SIGTERM: rolling back the drain of node od-1, then exiting"),
        ((DrainStarted(OD, PLAN), ended()), "SIGTERM: exiting"),
        ((DrainStarted(OD, PLAN), RoundEnded(NOW, 1.0, succeeded=False)), "SIGTERM: exiting"),
    ],
    ids=["no drain", "a drain", "a drain that has ended", "a round that has ended"],
)
def test_a_signal_rolls_back_only_a_drain_that_runs(
    caplog: pytest.LogCaptureFixture, events: tuple[Event, ...], text: str
) -> None:
    state = DaemonState(SystemClock(), Running())
    for event in events:
        state.observe(event)
    state.on_stop_signal("SIGTERM")
    assert (state.stopping, caplog.messages) == (True, [text])


def test_a_bad_kubeconfig_of_the_machines_names_its_key(tmp_path: Path) -> None:
    config = tmp_path / "cloud-config"
    config.write_text("kubeconfig: management\n")
    (tmp_path / "management").write_text("clusters: []\n")
    provider = providers.load("clusterapi", config, SystemClock())
    running = Running()
    with pytest.raises(ConfigError, match=r"--cloud-config: kubeconfig: kubeconfig .*management: no current-context"):
        composition._machines_client(provider, None, None, running, SystemClock())  # type: ignore[arg-type]
