"""Tests of ``plan --what-if`` on a snapshot file: the forms of changes, their errors, the table and the JSON output."""

import json
from pathlib import Path
from typing import Any

import pytest

from rescheduler.cli import main
from tests.cli.dumps import write_dump
from tests.planning.builders import ON_DEMAND, SYSTEM_POD, budget, node, pod

CACHE: dict[str, Any] = {"volumes": [{"name": "cache", "emptyDir": {}}]}

CLUSTER = [
    node("od-1", ON_DEMAND, cpu="3"),
    node("od-2", ON_DEMAND, cpu="3"),
    node("s-a", cpu="2", zone="eu-1a"),
    node("s-b", cpu="2", zone="eu-1b"),
    pod("store-1", "od-1", **CACHE),
    pod("cache-1", "od-2", cpu="1500m", nodeSelector={ON_DEMAND: ""}),
    pod("web-1", "s-b", cpu="1500m", priority=10),
    budget("store", "store", allowed=0),
]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return write_dump(tmp_path, [*CLUSTER, SYSTEM_POD])


def run(capfdbinary: pytest.CaptureFixture[bytes], dump: Path, *flags: str) -> tuple[int | str | None, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--snapshot", str(dump), *flags])
    out, err = capfdbinary.readouterr()
    return ended.value.code, out.decode(), err.decode()


def answer(capfdbinary: pytest.CaptureFixture[bytes], dump: Path, *changes: str) -> dict[str, Any]:
    flags = [flag for change in changes for flag in ("--what-if", change)]
    code, out, err = run(capfdbinary, dump, "-o", "json", *flags)
    assert (code, err) in ((0, ""), (None, ""))
    result: dict[str, Any] = json.loads(out)["what_if"]
    assert result["changes"] == list(changes)
    return result


#: Each form of the option, and the nodes that can be drained after it.
FORMS: dict[tuple[str, ...], list[str]] = {
    ("skip-nodes-with-local-storage=false",): [],
    ("skip-nodes-with-local-storage=false", "budget default/store maxUnavailable=1"): ["od-1"],
    ("--skip-nodes-with-local-storage=false", "budget default/store minAvailable=0"): ["od-1"],
    ("unpin default/replicaset/cache",): ["od-2"],
    ("unpin default/replicaset/cache", "min-on-demand-nodes=2"): [],
    (f"unpin selector {ON_DEMAND}=",): ["od-2"],
    (f"unpin selector {ON_DEMAND}=, pool in (a,b)",): ["od-2"],
    ("spot-node-label=none",): [],
    ("move-jobs=never", "planning-timeout=1s", "scheduler-name=*"): [],
    ("drain-order=age", "max-node-age=720h", "unpin default/replicaset/cache"): ["od-2"],
    ("unpin default/ReplicaSet/cache", "lose-spot zone=a"): [],
    ("unpin default/replicaset/cache", "lose-spot zone=a", "add-spot 1 like s-b"): ["od-2"],
    ("unpin default/replicaset/cache", "lose-spot node=s-a", "add-spot 2 cpu=1500m,memory=4Gi,pods=5"): ["od-2"],
    ("lose-spot 50%",): [],
    ("unpin default/replicaset/cache", "lose-spot pool=eu-1a/no-instance-type"): [],
    ("unpin default/replicaset/cache", "lose-spot each-pool"): ["od-2"],
}


@pytest.mark.parametrize("changes", FORMS, ids=" + ".join)
def test_every_form_changes_the_plan(
    capfdbinary: pytest.CaptureFixture[bytes], dump: Path, changes: tuple[str, ...]
) -> None:
    result = answer(capfdbinary, dump, *changes)
    assert (result["before"]["drainable"], result["after"]["drainable"]) == ([], FORMS[changes])
    assert result["after"]["drainable_nodes"] == len(FORMS[changes])


def test_the_environment_variable_separates_changes_by_semicolons(
    capfdbinary: pytest.CaptureFixture[bytes], dump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCHEDULER_WHAT_IF", "unpin default/replicaset/cache; min-on-demand-nodes=0")
    _, out, _ = run(capfdbinary, dump, "-o", "json")
    result = json.loads(out)["what_if"]
    assert (result["after"]["drainable"], len(result["changes"])) == (["od-2"], 2)


FORM_OF = {
    "allow": "expected allow NAMESPACE/KIND/NAME REASON, allow all REASON or allow node/NAME REASON, with a reason of "
    "the plan",
    "unpin": "expected unpin NAMESPACE/KIND/NAME or unpin selector KEY=VALUE",
    "untaint": "expected untaint KEY",
    "budget": "expected budget NAMESPACE/NAME maxUnavailable=N or minAvailable=N",
    "add-spot": "expected add-spot N like NODE, add-spot N type=TYPE[,zone=ZONE][,group=GROUP] or "
    "add-spot N cpu=8,memory=32Gi[,pods=110,type=TYPE,zone=ZONE], N at most 1000",
    "lose-spot": "expected lose-spot zone=ZONE, lose-spot pool=POOL, lose-spot each-pool, lose-spot node=NODE or "
    "lose-spot N%",
    "scheduler": "expected scheduler VERSION (such as 1.37) or scheduler FILE (a KubeSchedulerConfiguration)",
}

#: Wrong values, and the end of the error line.
WRONG: dict[str, str] = {
    **{
        text: f"--what-if '{text}': {FORM_OF[text.split()[0]]}"
        for text in (
            "allow",
            "allow default/replicaset/cache",
            "allow default/replicaset/cache nonsense",
            "allow default/replicaset/cache no-room-on-spot",
            "allow default/replicaset/cache scale-down-disabled",
            "allow node/od-1 local-storage",
            "allow node/ scale-down-disabled",
            "allow a/b/c local-storage d",
            "unpin",
            "unpin cache",
            "unpin default/cache",
            "unpin default//cache",
            "unpin a/b/c d",
            "unpin selector",
            "unpin selector =ci",
            "unpin selector pool in",
            "allow all local-storage",
            "untaint",
            "untaint a=b",
            "untaint a:NoSchedule",
            "untaint a b",
            "budget default/store",
            "budget store maxUnavailable=1",
            "budget default/store maxUnavailable=x",
            "budget default/store maxUnavailable=-1",
            "budget default/store replicas=1",
            "add-spot",
            "add-spot 0 like s-a",
            "add-spot 1001 like s-a",
            "add-spot 5 s-a",
            "add-spot 5 cpu=8",
            "add-spot 5 cpu=8,memory=x",
            "add-spot 5 cpu=0,memory=8Gi",
            "add-spot 5 cpu=1,cpu=2,memory=8Gi",
            "add-spot 5 cpu=8,memory=8Gi,gpu=1",
            "add-spot 5 cpu=8,memory=8Gi,pods=1.5",
            "add-spot 5 type=",
            "add-spot 5 zone=a",
            "add-spot 5 type=m5.large,pods=5",
            "add-spot 5 type=a,type=b",
            "scheduler",
            "scheduler latest",
            "scheduler 1.37 1.38",
            f"scheduler {'x' * 5000}",
            "lose-spot",
            "lose-spot zone",
            "lose-spot pool",
            "lose-spot pool=",
            "lose-spot each-pool=a",
            "lose-spot zone=",
            "lose-spot 30",
            "lose-spot 0%",
            "lose-spot 101%",
            "lose-spot 30% 40%",
        )
    },
    "min-on-demand-nodes=x": "'min-on-demand-nodes=x': 'x' is not a valid integer range.",
    "skip-nodes-with-local-storage=x": "'skip-nodes-with-local-storage=x': 'x': expected true or false",
    "min-on-demand-nodes=-1": "'min-on-demand-nodes=-1': -1 is not in the range x>=0.",
    "allow all not-safe-to-evict": "allow all not-safe-to-evict: no pod or node has this annotation or label",
    "unpin selector pool=ci": "unpin selector: no pod demands the label pool=ci of a node",
    "unpin default/deployment/cache": "no pod of default/deployment/cache: expected namespace/kind/name, such as "
    "shop/deployment/cart",
    "untaint a": "untaint: no spot node has the taint a; taints of the spot nodes: none",
    "budget default/other maxUnavailable=1": "no PodDisruptionBudget default/other: expected namespace/name",
    "add-spot 5 like nowhere": "add-spot: there is no node nowhere",
    "lose-spot node=od-1": "lose-spot: there is no spot node od-1",
    "scheduler \udcff": "--what-if 'scheduler \\udcff': expected printable characters",
    "scheduler-name=\udcff": "--what-if 'scheduler-name=\\udcff': expected printable characters",
    "namespaces=Shop": "'namespaces=Shop': namespace 'Shop': expected at most 63 lower-case letters, digits and '-'",
    "namespace-selector=a in": "label selector 'a in': 'a in': expected requirements such as "
    "team=web, team!=ci, team, '!team' or 'team in (web, shop)'",
    "scheduler-name=": "'scheduler-name=': expected a name, or * for all",
    f"spot-node-label={ON_DEMAND}": "both labels would be the same: expected two labels",
    "budgets-at-once=perhaps": "'budgets-at-once=perhaps': 'perhaps': expected true or false",
    "lose-spot pool=x": "lose-spot: there is no pool x; pools of the spot nodes: eu-1a/no-instance-type, "
    "eu-1b/no-instance-type",
    "lose-spot zone=x": "lose-spot: no spot node is in zone x; zones of the spot nodes: eu-1a, eu-1b",
}


@pytest.mark.parametrize("change", WRONG)
def test_an_invalid_value_is_reported_in_one_line(
    capfdbinary: pytest.CaptureFixture[bytes], dump: Path, change: str
) -> None:
    code, out, err = run(capfdbinary, dump, "--what-if", change)
    assert (code, out) == (2, "")
    assert err.rstrip("\n").endswith(WRONG[change])
    assert err.count("\n") == 1


#: Values of settings that are too small, too large, or no values.
OUT_OF_BOUNDS: list[tuple[str, str]] = [
    ("leftover-rest", "40d"),
    ("leftover-rest", "720h1s"),
    ("leftover-rest", "-1h"),
    ("max-graceful-termination", "0"),
    ("max-node-age", "-1h"),
    ("min-worth", "99999999999999999999"),
    ("min-worth", "-1"),
    ("min-on-demand-nodes", "-1"),
    ("surge-max-replicas", "-1"),
    ("max-share-per-spot-pool", "101"),
    ("fallback-headroom", "x"),
    ("leftovers", "some"),
    ("expendable-pods-priority-cutoff", str(2**31)),
    ("scheduler-name", ""),
]


@pytest.mark.parametrize(("setting", "value"), OUT_OF_BOUNDS)
def test_a_value_that_the_flag_refuses_is_refused(
    capfdbinary: pytest.CaptureFixture[bytes], dump: Path, setting: str, value: str
) -> None:
    for args in ((f"--{setting}={value}",), ("--what-if", f"{setting}={value}")):
        code, out, _ = run(capfdbinary, dump, *args)
        assert (code, out) == (2, "")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("leftover-rest=40d", "'40d': expected at most 720h"),
        (
            "min-worth=9999999999999",
            "expected an amount per month such as 2.50, with at most 12 digits before and 24 after",
        ),
    ],
)
def test_the_error_names_the_bound(capfdbinary: pytest.CaptureFixture[bytes], dump: Path, value: str, why: str) -> None:
    for args in ((f"--{value}",), ("--what-if", value)):
        assert why in run(capfdbinary, dump, *args)[2]


