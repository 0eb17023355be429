"""Replacement pods are rejected or never become Ready: few pods are evicted, and no other drain starts."""

from typing import Final

from devcluster.api import Json
from devcluster.manifests import deployment, namespace
from devcluster.plane import ControlPlane
from devcluster.stages import READY_ON
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer, ready

TEAMS: Final = ("red", "blue")


def quota(team: str, pods: int = 0) -> Json:
    """Return a quota for the pods of the namespace; running pods are unaffected."""
    metadata = {"name": "none", "namespace": team}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"pods": str(pods)}}}


def webhook(team: str) -> Json:
    """Return an unreachable webhook that must approve every new pod in the namespace."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": f"away-{team}"},
        "webhooks": [
            {
                "name": "away.example.com",
                "clientConfig": {"url": "https://127.0.0.1:9/"},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team}},
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "timeoutSeconds": 1,
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


def test_rejected_replacements_cost_one_pod_per_namespace(cluster: ControlPlane, observer: Observer) -> None:
    observer.nodes(1, 2)
    cluster.apply(namespace(team) for team in TEAMS)
    cluster.apply(deployment(app, 3, namespace=team) for team in TEAMS for app in ("web", "api"))
    observer.running(12)
    refused = [webhook(team) for team in TEAMS]
    cluster.apply(refused)
    observer.open_spot()
    with Daemon(cluster, *FLAGS):
        observer.eventually(observer.evictions, "an eviction")
        observer.wait_unmarked()
        observer.stays(lambda: [team for team in TEAMS if lost(observer, team) > 1], [])
        assert not observer.marks()
        for item in refused:
            cluster.api.delete(cluster.api.path(item))
        observer.running(12)


def lost(observer: Observer, team: str) -> int:
    """Return the number of evicted pods of *team*."""
    return sum(event.namespace == team for event in observer.evictions())


def test_replacements_that_never_become_ready_cost_one_pod_per_owner(cluster: ControlPlane, observer: Observer) -> None:
    observer.nodes(1, 2)
    cluster.apply([namespace("red")])
    only_here = {READY_ON: "on-demand"}
    cluster.apply(
        deployment(app, 3, namespace=team, annotations=only_here)
        for team, app in (("default", "web"), ("default", "api"), ("red", "web"))
    )
    observer.running(9)
    observer.open_spot()
    with Daemon(cluster, *FLAGS, "--landing-timeout=5s"):
        observer.eventually(observer.evictions, "an eviction")
        observer.wait_unmarked()
        observer.stays(lambda: [owner for owner, pods in observer.evicted().items() if pods > 1], [])
    assert len(ready(observer.pods())) >= 6
