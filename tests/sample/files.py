"""The files of the sample: the dump, its prices, and the pages that the program prints for them."""

import csv
import gzip
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Final

from predicates.snapshot import Snapshot
from rescheduler.cli.console import rendered
from rescheduler.cli.explain import ExplainPage
from rescheduler.cli.plan_page import glance, page
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy, Survive
from rescheduler.planning.what_if.comparison import surge_lever, with_lever
from rescheduler.planning.what_if.levers import rank_levers
from rescheduler.planning.what_if.overview import Overview, overview
from rescheduler.planning.what_if.worth_curve import worth_curve
from tests.planning.builders import snapshot
from tests.sample import cluster

_DOCS: Final = Path(__file__).parents[2] / "docs"
DUMP: Final = _DOCS / "sample.json.gz"
PRICES: Final = _DOCS / "sample-prices.csv"
PAGES: Final = Path(__file__).with_name("pages")
WIDTHS: Final = (80, 120, 200)

_POLICY: Final = Policy(budgets_in_steps=True)
_CIRCUMSTANCES: Final = Circumstances(cluster.NOW)


def dump() -> bytes:
    """Return the sample as ``kubectl get … -o json`` would print it, without indentation."""
    return json.dumps(
        {"apiVersion": "v1", "kind": "List", "items": list(cluster.items())}, separators=(",", ":")
    ).encode()


def packed() -> bytes:
    """Return the dump as gzip, without a time, so that it is the same in every run."""
    return gzip.compress(dump(), 9, mtime=0)


def prices() -> PriceList:
    """Return the prices of the sample, in dollars."""
    with PRICES.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    keys = [(row["instance_type"], row["zone"], row["capacity_type"] == "spot") for row in rows]
    return PriceList({key: Decimal(row["price"]) for key, row in zip(keys, rows, strict=True)}, currency="$")


def pages() -> dict[str, str]:
    """Return the pages for the sample by file name."""
    objects = snapshot(cluster.items())
    planner = Planner(objects, _POLICY)
    result = _overview(objects, planner)
    return {
        f"{command}-{width}.txt": text + "\n"
        for width in WIDTHS
        for command, text in (
            ("plan", rendered(glance(result, width), width)),
            ("details", _plan(result, objects, width)),
            ("wide", _plan(result, objects, width, wide=True)),
            ("explain", _explain(objects, planner, width)),
        )
    }


def _plan(result: Overview, objects: Snapshot, width: int, *, wide: bool = False) -> str:
    return rendered(page(result, objects, cluster.NOW, wide=wide), width)


def _overview(objects: Snapshot, planner: Planner) -> Overview:
    """Return the plan with all its levers."""
    planning = planner.plan_all(_CIRCUMSTANCES)
    ranked = rank_levers(planning, planner.round(_CIRCUMSTANCES), prices(), lambda: False)
    surge = surge_lever(planning, objects, _POLICY, replace(_CIRCUMSTANCES, prices=prices()))
    if surge is not None:
        ranked = with_lever(ranked, surge)
    certificate = planner.certificate(_CIRCUMSTANCES, Survive.POOL, planning.plans)
    priced = replace(_CIRCUMSTANCES, prices=prices())
    known = overview(planning, objects, prices(), ranked.levers)
    curve = worth_curve(planner, known, objects, priced, lambda: False, whole=False)
    return replace(known, survival=certificate, curve=curve)


def _explain(objects: Snapshot, planner: Planner, width: int) -> str:
    """Return the output of ``explain NODE`` for the nodes that run the cache of the CI."""
    explained = ExplainPage(planner, objects, _CIRCUMSTANCES, wide=False)
    nodes = [machine.name for machine in cluster.machines() if "pool" in machine.labels]
    parts = [explained.node(name) for name in nodes]
    parts += [
        explained.pod(planner.explain(pod, _CIRCUMSTANCES)) for pod in planner.must_move(nodes[0], _CIRCUMSTANCES)
    ]
    return "\n".join(rendered(part, width) for part in parts)


def write() -> None:
    """Write the dump and the pages."""
    DUMP.write_bytes(packed())
    PAGES.mkdir(exist_ok=True)
    for name, text in pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")
