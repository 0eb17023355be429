"""The composition root of ``rescheduler provider serve``: a backend, its service, and the signals that stop it.
It is imported when the command is called.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from rescheduler import providers
from rescheduler.clock import Clock, SteadyClock, SystemClock
from rescheduler.errors import NoTurn, UsageError
from rescheduler.grpc_service.server import CallReport, serving
from rescheduler.grpc_service.service import ProviderService
from rescheduler.kube import connection
from rescheduler.kube.client import connect
from rescheduler.kube.elector import PoolLease
from rescheduler.net.files import Certificates, of_listener
from rescheduler.net.server import on_signals
from rescheduler.net.server import serving as serving_pages
from rescheduler.observe.events import NOTICE
from rescheduler.observe.logs import configure
from rescheduler.observe.pages import Health, application
from rescheduler.providers.base import CloudProvider, GroupFlags
from rescheduler.settings import ApiServerConnection, ListenAddress, Logging, PageHosts, PoolLeaseName, Provider

#: Seconds between two heartbeats for /healthz.
BEAT_SECONDS: Final = 10.0

log = logging.getLogger("rescheduler")


@dataclass(frozen=True, slots=True)
class Serving:
    """The settings of the service. Either all three files are set or none; without them, callers are not authenticated.

    Without files, an address other than loopback requires *plaintext*.
    """

    address: ListenAddress
    provider: Provider
    key_cert: Path | None = None
    cert: Path | None = None
    ca_cert: Path | None = None
    plaintext: bool = False
    listen: ListenAddress | None = None  #: address of /metrics and the probes; None: not served
    allowed_hosts: tuple[str, ...] = ()  #: by which these pages may be addressed
    cluster: ApiServerConnection = field(default_factory=ApiServerConnection)  #: the cluster with *lease*
    named: bool = False  #: *cluster* is given by flags: nothing is ordered without it
    lease: PoolLeaseName = field(default_factory=PoolLeaseName)


def run(settings: Serving, logs: Logging) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. Raises UsageError and ReschedulerError on a failed start."""
    configure(logs)
    clock = SystemClock()
    certificates = _certificates(settings)
    with contextlib.ExitStack() as parts:
        named = settings.provider
        flags = GroupFlags(named.nodes, named.cluster_name)
        provider = providers.load(named.name, named.config, SteadyClock(clock), flags)
        parts.callback(provider.close)
        _take_turns(parts, provider, settings, clock)
        stop = parts.enter_context(_stopping())
        registry, health = CollectorRegistry(), Health(clock, BEAT_SECONDS, lambda: True)
        if settings.listen is not None:
            hosts = PageHosts(settings.allowed_hosts, settings.lease.namespace)
            pages = parts.enter_context(serving_pages(application(registry, health), settings.listen, hosts=hosts))
            log.log(NOTICE, "metrics on http://%s/metrics", pages)
        report = CallReport(registry)
        port = parts.enter_context(
            serving(ProviderService(provider, clock), settings.address, clock, certificates, report)
        )
        address = ListenAddress(settings.address.host, port)
        how = "mutual TLS" if certificates else "plain text"
        log.log(NOTICE, "serving the cloud provider %s on %s, %s", provider.name, address, how)
        if certificates is None and not address.loopback:
            log.warning("anyone who can reach %s can delete machines: set --key-cert, --cert and --ca-cert", address)
        while not clock.wait(BEAT_SECONDS, stop):
            health.beat()
    return 0


def _take_turns(parts: contextlib.ExitStack, provider: CloudProvider, settings: Serving, clock: Clock) -> None:
    """Let the provider order machines only while it holds the Lease of their pool, and say so if it does not.

    A kubeconfig that nobody named may be that of another cluster, or of none: it counts if its cluster answers.
    """
    if type(provider).take_turns is CloudProvider.take_turns:  # it has no machines, or another service orders them
        return
    named = settings.named or bool(os.environ.get("KUBECONFIG")) or connection.in_pod()
    if not (named or connection.has_default_kubeconfig()):
        _warn_uncoordinated(f"there is no cluster: no ServiceAccount, $KUBECONFIG or {connection.DEFAULT_KUBECONFIG}")
        return
    with contextlib.ExitStack() as kept:
        try:
            lease = kept.enter_context(
                contextlib.closing(PoolLease(connect(settings.cluster, clock), clock, settings.lease))
            )
            lease.check()
        except (UsageError, NoTurn) as error:
            if not named:
                _warn_uncoordinated(str(error))
                return
            if isinstance(error, UsageError):
                raise
            log.warning("no machine is ordered until the Lease can be held: %s", error)
        provider.take_turns(lease)
        log.log(NOTICE, "machines are ordered while %s is held", lease)
        parts.push(kept.pop_all())


def _warn_uncoordinated(why: str) -> None:
    log.warning(
        "no Lease is held, so nothing coordinates this process with others that order machines of the same pool: %s; "
        "run only one of them, or name the cluster with --kubeconfig",
        why,
    )


def _certificates(settings: Serving) -> Certificates | None:
    return of_listener(
        ("--key-cert", settings.key_cert),
        ("--cert", settings.cert),
        ("--ca-cert", settings.ca_cert),
        plaintext=settings.plaintext,
        permitted=settings.plaintext or settings.address.loopback,
    )


@contextlib.contextmanager
def _stopping() -> Iterator[threading.Event]:
    stop = threading.Event()

    def stop_on(name: str) -> None:
        log.warning("%s: stopping after the calls in progress", name)
        stop.set()

    with on_signals(stop_on):
        yield stop
