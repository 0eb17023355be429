"""The stored state of an installation, as JSON and as text."""

from datetime import timedelta
from typing import Any

import pytest

from rescheduler.cli.status import lines
from rescheduler.draining.actions import Intent, Step
from rescheduler.housekeeping.command_reads import Installation, InstallationStatus
from rescheduler.kube.lease import lease_of
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt, OpenDebt
from rescheduler.planning.memory import Memory, StoredSettings
from rescheduler.planning.movements import NotRecovered, OwnerWait
from rescheduler.planning.pauses import PAUSE_REASON, PAUSED
from rescheduler.planning.pools import PoolLosses
from rescheduler.planning.waits import Cooldown, Cooldowns, Pause, Waits
from tests.planning.builders import NOW

INSTALLATION = Installation("kube-system", "k8s-spot-rescheduler", "spot-rescheduler-memory")
STORED = StoredSettings(600.0, 600.0)
IN_FIVE_MINUTES = NOW + timedelta(minutes=5)
WEB = Debt(Controller("default", "Deployment", "web", "uid-web"), 2, 3)
EARLIER = NOW - timedelta(minutes=4)


def lease(holder: str = "", **annotations: str) -> Any:
    text = ",".join(f'"{key}":"{value}"' for key, value in annotations.items())
    spec = f'{{"holderIdentity":"{holder}","renewTime":"2026-01-01T11:59:58.000000Z"}}' if holder else "{}"
    return lease_of(f'{{"metadata":{{"annotations":{{{text}}}}},"spec":{spec}}}'.encode())


def status(**fields: Any) -> InstallationStatus:
    return InstallationStatus(NOW, INSTALLATION, **fields)


BUSY = status(
    lease=lease("pod-a_1", **{PAUSED: "2026-01-01T14:00:00Z", PAUSE_REASON: "a release"}),
    memory=Memory(
        drained_at=EARLIER,
        drained_node="od-3",
        debts=(OpenDebt("od-3", EARLIER, WEB),),
        cooldowns=Cooldowns({"od-2": Cooldown("uid-od-2", 2, IN_FIVE_MINUTES), "old": Cooldown("uid", 1, EARLIER)}),
        not_recovered=NotRecovered(
            {"default/Deployment/api": OwnerWait(1, IN_FIVE_MINUTES), "old": OwnerWait(1, EARLIER)}
        ),
        settings=StoredSettings(600.0, 600.0, ("Mon-Fri 09:00-17:00",)),
        pools=PoolLosses().observed({"a/m5.large": 10.0, "b/m5.large": 10.0}, {"a/m5.large": 1}, NOW, Waits().pool),
    ),
    drains={"od-1": Intent("pod-a_1", Step.DRAINING, EARLIER), "od-9": None},
)

AS_JSON = {
    "at": "2026-01-01T12:00:00Z",
    "installation": "kube-system/k8s-spot-rescheduler",
    "leader": "pod-a_1",
    "dryRuns": [],
    "leaseRenewed": "2026-01-01T11:59:58.000000Z",
    "paused": {"until": "2026-01-01T14:00:00Z", "reason": "a release", "unreadable": None},
    "waiting": {"reason": "paused", "detail": "drains are paused until 2026-01-01T14:00:00Z: a release"},
    "draining": [
        {"node": "od-1", "step": "draining", "since": "2026-01-01T11:56:00Z", "holder": "pod-a_1"},
        {"node": "od-9", "step": None, "since": None, "holder": None},
    ],
    "coolingDown": [
        {"node": "od-2", "until": "2026-01-01T12:05:00Z", "failures": 2, "reason": "cooling-down", "detail": ""}
    ],
    "owed": [
        {
            "controller": "default/Deployment/web",
            "pods": 3,
            "ready": 2,
            "node": "od-3",
            "since": "2026-01-01T11:56:00Z",
        }
    ],
    "notRecovered": [{"name": "default/Deployment/api", "until": "2026-01-01T12:05:00Z", "failures": 1}],
    "spotPools": [
        {
            "pool": "a/m5.large",
            "losses": 1,
            "lossesPerNodeHour": 0.1,
            "lastLoss": "2026-01-01T12:00:00Z",
            "settlingUntil": "2026-01-01T12:10:00Z",
        },
        {"pool": "b/m5.large", "losses": 0, "lossesPerNodeHour": 0.0, "lastLoss": None, "settlingUntil": None},
    ],
    "lastDrain": "2026-01-01T11:56:00Z",
    "lastDrainNode": "od-3",
    "settings": {
        "nodeDrainDelaySeconds": 600.0,
        "landingTimeoutSeconds": 600.0,
        "drainWindows": ["Mon-Fri 09:00-17:00"],
    },
}

