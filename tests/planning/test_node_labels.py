"""Tests of label selectors for nodes, and of the suggestions for selectors that match no node."""

import pytest

from rescheduler.errors import UsageError
from rescheduler.planning.node_info import LabelFindings, label_findings, node_infos
from rescheduler.planning.node_labels import NodeLabels, suggest_labels
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.planning.builders import CIRCUMSTANCES, node, snapshot

#: The labels of four nodes, by name.
NODES = {
    "a": {"pool": "od", "zone": "x"},
    "b": {"pool": "spot", "zone": "x"},
    "c": {"pool": "spot", "zone": "y", "old": ""},
    "d": {"zone": "y"},
}

SELECTORS = {
    "pool": "abc",
    "!pool": "d",
    "pool=spot": "bc",
    "pool==spot": "bc",
    "pool!=spot": "ad",
    "pool!=absent": "abcd",
    "pool=absent": "",
    "old=": "c",
    "old!=": "abd",
    "absent": "",
    "!absent": "abcd",
    "pool=spot,zone=x": "b",
    "pool,pool!=spot": "a",
    "zone=y , !pool": "d",
    "pool=spot,pool=od": "",
    "pool in (spot, od)": "abc",
    "pool in (spot),zone notin (x)": "c",
    "pool notin (od,absent)": "bcd",
    "old in (,a)": "c",
    "pool in (absent)": "",
}


@pytest.mark.parametrize(("text", "expected"), SELECTORS.items())
def test_a_selector_matches_the_same_nodes_in_plans_and_for_single_nodes(text: str, expected: str) -> None:
    cluster = snapshot([node(name, "role", labels=labels) for name, labels in NODES.items()])
    cluster.delete("Node", "a")  # leaves an unused row
    policy = Policy(on_demand_label=NodeLabels.parse(text), spot_label=NodeLabels.parse("none"))
    remaining = expected.replace("a", "")
    assert sorted(Planner(cluster, policy).on_demand(CIRCUMSTANCES)) == list(remaining)
    assert list(node_infos(cluster, policy).on_demand) == list(remaining)
    assert [name for name, labels in NODES.items() if NodeLabels.parse(text).matches(labels)] == list(expected)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [(("pool=od", "zone=y"), "acd"), (("pool=od,zone=y", "old"), "c"), (("!pool", "pool"), "abcd"), (("x", "x"), "")],
)
def test_several_selectors_match_nodes_of_any(texts: tuple[str, ...], expected: str) -> None:
    label = NodeLabels.any_of(map(NodeLabels.parse, texts))
    cluster = snapshot([node(name, "role", labels=labels) for name, labels in NODES.items()])
    policy = Policy(on_demand_label=label, spot_label=NodeLabels.parse("none"))
    assert sorted(Planner(cluster, policy).on_demand(CIRCUMSTANCES)) == list(expected)
    assert list(node_infos(cluster, policy).on_demand) == list(expected)
    assert [name for name, labels in NODES.items() if label.matches(labels)] == list(expected)
    assert label.same_as(NodeLabels.any_of(map(NodeLabels.parse, reversed(texts))))


TEXTS = {
    "a in (b)": "a=b",
    "a notin ( b , c ),d": "a notin (b,c),d",
    "a  in (b,b)": "a=b",
    "a==b": "a=b",
    " a = b , !c": "a=b,!c",
    "a!=b,a!=b": "a!=b",
    "a/b=": "a/b=",
}


@pytest.mark.parametrize(("text", "normalized"), TEXTS.items())
def test_a_selector_has_a_normalized_text(text: str, normalized: str) -> None:
    assert str(NodeLabels.parse(text)) == normalized


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "a,",
        "a=b=c",
        "=x",
        "!",
        "!a=b",
        "a!b",
        "a in b",
        "a in (b",
        "a in (b c)",
        "in (b)",
        "!a in (b)",
        "a in(b)x",
        "a b",
        "a=!b",
        "a\n",
    ],
)
def test_an_invalid_selector_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="expected key, key=value, key!=value or !key in label syntax"):
        NodeLabels.parse(text.replace("\n", "\n\nb"))


def test_the_order_of_requirements_does_not_matter() -> None:
    first, second = NodeLabels.parse("a,b=c"), NodeLabels.parse("b==c,a")
    assert (first.same_as(second), first.same_as(NodeLabels.parse("a"))) == (True, False)


KARPENTER, EKS = "karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType"
AKS, GKE = "kubernetes.azure.com/scalesetpriority", "cloud.google.com/gke-"
KOPS, ROLE = "kops.k8s.io/instancegroup", "node-role.kubernetes.io/"
INTERRUPTIBLE = "machine.openshift.io/interruptible-instance"

