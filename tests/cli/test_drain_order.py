"""Tests of --drain-order and --max-node-age in the commands that read a snapshot file."""

import json
import re
from pathlib import Path

import pytest

from rescheduler.cli import main
from tests.cli.dumps import write_dump
from tests.planning.builders import ON_DEMAND, SYSTEM_POD, budget, node, pod

TYPE = "node.kubernetes.io/instance-type"
CLUSTER = [
    node("od-1", ON_DEMAND, labels={TYPE: "small"}, created="2025-12-01T00:00:00Z"),
    node("od-2", ON_DEMAND, labels={TYPE: "large"}, created="2026-01-01T00:00:00Z", cpu="8"),
    node("od-3", ON_DEMAND, labels={TYPE: "small"}, created="2020-01-01T00:00:00Z"),
    node("s", cpu="32"),
    *(pod(f"web-{number}", f"od-{number}", cpu=str(number)) for number in (1, 2, 3)),
    budget("b", "other", allowed=1),
]
PRICES = "instance_type,capacity_type,price\nsmall,on-demand,9\nlarge,on-demand,1\n"

#: By flags and environment: the nodes in drain order.
ORDERS: dict[str, tuple[list[str], dict[str, str], str]] = {
    "the default": ([], {}, "123"),
    "cost without prices": (["--drain-order=cost"], {}, "213"),
    "cost with a file": (["--drain-order=cost", "--prices={file}"], {}, "132"),
    "cost with a price per vCPU": (["--drain-order=cost", "--price-per-vcpu=1"], {}, "213"),
    "age, in the environment": ([], {"RESCHEDULER_DRAIN_ORDER": "age"}, "312"),
    "a maximum age": (["--max-node-age=43800h"], {}, "312"),
    "a maximum age and an order, in the environment": (
        [],
        {"RESCHEDULER_MAX_NODE_AGE": "43800h", "RESCHEDULER_DRAIN_ORDER": "cost"},
        "321",
    ),
}


def printed(capfdbinary: pytest.CaptureFixture[bytes], folder: Path, command: str, *flags: str) -> str:
    dump = write_dump(folder, [*CLUSTER, SYSTEM_POD])
    (folder / "prices.csv").write_text(PRICES)
    flags = tuple(flag.format(file=folder / "prices.csv") for flag in flags)
    with pytest.raises(SystemExit) as ended:
        main([command, "--snapshot", str(dump), *flags])
    out, err = capfdbinary.readouterr()
    assert (ended.value.code, err) == (0, b"")
    return out.decode()


@pytest.mark.parametrize(("flags", "environment", "expected"), ORDERS.values(), ids=ORDERS)
def test_every_command_uses_the_order(
    capfdbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    environment: dict[str, str],
    expected: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    names = [f"od-{number}" for number in expected]
    for more in ([], ["--independent"]):
        plan = json.loads(printed(capfdbinary, tmp_path, "plan", "-o", "json", *more, *flags))
        assert [verdict["node"] for verdict in plan["nodes"]] == names
        assert plan["summary"]["drainable_nodes"] == len(names)
    lines = printed(capfdbinary, tmp_path, "explain", "-o", "json", *flags).splitlines()
    assert [json.loads(line)["node"] for line in lines] == names
    report = printed(capfdbinary, tmp_path, "report", *flags)
    assert [*dict.fromkeys(re.findall("od-[123]", report.partition("<body")[2]))] == names
