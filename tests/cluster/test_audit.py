"""Tests of the audit log of the local control plane."""

import pytest

from devcluster.api import Json
from devcluster.audit import POD_NAME, AuditEvent, AuditLog, AuditUser
from devcluster.errors import ApiError
from devcluster.manifests import deployment, pdb, spot
from devcluster.plane import ControlPlane
from predicates.snapshot import DRAIN_TAINT
from tests.cluster.observer import Observer

PODS = "/api/v1/namespaces/default/pods"


def evict(cluster: ControlPlane, name: str, options: Json | None = None, **query: str) -> Json:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return cluster.api.post(f"{PODS}/{name}/eviction", {**eviction, "deleteOptions": options or {}}, **query)


def short(event: AuditEvent) -> tuple[str, str, str, int, bool]:
    return event.verb, event.kind, event.name, event.code, event.dry_run


def test_every_write_is_logged_before_its_response(cluster: ControlPlane, observer: Observer) -> None:
    """Reads, and writes of the control plane's components, are omitted."""
    observer.nodes(0, 1)
    observer.open_spot()
    cluster.apply([deployment("free", 1), deployment("kept", 1), pdb("kept", max_unavailable=0)])
    observer.running(2)
    [[first], [second]] = [[pod["metadata"]["name"] for pod in observer.pods(app)] for app in ("free", "kept")]
    log = AuditLog(cluster.layout.audit_log)
    evict(cluster, first, dryRun="All")
    evict(cluster, first, {"dryRun": ["All"]})
    evict(cluster, first)
    with pytest.raises(ApiError, match="429"):
        evict(cluster, second)
    assert [short(event) for event in log.events()] == [
        ("create", "pods/eviction", first, 201, True),
        ("create", "pods/eviction", first, 201, True),
        ("create", "pods/eviction", first, 201, False),
        ("create", "pods/eviction", second, 429, False),
    ]
    assert [event.name for event in log.evictions()] == [first]
    assert log.evictions(user="other-user") == log.evictions(agent="spot-rescheduler/") == []


def test_the_audit_log_shows_the_periods_in_which_a_node_had_our_marks(
    cluster: ControlPlane, observer: Observer
) -> None:
    cluster.apply([spot("a"), spot("b")])
    ours = {"key": DRAIN_TAINT.key, "value": "other-user", "effect": DRAIN_TAINT.effect}
    for taints in ([ours], [ours, {"key": "other", "effect": "NoSchedule"}], []):
        cluster.api.patch("/api/v1/nodes/a", {"spec": {"taints": taints}})
    cluster.api.patch("/api/v1/nodes/b", {"spec": {"taints": [ours]}})
    first, second = observer.markings()
    assert [(first.node, first.until is None), (second.node, second.until)] == [("a", False), ("b", None)]
    assert first.seconds > 0
    cluster.api.delete("/api/v1/nodes/b")
    assert [marking.until is None for marking in observer.markings()] == [False, False]


def test_a_bound_token_names_its_pod() -> None:
    assert AuditUser("system:serviceaccount:a:b", {POD_NAME: ("mover-1",)}).pod == "mover-1"
    assert AuditUser("other-user").pod == ""
