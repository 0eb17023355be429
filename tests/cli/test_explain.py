"""Tests of ``rescheduler explain`` on a snapshot file: its pages, and the same object as JSON and YAML."""

import json
import re
from pathlib import Path

import pytest
import yaml

from rescheduler.cli import main
from tests.cli.dumps import write_dump
from tests.planning.builders import ON_DEMAND, SYSTEM_POD, Manifest, node, pod

NO_BUDGETS = (
    b"rescheduler: warning: no PodDisruptionBudget in the file: assuming that there are none; "
    b"evictions that a budget forbids would not be shown\n"
)
DOMAIN = ".eu-west-1.compute.internal"
TAINT = {"key": "spot", "value": "true", "effect": "NoSchedule"}
TOLERATES = {"tolerations": [{"key": "spot", "operator": "Exists"}]}
CLUSTER = [
    node(f"od{DOMAIN}", ON_DEMAND),
    *(node(f"free-{i:02}{DOMAIN}") for i in range(14)),
    *(node(f"tainted-{i}{DOMAIN}", taints=[TAINT]) for i in range(2)),
    node(f"small{DOMAIN}", cpu="1", taints=[TAINT]),
    pod("shop/web-1", f"od{DOMAIN}", cpu="2"),
    pod("ci/job", f"od{DOMAIN}", cpu="5", owner=None, **TOLERATES),
    pod("data/waits-1", cpu="2", nodeSelector={"pool": "gpu"}),
]


def explained(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path, *arguments: str, cluster: list[Manifest] = CLUSTER
) -> str:
    file = write_dump(tmp_path, [*cluster, SYSTEM_POD])
    with pytest.raises(SystemExit) as ended:
        main(["explain", "--snapshot", str(file), *arguments])
    out, err = capfdbinary.readouterr()
    assert (ended.value.code, err) == (0, NO_BUDGETS)
    return out.decode()


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_each_pod_is_listed_with_the_nodes_that_reject_it_by_reason(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    assert explained(capfdbinary, tmp_path).splitlines() == [
        f"Node names end with {DOMAIN}, which is left out.",
        "",
        "Pod ci/job, on node od",
        "  cannot be evicted: no-controller (error): no controller would recreate it;",
        "    --delete-non-replicated-pods or",
        '    cluster-autoscaler.kubernetes.io/safe-to-evict: "true" allows eviction',
        "  0 of 17 spot nodes accept it",
        "  17 nodes reject it: NodeResourcesFit: Insufficient cpu",
        "  smallest change: 1 vCPU less requested on free-00, or as much additional",
        "    capacity there",
        "",
        "Pod shop/web-1, on node od (ReplicaSet shop/web)",
        "  14 of 17 spot nodes accept it: free-00, free-01, free-02, free-03, free-04,",
        "    free-05, free-06, free-07, free-08, free-09, free-10, free-11, and 2 more",
        "    (-o wide)",
        "  2 nodes reject it: TaintToleration: node(s) had untolerated taint(s)",
        "  1 node rejects it: TaintToleration: node(s) had untolerated taint(s);",
        "    NodeResourcesFit: Insufficient cpu",
        "  taints that it does not tolerate: spot=true:NoSchedule",
        "",
        "Pod data/waits-1, pending (ReplicaSet data/waits)",
        "  0 of 17 spot nodes accept it",
        "  14 nodes reject it: NodeAffinity: node(s) didn't match Pod's node",
        "    affinity/selector",
        "  2 nodes reject it: TaintToleration: node(s) had untolerated taint(s);",
        "    NodeAffinity: node(s) didn't match Pod's node affinity/selector",
        "  1 node rejects it: TaintToleration: node(s) had untolerated taint(s);",
        "    NodeAffinity: node(s) didn't match Pod's node affinity/selector;",
        "    NodeResourcesFit: Insufficient cpu",
        "  taints that it does not tolerate: spot=true:NoSchedule",
        "  smallest change: a node selector or affinity that matches free-00 (the same",
        "    for 13 more nodes)",
        "",
    ]


def test_a_node_is_explained_with_its_blockers_and_its_pods(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    text = explained(capfdbinary, tmp_path, f"od{DOMAIN}")
    assert text.splitlines()[:12] == [
        f"Node names end with {DOMAIN}, which is left out.",
        "",
        "Node od is not drained:",
        "  no-controller (error): no controller would recreate it;",
        "    --delete-non-replicated-pods or",
        '    cluster-autoscaler.kubernetes.io/safe-to-evict: "true" allows eviction',
        "    Pod ci/job",
        "  no-room-on-spot (warning): 0/17 spot nodes are available: 17 Insufficient cpu",
        "    Pod ci/job",
        "  ci/job: smallest change: 1 vCPU less requested on free-00, or as much",
        "    additional capacity there",
        "",
    ]


def test_a_node_whose_pods_would_return_is_not_called_drainable(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    """The scheduler would bind the pod to the other on-demand node, which is empty: the daemon drains no such node."""
    spot = node("s", taints=[{"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}])
    cluster = [node("od1", ON_DEMAND), node("od2", ON_DEMAND), spot, pod("a", "od1"), pod("b", "od2", cpu="3")]
    assert "returns-to-on-demand" in explained(capfdbinary, tmp_path, "od1", cluster=cluster)
    assert "can be drained" in explained(capfdbinary, tmp_path, "od1", "--allow-returning-plans", cluster=cluster)


def test_wide_output_names_all_nodes(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    text = " ".join(explained(capfdbinary, tmp_path, "shop/web-1", "-o", "wide").split())
    assert ", ".join(f"free-{i:02}" for i in range(14)) in text
    assert "untolerated taint(s) tainted-0, tainted-1 1 node" in text


def test_yaml_is_the_same_as_json(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    printed = explained(capfdbinary, tmp_path, "-o", "json")
    objects = [json.loads(line) for line in printed.splitlines()]
    assert [load["pod"] for load in objects] == ["ci/job", "shop/web-1", "data/waits-1"]
    assert list(yaml.safe_load_all(explained(capfdbinary, tmp_path, "-o", "yaml"))) == objects


def test_a_cluster_without_pods_has_nothing_to_explain(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    text = explained(capfdbinary, tmp_path, cluster=[node("od", ON_DEMAND), node("spot")])
    assert text == "No pod of an on-demand node has to move, and no pod is pending.\n"


def test_html_has_a_section_for_each_node_and_pod(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    text = explained(capfdbinary, tmp_path, f"od{DOMAIN}", "-o", "html")
    assert re.findall("<h2>(.*?)</h2>", text) == [
        "Node od is not drained:",
        "Pod ci/job, on node od",
        "Pod shop/web-1, on node od (ReplicaSet shop/web)",
    ]
    assert '<li class="level-1">2 nodes reject it: TaintToleration' in text
