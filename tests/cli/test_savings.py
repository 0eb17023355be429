"""``rescheduler savings`` against a scripted API server."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from rescheduler import cli
from rescheduler.clock import SystemClock
from rescheduler.planning.money.savings import Receipt, SavingsLedger
from rescheduler.planning.money.savings_form import ASSUMPTIONS, dump_ledger
from tests.kube.edge import Reply, ScriptedApiServer, serving, status

NOW = "2026-01-02T06:00:00Z"
PATH = "/api/v1/namespaces/kube-system/configmaps/spot-rescheduler-savings"
NODE = "ip-10-0-123-45.eu-central-1.compute.internal.example.com"


def receipt(node: str, gone: int | None, **options: Any) -> Receipt:
    """Return the receipt of a node that was gone at this hour of 2026-01-01."""
    day = datetime(2026, 1, 1, tzinfo=UTC)
    fields: dict[str, Any] = {"instance_type": "m5.xlarge", "zone": "eu-central-1a", "cpu": 4000, "memory": 16 << 30}
    fields |= {"price": Decimal("0.23"), "spot_cost": Decimal("0.05"), "currency": "USD", "drained_at": day}
    fields |= {"gone_at": None if gone is None else day.replace(hour=gone)}
    return Receipt(node=node, uid=f"uid-{node}", nodes_before=3, **(fields | options))


LEDGER = SavingsLedger(
    receipts=(
        receipt(NODE, 12, move_cost=12.25),
        receipt("od-2", 18, price=None, zone="", ended_at=datetime(2026, 1, 1, 20, tzinfo=UTC), ending="replaced"),
        receipt("od-3", None),
    ),
    level=3,
)

TABLE = """\
Saved since 2025-12-03 (UTC): 20.0 node-hours, 3.24 USD
  80.0 vCPU-hours, 320.0 GiB-hours
  2 machines removed in this period, for pods that cost 12.2 moves

2026-01-02: 6.0 node-hours, 1.08 USD
  ip-10-0-123-45.eu-central-1.compute.internal.example.com (m5.xlarge,
    eu-central-1a)
    drained 2026-01-01 00:00, machine gone 2026-01-01 12:00, for 12.2 moves
    6.0 h at 0.2300 - 0.0500 (pods on spot): 1.08 USD, still counts

2026-01-01: 14.0 node-hours, 2.16 USD
  ip-10-0-123-45.eu-central-1.compute.internal.example.com (m5.xlarge,
    eu-central-1a)
    drained 2026-01-01 00:00, machine gone 2026-01-01 12:00, for 12.2 moves
    12.0 h at 0.2300 - 0.0500 (pods on spot): 2.16 USD, still counts
  od-2 (m5.xlarge)
    drained 2026-01-01 00:00, machine gone 2026-01-01 18:00
    2.0 h: no price known, ended by a new node

Drained, machine still exists (saves nothing yet)
  od-3, drained 2026-01-01 00:00

