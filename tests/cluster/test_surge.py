"""Rolling updates instead of evictions, with the real Deployment controller, judged by a watch from outside.

``SURGE_DRAINS=200`` drains that many nodes instead of a few.
"""

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from kubernetes import client, config, watch
from urllib3.exceptions import ProtocolError

from devcluster.api import Json
from devcluster.manifests import IMAGE, deployment
from devcluster.plane import ControlPlane
from devcluster.stages import READY_ON, START_AFTER
from rescheduler.kube.deployments import RESTARTED_AT
from tests.cluster.bad_days import FLAGS, NODE_1
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer
from tests.cluster.rendering import composed
from tests.cluster.replicas import ReplicatedInstallation, installed

DRAINS: Final = int(os.environ.get("SURGE_DRAINS", "3"))
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
SURGE: Final = (*FLAGS, "--surge=blocked", "--node-cooldown=1h", "--node-cooldown-max=1h")


def budget(app: str) -> Json:
    """Return a budget that never allows an eviction of the only pod of *app*."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
    }


class ReadyWatch:
    """The lowest number of Ready pods of each app, by every change that the API server reports."""

    def __init__(self, plane: ControlPlane, apps: list[str]) -> None:
        self._pods = client.CoreV1Api(config.new_client_from_config(str(plane.kubeconfig)))
        self._ready: dict[str, set[str]] = {app: set() for app in apps}
        self._stream = watch.Watch()
        self.least: dict[str, int] = {}
        self.events = 0

    def run(self, since: str) -> None:
        with contextlib.suppress(ProtocolError):  # the end of the stream after the end of the test
            for event in self._stream.stream(self._pods.list_namespaced_pod, "default", resource_version=since):
                self._apply(event["type"], event["raw_object"])

    def begin(self) -> str:
        listed = self._pods.list_namespaced_pod("default", _preload_content=False)
        body = json.loads(listed.data)
        for pod in body["items"]:
            self._apply("ADDED", pod)
        self.least = {app: len(ready) for app, ready in self._ready.items()}
        return str(body["metadata"]["resourceVersion"])

    def end(self) -> None:
        self._stream.stop()

    def _apply(self, kind: str, pod: Any) -> None:
        self.events += 1
        app, uid = pod["metadata"].get("labels", {}).get("app", ""), pod["metadata"]["uid"]
        if app not in self._ready:
            return
        conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
        ready = kind != "DELETED" and "deletionTimestamp" not in pod["metadata"] and conditions.get("Ready") == "True"
        (self._ready[app].add if ready else self._ready[app].discard)(uid)
        self.least[app] = min(self.least.get(app, 1), len(self._ready[app]))


@contextmanager
def never_down(observer: Observer, *apps: str) -> Iterator[ReadyWatch]:
    """Assert at the end that each of *apps* always had a Ready pod, and that none of its pods was evicted."""
    watched = ReadyWatch(observer.plane, list(apps))
    since = watched.begin()
    assert watched.least == dict.fromkeys(apps, 1)
    thread = threading.Thread(target=watched.run, args=(since,), daemon=True)
    thread.start()
    yield watched
    before = watched.events
    pod = f"/api/v1/namespaces/default/pods/{observer.pods(apps[0])[0]['metadata']['name']}"
    observer.plane.api.patch(pod, {"metadata": {"labels": {"seen": "1"}}})
    observer.eventually(lambda: watched.events > before, "the watch to be up to date")
    assert thread.is_alive()
    watched.end()
    assert watched.least == dict.fromkeys(apps, 1)
    assert not {owner.partition("/")[2] for owner in observer.evicted()} & set(apps)


def template(observer: Observer, app: str) -> Json:
    spec: Json = observer.plane.api.get(f"{DEPLOYMENTS}/{app}")["spec"]["template"]
    return spec


def restarted(observer: Observer, app: str) -> bool:
    return RESTARTED_AT in template(observer, app)["metadata"].get("annotations", {})


def scene(observer: Observer, *apps: str, **fields: Any) -> None:
    """Create a node with one pod of each of *apps* behind budgets that allow nothing, and spot nodes."""
    observer.nodes(1, 2)
    observer.start_on(NODE_1, *(deployment(app, cpu="100m", **fields) for app in apps), pods=len(apps))
    observer.plane.apply([budget(app) for app in apps])
    observer.running(len(apps))
    observer.open_all()


def test_what_budgets_forbid_moves_without_downtime(cluster: ControlPlane, observer: Observer) -> None:
    observer.nodes(DRAINS, 2 + DRAINS // 50)
    apps = [f"app{number}" for number in range(1, DRAINS + 1)]
    for number, app in enumerate(apps, 1):
        observer.start_on(f"on-demand-{number}", deployment(app, cpu="100m"), pods=1)
    cluster.apply([budget(app) for app in apps])
    observer.running(DRAINS)
    observer.open_all()
    with never_down(observer, *apps), Daemon(cluster, *SURGE):
        observer.eventually(lambda: observer.kinds() == {"spot": DRAINS}, "all pods on spot nodes", seconds=60 * DRAINS)
        observer.wait_unmarked()
    assert {"SurgeStarted", "SurgeDone", "NodeDrained"} <= observer.events("on-demand-1")


def test_opting_in_moves_by_a_rolling_update_before_other_pods_are_evicted(
    cluster: ControlPlane, observer: Observer
) -> None:
    observer.nodes(1, 2)
    asks = {"spot-rescheduler/surge": "true", START_AFTER: "1s"}
    workloads = deployment("web", cpu="100m", annotations=asks), deployment("other", 2, cpu="100m")
    observer.start_on(NODE_1, *workloads, pods=3)
    observer.running(3)
    observer.open_all()
    with never_down(observer, "web"), Daemon(cluster, *FLAGS):
        observer.eventually(lambda: observer.kinds() == {"spot": 3}, "all pods on spot nodes")
        observer.wait_unmarked()
    assert observer.evicted() == {"default/other": 2}


def test_a_pod_that_never_starts_on_spot_nodes_costs_nothing(cluster: ControlPlane, observer: Observer) -> None:
    scene(observer, "web", annotations={READY_ON: "on-demand"})
    cluster.api.patch(f"{DEPLOYMENTS}/web", {"spec": {"progressDeadlineSeconds": 4}})
    before, pods = template(observer, "web"), observer.uids("web")
    with never_down(observer, "web"), Daemon(cluster, *SURGE):
        observer.eventually(lambda: "SurgeRolledBack" in observer.events(NODE_1), "the roll-back")
        observer.wait_unmarked()
        observer.eventually(lambda: observer.uids("web") == pods, "the old pod alone")
    assert template(observer, "web") == before
    assert any("surge-failed" in message for message in observer.messages(NODE_1, "DrainFailed"))


REJECTION: Final[list[Json]] = [
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-restarts"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ]
            },
            "validations": [
                {
                    "expression": "!has(object.metadata.annotations) "
                    f"|| !('{RESTARTED_AT}' in object.metadata.annotations)",
                    "message": "no restarts today",
                }
            ],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-restarts"},
        "spec": {"policyName": "no-restarts", "validationActions": ["Deny"]},
    },
]


def test_new_pods_that_admission_rejects_cost_nothing(cluster: ControlPlane, observer: Observer) -> None:
    scene(observer, "web")
    before, pods = template(observer, "web"), observer.uids("web")
    cluster.apply(REJECTION)
    try:
        with never_down(observer, "web"), Daemon(cluster, *SURGE):
            observer.eventually(lambda: "DrainFailed" in observer.events(NODE_1), "the failure")
            observer.wait_unmarked()
    finally:
        for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            cluster.api.delete(f"/apis/admissionregistration.k8s.io/v1/{kind}/no-restarts")
    assert (template(observer, "web"), observer.uids("web")) == (before, pods)
    assert any("no restarts today" in message for message in observer.messages(NODE_1, "DrainFailed"))


def test_a_kill_in_the_middle_is_followed_by_the_next_process(cluster: ControlPlane, observer: Observer) -> None:
    scene(observer, "web", annotations={START_AFTER: "4s"})
    observer.running(1, "web")
    with never_down(observer, "web"):
        with Daemon(cluster, *SURGE) as first:
            observer.eventually(lambda: '"surge"' in observer.marks().get(NODE_1, ""), "the intent on the node")
            first.kill()
        with Daemon(cluster, *SURGE) as second:
            observer.eventually(lambda: restarted(observer, "web"), "the roll-out")
            second.kill()
        with Daemon(cluster, *SURGE):
            observer.eventually(lambda: observer.kinds() == {"spot": 1}, "the pod on a spot node")
            observer.wait_unmarked()


def test_a_stop_in_the_middle_undoes_it(cluster: ControlPlane, observer: Observer) -> None:
    scene(observer, "web", annotations={START_AFTER: "8s"})
    before, pods = template(observer, "web"), observer.uids("web")
    with never_down(observer, "web"), Daemon(cluster, *SURGE) as daemon:
        observer.eventually(lambda: restarted(observer, "web"), "the roll-out")
        daemon.terminate()
        assert daemon.end() == 0
        observer.eventually(lambda: observer.uids("web") == pods, "the old pod alone")
    assert template(observer, "web") == before
    assert not observer.marks()


def test_a_template_that_somebody_else_changes_is_theirs(cluster: ControlPlane, observer: Observer) -> None:
    scene(observer, "web", annotations={START_AFTER: "6s"})
    theirs = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": f"{IMAGE}-new"}]}}}}
    with never_down(observer, "web"), Daemon(cluster, *SURGE):
        observer.eventually(lambda: restarted(observer, "web"), "the roll-out")
        cluster.api.patch(f"{DEPLOYMENTS}/web", theirs, "application/strategic-merge-patch+json")
        observer.eventually(lambda: "SurgeStopped" in observer.events(NODE_1), "the end")
        observer.wait_unmarked()
        assert restarted(observer, "web")
        assert template(observer, "web")["spec"]["containers"][0]["image"] == f"{IMAGE}-new"
        observer.eventually(lambda: len(observer.pods("web")) == 1, "the pod of the other client")


# The permission

BASE: Final[Json] = {"resources": ["../base"]}
WITH_SURGE: Final[Json] = BASE | {"components": ["../components/surge"]}


def test_the_shipped_permission_is_enough(cluster: ControlPlane, observer: Observer, tmp_path: Path) -> None:
    scene(observer, "web")
    with (
        installed(ReplicatedInstallation(cluster), composed(tmp_path, ours=WITH_SURGE), ["a"]) as installation,
        never_down(observer, "web"),
        installation.daemon("a", *SURGE),
    ):
        observer.eventually(lambda: observer.kinds("web") == {"spot": 1}, "the pod on a spot node")
        observer.wait_unmarked()


def test_without_the_permission_the_pod_stays_and_one_warning_says_so(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    scene(observer, "web")
    with (
        installed(ReplicatedInstallation(cluster), composed(tmp_path, ours=BASE), ["a"]) as installation,
        never_down(observer, "web"),
        installation.daemon("a", *SURGE) as daemon,
    ):
        observer.eventually(lambda: "DrainBlocked" in observer.events(NODE_1), "the reason")
        observer.stays(lambda: observer.kinds("web"), {"on-demand": 1}, seconds=3)
        [line] = daemon.logged("no Deployment rolls out")
        assert "patch deployments.apps" in line["message"]
    assert not restarted(observer, "web")


RESTART: Final[Json] = {"metadata": {"annotations": {RESTARTED_AT: "2026-01-01T00:00:00Z"}}}
#: Changes of a Deployment, and whether the policy lets our account make them.
CHANGES: Final[dict[str, tuple[Json, bool]]] = {
    "the annotation": ({"spec": {"template": RESTART}}, True),
    "its removal": ({"spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: None}}}}}, True),
    "another annotation": ({"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}, False),
    "a label of the template": ({"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}, False),
    "the image": ({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}, False),
    "both": ({"spec": {"template": RESTART | {"spec": {"hostNetwork": True}}}}, False),
    "the replicas": ({"spec": {"replicas": 5}}, False),
    "a pause": ({"spec": {"paused": True}}, False),
    "the strategy": ({"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": 1}}}}, False),
    "an annotation of the Deployment": ({"metadata": {"annotations": {"a": "b"}}}, False),
    "a label of the Deployment": ({"metadata": {"labels": {"a": "b"}}}, False),
    "its owner": (
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]}},
        False,
    ),
}


def test_the_policy_allows_exactly_one_annotation(cluster: ControlPlane, tmp_path: Path) -> None:
    cluster.apply([deployment("web", 0)])
    with installed(ReplicatedInstallation(cluster), composed(tmp_path, ours=WITH_SURGE), ["a"]) as installation:
        api = client.AppsV1Api(config.new_client_from_config(str(installation.kubeconfig("a"))))

        def status(change: Json) -> str:
            try:
                api.patch_namespaced_deployment("web", "default", change, dry_run="All")
            except client.ApiException as error:
                return "denied" if "spot-rescheduler surge" in str(error.body) else str(error.body)
            return "allowed"

        image = CHANGES["the image"][0]
        cluster.wait_for(lambda: status(image) == "denied", "the policy to take effect")
        assert {name: status(change) for name, (change, _) in CHANGES.items()} == {
            name: "allowed" if allowed else "denied" for name, (_, allowed) in CHANGES.items()
        }
        with pytest.raises(client.ApiException, match="Forbidden"):
            api.delete_namespaced_deployment("web", "default", dry_run="All")
        with pytest.raises(client.ApiException, match="Forbidden"):
            api.patch_namespaced_deployment_scale("web", "default", {"spec": {"replicas": 1}}, dry_run="All")
