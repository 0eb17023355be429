"""Which clusters lend us resources, by the status that Liqo gives their ForeignClusters in each situation."""

import json
from typing import Any

import msgspec
import pytest

from deploy.local.liqo import foreign, objects
from rescheduler.liqo.nodemanager.foreign_clusters import (
    ForeignCluster,
    Namespace,
    Tenancy,
    tenancies,
    tenant_namespaces,
)
from rescheduler.liqo.nodemanager.resources import Meta

READY = {"status": {"kubeconfigSecretRef": {"name": "kubeconfig-controlplane-rome"}}}
IDENTITY = {**objects.identity("rome"), **READY}
SECRET = objects.kubeconfig_secret("rome", "of-rome")
TENANT = objects.tenant("rome")

SITUATIONS = {
    "a provider": (foreign.Parts(identity=IDENTITY, secret=SECRET), True),
    "provider and consumer": (foreign.Parts(identity=IDENTITY, secret=SECRET, tenant=TENANT), True),
    "a provider, before its kubeconfig is there": (foreign.Parts(identity=objects.identity("rome")), False),
    "a mere consumer": (foreign.Parts(tenant=TENANT), False),
    "an ended peering, whose Secret was there still": (foreign.Parts(secret=SECRET), False),
    "an ended peering with a consumer": (foreign.Parts(secret=SECRET, tenant=TENANT), False),
    "an ended peering": (foreign.Parts(), False),
}


def cluster(parts: foreign.Parts, api_server: str = "Established", name: str = "rome") -> ForeignCluster:
    conditions = objects.conditions({"APIServerStatus": api_server})
    status: dict[str, Any] = {**foreign.status(parts), "conditions": conditions}
    document = {"metadata": {"name": name}, "spec": {"clusterID": name}, "status": status}
    return msgspec.json.decode(json.dumps(document), type=ForeignCluster)


@pytest.mark.parametrize(("parts", "lends"), SITUATIONS.values(), ids=SITUATIONS)
def test_who_lends(parts: foreign.Parts, lends: bool) -> None:
    expected = {"rome": Tenancy("of-rome")} if lends else {}
    assert tenancies({"rome": "of-rome"}, [cluster(parts)], {}) == expected


def test_the_module_is_enabled_in_situations_in_which_nobody_lends() -> None:
    """As in Liqo: this alone says nothing."""
    enabled = {
        name: foreign.status(parts)["modules"]["authentication"]["enabled"] for name, (parts, _) in SITUATIONS.items()
    }
    assert {name for name, told in enabled.items() if not told} == {"an ended peering"}


def test_a_kubeconfig_without_an_identity_makes_a_provider() -> None:
    made_by_hand = cluster(foreign.Parts(secret=SECRET))
    assert made_by_hand.lacks_identity
    assert tenancies({"rome": "of-rome"}, [made_by_hand], {"rome": ""}) == {"rome": Tenancy("of-rome")}
    doubtful = tenancies({"rome": "of-rome"}, [made_by_hand], {"rome": "forbidden"})
    assert doubtful == {"rome": Tenancy("of-rome", "forbidden")}
    consumer = cluster(foreign.Parts(tenant=TENANT))
    assert not consumer.lacks_identity
    assert tenancies({"rome": "of-rome"}, [consumer], {"rome": ""}) == {}


def test_one_that_cannot_be_reached_is_a_peer_with_an_obstacle() -> None:
    away = cluster(foreign.Parts(identity=IDENTITY, secret=SECRET), api_server="Error")
    assert tenancies({"rome": "of-rome"}, [away], {}) == {
        "rome": Tenancy("of-rome", "its API server cannot be reached")
    }


def namespace(name: str, of: str, deleted: str | None = None) -> Namespace:
    labels = {"liqo.io/remote-cluster-id": of} if of else {}
    return Namespace(metadata=Meta(name=name, labels=labels, deletion_timestamp=deleted))


def test_tenant_namespaces_are_found_by_label_and_one_that_is_being_deleted_is_none() -> None:
    found = [namespace("a-name-of-its-own", "rome"), namespace("liqo-tenant-oslo", "oslo", "now"), namespace("x", "")]
    assert tenant_namespaces(found) == {"rome": "a-name-of-its-own"}
    peers = [cluster(foreign.Parts(identity=IDENTITY), name=name) for name in ("rome", "oslo", "turin")]
    assert tenancies(tenant_namespaces(found), peers, {}) == {"rome": Tenancy("a-name-of-its-own")}
