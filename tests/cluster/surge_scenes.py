"""Nodes with Deployments behind budgets that allow nothing, for the tests of rolling updates."""

from typing import Any, Final

from devcluster.api import Json
from devcluster.manifests import deployment, pdb
from rescheduler.kube.deployments import RESTARTED_AT
from tests.cluster.bad_days import FLAGS, NODE_1
from tests.cluster.observer import Observer

DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
SURGE: Final = (*FLAGS, "--surge=blocked", "--node-cooldown=1h", "--node-cooldown-max=1h")


def budget(app: str) -> Json:
    """Return a budget that never allows an eviction of the only pod of *app*."""
    return pdb(app, min_available=1)


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
