"""``--max-share-per-spot-pool`` and its annotation in all commands that read a snapshot file."""

from pathlib import Path

import pytest

from tests.cli.dumps import planned, run, write_dump
from tests.planning.builders import ON_DEMAND, SYSTEM_POD, budget, node, pod

LIMIT = "--max-share-per-spot-pool=50%"
TYPE = {"node.kubernetes.io/instance-type": "m5.large"}
FULL = [{"key": "example.com/full", "effect": "NoSchedule"}]
ANNOTATION = "spot-rescheduler/max-share-per-spot-pool"

CLUSTER = [
    node("od-1", ON_DEMAND),
    node("od-2", ON_DEMAND, zone="b", taints=FULL),
    node("s-1", labels=TYPE),
    node("s-2", zone="b", labels=TYPE, cpu="500m"),
    pod("web-1", "od-1", annotations={ANNOTATION: "most"}),
    pod("web-2", "s-1"),
    budget("web", "web", allowed=2),
]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return write_dump(tmp_path, [*CLUSTER, SYSTEM_POD])


@pytest.mark.parametrize("how", [(), ("--independent",)], ids=["in sequence", "independent"])
def test_a_plan_keeps_the_share(capfd: pytest.CaptureFixture[str], dump: Path, how: tuple[str, ...]) -> None:
    [kept] = [each for each in planned(capfd, dump, LIMIT, *how)["nodes"] if each["node"] == "od-1"]
    [blocker] = kept["blockers"]
    assert (kept["drainable"], blocker["pod"], blocker["reason"]) == (False, "default/web-1", "spot-pool-share")
    [free] = [each for each in planned(capfd, dump, *how)["nodes"] if each["node"] == "od-1"]
    assert free["drainable"]


def test_the_lever_shows_the_constraint(capfd: pytest.CaptureFixture[str], dump: Path) -> None:
    """There is room in the other zone only for a smaller pod, so that the constraint alone frees nothing."""
    [lever] = planned(capfd, dump, LIMIT)["summary"]["levers"]
    assert (lever["controller"], lever["reason"], lever["nodes"]) == (
        "ReplicaSet default/web", "spot-pool-share", ["od-1"]
    )  # fmt: skip
    constraint = (
        "topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, "
        'whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: "web"}}}]'
    )
    assert lever["obstacle"] == f"its pod template would keep it with {constraint}"
    assert lever["frees"] == []
    for command in (("plan", "-o", "wide"), ("report",)):
        text = " ".join(
            run(capfd, command[0], dump, *command[1:], LIMIT).replace("&quot;", '"').replace("&#34;", '"').split()
        )
        assert constraint in text
    for flags in (("-o", "details"), ("--lever=1",), ("--lever=1", "--patch")):
        assert constraint in " ".join(run(capfd, "plan", dump, LIMIT, *flags).split())


def test_what_if_changes_the_share(capfd: pytest.CaptureFixture[str], dump: Path) -> None:
    result = planned(capfd, dump, LIMIT, "--what-if", "max-share-per-spot-pool=100%")["what_if"]
    assert [result[when]["drainable"] for when in ("before", "after")] == [["od-2"], ["od-2", "od-1"]]
    for change in ("max-share-per-spot-pool=100%", "allow default/replicaset/web spot-pool-share"):
        result = planned(capfd, dump, LIMIT, "--what-if", change)["what_if"]
        assert result["after"]["drainable"] == ["od-2", "od-1"]


def test_explain_tells_the_reason_and_that_an_annotation_is_ignored(
    capfd: pytest.CaptureFixture[str], dump: Path
) -> None:
    ignored = f"the annotation {ANNOTATION}: 'most' is ignored, expected a percentage from 1% to 100%"
    of_node = run(capfd, "explain", dump, LIMIT, "od-1")
    assert "spot-pool-share" in of_node
    assert ignored in " ".join(of_node.split())
    assert ignored in " ".join(run(capfd, "explain", dump, "default/web-1").split())
