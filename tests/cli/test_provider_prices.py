"""``plan`` and ``report`` with prices of a cloud provider: Cherry Servers, whose API a stand-in serves."""

import json
from pathlib import Path

import pytest

from rescheduler.cli import main
from rescheduler.clock import SystemClock
from tests.cli.dumps import write_dump
from tests.planning.builders import ON_DEMAND, SYSTEM_POD, budget, node, pod
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
        machine = add(server)
        rented = node(machine.hostname, ON_DEMAND)
        rented["spec"]["providerID"] = f"cherryservers://{machine.id}"
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
    assert nodes == {machine.hostname: 0.209, "listed": 9.0, "unknown": None}
    assert list(nodes) == (["listed", machine.hostname, "unknown"] if order else sorted(nodes))