@pytest.mark.parametrize("change", ["", "=", "nonsense", "lose spot=3"])
def test_the_error_for_an_unknown_form_lists_all_forms(
    capfdbinary: pytest.CaptureFixture[bytes], dump: Path, change: str
) -> None:
    code, out, err = run(capfdbinary, dump, "--what-if", change)
    forms = ", ".join(form.removeprefix("expected ") for form in FORM_OF.values())
    assert (code, out, err) == (2, "", f"rescheduler: --what-if {change!r}: expected SETTING=VALUE, {forms}\n")


@pytest.mark.parametrize("name", ["unknown", "kubeconfig", "output", "levers-timeout"])
def test_the_error_for_an_unknown_setting_lists_all_settings(
    capfdbinary: pytest.CaptureFixture[bytes], dump: Path, name: str
) -> None:
    code, out, err = run(capfdbinary, dump, "--what-if", f"{name}=1")
    settings = (
        "budgets-at-once, survive, on-demand-node-label, spot-node-label, delete-non-replicated-pods, "
        "skip-nodes-with-local-storage, ignore-local-volumes, skip-nodes-with-system-pods, "
        "skip-nodes-with-custom-controller-pods, skip-single-replicas, max-graceful-termination, "
        "shorten-grace-periods, require-known-architecture, surge, surge-max-replicas, leftovers, leftover-rest, "
        "expendable-pods-priority-cutoff, namespaces, "
        "exclude-namespaces, namespace-selector, "
        "min-on-demand-nodes, drain-order, min-worth, max-node-age, move-jobs, scheduler-name, "
        "startup-taint, spot-pool-label, "
        "max-share-per-spot-pool, fallback-headroom, fallback-nodes-per-minute, planning-timeout, "
        "allow-fragile-plans, allow-returning-plans, "
        "allow-control-plane"
    )
    expected = f"rescheduler: --what-if '{name}=1': unknown setting {name}: expected one of {settings}\n"
    assert (code, out, err) == (2, "", expected)


