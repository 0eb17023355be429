"""A second installation with other labels and another namespace starts while the first one drains a node."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from devcluster.manifests import ON_DEMAND, SPOT, deployment, namespace
from devcluster.plane import ControlPlane
from rescheduler.draining.actions import ANNOTATION
from tests.cluster.bad_days import FLAGS, SLOW, lease_holder
from tests.cluster.daemon import Daemon, create_stuck_pod, delete_stuck_pods, terminating
from tests.cluster.observer import Observer
from tests.cluster.rendering import chart
from tests.cluster.rights import ACCESS

FIRST: Final = "first"
SECOND: Final = "second"

#: The node labels of the second installation.
SWAPPED: Final = (f"--on-demand-node-label={SPOT}", f"--spot-node-label={ON_DEMAND}")


@contextlib.contextmanager
def installed(cluster: ControlPlane, release: str) -> Iterator[Path]:
    """Install the access of a chart release in its own namespace and yield the kubeconfig of its ServiceAccount."""
    values = {"cloudProvider": {"name": "karpenter"}} if Daemon.backend else {}
    objects = [item for item in chart(values, release, release) if item["kind"] in ACCESS]
    cluster.apply([namespace(release), *objects])
    [account] = [item["metadata"]["name"] for item in objects if item["kind"] == "ServiceAccount"]
    try:
        yield cluster.service_account_kubeconfig(release, account)
    finally:
        for item in objects:
            cluster.api.delete(cluster.api.path(item))


def release_flags(release: str) -> tuple[str, ...]:
    """Return the flags with the namespace and the memory name of a release, as the chart sets them."""
    [pod] = [item["spec"]["template"]["spec"] for item in chart(release=release) if item["kind"] == "Deployment"]
    [name] = [env["value"] for env in pod["containers"][0]["env"] if env["name"] == "RESCHEDULER_MEMORY_NAME"]
    return f"--namespace={release}", f"--memory-name={name}"


def user(cluster: ControlPlane, release: str) -> str:
    [account] = [
        item["metadata"]["name"]
        for item in cluster.api.items(f"/api/v1/namespaces/{release}/serviceaccounts")
        if item["metadata"]["name"] != "default"
    ]
    return f"system:serviceaccount:{release}:{account}"


def test_a_second_installation_does_not_interfere_with_a_drain(cluster: ControlPlane, observer: Observer) -> None:
    with installed(cluster, FIRST) as ours, installed(cluster, SECOND) as second:
        create_stuck_pod(cluster, observer)
        with Daemon(cluster, *FLAGS, *release_flags(FIRST), kubeconfig=ours):
            observer.eventually(lambda: terminating(cluster), "the drain under way")
            marks = list(observer.marks())
            with Daemon(cluster, *FLAGS, *release_flags(SECOND), *SWAPPED, kubeconfig=second):
                observer.eventually(lambda: lease_holder(cluster, SECOND), "the second one's Lease")
                observer.stays(lambda: harm(observer, user(cluster, SECOND)), [])
                assert list(observer.marks()) == marks
            delete_stuck_pods(cluster)
            observer.eventually(lambda: observer.kinds() == {"spot": 3}, "the pods on spot")
            observer.wait_unmarked()
            observer.eventually(lambda: "NodeDrained" in observer.events("on-demand-1"), "the event")
        assert {event.user.username for event in observer.evictions()} == {user(cluster, FIRST)}


def harm(observer: Observer, username: str) -> list[str]:
    """Return the names of nodes and pods that *username* has written."""
    return [event.name for event in observer.audit.writes("nodes", "pods", "pods/eviction", user=username)]


def test_a_drain_stops_when_its_annotation_is_replaced(cluster: ControlPlane, observer: Observer) -> None:
    """By the mark of another installation. `tests/housekeeping/test_marks.py` has other changes."""
    observer.nodes(1, 2)
    cluster.apply([deployment("web", 8, annotations=SLOW)])
    observer.running(8)
    observer.open_all()
    with Daemon(cluster, *FLAGS, "--node-cooldown=1h", "--node-cooldown-max=1h"):
        observer.eventually(lambda: len(observer.evictions()) >= 2, "the second eviction")
        [(node, written)] = observer.marks().items()
        text = json.dumps({**json.loads(written), "identity": "x/y", "holder": "z"})
        cluster.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {ANNOTATION: text}}})
        observer.eventually(lambda: "DrainFailed" in observer.events(node), "the end of the drain")
        observer.running(8)
        assert len(observer.evictions()) <= MOST_EVICTIONS
        observer.stays(lambda: observer.marks().get(node), text)


#: Steps of 1, 1 and 2 pods; the last step may be in progress when the annotation is replaced.
MOST_EVICTIONS: Final = 4
