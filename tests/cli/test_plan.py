"""Tests of ``rescheduler plan`` on a snapshot file, run as a process: its output for programs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rescheduler.cli import main
from tests.cli.dumps import write_dump
from tests.planning.builders import ON_DEMAND, SPOT, SYSTEM_POD, budget, node, pod

CLUSTER = [
    node("od", ON_DEMAND),
    node("s"),
    pod("w-1", "od", labels={"app": "w"}),
    pod("w-2", "od", labels={"app": "w"}),
    budget("b", "w", allowed=1),
    # Its pod template is empty, as in no real cluster: the replacement pods are like the running ones.
    {"kind": "ReplicaSet", "metadata": {"name": "w", "namespace": "default"}},
]


PAGE = """\
0 of 1 on-demand node drainable; default/b blocks 1.
First: rescheduler plan --snapshot dump.json --budgets-at-once=true --what-if \\
  'budget default/b maxUnavailable=3'
  frees 1 more

1 node stays (a node can have several reasons)
  pod-disruption-budget  1 node  warning

Survives the loss of any one pool of spot nodes (1 pool).

What would free more (to try one, add its --what-if to this command)
  #  frees  what
  1      1  PodDisruptionBudget default/b: it allows 1 eviction now
      --what-if 'budget default/b maxUnavailable=3'