#: Settings of namespaces, and the nodes that can be drained with them. od-1 has a pod in shop, od-2 one in ops.
NAMESPACES: dict[tuple[str, ...], list[str]] = {
    ("namespaces=shop",): ["od-1"],
    ("namespaces=shop,ops",): ["od-1", "od-2"],
    ("--namespaces=shop", "namespaces=ops"): ["od-2"],
    ("namespaces=shop", "namespaces="): ["od-1", "od-2"],
    ("exclude-namespaces=shop",): ["od-2"],
    ("namespaces=shop", "exclude-namespaces=ops"): ["od-1"],
    ("exclude-namespaces=ops", "namespace-selector=team=web"): ["od-1"],
    ("namespace-selector=team in (web, ci)",): ["od-1"],
    ("namespace-selector=!team",): ["od-2"],
}


@pytest.mark.parametrize("changes", NAMESPACES, ids=" + ".join)
def test_settings_of_namespaces_limit_the_drainable_nodes(
    capfdbinary: pytest.CaptureFixture[bytes], dump: Path, changes: tuple[str, ...]
) -> None:
    labeled = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "web"}}}
    pods = [pod("shop/a-1", "od-1"), pod("ops/b-1", "od-2")]
    dump.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [*CLUSTER[:4], SYSTEM_POD, *pods, labeled]})
    )
    flags = [flag for change in changes for flag in ("--what-if", change)]
    _, out, _ = run(capfdbinary, dump, "-o", "json", *flags)
    result = json.loads(out)["what_if"]
    assert (sorted(result["before"]["drainable"]), sorted(result["after"]["drainable"])) == (
        ["od-1", "od-2"],
        NAMESPACES[changes],
    )


