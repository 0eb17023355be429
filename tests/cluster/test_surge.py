"""Rolling updates instead of evictions, with the real Deployment controller, judged by a watch and by HTTP clients.

``SURGE_DRAINS=200`` drains that many nodes instead of a few.
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from kubernetes import client, config

from devcluster.api import Json
from devcluster.manifests import IMAGE, ON_DEMAND, deployment, node, pod, spot
from devcluster.plane import ControlPlane
from devcluster.stages import READY_ON, START_AFTER, TERMINATE_AFTER
from rescheduler.clock import SystemClock
from rescheduler.kube.deployments import RESTARTED_AT
from tests.cluster import webhooks
from tests.cluster.bad_days import FLAGS, NODE_1
from tests.cluster.daemon import SOFT, Daemon
from tests.cluster.http_pods import HttpPods, service
from tests.cluster.observer import Observer
from tests.cluster.ready_watch import ReadyWatch, never_down
from tests.cluster.rendering import composed
from tests.cluster.replicas import ReplicatedInstallation, installed
from tests.cluster.surge_scenes import (
    DEPLOYMENTS,
    SURGE,
    budget,
    is_rejected,
    no_restarts,
    restarted,
    scene,
    template,
    wait_drained,
)
from tests.cluster.webhooks import rule

log = logging.getLogger(__name__)

DRAINS: Final = int(os.environ.get("SURGE_DRAINS", "3"))
AT_ONCE: Final = 10  #: nodes that the daemon may drain at the same time, each with clients of its pods
PLAIN: Final = "application/json"
NEVER_BOTH: Final = "3"  #: CPUs of a pod, of which one fits an on-demand node


def test_what_budgets_forbid_moves_without_downtime(cluster: ControlPlane, observer: Observer) -> None:
    apps = [f"app{number}" for number in range(1, DRAINS + 1)]
    node_of = filled(cluster, observer, apps)
    watched = ReadyWatch(cluster)
    watched.pods.start()
    watched.judge(apps)
    with HttpPods(cluster).running() as pods, Daemon(cluster, *SURGE):
        for first in range(0, DRAINS, AT_ONCE):
            begun = SystemClock().now()
            names = apps[first : first + AT_ONCE]
            with pods.clients(names):
                for app in names:
                    cluster.api.patch(f"/api/v1/nodes/{node_of[app]}", {"metadata": {"labels": {ON_DEMAND: "true"}}})
                for app in names:
                    observer.eventually(
                        lambda app=app: observer.kinds(app) == {"spot": 1}, f"{app} on a spot node", seconds=600
                    )
                observer.wait_unmarked()
            for app in names:
                wait_drained(observer, node_of[app])
                cluster.api.delete(f"/api/v1/nodes/{node_of[app]}")
            seconds = (SystemClock().now() - begun).total_seconds()
            figures = (min(watched.least.values()), len(observer.evictions()), pods.requests, len(pods.failed))
            log.info("%d drains, the last ones in %.0f s", first + len(names), seconds)
            log.info("Ready at least %d, %d evictions, %d requests, %d failed", *figures)
    assert watched.pods.running
    assert watched.least == dict.fromkeys(apps, 1)
    assert observer.kinds() == {"spot": DRAINS}
    assert not observer.evictions()
    assert pods.failed == []
    assert pods.requests >= DRAINS * AT_ONCE


def filled(cluster: ControlPlane, observer: Observer, apps: Sequence[str]) -> dict[str, str]:
    """Create a node for one pod of each of *apps*, none of them an on-demand node yet, and spot nodes.

    Return the node of each app.
    """
    roomy = {"cpu": str(10 + 4 * len(apps)), "pods": "500", "memory": "64Gi"}
    taint = {"key": ON_DEMAND, "value": "true", "effect": SOFT}
    cluster.apply(node(f"on-demand-{number}", taints=[taint]) for number in range(1, len(apps) + 1))
    starts = {START_AFTER: "500ms", TERMINATE_AFTER: "1s"}
    cluster.apply(
        each
        for app in apps
        for each in (deployment(app, cpu=NEVER_BOTH, annotations=starts), budget(app), service(app))
    )
    observer.running(len(apps))
    cluster.apply(spot(f"spot-{number}", allocatable=roomy) for number in (1, 2))
    observer.open_spot()
    return {pod["metadata"]["labels"]["app"]: pod["spec"]["nodeName"] for pod in observer.pods()}


def test_opting_in_moves_by_a_rolling_update_before_other_pods_are_evicted(
    cluster: ControlPlane, observer: Observer
) -> None:
    observer.nodes(1, 2)
    asks = {"spot-rescheduler/surge": "true", START_AFTER: "1s"}
    workloads = deployment("web", cpu="100m", annotations=asks), deployment("other", 2, cpu="100m")
    observer.start_on(NODE_1, *workloads, pods=3)
    observer.running(3)
    observer.open_all()
    [old] = observer.pods("web")
    with never_down(observer, "web"), Daemon(cluster, *FLAGS):
        observer.eventually(lambda: observer.kinds() == {"spot": 3}, "all pods on spot nodes")
        observer.wait_unmarked()
    assert observer.evicted() == {"default/other": 2}
    assert not observer.events(old["metadata"]["name"])


def test_a_pod_that_never_starts_on_spot_nodes_costs_nothing(cluster: ControlPlane, observer: Observer) -> None:
    scene(observer, "web", annotations={READY_ON: "on-demand"})
    cluster.api.patch(f"{DEPLOYMENTS}/web", {"spec": {"progressDeadlineSeconds": 4}})
    before, pods = template(observer, "web"), observer.uids("web")
    with never_down(observer, "web"), Daemon(cluster, *SURGE):
        observer.eventually(lambda: "SurgeRolledBack" in observer.events(NODE_1), "the roll-back")
        observer.wait_unmarked()
        observer.eventually(lambda: observer.uids("web") == pods, "the old pod alone")
        observer.wait_told(NODE_1, "DrainFailed", "surge-failed")
    assert template(observer, "web") == before


RESTART: Final[Json] = {"metadata": {"annotations": {RESTARTED_AT: "2026-01-01T00:00:00Z"}}}
NEW_POD: Final = ("POST", "/api/v1/namespaces/default/pods", pod("new", annotations={RESTARTED_AT: "now"}), PLAIN)


def test_what_a_webhook_rejects_costs_nothing(cluster: ControlPlane, observer: Observer, tmp_path: Path) -> None:
    """It rejects the new pod. `tests/kube/test_deployments.py` has other errors."""
    scene(observer, "web")
    before, pods = template(observer, "web"), observer.uids("web")
    with webhooks.serving("no-restarts", rule("", "pods", "CREATE"), no_restarts, tmp_path) as hook:
        cluster.apply([hook])
        try:
            cluster.wait_for(lambda: is_rejected(cluster, NEW_POD), "the webhook to be asked")
            with never_down(observer, "web"), Daemon(cluster, *SURGE):
                observer.eventually(lambda: "DrainFailed" in observer.events(NODE_1), "the failure")
                observer.wait_unmarked()
        finally:
            cluster.api.delete(cluster.api.path(hook))
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
