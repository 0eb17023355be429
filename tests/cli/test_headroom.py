"""``--fallback-headroom`` in ``plan`` and ``report``: what keeping nodes costs."""

from pathlib import Path

import pytest

from tests.cli.dumps import planned, run, write_dump
from tests.planning.builders import ON_DEMAND, SYSTEM_POD, budget, node, pod

TYPE = {"node.kubernetes.io/instance-type": "m5.large"}

#: Three nodes can be drained; with 200 % of what the pods of spot nodes request, one of them can.
CLUSTER = [
    *(node(f"od-{number}", ON_DEMAND, labels=TYPE) for number in range(3)),
    node("s-1", labels=TYPE, cpu="8"),
    node("s-2", zone="b", labels=TYPE, cpu="8"),
    *(pod(f"web-{number}", f"od-{number}") for number in range(3)),
    pod("api-1", "s-1", cpu="4"),
    budget("api", "api", allowed=1),
    SYSTEM_POD,
]
PRICES = ("--price-per-vcpu=0.05", "--price-per-gib=0", "--spot-price-per-vcpu=0.02", "--spot-price-per-gib=0")


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return write_dump(tmp_path, CLUSTER)


def test_a_plan_says_what_the_headroom_costs(capfd: pytest.CaptureFixture[str], dump: Path) -> None:
    """A node costs 0.2 an hour, and its pod 0.02 on a spot node: 131 a month are not saved for each kept one."""
    assert "fallback" not in run(capfd, "plan", dump)
    assert "Keeping 1 node as fallback: 4 vCPU" in run(capfd, "plan", dump, "--fallback-headroom=200%")
    text = run(capfd, "plan", dump, "--fallback-headroom=200%", "--currency=$", *PRICES)
    assert "Keeping 1 node as fallback costs 131 $/month." in text
    assert "fallback-headroom" in text
    page = run(capfd, "report", dump, "--fallback-headroom=200%", "--currency=$", *PRICES)
    assert "Keeping 1 node as fallback costs 131 $/month." in page


def test_the_json_has_the_nodes_that_are_kept(capfd: pytest.CaptureFixture[str], dump: Path) -> None:
    assert planned(capfd, dump)["summary"]["fallback"] is None
    result = planned(capfd, dump, "--fallback-headroom=200%", *PRICES)
    [kept] = [each for each in result["nodes"] if not each["drainable"]]
    assert [blocker["reason"] for blocker in kept["blockers"]] == ["fallback-headroom"]
    fallback = result["summary"]["fallback"]
    assert (fallback["nodes"], fallback["cpu"]) == (1, 4)
    assert round(fallback["net_per_month"], 2) == round((4 * 0.05 - 0.02) * 730, 2)


def test_what_if_tries_another_headroom(capfd: pytest.CaptureFixture[str], dump: Path) -> None:
    result = planned(capfd, dump, "--fallback-headroom=200%", "--what-if", "fallback-headroom=0%")
    before, after = result["what_if"]["before"], result["what_if"]["after"]
    assert (before["drainable_nodes"], after["drainable_nodes"]) == (2, 3)


def test_the_json_and_the_report_have_the_tradeoff(capfd: pytest.CaptureFixture[str], dump: Path) -> None:
    assert planned(capfd, dump)["summary"]["tradeoff"] is None  # it costs time, so it is computed if it is asked for
    found = planned(capfd, dump, "--fallback-headroom=200%", *PRICES)["summary"]["tradeoff"]
    assert (found["survive"], found["losses"]) == ("pool", 2)
    assert [point["nodes"] for point in found["points"]] == [0, 1, 2, 3]
    assert [point["survived"] for point in found["points"]] == [2, 2, 2, 2]
    assert found["plan"]["nodes"] == 2
    assert found["plan"]["room"] > 2 > found["points"][3]["room"]
    assert [round(point["per_month"]) for point in found["points"]] == [0, 131, 263, 394]
    assert planned(capfd, dump, "--survive=zone")["summary"]["tradeoff"]["survive"] == "zone"
    page = run(capfd, "report", dump, "--fallback-headroom=200%", *PRICES)
    assert "Survives the loss of any one pool of spot nodes (2 pools)." in page
    assert '<svg viewBox="0 0 560 220" role="img"' in page
    assert "3 drained nodes, 394/month: 2 of 2 survived" in page
    assert "survival-heading" not in run(capfd, "report", dump, "--survive=off")