def test_budgets_at_once_is_a_setting(capfdbinary: pytest.CaptureFixture[bytes], dump: Path) -> None:
    pods = [pod(f"web-{number}", "od-1", labels={"app": "web"}) for number in (1, 2)]
    objects = [*CLUSTER[:4], *pods, budget("web", "web", allowed=1)]
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects, SYSTEM_POD]}))
    _, out, _ = run(capfdbinary, dump, "-o", "json", "--what-if", "budgets-at-once=true")
    result = json.loads(out)["what_if"]
    assert (result["before"]["drainable"], result["after"]["drainable"]) == (["od-2", "od-1"], ["od-2"])


def test_what_if_is_rejected_for_independent_plans(capfdbinary: pytest.CaptureFixture[bytes], dump: Path) -> None:
    code, _, err = run(capfdbinary, dump, "--independent", "--what-if", "lose-spot 30%")
    assert (code, err.count("\n")) == (2, 1)
    assert "--what-if compares plans of all nodes in sequence: expected no --independent" in err


def test_the_json_output_has_the_pods_without_a_place(capfdbinary: pytest.CaptureFixture[bytes], dump: Path) -> None:
    result = answer(capfdbinary, dump, "unpin default/replicaset/cache", "lose-spot 100%")
    why = "0/1 remaining nodes are available: 1 Insufficient cpu"
    cache = {"pod": "default/cache-1", "controller": "ReplicaSet default/cache", "priority": 0, "why": why}
    assert result["lost"] == {
        "nodes": ["s-a", "s-b"],
        "without_place": [],
        "without_place_after_drains": [cache],
        "judged": True,
    }


