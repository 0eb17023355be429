"""One-time reads for commands: the cluster, and the prices of a cloud provider."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from typing import Final

from predicates.objects import Node
from predicates.snapshot import Snapshot
from rescheduler import providers
from rescheduler.clock import Clock, SteadyClock, SystemClock
from rescheduler.errors import Forbidden
from rescheduler.execution.provider_prices import provider_prices
from rescheduler.kube import dump
from rescheduler.kube import state as kube_state
from rescheduler.kube.client import Client, connect
from rescheduler.kube.pod_groups import PodGroups
from rescheduler.kube.resources import TEMPLATES
from rescheduler.kube.server_version import server_version
from rescheduler.providers.base import CloudProvider, GroupFlags
from rescheduler.settings import ApiServerConnection, Provider, Scheduling

#: Where the permissions of the commands that only read are shipped.
VIEWER: Final = "deploy/components/viewer has the permissions (in the chart: rbac.viewer)"


def read_cluster(connection: ApiServerConnection, scheduling: Scheduling, warn: Callable[[str], None]) -> Snapshot:
    """Read the cluster once. *warn* receives the assumption that is made if a permission is missing."""
    clock = SystemClock()
    client = connect(connection, clock)
    with naming_the_role():
        return _read_cluster(client, clock, scheduling, warn)


@contextlib.contextmanager
def naming_the_role() -> Iterator[None]:
    """Add to a Forbidden which role permits what the commands read."""
    try:
        yield
    except Forbidden as error:
        raise Forbidden(f"{error}; {VIEWER}") from error


def _read_cluster(client: Client, clock: Clock, scheduling: Scheduling, warn: Callable[[str], None]) -> Snapshot:
    version = server_version(client)
    if (assumption := scheduling.assumption(version)) is not None:
        warn(assumption)
    snapshot = kube_state.read_cluster(client, clock, warn=warn, scheduler=scheduling.scheduler(version))
    forbidden: list[str] = []
    for resource in TEMPLATES:
        unread = partial(lambda plural, _: forbidden.append(plural), resource.plural)
        kube_state.read_cluster(client, clock, resources=(resource,), warn=unread, into=snapshot)
    PodGroups(client, clock, warn).refresh(snapshot)
    if forbidden:
        warn(
            f"{', '.join(forbidden)} may not be listed; planning assumes that replacement pods are like the running "
            f"pods, and that no quota rejects them; {VIEWER}"
        )
    return snapshot


def dump_cluster(connection: ApiServerConnection, warn: Callable[[str], None]) -> list[bytes]:
    """Return the objects of the cluster as JSON; see :func:`rescheduler.kube.dump.items`.

    The last one is not an object of the cluster, but contains the version of the API server.
    """
    clock = SystemClock()
    client = connect(connection, clock)
    with naming_the_role():
        return [*dump.items(client, clock, warn), dump.version_item(server_version(client))]


def read_prices(settings: Provider, nodes: Iterable[Node]) -> Mapping[str, Decimal]:
    """Return the hourly prices that the cloud provider has for *nodes*, by node name."""
    clock = SteadyClock(SystemClock())
    provider = load_provider(settings, clock)
    try:
        return provider_prices(provider, nodes, clock)
    finally:
        provider.close()


def load_provider(settings: Provider, clock: Clock) -> CloudProvider:
    """Return the cloud provider that *settings* name. Raises the errors of :func:`rescheduler.providers.load`."""
    flags = GroupFlags(settings.nodes, settings.cluster_name)
    return providers.load(settings.name, settings.config, clock, flags)
