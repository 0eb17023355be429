"""A temporary Liqo installation on a control plane: CRDs, peerings, and the controller."""

import contextlib
import http
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from devcluster.api import Api
from devcluster.errors import ApiError, LocalError
from devcluster.liqo import objects
from devcluster.liqo.controller import SLICES, VIRTUAL_NODES, LiqoController, LiqoPolicy
from devcluster.liqo.peerings import FOREIGN_CLUSTERS, IDENTITIES, TENANTS
from rescheduler.clock import SystemClock

#: A consumer, and the labels of its slice in this cluster: those of the consumer's own node manager.
CONSUMERS: Final = {"oslo": {"spot-rescheduler/node-group": "STANDARD"}}
_REQUESTED: Final = {"cpu": "2", "memory": "2Gi", "pods": "110"}
_NOT_YET: Final = frozenset({http.HTTPStatus.NOT_FOUND, http.HTTPStatus.TOO_MANY_REQUESTS})
#: Waits until a condition is true; the second argument describes the condition.
Wait = Callable[[Callable[[], bool], str], object]


@contextlib.contextmanager
def playing(
    api: Api,
    wait: Wait,
    clusters: Sequence[str],
    policy: LiqoPolicy | None = None,
    consumers: Mapping[str, Mapping[str, str]] = CONSUMERS,
) -> Iterator[LiqoController]:
    """Run the controller, peered with the providers *clusters* and the *consumers*.

    Raises LocalError if a consumer's slice was deleted. The CRDs are not deleted, because the deletion of an API delays
    the controllers of the control plane.
    """
    _install(api, wait, clusters, consumers)
    controller = LiqoController(api, SystemClock(), policy)
    controller.start()
    try:
        wait(lambda: peered(api) >= {*clusters}, "the peerings")
        wait(lambda: {*consumers} <= foreign(api, "AuthTenantStatus"), "the consumers")
        lent = consumer_slices(api)
        yield controller
        if consumer_slices(api) != lent:
            raise LocalError(f"slices of consumers were deleted: {', '.join(sorted(lent - consumer_slices(api)))}")
    finally:
        clear(api)
        wait(lambda: not api.items(VIRTUAL_NODES) and not api.items(SLICES), "the deletion of all virtual nodes")
        controller.close()
        for each in api.items(FOREIGN_CLUSTERS):
            api.delete(f"{FOREIGN_CLUSTERS}/{each['metadata']['name']}")


def _install(api: Api, wait: Wait, clusters: Sequence[str], consumers: Mapping[str, Mapping[str, str]]) -> None:
    api.apply(objects.definitions())
    wait(lambda: served(api), "Liqo's resources to be served")
    api.apply(objects.installation())
    for cluster in clusters:
        api.apply(objects.peering(cluster))
    for consumer, labels in consumers.items():
        api.apply([objects.tenant_namespace(consumer), objects.tenant(consumer)])
        api.apply([objects.replicated(f"{consumer}-1", consumer, labels, _REQUESTED)])


def served(api: Api) -> bool:
    try:
        for collection in (SLICES, VIRTUAL_NODES, FOREIGN_CLUSTERS, IDENTITIES, TENANTS):
            api.items(collection)
    except ApiError as error:
        if error.status not in _NOT_YET:
            raise
        return False
    return True


def peered(api: Api) -> frozenset[str]:
    """Return the providers for which a ForeignCluster is ready."""
    return foreign(api, "AuthIdentityControlPlaneStatus")


def foreign(api: Api, condition: str) -> frozenset[str]:
    """Return the clusters whose authentication module has *condition* Ready."""
    ready = {"type": condition, "status": "Ready"}
    return frozenset(
        each["spec"]["clusterID"]
        for each in api.items(FOREIGN_CLUSTERS)
        for current in each.get("status", {}).get("modules", {}).get("authentication", {}).get("conditions", ())
        if ready.items() <= current.items()
    )


def consumer_slices(api: Api) -> frozenset[str]:
    """Return the consumers' slices that are not being deleted."""
    return frozenset(
        each["metadata"]["name"]
        for each in api.items(SLICES, labelSelector="liqo.io/replicated=true")
        if "deletionTimestamp" not in each["metadata"]
    )


def clear(api: Api) -> None:
    """Delete all slices, which also removes their virtual nodes."""
    root, _, plural = SLICES.rpartition("/")
    for resource_slice in api.items(SLICES):
        metadata = resource_slice["metadata"]
        api.delete(f"{root}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}")