SUGGESTIONS: dict[str, tuple[list[dict[str, str]], str | None]] = {
    "EKS": (
        [{EKS: "ON_DEMAND"}, {EKS: "SPOT"}, {EKS: "SPOT"}],
        f"--on-demand-node-label={EKS}=ON_DEMAND --spot-node-label={EKS}=SPOT (EKS: 1 on-demand, 2 spot nodes)",
    ),
    "Karpenter next to a managed group of EKS": (
        [{EKS: "ON_DEMAND"}, {KARPENTER: "on-demand"}, {KARPENTER: "spot"}],
        (
            f"--on-demand-node-label={KARPENTER}=on-demand --on-demand-node-label={EKS}=ON_DEMAND "
            f"--spot-node-label={KARPENTER}=spot (Karpenter and EKS: 2 on-demand, 1 spot nodes)"
        ),
    ),
    "Karpenter and managed groups, both with both kinds, and nodes of neither": (
        [
            {EKS: "ON_DEMAND"},
            {EKS: "SPOT"},
            {EKS: "SPOT"},
            {KARPENTER: "on-demand"},
            {KARPENTER: "spot"},
            {},
            {"a": "b"},
        ],
        (
            f"--on-demand-node-label={EKS}=ON_DEMAND --on-demand-node-label={KARPENTER}=on-demand "
            f"--spot-node-label={EKS}=SPOT --spot-node-label={KARPENTER}=spot "
            "(EKS and Karpenter: 2 on-demand, 3 spot nodes; 2 with neither label)"
        ),
    ),
    "spot nodes of managed groups, on-demand nodes of Karpenter": (
        [{EKS: "SPOT"}, {KARPENTER: "on-demand"}, {KARPENTER: "on-demand"}],
        (
            f"--on-demand-node-label={KARPENTER}=on-demand --spot-node-label={EKS}=SPOT "
            "(Karpenter and EKS: 2 on-demand, 1 spot nodes)"
        ),
    ),
    "one label of both kinds on a node": (
        [{EKS: "ON_DEMAND", KARPENTER: "spot"}, {EKS: "ON_DEMAND"}, {EKS: "SPOT"}],
        f"--on-demand-node-label={EKS}=ON_DEMAND --spot-node-label={EKS}=SPOT (EKS: 2 on-demand, 1 spot nodes)",
    ),
    "kOps with two groups of spot nodes": (
        [{f"{ROLE}node": "", KOPS: "nodes"}, *({f"{ROLE}node": "", KOPS: f"spot-{zone}"} for zone in "ab")],
        (
            f"--on-demand-node-label='{ROLE}node,{KOPS}!=spot-a,{KOPS}!=spot-b' --spot-node-label={KOPS}=spot-a "
            f"--spot-node-label={KOPS}=spot-b (kOps: 1 on-demand, 2 spot nodes)"
        ),
    ),
    "a managed group of EKS, and spot nodes of Karpenter": (
        [{EKS: "ON_DEMAND"}, {KARPENTER: "spot"}, {KARPENTER: "spot"}],
        (
            f"--on-demand-node-label={EKS}=ON_DEMAND --spot-node-label={KARPENTER}=spot "
            "(EKS and Karpenter: 1 on-demand, 2 spot nodes)"
        ),
    ),
    "eksctl, nodes that EKS does not manage": (
        [{"node-lifecycle": "on-demand"}, {"node-lifecycle": "spot"}],
        (
            "--on-demand-node-label=node-lifecycle=on-demand --spot-node-label=node-lifecycle=spot "
            "(eksctl: 1 on-demand, 1 spot nodes)"
        ),
    ),
    "OpenShift": (
        [{f"{ROLE}worker": ""}, {f"{ROLE}worker": "", INTERRUPTIBLE: ""}, {f"{ROLE}master": ""}],
        (
            f"--on-demand-node-label='{ROLE}worker,!{INTERRUPTIBLE}' --spot-node-label={INTERRUPTIBLE} "
            "(OpenShift: 1 on-demand, 1 spot nodes; 1 with neither label)"
        ),
    ),
    "self-managed nodes of AWS": (
        [{"lifecycle": "OnDemand"}, {"lifecycle": "Ec2Spot"}],
        (
            "--on-demand-node-label=lifecycle=OnDemand --spot-node-label=lifecycle=Ec2Spot "
            "(self-managed nodes: 1 on-demand, 1 spot nodes)"
        ),
    ),
    "GKE": (
        [{f"{GKE}nodepool": "a"}, {f"{GKE}nodepool": "b", f"{GKE}spot": "true"}],
        (
            f"--on-demand-node-label='{GKE}nodepool,!{GKE}spot' --spot-node-label={GKE}spot=true "
            "(GKE: 1 on-demand, 1 spot nodes)"
        ),
    ),
    "GKE, current versions": (
        [{f"{GKE}provisioning": "standard"}, {f"{GKE}provisioning": "spot"}],
        (
            f"--on-demand-node-label={GKE}provisioning=standard --spot-node-label={GKE}provisioning=spot "
            "(GKE: 1 on-demand, 1 spot nodes)"
        ),
    ),
    "AKS": (
        [{"kubernetes.azure.com/agentpool": "a"}, {"kubernetes.azure.com/agentpool": "b", AKS: "spot"}],
        (
            f"--on-demand-node-label='kubernetes.azure.com/agentpool,{AKS}!=spot' --spot-node-label={AKS}=spot "
            "(AKS: 1 on-demand, 1 spot nodes)"
        ),
    ),
    "kOps with a role": (
        [{f"{ROLE}node": ""}, {f"{ROLE}node": "", f"{ROLE}spot-worker": ""}, {f"{ROLE}control-plane": ""}],
        (
            f"--on-demand-node-label='{ROLE}node,!{ROLE}spot-worker' --spot-node-label={ROLE}spot-worker "
            "(kOps: 1 on-demand, 1 spot nodes; 1 with neither label)"
        ),
    ),
    "kOps with an instance group": (
        [{f"{ROLE}node": "", KOPS: "nodes"}, {f"{ROLE}node": "", KOPS: "spot-nodes"}, {KOPS: "master-spot"}],
        (
            f"--on-demand-node-label='{ROLE}node,{KOPS}!=spot-nodes' --spot-node-label={KOPS}=spot-nodes "
            "(kOps: 1 on-demand, 1 spot nodes; 1 with neither label)"
        ),
    ),
    "only spot nodes": (
        [{EKS: "SPOT"}, {}],
        (
            f"--on-demand-node-label={EKS}=ON_DEMAND --spot-node-label={EKS}=SPOT "
            "(EKS: 0 on-demand, 1 spot nodes; 1 with neither label)"
        ),
    ),
    "only on-demand nodes": (
        [{"kubernetes.azure.com/agentpool": "a"}],
        (
            f"--on-demand-node-label='kubernetes.azure.com/agentpool,{AKS}!=spot' --spot-node-label={AKS}=spot "
            "(AKS: 1 on-demand, 0 spot nodes)"
        ),
    ),
    "only workers, a role that many clusters have": ([{f"{ROLE}worker": ""}, {f"{ROLE}node": ""}], None),
    "no known label": ([{"pool": "a"}, {"pool": "spot"}], None),
    "no nodes": ([], None),
}