"""


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return write_dump(tmp_path, [*CLUSTER, SYSTEM_POD])


def planned(capfdbinary: pytest.CaptureFixture[bytes], dump: Path, *flags: str) -> dict[str, Any]:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--snapshot", str(dump), "-o", "json", *flags])
    assert ended.value.code in (0, None)
    result: dict[str, Any] = json.loads(capfdbinary.readouterr().out)
    return result


@pytest.mark.parametrize("flag", ["--budgets-at-once", "--budgets-in-steps=false"])
def test_a_budget_is_used_once_in_a_plan_on_request(
    capfdbinary: pytest.CaptureFixture[bytes], dump: Path, flag: str
) -> None:
    [verdict] = planned(capfdbinary, dump, flag)["nodes"]
    assert (verdict["drainable"], [blocker["reason"] for blocker in verdict["blockers"]]) == (
        False,
        ["pod-disruption-budget"],
    )


@pytest.mark.parametrize("flags", [(), ("--budgets-in-steps",), ("--budgets-at-once=false",)])
def test_a_budget_allows_evictions_in_steps(
    capfdbinary: pytest.CaptureFixture[bytes], dump: Path, flags: tuple[str, ...]
) -> None:
    result = planned(capfdbinary, dump, *flags)
    [verdict] = result["nodes"]
    assert {placement["pod"]: placement["node"] for placement in verdict["placements"]} == {
        "default/w-1": "s",
        "default/w-2": "s",
    }
    assert (verdict["drainable"], result["summary"]["pods_to_move"]) == (True, 2)


def test_an_object_that_cannot_be_decoded_blocks_its_node_and_is_named_on_standard_error(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    broken = pod("broken", "od2", cpu="lots")
    empty = [node("od2", ON_DEMAND), broken]
    dump = write_dump(tmp_path, [*CLUSTER, SYSTEM_POD, *empty])
    why = "Pod default/broken: cpu: quantity 'lots': expected a number such as 250m, 1.5Gi or 1e3"
    line = f"rescheduler: ignored, because it cannot be decoded: {why}\n"
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--snapshot", str(dump), "-o", "json", "--budgets-in-steps"])
    out, err = capfdbinary.readouterr()
    assert (ended.value.code, err.decode()) == (0, line)
    verdicts = {load["node"]: (load["drainable"], load["blockers"]) for load in json.loads(out)["nodes"]}
    blocker = {
        "pod": None,
        "reason": "unreadable-object",
        "severity": "error",
        "detail": f"it cannot be decoded: {why}",
    }
    assert verdicts == {"od": (True, []), "od2": (False, [blocker])}

    with pytest.raises(SystemExit) as ended:
        main(["explain", "--snapshot", str(dump), "od2"])
    out, err = capfdbinary.readouterr()
    assert (ended.value.code, err.decode()) == (0, line)
    assert b"od2 is not drained:" in out
    assert b"unreadable-object (error): it cannot be decoded: Pod default/broken: " in out


def test_a_pipe_gets_no_colors_and_no_animation_even_if_they_are_forced(
    capfdbinary: pytest.CaptureFixture[bytes], dump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def printed() -> tuple[str, bytes]:
        with pytest.raises(SystemExit):
            main(["plan", "--snapshot", "dump.json", "--budgets-at-once"])
        output = capfdbinary.readouterr()
        return output.out.decode(), output.err

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(dump.parent)
    dump.rename("dump.json")
    plain = printed()
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert printed() == plain
    assert plain == (PAGE, b"")


def test_yaml_is_the_same_as_json(capfdbinary: pytest.CaptureFixture[bytes], dump: Path) -> None:
    planned_once = planned(capfdbinary, dump)
    with pytest.raises(SystemExit):
        main(["plan", "--snapshot", str(dump), "-o", "yaml"])
    written = yaml.safe_load(capfdbinary.readouterr().out)
    assert written["summary"].pop("seconds") >= 0
    assert planned_once["summary"].pop("seconds") >= 0
    assert written["summary"]["survival"].pop("seconds") >= 0
    assert planned_once["summary"]["survival"].pop("seconds") >= 0
    assert written == planned_once


def test_amounts_are_reported_for_each_node_and_in_total(capfdbinary: pytest.CaptureFixture[bytes], dump: Path) -> None:
    load = planned(capfdbinary, dump, "--budgets-in-steps")
    totals = {
        "nodes": 1,
        "cpu": 4.0,
        "memory": 16 << 30,
        "price_per_hour": None,
        "price_per_month": None,
        "nodes_without_price": 1,
    }
    added = ("instance_type", "zone", "created", "cpu", "memory", "requested_cpu", "requested_memory", "price_per_hour")
    assert [load["nodes"][0][field] for field in added] == ["", "a", None, 4.0, 16 << 30, 2.0, 0, None]
    sums = ("freed", "on_demand", "currency", "levers", "levers_complete", "assumptions")
    assert [load["summary"][field] for field in sums] == [
        totals | {"by_instance_type": {"": totals}},
        totals,
        "",
        [],
        True,
        [],
    ]


def test_totals_of_independent_plans_are_qualified(capfdbinary: pytest.CaptureFixture[bytes], dump: Path) -> None:
    assumed = "each node is drained alone (--independent); the pods of all nodes together may not fit"
    assert planned(capfdbinary, dump, "--independent")["summary"]["assumptions"] == [assumed]


STATIC = [
    node("od", ON_DEMAND, labels={"karpenter.sh/nodepool": "base"}),
    node("od-2", ON_DEMAND, labels={"karpenter.sh/nodepool": "other"}),
    node("s"),
    pod("w-1", "od"),
    SYSTEM_POD,
]
POOLS: dict[str, tuple[Any, bool]] = {
    "as many nodes as pods need": ({"limits": {"cpu": "9"}}, True),
    "static": ({"replicas": 1}, False),
    "static, with more nodes than it keeps": ({"replicas": 0}, True),
}


@pytest.mark.parametrize(("spec", "drainable"), POOLS.values(), ids=POOLS)
def test_nodes_of_a_static_node_pool_would_be_bought_again(
    spec: Any, drainable: bool, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "base"}, "spec": spec}
    file = write_dump(tmp_path, [*STATIC, pool])
    verdicts = {verdict["node"]: verdict for verdict in planned(capfdbinary, file)["nodes"]}
    assert (verdicts["od"]["drainable"], verdicts["od-2"]["drainable"]) == (drainable, True)
    if not drainable:
        [blocker] = verdicts["od"]["blockers"]
        assert (blocker["pod"], blocker["reason"]) == (None, "static-capacity")
        assert blocker["detail"].startswith("it would be bought again: NodePool 'base' keeps 1 node ")


@pytest.mark.parametrize("mates", [["renamed"], ["a", "b"], ["a", "b", "c", "d"]])
def test_nodes_of_one_machine_stay_and_the_others_are_named(
    mates: list[str], tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Nodes without a provider ID, or with that of another machine, are drained."""
    machines = {"od": "c://1", "od-2": "c://2", "od-3": "", "od-4": ""} | dict.fromkeys(mates, "c://1")
    nodes = [node(name, SPOT if name in mates else ON_DEMAND) for name in machines]
    for each in nodes:
        each["spec"]["providerID"] = machines[each["metadata"]["name"]]
    file = write_dump(tmp_path, [*nodes, node("s"), pod("w-1", "od"), SYSTEM_POD])
    verdicts = {verdict["node"]: verdict for verdict in planned(capfdbinary, file)["nodes"]}
    assert {name for name, verdict in verdicts.items() if not verdict["drainable"]} == {"od"}
    [blocker] = verdicts["od"]["blockers"]
    named = {1: "node renamed", 2: "nodes a, b", 4: "nodes a, b, c, and 1 more"}[len(mates)]
    assert (blocker["pod"], blocker["reason"]) == (None, "shared-machine")
    assert blocker["detail"] == f"its machine would end for {named}, too: spec.providerID is the same"


