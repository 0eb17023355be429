"""``python -m devcluster.liqo.liqoctl``: peer and unpeer, with the API requests of the real liqoctl.

It implements only the consumer side, without networking. The cluster ID of the peer is the host name in the remote
kubeconfig. Like the real commands, each command rejects unknown flags.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
import yaml

from devcluster.api import Api
from devcluster.liqo import objects
from devcluster.liqo.connecting import connected
from devcluster.liqo.controller import SLICES, VIRTUAL_NODES
from devcluster.liqo.peerings import FOREIGN_CLUSTERS, IDENTITIES
from devcluster.polling import poll

FILE: Final = click.Path(path_type=Path, exists=True)
WAIT_SECONDS: Final = 60.0
_AUTHENTICATION: Final = "/apis/authentication.liqo.io/v1beta1"
_NETWORKING: Final = ("gatewayclients", "gatewayservers", "configurations")
#: Flags of `peer` that have no effect here.
_PEER_FLAGS: Final = (
    "mtu",
    "gw-server-service-location",
    "gw-client-address",
    "gw-client-port",
    "create-resource-slice",
)
_COMMON_FLAGS: Final = ("remote-kubeconfig", "kubeconfig", "context", "namespace", "timeout")


@click.group()
def main() -> None:
    """Create and delete peerings."""


def flags(*names: str) -> Callable[[Any], Any]:
    """Return a decorator that adds flags; only values of kubeconfig flags are passed to the command."""

    def decorated(command: Any) -> Any:
        for name in names:
            kind = FILE if name.endswith("kubeconfig") else str
            command = click.option(f"--{name}", type=kind, expose_value=kind is FILE)(command)
        return click.option("--skip-confirm", is_flag=True, expose_value=False)(command)

    return decorated


@main.command()
@flags(*_COMMON_FLAGS, *_PEER_FLAGS)
@click.option("--networking-disabled", is_flag=True)
def peer(kubeconfig: Path, remote_kubeconfig: Path, *, networking_disabled: bool) -> None:
    """Peer with the cluster of the remote kubeconfig; keep existing objects."""
    if not networking_disabled:
        raise click.ClickException("unable to ensure networking: not supported by the simulation")
    cluster = _cluster(remote_kubeconfig)
    with connected(kubeconfig) as api:
        _identify(api)
        namespace = _tenant_namespace(api, cluster)
        _sign_nonce(api, cluster, namespace)
        path = f"{_AUTHENTICATION}/namespaces/{namespace}/identities"
        identity = objects.identity(cluster, namespace)
        if identity["metadata"]["name"] not in {each["metadata"]["name"] for each in api.items(path)}:
            api.post(path, identity)
        created = f"{path}/{identity['metadata']['name']}"
        poll(lambda: api.get(created).get("status", {}).get("kubeconfigSecretRef"), WAIT_SECONDS)
    click.echo(f"peered with {cluster}")


@main.command()
@flags(*_COMMON_FLAGS)
@click.option("--delete-namespaces", is_flag=True, expose_value=False)
def unpeer(kubeconfig: Path, remote_kubeconfig: Path) -> None:
    """Delete the peering; keep the tenant namespace."""
    cluster = _cluster(remote_kubeconfig)
    of_cluster = {"labelSelector": f"{objects.CLUSTER_LABEL}={cluster}"}
    with connected(kubeconfig) as api:
        _identify(api)
        api.items(FOREIGN_CLUSTERS)
        slices = {"labelSelector": f"{objects.REPLICATION_LABEL}=true,liqo.io/remoteID={cluster}"}
        for resource_slice in api.items(SLICES, **slices):
            api.delete(api.path({**_KIND, **resource_slice}))
        poll(lambda: not api.items(SLICES, **slices) and not api.items(VIRTUAL_NODES, **of_cluster), WAIT_SECONDS)
        for identity in api.items(IDENTITIES, **of_cluster):
            metadata = identity["metadata"]
            api.delete(f"{_AUTHENTICATION}/namespaces/{metadata['namespace']}/identities/{metadata['name']}")
        for plural in _NETWORKING:
            api.items(f"/apis/networking.liqo.io/v1beta1/{plural}", **of_cluster)
    click.echo(f"unpeered from {cluster}")


_KIND: Final = {"apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSlice"}


def _cluster(kubeconfig: Path) -> str:
    """Return the cluster ID, which the real liqoctl reads from the cluster."""
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    host = urlsplit(config["clusters"][0]["cluster"]["server"]).hostname or ""
    return host.partition(".")[0]


def _identify(api: Api) -> None:
    path = f"/api/v1/namespaces/{objects.NAMESPACE}/configmaps"
    if not api.items(path, labelSelector="app.kubernetes.io/name=clusterid-configmap"):
        raise click.ClickException("unable to get the cluster ID: no ConfigMap")


def _tenant_namespace(api: Api, cluster: str) -> str:
    existing = api.items("/api/v1/namespaces", labelSelector=f"{objects.CLUSTER_LABEL}={cluster}")
    namespace = existing[0] if existing else api.post("/api/v1/namespaces", objects.tenant_namespace(cluster))
    name: str = namespace["metadata"]["name"]
    return name


def _sign_nonce(api: Api, cluster: str, namespace: str) -> None:
    """Create the signed nonce with which the other cluster authenticates this cluster."""
    path, name = f"/api/v1/namespaces/{namespace}/secrets", "liqo-signed-nonce"
    labels = {objects.CLUSTER_LABEL: cluster, "liqo.io/signed-nonce": "true"}
    if not api.items(path, labelSelector=f"{objects.CLUSTER_LABEL}={cluster},liqo.io/signed-nonce=true"):
        metadata = {"name": name, "namespace": namespace, "labels": labels}
        api.post(path, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"nonce": "n"}})
    api.get(f"{path}/{name}")


if __name__ == "__main__":
    main()
