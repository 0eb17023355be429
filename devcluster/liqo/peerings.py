"""Liqo's controllers of peerings, which create kubeconfig Secrets and ForeignClusters."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from devcluster.api import Api
from devcluster.liqo import foreign, objects

Json = dict[str, Any]

IDENTITIES: Final = "/apis/authentication.liqo.io/v1beta1/identities"
TENANTS: Final = "/apis/authentication.liqo.io/v1beta1/tenants"
FOREIGN_CLUSTERS: Final = "/apis/core.liqo.io/v1beta1/foreignclusters"
_SECRETS: Final = "/api/v1/secrets"
_SELECTOR: Final = ",".join(f"{key}={value}" for key, value in objects.CONTROL_PLANE.items())


class Peerings:
    """The controllers; :attr:`peers` are the clusters that have a kubeconfig Secret."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._keys: dict[str, object] = {}  #: the versions of the objects from which each status was derived
        self._secrets: Mapping[str, Json] = {}

    @property
    def peers(self) -> Collection[str]:
        return self._secrets.keys()

    def step(self, virtual_nodes: Collection[Json]) -> None:
        identities = {
            each["spec"]["clusterID"]: {"apiVersion": "authentication.liqo.io/v1beta1", "kind": "Identity", **each}
            for each in self._api.items(IDENTITIES)
            if each["spec"]["type"] == "ControlPlane"
        }
        tenants = {each["spec"]["clusterID"]: each for each in self._api.items(TENANTS)}
        lent = {each["spec"]["clusterID"] for each in virtual_nodes}
        clusters = {each["spec"]["clusterID"]: each for each in self._api.items(FOREIGN_CLUSTERS)}
        for cluster in (identities.keys() | tenants.keys() | lent) - clusters.keys():
            self._api.apply([_foreign_cluster(cluster)])
        for cluster, foreign_cluster in clusters.items():
            parts = foreign.Parts(
                identities.get(cluster), tenants.get(cluster), self._secrets.get(cluster), cluster in lent
            )
            self._set_status(foreign_cluster, parts)
        for identity in identities.values():
            self._issue(identity)
        # Like Liqo's cache, this is stale: the Secret of a deleted Identity is still visible in the next step.
        kept = {cluster: secret for cluster, secret in self._secrets.items() if cluster in identities}
        secrets = self._api.items(_SECRETS, labelSelector=_SELECTOR)
        self._secrets = kept | {each["metadata"]["labels"][objects.CLUSTER_LABEL]: each for each in secrets}

    def _issue(self, identity: Json) -> None:
        """Create the Secret of an Identity, which owns it."""
        if identity.get("status", {}).get("kubeconfigSecretRef", {}).get("name"):
            return
        namespace, cluster = identity["metadata"]["namespace"], identity["spec"]["clusterID"]
        [secret] = self._api.apply([objects.kubeconfig_secret(cluster, namespace, identity)])
        status = {"kubeconfigSecretRef": {"name": secret["metadata"]["name"]}}
        self._api.patch(f"{self._api.path(identity)}/status", {"status": status})

    def _set_status(self, foreign_cluster: Json, parts: foreign.Parts) -> None:
        """Update the status when a watched object has changed; Secrets are not watched."""
        cluster, current = foreign_cluster["spec"]["clusterID"], foreign_cluster.get("status", {})
        key = (
            foreign_cluster["metadata"]["uid"],
            _version(parts.identity),
            _version(parts.tenant),
            parts.virtual_nodes,
        )
        status = dict(current) if self._keys.get(cluster) == key else foreign.status(parts)
        status.pop("conditions", None)
        if status.get("apiServerUrl"):
            pair, message = {"APIServerStatus": "Established"}, "The foreign cluster API Server is ready"
            status["conditions"] = objects.conditions(pair, reason="APIServerReady", message=message)
        if status != current:
            path = f"{FOREIGN_CLUSTERS}/{foreign_cluster['metadata']['name']}/status"
            body = {**_foreign_cluster(cluster), "metadata": foreign_cluster["metadata"], "status": status}
            self._api.request("PUT", path, body)
        self._keys[cluster] = key


def _foreign_cluster(cluster: str) -> Json:
    return {
        "apiVersion": "core.liqo.io/v1beta1",
        "kind": "ForeignCluster",
        "metadata": {"name": cluster, "labels": {objects.CLUSTER_LABEL: cluster}},
        "spec": {"clusterID": cluster},
    }


def _version(item: Mapping[str, Any] | None) -> str:
    return item["metadata"]["resourceVersion"] if item else ""