#: The plan drains od-2 before the loss, so od-1 is the only node that remains.
TABLE = """\
What if: unpin default/replicaset/cache; lose-spot 100%

                                    before           after      difference
on-demand nodes                          2               2
spot nodes                               2               0              -2
nodes that can be drained                0               0
pods that move                           0               0
vCPU freed                             0.0             0.0
memory freed (GiB)                     0.0             0.0

With 2 spot nodes lost now, all their pods fit elsewhere.

With 2 spot nodes lost after the plan's drains, pods without a place: 1
  priority 0, ReplicaSet default/cache: 1 pod: 0/1 remaining nodes are
    available: 1 Insufficient cpu
"""


def test_the_table_compares_both_plans(capfdbinary: pytest.CaptureFixture[bytes], dump: Path) -> None:
    changes = ("--what-if", "unpin default/replicaset/cache", "--what-if", "lose-spot 100%")
    code, out, err = run(capfdbinary, dump, *changes)
    assert (code in (0, None), out, err) == (True, TABLE, "")


def test_the_table_names_the_nodes_that_differ(capfdbinary: pytest.CaptureFixture[bytes], dump: Path) -> None:
    _, more, _ = run(capfdbinary, dump, "--what-if", "unpin default/replicaset/cache")
    _, fewer, _ = run(
        capfdbinary, dump, "--skip-nodes-with-local-storage=false", "--what-if", "budget default/store maxUnavailable=1"
    )
    assert more.endswith("Can also be drained:\n  od-2\n")
    assert fewer.endswith("Can also be drained:\n  od-1\n")


def test_the_table_names_the_nodes_that_stay_after_the_change(
    capfdbinary: pytest.CaptureFixture[bytes], dump: Path
) -> None:
    dump.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [*CLUSTER[:4], SYSTEM_POD, pod("x-1", "od-1")]})
    )
    _, out, _ = run(capfdbinary, dump, "--what-if", "min-on-demand-nodes=1")
    assert out.endswith("Can no longer be drained:\n  od-1\n")


LEVER_FIELDS = (
    "controller", "reason", "obstacle", "nodes", "frees", "together_with", "frees_together", "tried",
)  # fmt: skip


