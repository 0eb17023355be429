"""A second installation with other labels, in another namespace, starts while the first one drains a node."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from deploy.local.manifests import ON_DEMAND, SPOT, deployment, namespace
from deploy.local.plane import ControlPlane
from rescheduler.draining.intent import ANNOTATION
from tests.cluster.bad_days import FLAGS, SLOW, lease_holder
from tests.cluster.daemon import Daemon, let_go, put_stuck, terminating
from tests.cluster.observer import Observer
from tests.cluster.rendering import chart

FIRST: Final = "first"
SECOND: Final = "second"

#: What the second one takes for on-demand and spot nodes.
LABELS: Final = {
    "swapped labels": (f"--on-demand-node-label={SPOT}", f"--spot-node-label={ON_DEMAND}"),
    "labels that no node has": ("--on-demand-node-label=example.com/paid", "--spot-node-label=example.com/cheap"),
}


@contextlib.contextmanager
def installed(cluster: ControlPlane, release: str) -> Iterator[Path]:
    """A release of the chart in a namespace of its own: a kubeconfig of its ServiceAccount, with its rights."""
    made = [item for item in chart(release=release, namespace=release) if item["kind"] in RIGHTS]
    cluster.apply([namespace(release), *made])
    [account] = [item["metadata"]["name"] for item in made if item["kind"] == "ServiceAccount"]
    try:
        yield cluster.service_account_kubeconfig(release, account)
    finally:
        for item in made:
            cluster.api.delete(cluster.api.path(item))


RIGHTS: Final = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount"}


def where(release: str) -> tuple[str, ...]:
    """The namespace of a release, and the name of its memory, as the chart sets them."""
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


@pytest.mark.parametrize("labels", LABELS)
def test_the_second_installation_leaves_the_firsts_drain_alone(
    cluster: ControlPlane, observer: Observer, labels: str
) -> None:
    with installed(cluster, FIRST) as ours, installed(cluster, SECOND) as theirs:
        put_stuck(cluster, observer)
        with Daemon(cluster, *FLAGS, *where(FIRST), kubeconfig=ours):
            observer.eventually(lambda: terminating(cluster), "the drain under way")
            marks = list(observer.marks())
            with Daemon(cluster, *FLAGS, *where(SECOND), *LABELS[labels], kubeconfig=theirs):
                observer.eventually(lambda: lease_holder(cluster, SECOND), "the second one's Lease")
                observer.stays(lambda: harm(observer, user(cluster, SECOND)), [])
                assert list(observer.marks()) == marks
            let_go(cluster)
            observer.eventually(lambda: observer.kinds() == {"spot": 3}, "the pods on spot")
            observer.opened()
        assert {event.user.username for event in observer.evictions()} == {user(cluster, FIRST)}
        observer.eventually(lambda: "NodeDrained" in observer.events("on-demand-1"), "the event")


def harm(observer: Observer, username: str) -> list[str]:
    """Nodes and pods that *username* has changed."""
    return [event.name for event in observer.audit.writes("nodes", "pods", "pods/eviction", user=username)]


#: What somebody writes into the annotation of a node in the middle of its drain.
REPLACEMENTS: Final[dict[str, Callable[[str], str | None]]] = {
    "another installation's": lambda written: json.dumps({**json.loads(written), "identity": "x/y", "holder": "z"}),
    "not readable": lambda _: "{",
    "removed": lambda _: None,
}


@pytest.mark.parametrize("replacement", REPLACEMENTS)
def test_a_drain_stops_when_its_annotation_is_replaced(
    cluster: ControlPlane, observer: Observer, replacement: str
) -> None:
    observer.nodes(1, 2)
    cluster.apply([deployment("web", 8, annotations=SLOW)])
    observer.running(8)
    observer.open_all()
    with Daemon(cluster, *FLAGS, "--node-cooldown=1h", "--node-cooldown-max=1h"):
        observer.eventually(lambda: len(observer.evictions()) >= 2, "the second eviction")
        [(node, written)] = observer.marks().items()
        text = REPLACEMENTS[replacement](written)
        cluster.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {ANNOTATION: text}}})
        observer.eventually(lambda: "DrainFailed" in observer.events(node), "the end of the drain")
        observer.running(8)
        assert len(observer.evictions()) <= MOST_EVICTIONS
        if replacement == "another installation's":
            observer.stays(lambda: observer.marks().get(node), text)
        else:
            observer.opened()


#: Steps of 1, 1 and 2 pods: the last one may have begun when the annotation is replaced.
MOST_EVICTIONS: Final = 4
