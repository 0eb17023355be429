"""Sites: separate places for scenes in one control plane.

Each site has a namespace, labels, and an installation of the daemon with the rights of the shipped chart.
"""

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from devcluster.api import Json
from devcluster.faults.proxy import FaultProxy, before_api_server, redirected
from devcluster.manifests import namespace
from devcluster.plane import ControlPlane
from tests.cluster.rendering import chart
from tests.cluster.rights import ACCESS

KEY: Final = "faults.local/scene"  #: label key of a site's nodes; the value is the site's name

_CLEANED: Final = (
    "/apis/apps/v1/namespaces/{0}/deployments",
    "/apis/apps/v1/namespaces/{0}/replicasets",
    "/apis/policy/v1/namespaces/{0}/poddisruptionbudgets",
    "/api/v1/namespaces/{0}/pods",
    "/apis/coordination.k8s.io/v1/namespaces/{0}/leases",
)


@dataclass(frozen=True, slots=True)
class Site:
    """A place for scenes: namespace, labels, the rights of an installation, and a proxy for its daemons."""

    name: str  #: name of the namespace and the release, and value of the labels
    plane: ControlPlane
    proxy: FaultProxy
    folder: Path
    runs: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def user(self) -> str:
        """The user name of the daemons."""
        return f"system:serviceaccount:{self.name}:{account(self.name)}"

    @property
    def labels(self) -> dict[str, str]:
        """Labels of all nodes of the site."""
        return {KEY: self.name}

    def write_kubeconfig(self) -> Path:
        """Write a kubeconfig with a new token."""
        direct = self.plane.service_account_kubeconfig(self.name, account(self.name))
        return redirected(direct, self.proxy, self.folder / "kubeconfig")


def account(release: str) -> str:
    return f"{release}-spot-rescheduler"


@contextlib.contextmanager
def site(plane: ControlPlane, name: str, folder: Path) -> Iterator[Site]:
    """Create a site in *plane*, with its files in the new *folder*."""
    folder.mkdir()
    rights = _access(name)
    plane.apply([namespace(name), *rights])
    try:
        with before_api_server(plane) as proxy:
            created = Site(name, plane, proxy, folder)
            yield created
            clean(created)
    finally:
        for item in rights:
            plane.api.delete(plane.api.path(item))


def _access(name: str) -> list[Json]:
    """Return what the ServiceAccount of the release needs: its RBAC, and the objects that it writes."""
    values = {"cloudProvider": {"name": "cloudpool"}, "rbac": {"surge": True}}
    return [item for item in chart(values, name, name) if item["kind"] in ACCESS]


def clean(at: Site) -> None:
    """Delete the remains of scenes, wait until they are gone, and restore the empty objects of the manifests."""
    api, selector = at.plane.api, f"{KEY}={at.name}"
    paths = [path.format(at.name) for path in _CLEANED]

    def gone() -> bool:
        for path in paths:
            api.delete(path, gracePeriodSeconds=0, propagationPolicy="Background")
        api.delete("/api/v1/nodes", labelSelector=selector)
        return not any(api.items(path) for path in paths) and not api.items("/api/v1/nodes", labelSelector=selector)

    at.proxy.forget()
    at.plane.wait_for(gone, f"an empty {at.name}")
    for item in api.items(f"/api/v1/namespaces/{at.name}/configmaps"):
        if not item["metadata"]["name"].startswith("kube-"):
            api.delete(api.path({"apiVersion": "v1", "kind": "ConfigMap", **item}))
    at.plane.apply([item for item in _access(at.name) if item["kind"] in {"Lease", "ConfigMap"}])
