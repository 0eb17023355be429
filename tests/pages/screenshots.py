"""Render the pictures in docs from the sample cluster: ``python -m tests.pages.screenshots``."""

import contextlib
import html
import io
import os
import re
import shlex
import tempfile
from datetime import timedelta
from math import ceil
from pathlib import Path
from typing import Final

import click
from playwright.sync_api import Browser, Page
from prometheus_client import CollectorRegistry

from predicates.snapshot import Snapshot
from rescheduler import VERSION
from rescheduler.cli import cli
from rescheduler.cli.policy_options import read_prices
from rescheduler.clock import SystemClock
from rescheduler.net.server import serving
from rescheduler.observe.events import (
    DrainProgressed,
    DrainStarted,
    InvolvedNode,
    Overviewed,
    Planned,
    PodProgress,
    Started,
)
from rescheduler.observe.pages import Health, application
from rescheduler.observe.status import Status
from rescheduler.planning.money.prices import PriceList, node_facts
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.what_if.comparison import levers_of
from rescheduler.planning.what_if.overview import overview
from rescheduler.settings import ListenAddress
from rescheduler.snapshot_file import reader
from tests.pages.browser import browser

DOCS: Final = Path(__file__).parents[2] / "docs"
SAMPLE: Final = DOCS / "sample.json.gz"
#: The size of the pictures in CSS pixels.
WIDTH, HEIGHT, MARGIN = 1200, 1000, 24
#: The last part that the pictures of pages show.
LEVERS: Final = "#levers"
#: The options of the picture in docs/surviving.md.
HEADROOM: Final = (
    "--fallback-headroom=130%",
    f"--prices={os.path.relpath(DOCS / 'sample-prices.csv')}",
    "--currency=$",
)


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--snapshot", default=str(SAMPLE), show_default=True, help="The cluster to show.")
@click.option("--folder", type=click.Path(path_type=Path), default=DOCS, help="Where the pictures are written.")
@click.argument("options", nargs=-1, metavar="[OPTION OF REPORT]...")
def main(snapshot: str, folder: Path, options: tuple[str, ...]) -> None:
    """Render the pictures of the documentation."""
    options = ("--levers-timeout=5m", *options)
    with browser() as chromium:
        shoot_plan(chromium, snapshot, folder / "plan.png")
        shoot_report(chromium, snapshot, options, folder / "report.png", until=LEVERS)
        shoot_status(chromium, reader.read(snapshot), folder / "status.png")
        shoot_report(chromium, snapshot, (*options, *HEADROOM), folder / "surviving.png", part="#survival")


class _Terminal(io.StringIO):
    """A terminal: what is written to it has colors."""

    def isatty(self) -> bool:
        return True


#: The look of a terminal, and what replaces its colors.
_STYLE: Final = (
    "body{margin:0;background:#1d2021}pre{margin:0;padding:16px 20px;display:inline-block;color:#e6e6e6;"
    "font:14px/1.35 'DejaVu Sans Mono','Liberation Mono',Menlo,Consolas,monospace}b{color:#fff}"
    ".c31{color:#fb4934}.c32{color:#8ec07c}.c33{color:#fabd2f}"
)
_COLOR: Final = re.compile(r"\x1b\[([0-9;]*)m")
_TAGS: Final = {"31": '<b class="c31">', "32": '<b class="c32">', "33": '<b class="c33">'}


def as_html(text: str, typed: str) -> str:
    """Return the page of a terminal in which the command *typed* has printed *text*."""
    pieces, opened = [], 0
    for number, piece in enumerate(_COLOR.split(text)):
        if number % 2 == 0:
            pieces.append(html.escape(piece))
        elif piece in ("", "0"):
            pieces.append("</b>" * opened)
            opened = 0
        else:
            pieces.append(_TAGS.get(piece, "<b>"))
            opened += 1
    body = f"$ {html.escape(typed)}\n{''.join(pieces)}"
    return f'<!doctype html><meta charset="utf-8"><style>{_STYLE}</style><pre id="terminal">{body}</pre>'