TEXT = """\
Installation  kube-system/k8s-spot-rescheduler
Leader        pod-a_1, renewed 2s ago
Paused        until 2026-01-01T14:00:00Z: a release
Waiting       paused: drains are paused until 2026-01-01T14:00:00Z: a release
Last drain    od-3, 4m ago
Drain delay   10m
Drain window  Mon-Fri 09:00-17:00
Draining      od-1: draining, begun 4m ago by pod-a_1
              od-9: its mark cannot be read
Cooling down  od-2: until 2026-01-01T12:05:00Z after 2 failures
Owed          default/Deployment/web: must have 3 pods again, 2 of them Ready; from od-3, 4m ago
Not recovered default/Deployment/api: not moved before 2026-01-01T12:05:00Z, after 1 failure
Spot pools    a/m5.large: 1 lost node, the last one 0s ago, 0.1000 per node-hour; not trusted before \
2026-01-01T12:10:00Z
              b/m5.large: 0 lost nodes, 0.0000 per node-hour"""

EMPTY_TEXT = """\
Installation  kube-system/k8s-spot-rescheduler
Leader        none
Paused        no
Waiting       no reason stored
Last drain    none
Drain delay   not known: the daemon has not stored it
Draining      none
Cooling down  none
Owed          none
Not recovered none
Spot pools    none"""


def test_the_json_output_has_the_whole_state() -> None:
    assert BUSY.as_json() == AS_JSON


@pytest.mark.parametrize(("state", "text"), [(BUSY, TEXT), (status(), EMPTY_TEXT)], ids=["busy", "not installed"])
def test_the_text_output_has_the_whole_state(state: InstallationStatus, text: str) -> None:
    assert "\n".join(lines(state.as_json())) == text


WAITS: dict[str, tuple[InstallationStatus, tuple[str, str] | None]] = {
    "nothing": (status(lease=lease("a"), memory=Memory()), None),
    "no lease and no memory": (status(), None),
    "an unreadable pause": (
        status(lease=lease(**{PAUSED: "no"})),
        ("paused", "drains are paused (annotation spot-rescheduler/paused: 'no', expected an RFC 3339 time or true)"),
    ),
    "a pause that has ended": (status(lease=lease(**{PAUSED: "2026-01-01T12:00:00Z"})), None),
    "the memory": (
        status(memory_trouble="ConfigMap x: expected gzip"),
        ("memory-unreadable", "ConfigMap x: expected gzip"),
    ),
    "owed pods, before the drain delay": (
        status(memory=Memory(drained_at=EARLIER, debts=(OpenDebt("od-3", EARLIER, WEB),), settings=STORED)),
        ("landing-pending", "replacement pods are owed to default/Deployment/web"),
    ),
    "the drain delay": (
        status(memory=Memory(drained_at=EARLIER, settings=STORED)),
        ("drain-delay", "the drain delay runs until 2026-01-01T12:06:00Z"),
    ),
    "the drain delay is over": (status(memory=Memory(drained_at=NOW - timedelta(minutes=10), settings=STORED)), None),
    "pods that are owed for longer than the landing timeout": (
        status(memory=Memory(debts=(OpenDebt("od-3", NOW - timedelta(minutes=10), WEB),), settings=STORED)),
        None,
    ),
    "owed pods of a daemon that has not stored its landing timeout": (
        status(memory=Memory(debts=(OpenDebt("od-3", EARLIER, WEB),))),
        (
            "landing-pending",
            "replacement pods are owed to default/Deployment/web; how long they delay drains is not known",
        ),
    ),
    "a drain delay that the daemon has not stored": (status(memory=Memory(drained_at=EARLIER)), None),
    "returned pods": (
        status(memory=Memory(returned=Pause(1, IN_FIVE_MINUTES))),
        ("returned-pods", "evicted pods returned to on-demand nodes; drains wait until 2026-01-01T12:05:00Z"),
    ),
}


@pytest.mark.parametrize(("state", "waits"), WAITS.values(), ids=WAITS)
def test_the_reason_why_drains_wait_is_derived_from_the_state(
    state: InstallationStatus, waits: tuple[str, str] | None
) -> None:
    assert state.waiting() == waits


def test_counts_of_one_are_singular() -> None:
    load = status().as_json()
    load["coolingDown"] = [{"node": "od-2", "until": "later", "failures": 1, "detail": ""}]
    load["owed"] = [{"controller": "default/Deployment/web", "pods": 1, "ready": 0, "node": "od-3", "since": "now"}]
    load["notRecovered"] = [{"name": "default/Deployment/web", "until": "later", "failures": 1}]
    pool = {"pool": "a/x", "losses": 1, "lossesPerNodeHour": 0.5, "lastLoss": None, "settlingUntil": None}
    load["spotPools"] = [pool]
    assert list(lines(load))[-4:] == [
        "Cooling down  od-2: until later after 1 failure",
        "Owed          default/Deployment/web: must have 1 pod again, 0 of them Ready; from od-3, now",
        "Not recovered default/Deployment/web: not moved before later, after 1 failure",
        "Spot pools    a/x: 1 lost node, 0.5000 per node-hour",
    ]
