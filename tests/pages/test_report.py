"""Tests of the report's content, without a browser."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from rescheduler.cli import main
from rescheduler.pages.plan_tree import headline
from rescheduler.pages.report import as_html
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.money.worth import Worth, summed
from rescheduler.planning.outcome import Blocker, Planning, Reason, Rejected
from rescheduler.planning.what_if.overview import AddedRequests, Lever
from tests.pages.clusters import manifests, planned
from tests.planning.builders import NOW, SYSTEM_POD

HOSTILE = "<script>alert(1)</script>\"'&"


def test_the_headline_sums_up_the_plan() -> None:
    saved = "saves 396 $/month: nodes 420, their share of spot 24.64"
    bare = "ops/bare0 blocks 1"
    assert headline(planned(6, 6)) == f"3 of 6 on-demand nodes drainable; {saved}; {bare}."
    assert headline(planned(6, 6, prices=PriceList())) == f"3 of 6 on-demand nodes drainable (12 vCPU, 48 GiB); {bare}."
    assert headline(planned(1, 0)) == "0 of 1 on-demand node drainable; there is no spot node: try add-spot."


def test_nodes_without_a_price_are_counted() -> None:
    overview = planned(6, 6)
    partly = replace(overview, freed=replace(overview.freed, per_hour=Decimal("0.1"), unpriced=3))
    assert "; saves at least 396 $/month: " in headline(partly)


def test_requests_of_the_moved_pods_are_added_to_their_targets() -> None:
    overview = planned(6, 6)
    placements = [placement for plan in overview.planning.plans for placement in plan.placements]
    assert set(overview.added) == {placement.node for placement in placements}
    assert sum(added.cpu for added in overview.added.values()) == 3 * (500 + 250)
    assert all(isinstance(added, AddedRequests) and added.memory == 0 for added in overview.added.values())


def test_a_lever_is_shown_with_its_gain_its_risk_and_its_command() -> None:
    overview = planned(6, 6)
    first, second = [verdict.node for verdict in overview.planning.verdicts[:2]]
    worth = Worth.of(Decimal("0.192"), Decimal(0), Decimal("0.1"))
    lever = Lever(
        "Pod ci/job", Reason.NO_CONTROLLER, "no controller", (first, second), (first,), changes=("x",), worth=worth
    )
    page = as_html(replace(overview, levers=(lever,), levers_complete=False, command="rescheduler plan --a"), NOW)
    assert (
        '<b>Pod ci/job</b>: no controller <code>no-controller</code> <span class="error">error</span>'
        ": frees 1 node, 67.16 $/month; keeps 2 nodes." in page
    )
    assert "Risk: nothing creates the pod again." in page
    assert "add its --what-if to <code>rescheduler plan --a</code>" in page
    assert "<code>--what-if 'x'</code>" in page
    assert "The time limit ended the trials of levers: there may be more" in page


def bars(page: str) -> list[str]:
    """Return the width of each bar, that of the plan first."""
    [levers] = re.findall(r'<section id="levers".*?</section>', page)
    return re.findall(r'<rect width="([0-9.]+)" height="10" class="part">', levers)


def test_each_lever_has_a_bar_with_its_own_amount() -> None:
    """Bars are what is saved if that is known of all levers, otherwise numbers of nodes."""
    overview = planned(6, 6)
    rest = [verdict.node for verdict in overview.planning.rejected]
    assert (len(overview.planning.plans), len(rest)) == (3, 3)

    def levers(price: str | None) -> tuple[Lever, ...]:
        names = {"a": rest[:2], "b": rest[1:2], "c": rest[2:]}
        amount = None if price is None else Decimal(price)
        worths = [summed([Worth.of(amount, Decimal(0), Decimal(0))] * len(frees)) for frees in names.values()]
        return tuple(
            Lever(name, Reason.NO_ROOM, "x", tuple(frees), tuple(frees), changes=(f"unpin {name}'s",), worth=worth)
            for (name, frees), worth in zip(names.items(), worths, strict=True)
        )

    page = as_html(replace(overview, levers=levers(None)), NOW)
    assert bars(page) == ["100.0", "66.7", "33.3", "33.3"]
    assert "Each change by itself, by the number of freed nodes" in page
    room = '<code>no-room-on-spot</code> <span class="warning">warning</span>'
    assert f"<b>a</b>: x {room}: frees 2 nodes; keeps 2 nodes." in page
    assert "--what-if 'unpin a'\"'\"'s'" in page
    net = as_html(replace(overview, levers=levers("0.3")), NOW)
    assert "<b>This plan</b>: 3 nodes, 396 $/month" in net
    assert ": frees 2 nodes, 438 $/month; keeps 2 nodes." in net
    assert bars(net) == ["90.4", "100.0", "50.0", "50.0"]
    assert "by what is saved" in net
    assert "changes that free nodes only together" not in net
    joint = tuple(replace(lever, frees=(), frees_together=lever.frees) for lever in levers(None))
    together = as_html(replace(overview, levers=(*levers(None), *joint)), NOW)
    assert "by the number of freed nodes, and then changes that free nodes only together. To try" in together
    assert "levers-heading" not in as_html(overview, NOW)


def test_the_parts_have_the_order_of_plan() -> None:
    overview = planned(6, 6)
    names = tuple(verdict.node for verdict in overview.planning.rejected)
    page = as_html(replace(overview, levers=(Lever("a", Reason.NO_ROOM, "x", names, names),)), NOW)
    found = re.findall(r'<section id="([a-z]+)"', page)
    assert [name for name in found if name != "survival"] == ["sums", "reasons", "levers", "picture", "nodes"]


def test_all_values_of_the_cluster_are_escaped() -> None:
    overview = planned(1, 1)
    rejected = Rejected(HOSTILE, (Blocker(Reason.NO_CONTROLLER, HOSTILE, HOSTILE),))
    facts = {HOSTILE: replace(next(iter(overview.nodes.values())), name=HOSTILE, instance_type=HOSTILE, zone=HOSTILE)}
    lever = Lever(HOSTILE, Reason.NO_ROOM, HOSTILE, (HOSTILE,), (HOSTILE,), (HOSTILE,), (HOSTILE,))
    hostile = replace(
        overview,
        planning=Planning((rejected,), 1, 1),
        nodes=facts,
        prices=PriceList(per_vcpu=Decimal(1), currency=HOSTILE),
        freed_by_type={HOSTILE: overview.on_demand},
        levers=(lever,),
        assumptions=(HOSTILE,),
    )
    page = as_html(hostile)
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 10
    assert 'id="node-&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#x27;&amp;"' in page


def test_the_page_allows_only_its_own_style_and_script() -> None:
    page = as_html(planned(1, 1))
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.replace("&#x27;", "'").split(";"))
    for rule, tag in (("style-src", "style"), ("script-src", "script")):
        [text] = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert rules.keys() == {"default-src", "style-src", "script-src", "base-uri", "form-action"}
    assert {rules["default-src"], rules["base-uri"], rules["form-action"]} == {"'none'"}
    assert re.findall(r"https?://|\ssrc=|\son[a-z]+=|\sstyle=|<link|@import|url\(", page) == []


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*manifests(3, 3), SYSTEM_POD]}))
    return file


def status(*args: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(["report", *args])
    return ended.value.code


def test_the_command_writes_to_a_file_or_to_standard_output(
    dump: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / "report.html"
    assert status("--snapshot", str(dump), "--output-file", str(file)) == 0
    assert capfdbinary.readouterr() == (b"", b"")
    assert status("--snapshot", str(dump)) == 0
    printed, errors = capfdbinary.readouterr()
    assert errors == b""
    for page in (file.read_text(encoding="utf-8"), printed.decode()):
        assert page.startswith("<!doctype html>\n")
        assert "1 of 3 on-demand nodes drainable (4 vCPU, 16 GiB); " in page


def test_an_output_file_that_cannot_be_written_is_a_usage_error(
    dump: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / "missing" / "report.html"
    assert status("--snapshot", str(dump), "--output-file", str(file)) == 2
    expected = f"rescheduler report: --output-file {file}: cannot write there: No such file or directory\n"
    out, errors = capfdbinary.readouterr()
    assert (out, errors.decode().replace("rescheduler: ", "rescheduler report: ")) == (b"", expected)
