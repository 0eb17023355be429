"""How long the report and the status page of a large cluster take: rendering, and loading in a browser."""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser

from rescheduler.observe.prepared_pages import StatusPage
from rescheduler.observe.status import Board
from rescheduler.pages.report import as_html
from tests.bench.result import Result
from tests.observe.builders import planned
from tests.pages.browser import browser
from tests.pages.clusters import planned as overview_of
from tests.planning.builders import NOW

ON_DEMAND: Final = 2000
SPOT: Final = 3000
_TIMES: Final = 3


def run() -> Iterator[Result]:
    """Yield the seconds until the report is loaded, and until the status page is rendered again for one change."""
    overview = overview_of(ON_DEMAND, SPOT)
    board, page = (
        Board(planned=replace(planned(*overview.planning.verdicts), facts=overview.nodes), prices=overview.prices),
        StatusPage(),
    )
    with browser() as chromium, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        rendering, loading = [], []
        for _ in range(_TIMES):
            start = time.perf_counter()
            text = as_html(overview, NOW)
            rendering.append(time.perf_counter() - start)
            file.write_text(text, encoding="utf-8")
            loading.append(_loading(chromium, file.as_uri()))
    first = _seconds(page, board)
    again = min(_seconds(page, board) for _ in range(_TIMES))
    nodes = f"{ON_DEMAND + SPOT:,} nodes"
    own, browsers = min(rendering), min(loading)
    yield Result(
        f"report of {nodes}: rendered and loaded", f"{own:.2f} s", f"{browsers:.2f} s", own + browsers, "s", 2, 1
    )
    yield Result(
        f"status page of {nodes}: without a new plan, with one",
        f"{again:.3f} s",
        f"{first:.2f} s",
        again,
        "s",
        0.1,
        0.02,
    )


def _loading(chromium: Browser, address: str) -> float:
    page = chromium.new_page()
    start = time.perf_counter()
    page.goto(address)
    page.locator("details.node").first.wait_for(state="visible")
    seconds = time.perf_counter() - start
    page.close()
    return seconds


def _seconds(page: StatusPage, board: Board) -> float:
    start = time.perf_counter()
    page.as_html(board)
    return time.perf_counter() - start
