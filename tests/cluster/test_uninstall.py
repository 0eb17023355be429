"""Everything that a daemon leaves on the API server is listed in docs/operating.md."""

import json
import re
from pathlib import Path

from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from rescheduler.housekeeping.node_writes import SOFT_TAINT
from rescheduler.kube.eviction_requests import INSTALLATION
from rescheduler.planning.rules.interruptions import DRAIN_CONDITION, OUR_REASON
from rescheduler.providers.clusterapi.machines import REMOVED
from rescheduler.providers.clusterapi.objects import APIS
from rescheduler.settings import LEASE, MEMORY_NAME, SAVINGS_NAME
from tests.cluster.bad_days import FLAGS, NAMESPACE
from tests.cluster.daemon import Daemon
from tests.cluster.observer import AGENT, Observer

STRATEGIC = "application/strategic-merge-patch+json"
OURS = "spot-rescheduler"
SECTION = (
    (Path(__file__).parents[2] / "docs" / "operating.md").read_text(encoding="utf-8").partition("\n## Uninstall\n")[2]
)

#: Requests that create no object that stays, apart from Events, which expire.
TEMPORARY = {"events", "pods/eviction", "selfsubjectaccessreviews"}


def test_all_objects_left_behind_are_documented(cluster: ControlPlane, observer: Observer) -> None:
    observer.nodes(1, 1)
    cluster.apply([deployment("web", 2)])
    observer.running(2)
    observer.open_spot()
    with Daemon(cluster, *FLAGS, "--manage-soft-taint") as daemon:
        observer.eventually(lambda: observer.kinds() == {"spot": 2}, "the pods on spot nodes")
        observer.wait_unmarked()
        daemon.terminate()
        assert daemon.end() == 0
    writes = observer.audit.writes(agent=AGENT)
    assert {event.kind for event in writes if event.verb == "create"} - TEMPORARY == {"leases", "configmaps"}
    maps = {item["metadata"]["name"] for item in cluster.api.items(f"/api/v1/namespaces/{NAMESPACE}/configmaps")}
    assert {name for name in maps if OURS in name} == {MEMORY_NAME, SAVINGS_NAME}
    nodes = cluster.api.items("/api/v1/nodes")
    taints = {taint["key"] for node in nodes for taint in node["spec"].get("taints", ()) if OURS in taint["key"]}
    annotations = {key for node in nodes for key in node["metadata"].get("annotations", {}) if OURS in key}
    assert (taints, annotations) == ({SOFT_TAINT.key}, set())
    maps_deleted = [f"delete configmap {name}`" for name in (MEMORY_NAME, SAVINGS_NAME)]
    for command in (f"delete lease {LEASE}`", *maps_deleted, f"--all {SOFT_TAINT.key}-`"):
        assert command in SECTION


def test_what_a_killed_daemon_leaves_with_other_flags_is_documented(cluster: ControlPlane, observer: Observer) -> None:
    """The documented patch removes the condition of a drain, and no other one."""
    assert f"kubectl delete evictionrequests -A -l {INSTALLATION}`" in SECTION
    observer.nodes(1, 1)
    path, condition = "/api/v1/nodes/on-demand-1", {"type": DRAIN_CONDITION, "status": "True", "reason": OUR_REASON}
    cluster.api.patch(f"{path}/status", {"status": {"conditions": [condition]}}, STRATEGIC)
    before = conditions(cluster, path)
    assert {DRAIN_CONDITION, "Ready"} <= before
    [patch] = re.findall("--subresource=status -p '(.*?)'`", SECTION)
    cluster.api.patch(f"{path}/status", json.loads(patch), STRATEGIC)
    assert conditions(cluster, path) == before - {DRAIN_CONDITION}


def test_the_annotations_of_machines_and_their_groups_are_documented() -> None:
    for api in APIS:
        groups = [f"{plural}.{api.group}" for plural in ("machinedeployments", "machinesets")[not api.has_clusters :]]
        marks = " ".join(f"{mark}-" for mark in api.marks)
        assert f"kubectl annotate {','.join(groups)} -A --all {REMOVED}-`" in SECTION
        assert f"kubectl annotate machines.{api.group} -n NAMESPACE NAME {marks}`" in SECTION


def conditions(cluster: ControlPlane, path: str) -> set[str]:
    return {each["type"] for each in cluster.api.get(path)["status"]["conditions"]}
