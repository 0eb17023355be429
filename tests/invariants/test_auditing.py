"""Tests of the attribution of writes in the audit log to an installation."""

import json
from pathlib import Path
from typing import Any

from tests.invariants.auditing import DaemonWrites
from tests.invariants.rules import Rules

AT = "2026-01-01T00:00:00.000000Z"


def lease(namespace: str, name: str, holder: str) -> dict[str, Any]:
    return {
        "verb": "patch",
        "user": {"username": "daemon"},
        "userAgent": "spot-rescheduler/1",
        "requestReceivedTimestamp": AT,
        "stageTimestamp": AT,
        "objectRef": {"resource": "leases", "namespace": namespace, "name": name},
        "responseStatus": {"code": 200},
        "responseObject": {"spec": {"holderIdentity": holder}},
    }


def test_leases_of_other_installations_name_no_holder(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    writes = DaemonWrites(log, Rules(namespace="ours", lease="l"))
    events = [lease("ours", "l", "a"), lease("theirs", "l", "b"), lease("ours", "other", "c")]
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    assert [write.holder for write in writes.writes()] == ["a", None, None]