@pytest.mark.parametrize(("nodes", "expected"), SUGGESTIONS.values(), ids=SUGGESTIONS)
def test_labels_are_suggested_for_known_environments(nodes: list[dict[str, str]], expected: str | None) -> None:
    suggestion = suggest_labels(nodes)
    assert (str(suggestion) if suggestion else None) == expected


def findings(on_demand: str, spot: str) -> LabelFindings:
    cluster = snapshot([node(name, "role", labels=labels) for name, labels in NODES.items()])
    policy = Policy(on_demand_label=NodeLabels.parse(on_demand), spot_label=NodeLabels.parse(spot))
    return label_findings(cluster, policy, node_infos(cluster, policy))


FINDINGS = {
    "nothing unusual": ("pool=od", "pool=spot", "", ""),
    "no spot node": (
        "pool=od",
        "no,!x",
        "no node matches the label no,!x (--spot-node-label)",
        "",
    ),
    "no on-demand node": ("x=y", "pool=spot", "no node matches the label x=y (--on-demand-node-label)", ""),
    "neither": (
        "x=y",
        "y",
        "no node matches the label x=y (--on-demand-node-label) or the label y (--spot-node-label)",
        "",
    ),
    "one node matches both": (
        "zone=x",
        "pool=spot",
        "",
        "node b matches both --on-demand-node-label and --spot-node-label: treated as spot",
    ),
    "two nodes match both": (
        "pool",
        "pool=spot",
        "",
        "2 nodes, for example b, match both --on-demand-node-label and --spot-node-label: treated as spot",
    ),
}


@pytest.mark.parametrize(("on_demand", "spot", "no_nodes", "both"), FINDINGS.values(), ids=FINDINGS)
def test_labels_that_match_no_node_or_both_kinds_are_reported(
    on_demand: str, spot: str, no_nodes: str, both: str
) -> None:
    result = findings(on_demand, spot)
    assert (result.no_nodes, result.both) == (no_nodes, both)
