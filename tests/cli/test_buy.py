"""Tests of ``plan --buy`` on a snapshot file: the page, the JSON output, the printed commands, and the errors."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from rescheduler.cli import main
from rescheduler.kube.lister import ALL_RESOURCES
from tests.cli.dumps import write_dump
from tests.cli.test_installations import edge
from tests.kube.edge import Reply, ScriptedApiServer, status
from tests.kube.test_pod_groups import versions
from tests.planning.builders import ON_DEMAND, SPOT, SYSTEM_POD, ZONE, Manifest, node, pod
from tests.planning.room.test_purchases import LARGE, OF_CLUSTER_API, SMALL, machine_set, of_type

__all__ = ["edge"]

TYPE: Final = "node.kubernetes.io/instance-type"
PRICES: Final = (
    "instance_type,zone,capacity_type,price\nm,,on-demand,0.4\nm,,spot,0.1\nc,,spot,0.16\nc,b,spot,0.08\nx,,spot,0.01\n"
)

CLUSTER: Final = [
    *(node(f"od-{number}", ON_DEMAND, labels={TYPE: "m"}) for number in range(2)),
    *(pod(f"web-{number}", f"od-{number}", cpu="3") for number in range(2)),
    node("s-1", cpu="4", labels={TYPE: "m"}),
    pod("full-1", "s-1", cpu="4"),
    node("s-2", cpu="8", zone="b", labels={TYPE: "c"}),
    pod("full-2", "s-2", cpu="8"),
    SYSTEM_POD,
]


def run(
    capfdbinary: pytest.CaptureFixture[bytes],
    folder: Path,
    *flags: str,
    prices: str = PRICES,
    objects: Sequence[dict[str, Any]] = CLUSTER,
) -> tuple[int | str | None, str, str]:
    file = folder / "prices.csv"
    file.write_text(prices)
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--snapshot", str(write_dump(folder, objects)), "--prices", str(file), *flags])
    out, err = capfdbinary.readouterr()
    return ended.value.code or 0, out.decode(), err.decode()


def test_the_page_lists_purchases_with_the_commands_that_try_them(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    code, out, _ = run(capfdbinary, tmp_path, "--buy", "--currency", "$")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "What to buy for 2 nodes that only lack room (to try it, add its --what-if)"
    assert lines[1].split() == ["#", "frees", "saves", "$/month", "costs", "$/month", "buy"]
    assert lines[2].split() == ["1", "2", "526", "58.40", "1", "c", "in", "b,", "0.08", "$", "per", "hour"]
    assert lines[3].strip() == "--what-if 'add-spot 1 like s-2'"
    assert lines[4].strip() == "Would not survive the loss of b/c (2 nodes): 3 of 3 pods without a place."
    assert (
        "Not considered: no node or MachineSet tells the size of x; add-spot N type=TYPE,cpu=…,memory=… tries one."
        in (" ".join(out.split()))
    )
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    "others", ["", "m,,spot,0\n", "m,,spot,0.1\n"], ids=["no other", "all are 0", "another is not"]
)
def test_a_price_of_zero_is_a_price(others: str, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    prices = f"instance_type,zone,capacity_type,price\nm,,on-demand,0.4\n{others}c,b,spot,0\n"
    code, out, _ = run(capfdbinary, tmp_path, "--buy", prices=prices)
    assert code == 0
    assert "584            0.00  1 c in b, 0.00 per hour" in out


def test_the_amounts_are_those_of_the_what_if_that_is_printed(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    _, out, _ = run(capfdbinary, tmp_path, "--buy", "-o", "json")
    result: dict[str, Any] = json.loads(out)["buy"]
    assert len(result["purchases"]) == 4
    assert (result["lacking_room"], result["size_not_known"], result["complete"]) == (["od-0", "od-1"], ["x"], True)
    for purchase in result["purchases"]:
        _, *flags = shlex.split(purchase["try"])
        assert "--buy" not in flags
        with pytest.raises(SystemExit):
            main([*flags, "-o", "json"])
        tried = json.loads(capfdbinary.readouterr().out)["what_if"]
        assert tried["net_change_per_month"] == pytest.approx(purchase["net_per_month"])
        assert tried["added_spot"]["cost_per_month"] == pytest.approx(purchase["cost_per_month"])
        assert sorted(tried["after"]["drainable"]) == sorted(purchase["frees"])
    best = result["purchases"][0]
    assert best["nodes"] == [
        {
            "count": 1,
            "instance_type": "c",
            "zone": "b",
            "group": None,
            "price_per_hour": 0.08,
            "cpu": 8.0,
            "memory": 16 << 30,
        }
    ]
    assert best["survival"]["holds"] is False


def test_a_plan_that_lacks_room_says_so(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    _, out, _ = run(capfdbinary, tmp_path)
    text = " ".join(out.replace("\\", " ").split())
    assert "What to buy for 2 nodes without room on spot nodes: rescheduler plan --snapshot" in text
    assert f"--prices{tmp_path / 'prices.csv'}--buy" in text.replace(" ", "")
    _, out, _ = run(capfdbinary, tmp_path, "-o", "html")
    assert "What to buy for 2 nodes without room on spot nodes: <code>rescheduler plan" in out
    _, out, _ = run(capfdbinary, tmp_path, prices="instance_type,capacity_type,price\nm,on-demand,0.4\n")
    assert "What to buy" not in out


#: Karpenter makes spot nodes of the type c in zone b, at most two.
POOL: Final[dict[str, Any]] = {
    "kind": "NodePool",
    "apiVersion": "karpenter.sh/v1",
    "metadata": {"name": "spot"},
    "spec": {
        "limits": {"cpu": "16"},
        "template": {
            "metadata": {"labels": {SPOT: ""}},
            "spec": {
                "taints": [{"key": "spot", "effect": "NoSchedule"}],
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
                    {"key": TYPE, "operator": "In", "values": ["c"]},
                    {"key": ZONE, "operator": "In", "values": ["b"]},
                ],
            },
        },
    },
}
TOLERANT: Final = [{"key": "spot", "operator": "Exists"}]


def test_the_command_of_a_node_pool_frees_the_same_nodes(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    """The price of type x would be lower, but nothing creates it. One of three pods does not tolerate the taint."""
    nodes = [node(f"od-{number}", ON_DEMAND, labels={TYPE: "m"}) for number in range(3)]
    pods = [pod(f"web-{number}", f"od-{number}", cpu="3", tolerations=TOLERANT) for number in range(2)]
    objects = [*nodes, *pods, pod("web-2", "od-2", cpu="3"), *CLUSTER[4:], POOL]
    _, out, _ = run(capfdbinary, tmp_path, "--buy", "-o", "json", objects=objects)
    result: dict[str, Any] = json.loads(out)["buy"]
    assert result["limited"] is True
    by_group = {each["nodes"][0]["group"]: each for each in result["purchases"]}
    bought = by_group["spot"]
    assert bought["what_if"] == ["add-spot 1 type=c,zone=b,group=spot"]
    assert bought["frees"] == ["od-0", "od-1"]
    _, *flags = shlex.split(bought["try"])
    with pytest.raises(SystemExit):
        main([*flags, "-o", "json"])
    tried = json.loads(capfdbinary.readouterr().out)["what_if"]
    assert tried["after"]["drainable"] == bought["frees"]
    assert tried["net_change_per_month"] == pytest.approx(bought["net_per_month"])
    _, out, _ = run(capfdbinary, tmp_path, "--buy", objects=objects)
    assert "1 c in b of spot, 0.08 per hour" in " ".join(out.split())
    assert "Considered: what NodePools, MachineSets and groups create within their limits, and" in (
        " ".join(out.split())
    )


def test_a_node_pool_at_its_limit_sells_nothing(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    member = node("s-2", cpu="8", zone="b", labels={TYPE: "c", "karpenter.sh/nodepool": "spot"})
    others = [each for each in CLUSTER if each["metadata"]["name"] not in ("s-1", "full-1", "s-2")]
    full = {**POOL, "spec": {**POOL["spec"], "limits": {"cpu": "8"}}}
    code, out, _ = run(capfdbinary, tmp_path, "--buy", objects=[*others, member, full])
    assert (code, out.splitlines()[0]) == (
        0,
        "Nothing to buy: what creates spot nodes may create no more of a known price.",
    )


def test_purchases_are_spread_if_losses_must_be_survived(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    nodes = [of_type(f"od-{zone}", "od", ON_DEMAND, zone=zone) for zone in "ab"]
    objects = [*nodes, *SMALL, *LARGE, *(pod(f"web-{zone}", f"od-{zone}", cpu="2") for zone in "ab"), SYSTEM_POD]
    prices = "instance_type,zone,capacity_type,price\nod,,on-demand,0.2\nsmall,a,spot,0.02\nsmall,b,spot,0.02\n"
    asked = "--buy", "--survive", "pool", "-o", "json"
    _, out, _ = run(capfdbinary, tmp_path, *asked, objects=objects, prices=prices)
    result: dict[str, Any] = json.loads(out)["buy"]
    assert any(len({each["zone"] for each in purchase["nodes"]}) > 1 for purchase in result["purchases"])
    for purchase in result["purchases"]:
        _, *flags = shlex.split(purchase["try"])
        with pytest.raises(SystemExit):
            main([*flags, "-o", "json"])
        tried = json.loads(capfdbinary.readouterr().out)
        assert sorted(tried["what_if"]["after"]["drainable"]) == sorted(purchase["frees"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--what-if", "untaint x"], "--buy: expected no --independent, --what-if, --watch and --lever"),
        (["--independent"], "--buy: expected no --independent, --what-if, --watch and --lever"),
        (["--lever", "1"], "--buy: expected no --independent, --what-if, --watch and --lever"),
        (["-o", "html"], "--buy: expected -o table, wide, json or yaml"),
    ],
)
def test_options_that_contradict_it_are_errors(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path, flags: list[str], message: str
) -> None:
    assert run(capfdbinary, tmp_path, "--buy", *flags) == (2, "", f"rescheduler: {message}\n")


def test_prices_that_are_lacking_are_errors(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    dump = str(write_dump(tmp_path, CLUSTER))
    with pytest.raises(SystemExit):
        main(["plan", "--snapshot", dump, "--buy"])
    assert "--buy: expected prices of spot nodes" in capfdbinary.readouterr().err.decode()
    only = "instance_type,capacity_type,price\nm,on-demand,0.4\nx,spot,0.1\n"
    code, out, err = run(capfdbinary, tmp_path, "--buy", prices=only)
    assert (code, out) == (2, "")
    assert (
        "expected a spot price of an instance type whose size is known; no node or MachineSet tells the size of x"
        in err
    )


#: Not served: the status of Cluster Autoscaler, and all APIs that are not built in but OpenShift's MachineSets.
STATUS: Final = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
GROUPS: Final = (
    "karpenter.sh",
    "cluster.x-k8s.io",
    "scheduling.k8s.io",
    "autoscaling.x-k8s.io",
    "leaderworkerset.x-k8s.io",
)


def serve(edge: ScriptedApiServer, *objects: Manifest) -> None:
    """Serve *objects*, and a MachineSet without nodes."""
    edge.on("GET", "/version", Reply({"major": "1", "minor": "34", "gitVersion": "v1.34.0"}))
    for resource in ALL_RESOURCES:
        items = [each for each in objects if each["kind"] == resource.kind]
        edge.on("GET", resource.path, Reply({"metadata": {"resourceVersion": "1"}, "items": items}))
    for path in (STATUS, *(f"/apis/{group}" for group in GROUPS)):
        edge.on("GET", path, status(404, "not found"))
    edge.on("GET", "/apis/machine.openshift.io", versions("machine.openshift.io", "v1beta1"))
    made = machine_set(OF_CLUSTER_API, labels={SPOT: ""})
    sets = {"metadata": {"resourceVersion": "1"}, "items": [made]}
    edge.on("GET", "/apis/machine.openshift.io/v1beta1/machinesets", Reply(sets))


def test_nodes_of_a_machine_set_without_nodes_are_tried(
    edge: ScriptedApiServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The spot node is full, and no node is of the type of the MachineSet."""
    serve(edge, node("od", ON_DEMAND), node("s"), pod("full-1", "s", cpu="4"), pod("web-1", "od", cpu="3"), SYSTEM_POD)
    file, change = tmp_path / "kubeconfig", "add-spot 1 type=m6,zone=a,group=machines/spot-a"
    named = {"clusters": [{"name": "c", "cluster": {"server": edge.url}}], "users": [{"name": "u", "user": {}}]}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    file.write_text(json.dumps({**named, "contexts": [context], "current-context": "c"}))
    with pytest.raises(SystemExit) as ended:
        main(["plan", f"--kubeconfig={file}", "--from-daemon=false", "-o", "json", "--what-if", change])
    out, error = capfd.readouterr()
    assert ended.value.code in (None, 0), error
    tried = json.loads(out)["what_if"]
    assert (tried["changes"], tried["before"]["drainable"], tried["after"]["drainable"]) == ([change], [], ["od"])
