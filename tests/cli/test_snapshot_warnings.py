"""Tests of ``plan`` and ``explain``: files that lack some kinds, and labels that match no node or the same node."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from rescheduler.cli import main
from rescheduler.settings import Scheduling
from rescheduler.snapshot_file import reader
from rescheduler.snapshot_file.reader import omissions
from tests.planning.builders import ON_DEMAND, SPOT, SYSTEM_POD, budget, node, pod

CAPACITY = "eks.amazonaws.com/capacityType"
EKS = [node("a", "x", labels={CAPACITY: "ON_DEMAND"}), node("b", "x", labels={CAPACITY: "SPOT"}), pod("w-1", "a")]
FLAGS = f"--on-demand-node-label={CAPACITY}=ON_DEMAND --spot-node-label={CAPACITY}=SPOT"
NO_NODES = (
    "rescheduler: no node matches the label node-role.kubernetes.io/worker (--on-demand-node-label) or the label "
    "node-role.kubernetes.io/spot-worker (--spot-node-label); these flags match nodes: "
    f"{FLAGS} (EKS: 1 on-demand, 1 spot nodes)\n"
)


@pytest.fixture
def ended(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    """Return a function that runs a command on a file with these objects: exit code, standard output and error."""

    def run(objects: list[Any], *args: str) -> tuple[Any, str, str]:
        file = tmp_path / "list.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects, SYSTEM_POD]}))
        with pytest.raises(SystemExit) as exit_:
            main([*args, "--snapshot", str(file)])
        out, err = capfdbinary.readouterr()
        return exit_.value.code, out.decode(), err.decode()

    return run


@pytest.mark.parametrize("command", ["plan", "explain"])
def test_labels_without_nodes_are_exit_code_3_with_a_suggestion(ended: Any, command: str) -> None:
    code, _, err = ended([*EKS, budget("b", "w", allowed=1)], command)
    assert (code, err) == (3, NO_NODES)


def test_json_is_printed_before_exit_code_3(ended: Any) -> None:
    code, out, err = ended([*EKS, budget("b", "w", allowed=1)], "plan", "-o", "json")
    assert (code, json.loads(out)["nodes"], err) == (3, [], NO_NODES)


def test_the_suggested_flags_work(ended: Any) -> None:
    code, out, err = ended([*EKS, budget("b", "w", allowed=1)], "plan", "-o", "json", *FLAGS.split())
    assert (code, [verdict["node"] for verdict in json.loads(out)["nodes"]], err) == (0, ["a"], "")


def test_a_cluster_without_spot_nodes_is_told_what_to_try(ended: Any) -> None:
    objects = [node("b", ON_DEMAND, zone="z"), node("a", ON_DEMAND), pod("w-1", "b"), budget("b", "w", allowed=1)]
    code, out, _ = ended(objects, "plan")
    head, _, hint = " ".join(out.partition("\n\n")[0].split()).partition(" First: ")
    assert (code, head.partition("; ")[2]) == (3, "there is no spot node: try add-spot.")
    assert hint.endswith("--what-if 'add-spot 3 like a'")
    assert "What would free more" not in out
    _, _, err = ended(objects, "plan", "--lever=1")
    assert "no such lever: there is no spot node: try --what-if 'add-spot 3 like a'" in err
    _, out, _ = ended(objects, "plan", "--what-if", "add-spot 3 like a")
    [spot] = [line.split() for line in out.splitlines() if line.startswith("spot nodes ")]
    assert spot == ["spot", "nodes", "0", "3", "+3"]


KARPENTER = "karpenter.sh/capacity-type"
OF_KARPENTER = (f"--on-demand-node-label={KARPENTER}=on-demand", f"--spot-node-label={KARPENTER}=spot")


@pytest.mark.parametrize(
    ("flags", "helps"),
    [
        ((), True),
        (OF_KARPENTER, False),
        ((OF_KARPENTER[1],), True),
        ((f"--on-demand-node-label={ON_DEMAND}", OF_KARPENTER[1]), True),
        (("--on-demand-node-label=role", OF_KARPENTER[1]), False),
        ((*OF_KARPENTER, "--spot-node-label=a=b"), False),
        ((OF_KARPENTER[0], "--spot-node-label=a=b"), True),
        ((*OF_KARPENTER, "--on-demand-node-label=a=b"), False),
    ],
    ids=str,
)
def test_labels_are_suggested_only_if_they_are_not_set(
    ended: Any,
    flags: tuple[str, ...],
    helps: bool,
) -> None:
    """The two nodes have the label of on-demand nodes of Karpenter, and ``role``; there is no spot node."""
    nodes = [node(name, "role", labels={KARPENTER: "on-demand"}) for name in ("a", "b")]
    code, _, err = ended([*nodes, budget("b", "w", allowed=1)], "plan", *flags)
    assert (code, "these flags match nodes" in err) == (3, helps)
    assert "no node matches the label" in err


def test_a_suggestion_for_two_families_covers_the_nodes_of_both(ended: Any) -> None:
    karpenter = [node(f"k-{kind}", "x", labels={"karpenter.sh/capacity-type": kind}) for kind in ("on-demand", "spot")]
    objects = [*EKS, *karpenter, node("own", "x"), budget("b", "w", allowed=1)]
    _, _, err = ended(objects, "plan")
    flags, _, rest = err.partition("match nodes: ")[2].partition(" (")
    assert rest == "Karpenter and EKS: 2 on-demand, 2 spot nodes; 1 with neither label)\n"
    code, out, err = ended(objects, "plan", "-o", "json", *shlex.split(flags))
    assert (code, err, json.loads(out)["summary"]["on_demand_nodes"]) == (0, "", 2)


def test_no_spot_node_is_exit_code_3(ended: Any) -> None:
    code, _, err = ended([node("od", ON_DEMAND), budget("b", "w", allowed=1)], "plan")
    assert (code, err) == (
        3,
        "rescheduler: no node matches the label node-role.kubernetes.io/spot-worker (--spot-node-label)\n",
    )


def test_nodes_with_both_labels_are_reported(ended: Any) -> None:
    both = node("both", ON_DEMAND, labels={SPOT: ""})
    code, _, err = ended([node("od", ON_DEMAND), both, pod("w-1", "od"), budget("b", "w", allowed=1)], "plan")
    assert (code, err) == (
        0,
        "rescheduler: warning: node both matches both --on-demand-node-label and --spot-node-label: treated as spot\n",
    )


WARNING = "rescheduler: warning: "
BUDGETS = (
    f"{WARNING}no PodDisruptionBudget in the file: assuming that there are none; "
    "evictions that a budget forbids would not be shown\n"
)
VOLUMES = (
    f"{WARNING}no PersistentVolumeClaim in the file: pods that use one are assumed not to fit on any node\n"
    f"{WARNING}no PersistentVolume in the file: "
    "pods with a bound PersistentVolumeClaim are assumed not to fit on any node\n"
    f"{WARNING}no StorageClass in the file: "
    "pods with an unbound PersistentVolumeClaim are assumed not to fit on any node\n"
    f"{WARNING}no CSINode in the file: assuming that nodes have no volume limits\n"
)
NAMESPACES = (
    f"{WARNING}no Namespace in the file: assuming that namespaces have no labels; pod affinity may select by them\n"
)
CLAIM: dict[str, Any] = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
TERM = {"topologyKey": "zone", "namespaceSelector": {"matchLabels": {"team": "a"}}}
APART: dict[str, Any] = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}}

FILES: dict[str, tuple[list[Any], str]] = {
    "nodes and pods only": ([pod("a", "od")], BUDGETS),
    "with budgets": ([pod("a", "od"), budget("b", "w", allowed=1)], ""),
    "a pod with a claim": ([pod("a", "od", **CLAIM), budget("b", "w", allowed=1)], VOLUMES),
    "affinity to pods of selected namespaces": ([pod("a", "od", **APART), budget("b", "w", allowed=1)], NAMESPACES),
}


@pytest.mark.parametrize(("objects", "warnings"), FILES.values(), ids=FILES)
def test_missing_kinds_are_reported_with_the_assumptions(ended: Any, objects: list[Any], warnings: str) -> None:
    code, _, err = ended([node("od", ON_DEMAND), node("s"), *objects], "plan", "-o", "json")
    assert (code, err) == (0, warnings)


def test_a_namespace_selector_without_namespaces_is_reported(ended: Any) -> None:
    objects = [node("od", ON_DEMAND), node("s"), pod("a", "od"), budget("b", "w", allowed=1)]
    code, out, err = ended(objects, "plan", "--namespace-selector=team=web", "-o", "json")
    text = (
        "no Namespace in the file: assuming that namespaces have no labels but their name; "
        "--namespace-selector may select by them"
    )
    templates = "no ReplicaSet in the file: assuming that replacement pods are like the running pods"
    assert (code, err, json.loads(out)["summary"]["assumptions"]) == (0, f"{WARNING}{text}\n", [text, templates])


#: Kinds whose absence a plan for these pods notes.
CLAIMING: dict[str, Any] = {
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {"matchLabels": {"a": "b"}}},
    ]}},
}  # fmt: skip
NOTED = (
    "PodDisruptionBudget", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "Namespace",
    "ReplicaSet",
)  # fmt: skip


@pytest.mark.parametrize("kind", NOTED)
def test_an_object_that_cannot_be_decoded_is_in_the_file(ended: Any, kind: str) -> None:
    broken = {"kind": kind, "metadata": {"name": "x", "namespace": "shop", "labels": {"a": 5}}}
    objects = [node("od", ON_DEMAND), node("s"), pod("a", "od", **CLAIMING)]
    notes = []
    for more in ([], [broken]):
        _, out, err = ended([*objects, *more], "plan", "-o", "json")
        assumptions = [*json.loads(out)["summary"]["assumptions"], err]
        notes.append([f"no {kind} in the file" in text for text in assumptions])
    assert [any(noted) for noted in notes] == [True, False]


@pytest.mark.parametrize(
    ("namespace", "lacking"),
    [("kube-system", "it has no pods of namespace shop"), ("shop", "it has no pods of kube-system")],
)
def test_a_pod_that_cannot_be_decoded_is_a_pod_of_its_namespace(tmp_path: Path, namespace: str, lacking: str) -> None:
    broken = {"kind": "Pod", "metadata": {"name": "x", "namespace": namespace, "labels": {"a": 5}}}
    daemon = pod("default/d", "od", owner="DaemonSet")
    others = [node("od", ON_DEMAND), node("s"), {"kind": "Namespace", "metadata": {"name": "shop"}}, daemon, broken]
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"kind": "List", "items": others}))
    assert f"it has {' and '.join(omissions(reader.read(str(file), Scheduling())))}" == lacking


@pytest.mark.parametrize(("flag", "noted"), [("tolerant", 1), ("always", 0), ("never", 0)])
def test_a_plan_with_pods_of_jobs_notes_that_the_jobs_were_not_read(ended: Any, flag: str, noted: int) -> None:
    objects = [node("od", ON_DEMAND), node("s"), pod("a", "od", owner="batch/v1/Job"), budget("b", "w", allowed=1)]
    code, out, err = ended(objects, "plan", f"--move-jobs={flag}", "-o", "json")
    text = (
        "the plan moves pods of Jobs that are not known, assuming that the Jobs tolerate it; the daemon reads each Job "
        "first (job-would-fail)"
    )
    assert (code, err, json.loads(out)["summary"]["assumptions"]) == (0, "", [text] * noted)


def test_explain_shows_the_smallest_change_for_a_pinned_pod(ended: Any) -> None:
    pinned = pod("a", "od", nodeSelector={"pool": "ci"})
    code, out, err = ended([node("od", ON_DEMAND), node("s"), pinned, budget("b", "w", allowed=1)], "explain", "od")
    assert (code, err) == (0, "")
    assert out.splitlines()[:4] == [
        "Node od is not drained:",
        "  pinned-to-on-demand (warning): its nodeSelector pool=ci matches no spot node",
        "    ReplicaSet default/a: pod a",
        "  default/a: smallest change: a node selector or affinity that matches s",
    ]


def test_control_characters_of_a_file_do_not_reach_the_terminal(ended: Any) -> None:
    hostile = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "\x1b[31mred\nline", "labels": {"a": 5}}}
    nodes = [node("od", ON_DEMAND), node("s", SPOT), hostile, pod("w-1", "od"), budget("b", "w", allowed=1)]
    code, _, err = ended(nodes, "plan", "--levers-timeout=0")
    reason = "Node ?[31mred line: Expected `str`, got `int` - at `$.metadata.labels[...]`"
    assert (code, err) == (0, f"rescheduler: ignored, because it cannot be decoded: {reason}\n")


def test_an_error_is_one_line_without_control_characters(ended: Any) -> None:
    code, _, err = ended([node("od", ON_DEMAND), node("s", SPOT)], "explain", "\x1b[31mred\u202e")
    assert (code, err) == (
        2,
        (
            "rescheduler: ?[31mred?: no such node, and no such pod "
            "(expected NODE, NAMESPACE, NAMESPACE/POD or NAMESPACE/KIND/NAME)\n"
        ),
    )


def test_spot_nodes_cannot_be_lost_if_there_are_none(ended: Any) -> None:
    code, out, err = ended([node("od", ON_DEMAND)], "plan", "--what-if=lose-spot 30%")
    assert (code, out, err) == (
        2,
        "",
        "rescheduler: lose-spot: no node has the label node-role.kubernetes.io/spot-worker (--spot-node-label)\n",
    )


def test_no_freed_nodes_cost_nothing(ended: Any) -> None:
    objects = [node("od", ON_DEMAND, cpu="4"), node("s", SPOT), pod("a", "od", owner=None), budget("b", "w", allowed=1)]
    flags = ("--price-per-vcpu=0.1", "--what-if=delete-non-replicated-pods=true")
    _, out, _ = ended(objects, "plan", *flags)
    assert "freed per month                       0.00          292.00         +292.00\n" in out


# Files that lack what every cluster has.

DAEMON = pod("kube-system/proxy-0", "od", owner="DaemonSet")
SYSTEM = pod("kube-system/dns-0", "od")
SPACES = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("a", "default", "shop")]
EXPECTING = budget("b", "w", allowed=0, namespace="shop", expected=2)
BY_US = {"apiVersion": "v1", "kind": "ServerVersion", "metadata": {"name": "version"}, "gitVersion": "v1.37.0"}

INCOMPLETE: dict[str, tuple[list[Any], str]] = {
    "no pods": ([], "no pods"),
    "only the pods of one namespace": ([pod("a/a", "od")], "no pods of kube-system and no pods of DaemonSets"),
    "no kube-system": ([pod("a", "od"), pod("logs/ds-0", "od", owner="DaemonSet")], "no pods of kube-system"),
    "no DaemonSets": ([pod("a", "od"), SYSTEM], "no pods of DaemonSets"),
    "a namespace without pods": ([pod("a/a", "od"), DAEMON, *SPACES], "no pods of namespace shop"),
    "several": ([pod("x/a", "od"), SYSTEM, *SPACES], "no pods of DaemonSets and no pods of namespaces a, shop"),
    "a namespace with a budget": ([pod("a/a", "od"), DAEMON, EXPECTING, BY_US], "no pods of namespace shop"),
}
COMPLETE = {
    "everything": [DAEMON],
    "namespaces that are often empty": [DAEMON, pod("a/a", "od"), pod("shop/a", "od"), *SPACES],
    "an empty namespace in a file of ours": [DAEMON, *SPACES, BY_US],
}


@pytest.fixture
def strictly(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    """Return a function that plans exactly these objects with two nodes and prices: exit code, output and error."""

    def run(objects: list[Any], *args: str) -> tuple[Any, str, str]:
        file = tmp_path / "list.json"
        items = [node("od", ON_DEMAND), node("s"), *objects]
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        with pytest.raises(SystemExit) as exit_:
            main([*args, "--snapshot", str(file), "--price-per-vcpu=1"])
        out, err = capfdbinary.readouterr()
        return exit_.value.code, out.decode(), err.decode()

    return run


@pytest.mark.parametrize(("objects", "lacking"), INCOMPLETE.values(), ids=INCOMPLETE)
def test_an_incomplete_file_is_told_first_and_has_no_money(strictly: Any, objects: list[Any], lacking: str) -> None:
    code, out, err = strictly(objects, "plan")
    start = " ".join(out.split())
    assert (code, start.startswith(f"The file is incomplete: it has {lacking};")) == (0, True)
    assert ("month" in out, f"warning: the file is incomplete: it has {lacking};" in err) == (False, True)
    code, out, _ = strictly(objects, "plan", "-o", "json", "--strict")
    summary = json.loads(out)["summary"]
    assert (code, summary["freed"]["price_per_month"], lacking in summary["incomplete"]) == (3, None, True)


@pytest.mark.parametrize("command", ["explain", "report"])
def test_other_commands_are_as_strict(strictly: Any, command: str) -> None:
    objects, lacking = INCOMPLETE["only the pods of one namespace"]
    code, out, err = strictly(objects, command, "--strict")
    assert (code, lacking in err, command == "explain" or lacking in out) == (3, True, True)


@pytest.mark.parametrize("objects", COMPLETE.values(), ids=COMPLETE)
def test_a_complete_file_has_money(strictly: Any, objects: list[Any]) -> None:
    code, out, err = strictly(objects, "plan", "-o", "json", "--strict")
    summary = json.loads(out)["summary"]
    assert (code, summary["incomplete"], "incomplete" in err) == (0, None, False)
    assert summary["on_demand"]["price_per_month"] == 2920


CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
BOUND = [
    {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"volumeName": "v"},
    },
    {"kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {}},
]


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (
            [],
            "There is no PersistentVolumeClaim and no PersistentVolume, and 2 nodes have pods that use one, which are ",
        ),
        (BOUND[:1], "There is no PersistentVolume, and 2 nodes have pods that use one, which are "),
        (BOUND, ""),
    ],
    ids=["no claims", "no volumes", "both"],
)
def test_nodes_that_stay_because_a_file_has_no_claims_are_told_first(
    ended: Any, monkeypatch: pytest.MonkeyPatch, read: list[Any], said: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    nodes = [node("a", ON_DEMAND), node("b", ON_DEMAND), node("c", ON_DEMAND), node("s")]
    objects = [*nodes, pod("w-1", "a", **CLAIM), pod("w-2", "b", **CLAIM), pod("x-1", "c"), *read]
    for output in ("table", "wide"):
        _, out, _ = ended(objects, "plan", "-o", output)
        assert out.startswith(said)
        assert out.startswith("There is no") is bool(said)
    _, out, _ = ended(objects, "plan", "-o", "json")
    assert bool(json.loads(out)["summary"]["without_claims"]) is bool(said)
    _, out, _ = ended(objects, "report")
    assert said in out


@pytest.mark.parametrize(("terminal", "repeated"), [(True, False), (False, True)])
@pytest.mark.parametrize("output", ["wide", "table"])
def test_a_person_at_a_terminal_reads_each_warning_once(
    ended: Any, monkeypatch: pytest.MonkeyPatch, output: str, *, terminal: bool, repeated: bool
) -> None:
    monkeypatch.setattr("rescheduler.cli.cluster_source.is_one_terminal", lambda: terminal)
    monkeypatch.setenv("COLUMNS", "300")
    _, out, err = ended([node("a", ON_DEMAND), node("s"), pod("w-1", "a")], "plan", "-o", output)
    warnings = [line.removeprefix("rescheduler: warning: ") for line in err.splitlines()]
    assert any(text in out for text in warnings) is repeated
    assert (out + err).count("no PodDisruptionBudget in the file") == 1 + repeated