def test_the_json_output_has_the_levers(capfdbinary: pytest.CaptureFixture[bytes], dump: Path) -> None:
    _, out, _ = run(capfdbinary, dump, "-o", "json")
    result = json.loads(out)["summary"]
    budgets = "PodDisruptionBudget default/store"
    obstacle, volume = "it allows 0 evictions now", "emptyDir cache"
    assert result["levers_complete"] is True
    levers = [{name: each[name] for name in LEVER_FIELDS} for each in result["levers"][1:]]
    assert [each["what_if"] for each in result["levers"]] == [
        ["leftovers=move"],
        ["unpin default/replicaset/cache"],
        ["budget default/store maxUnavailable=1", "allow default/replicaset/store local-storage"],
    ]
    assert levers == [
        {
            "controller": "ReplicaSet default/cache",
            "reason": "pinned-to-on-demand",
            "obstacle": f"nodeSelector {ON_DEMAND}=",
            "nodes": ["od-2"],
            "frees": ["od-2"],
            "together_with": [],
            "frees_together": [],
            "tried": True,
        },
        {
            "controller": budgets,
            "reason": "pod-disruption-budget",
            "obstacle": obstacle,
            "nodes": ["od-1"],
            "frees": [],
            "together_with": [f"ReplicaSet default/store: {volume}"],
            "frees_together": ["od-1"],
            "tried": True,
        },
    ]


@pytest.mark.parametrize("flags", [("--levers-timeout=0",), ("--independent",)])
def test_no_levers_are_computed_with_these_flags(
    capfdbinary: pytest.CaptureFixture[bytes], dump: Path, flags: tuple[str, ...]
) -> None:
    _, out, _ = run(capfdbinary, dump, "-o", "json", *flags)
    result = json.loads(out)["summary"]
    assert (result["levers"], result["levers_complete"]) == ([], flags == ("--independent",))


def test_each_pool_is_lost_now_and_after_the_drains(capfdbinary: pytest.CaptureFixture[bytes], dump: Path) -> None:
    """The pods of od-2 move to one pool; the other one has no room for them once od-2 is gone."""
    changes = "unpin default/replicaset/cache", "lose-spot each-pool"
    result = answer(capfdbinary, dump, *changes)["each_pool"]
    assert [pool["pool"] for pool in result["now"]["pools"]] == ["eu-1a/no-instance-type", "eu-1b/no-instance-type"]
    assert result["now"]["holds"]
    _, out, _ = run(capfdbinary, dump, *(flag for change in changes for flag in ("--what-if", change)))
    assert "With each pool of spot nodes lost now:\nSurvives the loss of any one pool of spot nodes (2 pools)." in out
    assert "With each pool of spot nodes lost after the plan's drains:" in out


#: The changes, and the prices as flags → the added nodes with their money, and the net change per month.
ADDED: dict[str, tuple[list[str], list[str], dict[str, float | None], float | None]] = {
    "nodes of a size, by vCPU": (
        ["add-spot 4 cpu=2,memory=4Gi"],
        ["--price-per-vcpu=0.1", "--spot-price-per-vcpu=0.05"],
        {"nodes": 4, "cost_per_month": 292.0, "counted_per_month": 0.0},
        -292.0,
    ),
    "nodes like an existing one": (
        ["add-spot 1 like s-b", "add-spot 1 cpu=4,memory=4Gi"],
        ["--price-per-vcpu=0.1", "--spot-price-per-vcpu=0.05"],
        {"nodes": 2, "cost_per_month": 219.0, "counted_per_month": 0.0},
        -219.0,
    ),
    "they pay when they free more than they cost": (
        ["unpin default/replicaset/cache", "lose-spot zone=a", "add-spot 1 like s-b"],
        ["--price-per-vcpu=0.1", "--spot-price-per-vcpu=0.05"],
        {"nodes": 1, "cost_per_month": 73.0, "counted_per_month": 54.75},
        146.0,
    ),
    "no price of spot nodes": (
        ["add-spot 1 like s-b"],
        ["--price-per-vcpu=0.1"],
        {"nodes": 1, "cost_per_month": None, "counted_per_month": 0.0},
        None,
    ),
}


