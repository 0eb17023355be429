"""Pages of a cluster with long names fit the width of the terminal without truncating names."""

import re
from pathlib import Path
from typing import Any

import pytest

from rescheduler.cli import main
from rescheduler.cli.console import rendered
from rescheduler.cli.status import lines
from rescheduler.pages.tree import Line
from tests.cli.dumps import write_dump
from tests.planning.builders import ON_DEMAND, budget, node, pod


def named(text: str, length: int = 60) -> str:
    """Return a name of *length* characters that begins with *text*."""
    return text + "-" + "x" * (length - len(text) - 1)


NODES = [named(f"{kind}-{number}") for kind in ("od", "spot") for number in range(3)]
SPACE = named("team")
TYPE = {"node.kubernetes.io/instance-type": named("m5.large")}
STORE: dict[str, Any] = {"volumes": [{"name": named("data"), "emptyDir": {}}]}

CLUSTER = [
    *(node(name, ON_DEMAND, labels=TYPE) for name in NODES[:3]),
    *(node(name, labels=TYPE) for name in NODES[3:]),
    pod(f"{SPACE}/{named('web')}", NODES[0]),
    pod(f"{SPACE}/{named('store')}", NODES[1], **STORE),
    pod(f"{SPACE}/{named('cache')}", NODES[2], nodeSelector={named("example.com/pool"): named("ci")}),
    pod(f"{SPACE}/{named('bare')}", NODES[2], owner=None),
    budget(f"{SPACE}/{named('store')}", "store", allowed=0),
]

PAGES: dict[str, tuple[str, ...]] = {
    "plan": ("plan",),
    "plan -o wide": ("plan", "-o", "wide"),
    "plan with prices": ("plan", "--price-per-vcpu=1234.5", "--currency=guilders"),
    "plan --what-if": ("plan", "--what-if=lose-spot 100%", "--what-if=delete-non-replicated-pods=true"),
    "plan --what-if with prices": ("plan", "--what-if=lose-spot 30%", "--price-per-gib=99999"),
    "explain": ("explain",),
    "explain -o wide": ("explain", "-o", "wide"),
    "explain of a node": ("explain", NODES[2]),
    "explain of a pod": ("explain", f"{SPACE}/{named('cache')}"),
}


@pytest.mark.parametrize("columns", [40, 61, 80])
@pytest.mark.parametrize("page", PAGES)
def test_no_line_is_wider_than_the_terminal(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    file = write_dump(tmp_path, CLUSTER)
    with pytest.raises(SystemExit) as ended:
        main([*PAGES[page], "--snapshot", str(file)])
    out = capfdbinary.readouterr().out.decode()
    wide = [line for line in out.splitlines() if len(line) > columns]
    assert (ended.value.code, wide, "\x1b" in out) == (0, [], False)
    if columns == 80:
        names = re.findall(r"[-.a-z0-9/]*-x+", out)
        assert {len(name.rpartition("/")[2]) for name in names} <= {60, 60 - len("example.com/")}


STATUS: dict[str, Any] = {
    "at": "2026-01-01T12:03:00Z",
    "installation": f"{SPACE}/{named('lease')}",
    "leader": named("pod"),
    "dryRuns": [named("pod")],
    "leaseRenewed": "2026-01-01T12:00:00Z",
    "paused": {"until": None, "reason": "a reason " * 28, "unreadable": ""},
    "waiting": {"reason": "landing-pending", "detail": f"{SPACE}/Deployment/{named('web')} lacks 3 pods"},
    "settings": {
        "nodeDrainDelaySeconds": None,
        "landingTimeoutSeconds": 600.0,
        "drainWindows": ["Mon-Fri 09:00-17:00 America/Argentina/ComodRivadavia"],
    },
    "lastDrain": None,
    "lastDrainNode": None,
    "draining": [{"node": NODES[0], "step": "draining", "since": "2026-01-01T12:00:00Z", "holder": named("pod")}],
    "coolingDown": [{"node": NODES[1], "until": "2026-01-01T12:00:00Z", "failures": 2, "detail": "no " * 40}],
    "notRecovered": [{"name": f"{SPACE}/Deployment/{named('web')}", "until": "2026-01-01T12:00:00Z", "failures": 2}],
    "owed": [
        {
            "controller": f"{SPACE}/Deployment/web",
            "pods": 2,
            "ready": 1,
            "node": NODES[0],
            "since": "2026-01-01T12:00:00Z",
        }
    ],
    "spotPools": [
        {
            "pool": f"{named('zone')}/{named('type')}",
            "losses": 3,
            "lastLoss": "2026-01-01T12:00:00Z",
            "lossesPerNodeHour": 0.0123,
            "settlingUntil": "2026-01-01T12:00:00Z",
        }
    ],
}


@pytest.mark.parametrize("columns", [40, 80])
def test_the_status_stays_within_the_terminal(columns: int) -> None:
    text = rendered(map(Line, lines(STATUS)), columns)
    assert [line for line in text.splitlines() if len(line) > columns] == []
    assert NODES[1] in text.replace("\n  ", "")
