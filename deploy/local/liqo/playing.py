"""Liqo on a control plane for a while: definitions, peerings, and the controller; all gone at the end."""

import contextlib
import http
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from deploy.local.api import Api
from deploy.local.errors import ApiError, LocalError
from deploy.local.liqo import objects
from deploy.local.liqo.controller import SLICES, VIRTUAL_NODES, Controller, Policy
from deploy.local.liqo.peerings import FOREIGN_CLUSTERS, IDENTITIES, TENANTS
from rescheduler.clock import SystemClock

#: A consumer of ours, and the labels of the slice that it has here: those of a node manager of its own.
CONSUMERS: Final = {"oslo": {"spot-rescheduler/node-group": "STANDARD"}}
_ASKED: Final = {"cpu": "2", "memory": "2Gi", "pods": "110"}
_NOT_YET: Final = frozenset({http.HTTPStatus.NOT_FOUND, http.HTTPStatus.TOO_MANY_REQUESTS})
Wait = Callable[[Callable[[], bool], str], object]  #: until something is true, and what it is called


@contextlib.contextmanager
def playing(
    api: Api,
    wait: Wait,
    clusters: Sequence[str],
    policy: Policy | None = None,
    consumers: Mapping[str, Mapping[str, str]] = CONSUMERS,
) -> Iterator[Controller]:
    """Peered with the providers *clusters* and the *consumers*. Raises LocalError if a consumer's slice was deleted.

    The definitions stay: an API that goes away holds up the control plane's controllers.
    """
    api.apply(objects.definitions())
    wait(lambda: served(api), "Liqo's resources to be served")
    api.apply(objects.installation())
    for cluster in clusters:
        api.apply(objects.peering(cluster))
    for consumer, labels in consumers.items():
        api.apply([objects.tenant_namespace(consumer), objects.tenant(consumer)])
        api.apply([objects.replicated(f"{consumer}-1", consumer, labels, _ASKED)])
    controller = Controller(api, SystemClock(), policy)
    controller.start()
    try:
        wait(lambda: peered(api) >= {*clusters}, "the peerings")
        wait(lambda: {*consumers} <= foreign(api, "AuthTenantStatus"), "the consumers")
        lent = borrowed(api)
        yield controller
        if borrowed(api) != lent:
            raise LocalError(f"slices of consumers were deleted: {', '.join(sorted(lent - borrowed(api)))}")
    finally:
        controller.policy.unreachable = frozenset()
        clear(api)
        wait(lambda: not api.items(VIRTUAL_NODES) and not api.items(SLICES), "all virtual nodes to leave")
        controller.close()
        for each in api.items(FOREIGN_CLUSTERS):
            api.delete(f"{FOREIGN_CLUSTERS}/{each['metadata']['name']}")


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
    """The providers that ForeignClusters tell of."""
    return foreign(api, "AuthIdentityControlPlaneStatus")


def foreign(api: Api, condition: str) -> frozenset[str]:
    """The clusters whose authentication has *condition* Ready."""
    ready = {"type": condition, "status": "Ready"}
    return frozenset(
        each["spec"]["clusterID"]
        for each in api.items(FOREIGN_CLUSTERS)
        for told in each.get("status", {}).get("modules", {}).get("authentication", {}).get("conditions", ())
        if ready.items() <= told.items()
    )


def borrowed(api: Api) -> frozenset[str]:
    """Slices that consumers have here and that nobody has deleted."""
    return frozenset(
        each["metadata"]["name"]
        for each in api.items(SLICES, labelSelector="liqo.io/replicated=true")
        if "deletionTimestamp" not in each["metadata"]
    )


def clear(api: Api) -> None:
    """Delete all slices; the rest follows."""
    root, _, plural = SLICES.rpartition("/")
    for piece in api.items(SLICES):
        metadata = piece["metadata"]
        api.delete(f"{root}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}")