Assumptions
"""


@pytest.fixture
def edge() -> Iterator[ScriptedApiServer]:
    with serving() as served:
        yield served


@pytest.fixture
def savings(
    edge: ScriptedApiServer, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Any:
    """A function that runs the command and returns exit code, output and error."""
    named = {
        "clusters": [{"name": "c", "cluster": {"server": edge.url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    }
    monkeypatch.setattr(SystemClock, "now", lambda _: datetime.fromisoformat(NOW))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "c", **named}))

    for namespace, lease in (
        ("spot-rescheduler", status(404)),
        ("kube-system", Reply({"metadata": {}, "spec": {"holderIdentity": "pod-a_1"}})),
    ):
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/k8s-spot-rescheduler"
        edge.on("GET", path, lease)

    def run(*arguments: str) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(["savings", f"--kubeconfig={kubeconfig}", *arguments])
        out, error = capfd.readouterr()
        return ended.value.code, out, error

    return run


def stored(content: bytes) -> Reply:
    binary = {"savings": base64.b64encode(content).decode()}
    return Reply({"kind": "ConfigMap", "metadata": {"resourceVersion": "1"}, "binaryData": binary})


def test_the_table_has_the_receipts_and_the_assumptions(edge: ScriptedApiServer, savings: Any) -> None:
    edge.on("GET", PATH, stored(dump_ledger(LEDGER)))
    code, out, error = savings()
    head, _, assumed = out.partition("Assumptions\n")
    assert (code, head + "Assumptions\n", error) == (0, TABLE, "")
    assert " ".join(assumed.split()) == " ".join(f"- {sentence}" for sentence in ASSUMPTIONS)


@pytest.mark.parametrize("columns", [40, 80])
def test_the_output_fits_the_width_of_the_terminal(
    edge: ScriptedApiServer, savings: Any, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    edge.on("GET", PATH, stored(dump_ledger(LEDGER)))
    code, out, _ = savings()
    assert (code, [line for line in out.splitlines() if len(line) > columns]) == (0, [])


def test_counts_are_singular_and_control_characters_are_replaced(edge: ScriptedApiServer, savings: Any) -> None:
    edge.on("GET", PATH, stored(dump_ledger(SavingsLedger(receipts=(receipt("\x1b[31mred", 12),), level=3))))
    code, out, error = savings()
    assert (code, out.splitlines()[2], error) == (0, "  1 machine removed in this period", "")
    assert "  ?[31mred (m5.xlarge, eu-central-1a)" in out.splitlines()


def test_json_and_yaml_have_the_same_content(edge: ScriptedApiServer, savings: Any) -> None:
    edge.on("GET", PATH, stored(dump_ledger(LEDGER)))
    code, out, _ = savings("-o=json", "--since=6h")
    known = json.loads(out)
    assert (code, known) == (
        0,
        {
            "since": "2026-01-02",
            "until": NOW,
            "total": {
                "node_hours": 6, "vcpu_hours": 24, "gib_hours": 96, "money": {"USD": 1.08}, "machines_removed": 0,
                "move_cost": None,
            },
            "days": [
                {
                    "day": "2026-01-02",
                    "node_hours": 6, "vcpu_hours": 24, "gib_hours": 96, "money": {"USD": 1.08},
                    "receipts": [
                        {
                            "node": NODE, "uid": f"uid-{NODE}", "instance_type": "m5.xlarge", "zone": "eu-central-1a",
                            "drained_at": "2026-01-01T00:00:00Z", "gone_at": "2026-01-01T12:00:00Z", "ended_at": None,
                            "ending": None, "price": 0.23, "spot_cost": 0.05, "committed": 0.0, "currency": "USD",
                            "move_cost": 12.25,
                            "node_hours": 6, "vcpu_hours": 24, "gib_hours": 96, "money": {"USD": 1.08},
                        }
                    ],
                }
            ],
            "waiting": [{"node": "od-3", "drained_at": "2026-01-01T00:00:00Z"}],
            "assumptions": list(ASSUMPTIONS),
        },
    )  # fmt: skip
    assert yaml.safe_load(savings("-o=yaml", "--since=6h")[1]) == known


def test_an_empty_ledger_prints_that_nothing_was_saved(edge: ScriptedApiServer, savings: Any) -> None:
    edge.on("GET", PATH, stored(dump_ledger(SavingsLedger())))
    code, out, _ = savings("--since=2d")
    assert (code, out.splitlines()[0]) == (0, "Nothing was saved since 2025-12-31 (UTC).")


def test_namespace_and_name_of_the_ledger_can_be_set(edge: ScriptedApiServer, savings: Any) -> None:
    edge.on("GET", "/api/v1/namespaces/ops/configmaps/mine", stored(dump_ledger(SavingsLedger())))
    assert savings("--namespace=ops", "--savings-name=mine")[0] == 0


NAME = "ConfigMap kube-system/spot-rescheduler-savings"
FAILURES = {
    "missing": (status(404, "not found"), 1, f"{NAME}: not found: the daemon writes it after its first drain"),
    "empty": (
        Reply({"metadata": {"resourceVersion": "7"}}),
        1,
        f"{NAME}: empty: the daemon writes it after its first drain",
    ),
    "forbidden": (status(403, "no"), 1, "get configmap kube-system/spot-rescheduler-savings: "),
    "broken": (stored(b"broken"), 1, f"{NAME}: expected gzip: "),
    "something else": (Reply({"metadata": {}, "data": {"summary": "x"}}), 1, f"{NAME} has no binaryData.savings"),
}


@pytest.mark.parametrize(("reply", "code", "message"), FAILURES.values(), ids=FAILURES)
def test_failures_are_one_line_with_their_exit_code(
    reply: Reply, code: int, message: str, edge: ScriptedApiServer, savings: Any
) -> None:
    edge.on("GET", PATH, reply)
    actual, out, error = savings()
    assert (actual, out, error.count("\n")) == (code, "", 1)
    assert message in error


WRONG = {
    "not a duration": ("--since=x", "'x': expected at most 400 days, such as 30d or 12h"),
    "too long": ("--since=401d", "'401d': expected at most 400 days"),
    "negative": ("--since=-1d", "'-1d': expected at most 400 days"),
    "a format": ("--output=html", "'html' is not one of 'table', 'json', 'yaml'"),
    "a name": ("--savings-name=A", "name 'A': expected lower-case letters"),
}


@pytest.mark.parametrize(("option", "message"), WRONG.values(), ids=WRONG)
def test_usage_errors_are_one_line_and_exit_code_2(option: str, message: str, savings: Any) -> None:
    code, out, error = savings(option)
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert message in error
