"""The daemon plans for the pods that controllers will create: by their templates and revision rules."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from devcluster.manifests import deployment, statefulset
from devcluster.plane import ControlPlane
from tests.cluster.bad_days import FLAGS, NODE_1, next_node, next_node_drained
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer

ELSEWHERE: Final = {"nodeSelector": {"disk": "none"}}


def node_name_in_the_template(cluster: ControlPlane, observer: Observer) -> None:
    """Every replica is created on the node, without the scheduler."""
    cluster.apply([deployment("odd", 2, nodeName=NODE_1)])
    observer.running(2, "odd")


def on_delete(cluster: ControlPlane, observer: Observer) -> None:
    """The next pods are created from a template that fits no node."""
    changed_template(cluster, observer, {"type": "OnDelete"})


def too_large(cluster: ControlPlane, observer: Observer) -> None:
    changed_template(cluster, observer, {"type": "OnDelete"}, cpu="30")


def changed_template(cluster: ControlPlane, observer: Observer, strategy: dict[str, Any], cpu: str = "") -> None:
    database = statefulset("odd", 2)
    database["spec"]["updateStrategy"] = strategy
    observer.start_on(NODE_1, database, pods=2)
    observer.running(2, "odd")
    spec: dict[str, Any] = {"nodeSelector": ELSEWHERE["nodeSelector"]}
    if cpu:
        containers = database["spec"]["template"]["spec"]["containers"]
        spec = {"containers": [{**containers[0], "resources": {"requests": {"cpu": cpu}}}]}
    cluster.api.patch("/apis/apps/v1/namespaces/default/statefulsets/odd", {"spec": {"template": {"spec": spec}}})
    observer.eventually(
        lambda: (
            cluster.api.get("/apis/apps/v1/namespaces/default/statefulsets/odd")["status"].get("updateRevision")
            != cluster.api.get("/apis/apps/v1/namespaces/default/statefulsets/odd")["status"].get("currentRevision")
        ),
        "the new revision",
    )


WORKLOADS: Final[dict[str, Callable[[ControlPlane, Observer], None]]] = {
    "a template with nodeName": node_name_in_the_template,
    "a StatefulSet with OnDelete whose new template selects no node": on_delete,
    "a StatefulSet with OnDelete whose new pods are too large": too_large,
}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_pods_whose_replacements_would_not_run_on_spot_stay(
    cluster: ControlPlane, observer: Observer, workload: str
) -> None:
    observer.nodes(2, 2)
    WORKLOADS[workload](cluster, observer)
    before = observer.uids("odd")
    next_node(observer)
    observer.open_all()
    with Daemon(cluster, *FLAGS):
        next_node_drained(observer, never=lambda: "default/odd" in observer.evicted())
        observer.stays(lambda: observer.uids("odd"), before)
    assert NODE_1 not in observer.marks()