def shoot_plan(chromium: Browser, snapshot: str, picture: Path) -> None:
    """Render what ``plan`` prints in a terminal of 80 columns."""
    prices = ("--prices", os.path.relpath(DOCS / "sample-prices.csv"), "--currency=$")
    arguments = ["plan", "--snapshot", os.path.relpath(snapshot), *prices]
    terminal = _Terminal()
    os.environ["COLUMNS"] = "80"
    with contextlib.redirect_stdout(terminal):
        cli.main(arguments, prog_name="rescheduler", standalone_mode=False)
    page = _page(chromium)
    page.set_content(as_html(terminal.getvalue(), f"rescheduler {shlex.join(arguments)}"))
    page.locator("#terminal").screenshot(path=picture)
    page.close()


def shoot_report(
    chromium: Browser,
    snapshot: str,
    options: tuple[str, ...],
    picture: Path,
    *,
    part: str | None = None,
    until: str | None = None,
) -> None:
    """Render the report: one *part*, or the page down to the end of the part *until*."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        arguments = ["report", "--snapshot", os.path.relpath(snapshot), "--output-file", str(file), *options]
        cli.main(arguments, prog_name="rescheduler", standalone_mode=False)
        _shoot(_page(chromium), file.as_uri(), picture, part, until)


def shoot_status(chromium: Browser, cluster: Snapshot, picture: Path) -> None:
    status, health = _status(cluster), Health(SystemClock(), 10, lambda: True)
    with serving(application(CollectorRegistry(), health, status), ListenAddress("127.0.0.1", 0)) as address:
        _shoot(_page(chromium), f"http://{address}/statusz", picture, until=LEVERS)


def _status(cluster: Snapshot) -> Status:
    """Return the status during a drain of the first node that can be drained: half of its pods have moved."""
    now = SystemClock().now()
    policy, circumstances = Policy(budgets_in_steps=True), Circumstances(now)
    planner, prices = Planner(cluster, policy), PriceList(by_type=read_prices(DOCS / "sample-prices.csv"), currency="$")
    planning, all_drains = planner.plan_each(circumstances), planner.plan_all(circumstances)
    found = levers_of(all_drains, planner, cluster, policy, circumstances, prices, lambda: False)
    total = overview(all_drains, cluster, prices, found.levers, now=now)
    nodes = {verdict.node: InvolvedNode(verdict.node, verdict.node) for verdict in planning.verdicts}
    facts = {name: node_facts(cluster, name, spot=False) for name in nodes}
    plan = next(plan for plan in planning.plans if plan.placements)
    half = len(plan.placements) // 2
    states = [PodProgress.READY if index < half else PodProgress.WAITING for index in range(len(plan.placements))]
    pods = tuple((placement.pod, state) for placement, state in zip(plan.placements, states, strict=True))
    status = Status(prices)
    status(Started(VERSION, "spot-rescheduler-7d9c5", "localhost:9235", dry_run=False))
    status(Planned(now - timedelta(seconds=10), planning, nodes, seconds=0.2, complete=True, facts=facts))
    status(Overviewed(now - timedelta(seconds=20), total))
    status(DrainStarted(nodes[plan.node], plan))
    targets = {str(placement.pod): placement.node for placement in plan.placements}
    since = {pod: now - timedelta(seconds=7 * number) for number, pod in enumerate(reversed(targets))}
    status(DrainProgressed(nodes[plan.node], "evicting", pods, targets, since))
    return status


def _page(chromium: Browser) -> Page:
    return chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT})


def _shoot(page: Page, address: str, picture: Path, part: str | None = None, until: str | None = None) -> None:
    page.goto(address)
    if until is not None and (box := page.locator(until).bounding_box()) is not None:
        page.set_viewport_size({"width": WIDTH, "height": ceil(box["y"] + box["height"]) + MARGIN})
    (page if part is None else page.locator(part)).screenshot(path=picture)
    page.close()


if __name__ == "__main__":
    main()
