"""``plan`` and ``report`` with prices of a cloud provider: Cherry Servers, whose API a stand-in serves."""

import json
from pathlib import Path
from typing import Any

import pytest

from rescheduler.cli import main
from rescheduler.clock import SystemClock
from tests.cli.dumps import write_dump
from tests.planning.builders import ON_DEMAND, SYSTEM_POD, Manifest, budget, node, pod
from tests.providers.cherry import CLUSTER, ENVIRONMENT, POOL, add, serving

CONFIG = """\
[global]
cluster-name = cluster1
project-id = 10001
api-server-endpoint = 10.0.0.1:6443
region = eu_nord_1
plan = e5_1620v4
os = ubuntu_24_04
cloudinit = e3suQm9vdHN0cmFwVG9rZW5JRH19Lnt7LkJvb3RzdHJhcFRva2VuU2VjcmV0fX0ge3suQVBJU2VydmVyRW5kcG9pbnR9fQ==
"""


def _rented(server: Any) -> Manifest:
    """Return a node whose machine the provider has, for 152.57 a month."""
    machine = add(server)
    rented = node(machine.hostname, ON_DEMAND)
    rented["spec"]["providerID"] = f"cherryservers://{machine.id}"
    return rented


@pytest.mark.parametrize("order", [[], ["--drain-order=cost"]], ids=["by requested CPU", "by cost"])
def test_nodes_that_the_file_does_not_contain_have_the_price_of_the_provider(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: list[str]
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "cloud.ini").write_text(CONFIG)
    (tmp_path / "prices.csv").write_text("instance_type,capacity_type,price\nlisted,on-demand,9\n")
    with serving(SystemClock()) as server:
        monkeypatch.setenv("CHERRY_API_URL", server.url)
        rented = _rented(server)
        name = rented["metadata"]["name"]
        listed = node("listed", ON_DEMAND, labels={"node.kubernetes.io/instance-type": "listed"})
        objects = [rented, listed, node("unknown", ON_DEMAND), node("s"), pod("a", "s"), budget("b", "a", allowed=1)]
        dump = write_dump(tmp_path, [*objects, SYSTEM_POD])
        provider = ["--cloud-provider=cherryservers", f"--cloud-config={tmp_path}/cloud.ini", f"--nodes=0:9:{POOL}"]
        prices = [f"--prices={tmp_path}/prices.csv", f"--cluster-name={CLUSTER}"]
        with pytest.raises(SystemExit) as ended:
            main(["plan", "--snapshot", str(dump), "-o", "json", *provider, *prices, *order])
    out, err = capfdbinary.readouterr()
    assert (ended.value.code, err) == (0, b"")
    nodes = {entry["node"]: entry["price_per_hour"] for entry in json.loads(out)["nodes"]}
    assert nodes == {name: 0.209, "listed": 9.0, "unknown": None}
    assert list(nodes) == (["listed", name, "unknown"] if order else sorted(nodes))


@pytest.mark.parametrize(
    ("setting", "drains"),
    [("min-worth=200", False), ("min-worth=20", True), ("drain-order=worth", True)],
)
def test_a_what_if_judges_by_the_prices_of_the_provider_as_the_flag_does(
    capfdbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    *,
    drains: bool,
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "cloud.ini").write_text(CONFIG)
    summaries = []
    with serving(SystemClock()) as server:
        monkeypatch.setenv("CHERRY_API_URL", server.url)
        objects = [_rented(server), node("s"), pod("a-1", "s", cpu="1m"), budget("b", "b", allowed=1), SYSTEM_POD]
        [rented, *_] = objects
        dump = write_dump(tmp_path, [*objects, pod("a-2", rented["metadata"]["name"])])
        provider = ["--cloud-provider=cherryservers", f"--cloud-config={tmp_path}/cloud.ini", f"--nodes=0:9:{POOL}"]
        for flags in ([f"--{setting}"], ["--what-if", setting]):
            with pytest.raises(SystemExit) as ended:
                main(["plan", "--snapshot", str(dump), "-o", "json", f"--cluster-name={CLUSTER}", *provider, *flags])
            out, err = capfdbinary.readouterr()
            assert (ended.value.code, err) == (0, b"")
            summaries.append(json.loads(out))
    flag, tried = summaries[0]["summary"], summaries[1]["what_if"]
    assert tried["before"]["drainable_nodes"] == 1
    assert tried["after"]["drainable_nodes"] == flag["drainable_nodes"] == int(drains)
    assert (tried["after"]["freed"], tried["after"]["move_cost"]) == (flag["freed"], flag["move_cost"])
