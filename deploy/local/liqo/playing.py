"""Liqo on a control plane for a while: definitions, peerings, and the controller; all gone at the end."""

import contextlib
import http
from collections.abc import Callable, Iterator, Sequence

from deploy.local.api import Api
from deploy.local.errors import ApiError
from deploy.local.liqo import objects
from deploy.local.liqo.controller import SLICES, VIRTUAL_NODES, Controller, Policy
from rescheduler.clock import SystemClock

FOREIGN_CLUSTERS = "/apis/core.liqo.io/v1beta1/foreignclusters"
_NOT_YET = frozenset({http.HTTPStatus.NOT_FOUND, http.HTTPStatus.TOO_MANY_REQUESTS})
Wait = Callable[[Callable[[], bool], str], object]  #: until something is true, and what it is called


@contextlib.contextmanager
def playing(api: Api, wait: Wait, clusters: Sequence[str], policy: Policy | None = None) -> Iterator[Controller]:
    """Peered with *clusters*. The definitions stay: an API that goes away holds up the control plane's controllers."""
    api.apply(objects.definitions())
    wait(lambda: served(api), "Liqo's resources to be served")
    for cluster in clusters:
        api.apply(objects.peering(cluster))
    controller = Controller(api, SystemClock(), policy)
    controller.start()
    try:
        yield controller
        clear(api)
        wait(lambda: not api.items(VIRTUAL_NODES) and not api.items(SLICES), "all virtual nodes to leave")
    finally:
        controller.close()
        for one in api.items(FOREIGN_CLUSTERS):
            api.delete(f"{FOREIGN_CLUSTERS}/{one['metadata']['name']}")


def served(api: Api) -> bool:
    try:
        for collection in (SLICES, VIRTUAL_NODES, FOREIGN_CLUSTERS):
            api.items(collection)
    except ApiError as error:
        if error.status not in _NOT_YET:
            raise
        return False
    return True


def clear(api: Api) -> None:
    """Delete all slices; the rest follows."""
    root, _, plural = SLICES.rpartition("/")
    for one in api.items(SLICES):
        metadata = one["metadata"]
        api.delete(f"{root}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}")
