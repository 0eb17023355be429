"""Provider clusters, determined from the status that Liqo gives ForeignClusters in each situation."""

import json
from typing import Any

import msgspec
import pytest

from devcluster.liqo import foreign, objects
from rescheduler.liqo.node_manager.resources import (
    ForeignCluster,
    ResourceMeta,
    Tenancy,
    TenantNamespace,
    tenancies,
    tenant_namespaces,
)

READY = {"status": {"kubeconfigSecretRef": {"name": "kubeconfig-controlplane-rome"}}}
IDENTITY = {**objects.identity("rome"), **READY}
SECRET = objects.kubeconfig_secret("rome", "of-rome")
TENANT = objects.tenant("rome")

SITUATIONS = {
    "a provider": (foreign.Parts(identity=IDENTITY, secret=SECRET), True),
    "provider and consumer": (foreign.Parts(identity=IDENTITY, secret=SECRET, tenant=TENANT), True),
    "a provider without a kubeconfig yet": (foreign.Parts(identity=objects.identity("rome")), False),
    "a mere consumer": (foreign.Parts(tenant=TENANT), False),
    "an ended peering with a remaining Secret": (foreign.Parts(secret=SECRET), False),
    "an ended peering with a consumer": (foreign.Parts(secret=SECRET, tenant=TENANT), False),
    "an ended peering": (foreign.Parts(), False),
}


def cluster(parts: foreign.Parts, api_server: str = "Established", name: str = "rome") -> ForeignCluster:
    conditions = objects.conditions({"APIServerStatus": api_server})
    status: dict[str, Any] = {**foreign.status(parts), "conditions": conditions}
    document = {"metadata": {"name": name}, "spec": {"clusterID": name}, "status": status}
    return msgspec.json.decode(json.dumps(document), type=ForeignCluster)


@pytest.mark.parametrize(("parts", "lends"), SITUATIONS.values(), ids=SITUATIONS)
def test_providers_are_derived_from_the_status_of_foreign_clusters(parts: foreign.Parts, lends: bool) -> None:
    expected = {"rome": Tenancy("of-rome")} if lends else {}
    assert tenancies({"rome": "of-rome"}, [cluster(parts)], {}) == expected


def test_the_module_can_be_enabled_without_a_provider() -> None:
    """As in Liqo; the enabled module alone is not significant."""
    enabled = {
        name: foreign.status(parts)["modules"]["authentication"]["enabled"] for name, (parts, _) in SITUATIONS.items()
    }
    assert {name for name, on in enabled.items() if not on} == {"an ended peering"}


def test_a_kubeconfig_without_an_identity_makes_a_provider() -> None:
    made_by_hand = cluster(foreign.Parts(secret=SECRET))
    assert made_by_hand.lacks_identity
    assert tenancies({"rome": "of-rome"}, [made_by_hand], {"rome": ""}) == {"rome": Tenancy("of-rome")}
    doubtful = tenancies({"rome": "of-rome"}, [made_by_hand], {"rome": "forbidden"})
    assert doubtful == {"rome": Tenancy("of-rome", "forbidden")}
    consumer = cluster(foreign.Parts(tenant=TENANT))
    assert not consumer.lacks_identity
    assert tenancies({"rome": "of-rome"}, [consumer], {"rome": ""}) == {}


def test_an_unreachable_cluster_is_a_peer_with_an_obstacle() -> None:
    away = cluster(foreign.Parts(identity=IDENTITY, secret=SECRET), api_server="Error")
    assert tenancies({"rome": "of-rome"}, [away], {}) == {"rome": Tenancy("of-rome", "its API server is unreachable")}


def namespace(name: str, cluster_id: str, deleted: str | None = None) -> TenantNamespace:
    labels = {"liqo.io/remote-cluster-id": cluster_id} if cluster_id else {}
    return TenantNamespace(metadata=ResourceMeta(name=name, labels=labels, deletion_timestamp=deleted))


def test_tenant_namespaces_have_a_label_and_are_not_being_deleted() -> None:
    namespaces = [
        namespace("a-name-of-its-own", "rome"),
        namespace("liqo-tenant-oslo", "oslo", "now"),
        namespace("x", ""),
    ]
    assert tenant_namespaces(namespaces) == {"rome": "a-name-of-its-own"}
    peers = [cluster(foreign.Parts(identity=IDENTITY), name=name) for name in ("rome", "oslo", "turin")]
    assert tenancies(tenant_namespaces(namespaces), peers, {}) == {"rome": Tenancy("a-name-of-its-own")}
