"""The assembly of the daemon, up to the moment when its pages are served."""

from pathlib import Path
from typing import NoReturn

import httpx2
import pytest
from starlette.applications import Starlette

from rescheduler.errors import ReschedulerError
from rescheduler.housekeeping import composition
from rescheduler.net.server import serving
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.policy import Policy
from rescheduler.settings import ApiServerConnection, ListenAddress, Logging, Running

KUBECONFIG = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
"""


def test_the_first_scrape_has_the_metrics(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The pages are scraped as soon as their address accepts connections, before the other parts are started."""
    pages: list[str] = []

    def scraped(application: Starlette, listen: ListenAddress) -> NoReturn:
        with serving(application, listen) as address:
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
