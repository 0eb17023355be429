"""Where scenes take place: several sites live side by side in one control plane.

Each has its namespace, its labels, and its installation of the daemon with the rights of the shipped chart.
"""

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deploy.local.faults.proxy import FaultProxy, before_api_server, redirected
from deploy.local.manifests import namespace
from deploy.local.plane import ControlPlane
from tests.cluster.rendering import chart

KEY: Final = "faults.local/scene"  #: of the label of all nodes of a site; its value is the site's name

_RIGHTS: Final = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount"}
_CLEANED: Final = (
    "/apis/apps/v1/namespaces/{0}/deployments",
    "/apis/apps/v1/namespaces/{0}/replicasets",
    "/apis/policy/v1/namespaces/{0}/poddisruptionbudgets",
    "/api/v1/namespaces/{0}/pods",
    "/apis/coordination.k8s.io/v1/namespaces/{0}/leases",
)


@dataclass(frozen=True, slots=True)
class Site:
    """Where scenes take place: namespace and labels, the rights of an installation, and a proxy for its daemons."""

    name: str  #: of the namespace, of the release, and the value of the labels
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
        """Of all nodes of the site."""
        return {KEY: self.name}

    def write_kubeconfig(self) -> Path:
        """With a new token."""
        direct = self.plane.service_account_kubeconfig(self.name, account(self.name))
        return redirected(direct, self.proxy, self.folder / "kubeconfig")


def account(release: str) -> str:
    return f"{release}-spot-rescheduler"


@contextlib.contextmanager
def site(plane: ControlPlane, name: str, folder: Path) -> Iterator[Site]:
    """A site of that *name* in the *plane*; its files are in the new *folder*."""
    folder.mkdir()
    rights = [item for item in chart({"cloudProvider": {"name": "cloudpool"}}, name, name) if item["kind"] in _RIGHTS]
    plane.apply([namespace(name), *rights])
    try:
        with before_api_server(plane) as proxy:
            made = Site(name, plane, proxy, folder)
            yield made
            clean(made)
    finally:
        for item in rights:
            plane.api.delete(plane.api.path(item))


def clean(at: Site) -> None:
    """Delete what scenes left behind, and wait until it is gone."""
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