@pytest.mark.parametrize(("changes", "flags", "added", "net"), ADDED.values(), ids=ADDED)
def test_spot_nodes_that_are_added_cost_money(
    capfdbinary: pytest.CaptureFixture[bytes],
    dump: Path,
    changes: list[str],
    flags: list[str],
    added: dict[str, float | None],
    net: float | None,
) -> None:
    texts = [flag for change in changes for flag in ("--what-if", change)]
    _, out, _ = run(capfdbinary, dump, "-o", "json", *flags, *texts)
    result = json.loads(out)["what_if"]
    assert (result["added_spot"], result["net_change_per_month"]) == (added, net)
    _, out, _ = run(capfdbinary, dump, *flags, *texts)
    rows = [line.split()[-1] for line in out.splitlines() if line.startswith(("cost of added", "net change"))]
    cost = added["cost_per_month"]
    assert rows == ["known" if cost is None else f"{cost:,.2f}", "known" if net is None else f"{net:+,.2f}"]


def test_a_size_without_a_price_costs_what_the_cheapest_spot_node_costs_by_size(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    kind = "node.kubernetes.io/instance-type"
    nodes = [
        node("od", ON_DEMAND, cpu="4", labels={kind: "m"}),
        node("s-1", cpu="2", memory="8Gi", labels={kind: "m"}),
        node("s-2", cpu="4", memory="8Gi", labels={kind: "c"}),
        SYSTEM_POD,
    ]
    prices = tmp_path / "prices.csv"
    rows = ["instance_type,capacity_type,price", "m,on-demand,0.4", "m,spot,0.1", "c,spot,0.16"]
    prices.write_text("\n".join(rows))
    texts = ["--prices", str(prices), "--what-if", "add-spot 10 cpu=8,memory=8Gi"]
    _, out, _ = run(capfdbinary, write_dump(tmp_path, nodes), *texts)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert [line for line in lines if "added" in line.lower()] == [
        "What if: add-spot 10 cpu=8,memory=8Gi",
        "cost of added spot nodes per month 2,336.00",
        "Added nodes without a price have that of the cheapest spot node, by size.",
    ][1:]


def test_nodes_that_are_added_without_any_prices_have_no_rows(
    capfdbinary: pytest.CaptureFixture[bytes], dump: Path
) -> None:
    _, out, _ = run(capfdbinary, dump, "--what-if", "add-spot 1 like s-b")
    assert "cost of added" not in out
    assert "added_spot" not in answer(capfdbinary, dump, "add-spot 1 like s-b")


@pytest.mark.parametrize(
    ("change", "near"),
    [
        ("unpin default/replicaset/cahce", "default/replicaset/cache"),
        ("allow default/replicaset/sotre local-storage", "default/replicaset/store"),
        ("budget default/stor maxUnavailable=1", "default/store"),
        ("allow node/od1 scale-down-disabled", "od-1"),
        ("allow default/replicaset/store local-storge", "local-storage"),
        ("allow all not-safe-to-evit", "not-safe-to-evict"),
        ("add-spot 1 like s-aa", "s-a"),
        ("lose-spot node=s-bb", "s-b"),
        ("skip-nodes-with-local-storag=false", "skip-nodes-with-local-storage"),
        ("add-spott 1 like s-a", "add-spot"),
        (f"unpin selector {ON_DEMAND}s=", f"{ON_DEMAND}="),
    ],
)
def test_a_name_that_does_not_exist_is_answered_with_a_similar_one(
    capfdbinary: pytest.CaptureFixture[bytes], dump: Path, change: str, near: str
) -> None:
    code, _, err = run(capfdbinary, dump, "--what-if", change)
    assert (code, err.rstrip().endswith(f"; did you mean {near}?"), len(err.splitlines())) == (2, True, 1)