ON_DEMAND_ONLY = {"requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]}
MANAGED: dict[str, tuple[Any, tuple[str, ...], bool, list[str]]] = {
    "Karpenter removes the empty node": ({}, (), True, ["Karpenter manages 1 of 2 of the nodes that can be emptied"]),
    "Karpenter never removes it": (
        {"disruption": {"consolidateAfter": "Never"}},
        (),
        False,
        ["Karpenter manages 1 of 2 of the nodes that can be emptied"],
    ),
    "the provider removes it": (
        {"disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]}},
        ("--cloud-provider=karpenter",),
        True,
        [],
    ),
    "another on-demand node would follow": (
        {"template": {"spec": ON_DEMAND_ONLY}},
        ("--cloud-provider=karpenter",),
        True,
        ["for 1 moved pod, NodePool 'base' (weight 0) would add on-demand nodes again"],
    ),
}


@pytest.mark.parametrize(("spec", "flags", "drainable", "says"), MANAGED.values(), ids=MANAGED)
def test_a_plan_says_what_karpenter_and_its_provider_do(
    spec: Any,
    flags: tuple[str, ...],
    drainable: bool,
    says: list[str],
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "base"}, "spec": spec}
    nodes = [each for each in STATIC if each["metadata"]["name"] != "od-2"]
    plain = node("od-2", ON_DEMAND)
    result = planned(capfdbinary, write_dump(tmp_path, [*nodes, plain, pool]), *flags)
    verdicts = {verdict["node"]: verdict for verdict in result["nodes"]}
    assert (verdicts["od"]["drainable"], verdicts["od-2"]["drainable"]) == (drainable, True)
    told = [text for text in result["summary"]["assumptions"] if "Karpenter" in text or "NodePool" in text]
    assert [expected in text for expected, text in zip(says, told, strict=True)] == [True] * len(says)


#: A number of one before a noun in the plural.
ONE_OF_SEVERAL = re.compile(r"(?<![0-9.,/])1 (?:spot |on-demand )?(?:pods|nodes|controllers|evictions|reasons|notes)\b")


@pytest.mark.parametrize("line", ["plan", "plan -o wide", "plan --nodes", "explain", "report"])
@pytest.mark.parametrize("taints", [[], [{"key": "spot", "effect": "NoSchedule"}]], ids=["free", "tainted"])
def test_one_thing_is_not_several(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path, line: str, taints: list[Any]
) -> None:
    cluster = [node("od", ON_DEMAND), node("spot", taints=taints), pod("a-1", "od")]
    (tmp_path / "list.json").write_text(json.dumps({"kind": "List", "items": cluster}))
    with pytest.raises(SystemExit):
        main([*line.split(), "-f", str(tmp_path / "list.json")])
    assert ONE_OF_SEVERAL.findall(capfdbinary.readouterr().out.decode()) == []
