"""``rescheduler provider serve`` put together: a backend, its service, and the signals that end it."""

import contextlib
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rescheduler import backends
from rescheduler.backends.base import GroupFlags
from rescheduler.backends.certificates import Certificates, File
from rescheduler.clock import SteadyClock, SystemClock
from rescheduler.errors import UsageError
from rescheduler.grpcservice.server import serving
from rescheduler.grpcservice.service import Service
from rescheduler.observe import logs as log_lines
from rescheduler.settings import Address, Logging, Provider
from rescheduler.stopping import on_signals

log = logging.getLogger("rescheduler")


@dataclass(frozen=True, slots=True)
class Serving:
    """What the flags say. Of the three files all are given, or none: then callers are taken at their word."""

    address: Address
    provider: Provider
    key_cert: Path | None = None
    cert: Path | None = None
    ca_cert: Path | None = None


def run(settings: Serving, logs: Logging) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. Raises UsageError and ReschedulerError for a failed start."""
    log_lines.configure(logs)
    clock = SystemClock()
    certificates = _certificates(settings)
    with contextlib.ExitStack() as parts:
        named = settings.provider
        flags = GroupFlags(named.nodes, named.cluster_name)
        provider = backends.load(named.name, named.config, SteadyClock(clock), flags)
        parts.callback(provider.close)
        stop = parts.enter_context(_stopping())
        port = parts.enter_context(serving(Service(provider, clock), settings.address, clock, certificates))
        address = Address(settings.address.host, port)
        how = "mutual TLS" if certificates else "plain text"
        log.log(log_lines.NOTICE, "serving the cloud provider %s on %s, %s", provider.name, address, how)
        if certificates is None and not address.loopback:
            log.warning("whoever reaches %s can delete machines: set --key-cert, --cert and --ca-cert", address)
        stop.wait()
    return 0


def _certificates(settings: Serving) -> Certificates | None:
    given = (settings.key_cert, settings.cert, settings.ca_cert)
    key, cert, ca = given
    if key and cert and ca:
        return Certificates(key=File("--key-cert", key), cert=File("--cert", cert), ca=File("--ca-cert", ca))
    if any(given):
        raise UsageError("--key-cert, --cert and --ca-cert: expected all three for mutual TLS, or none")
    return None


@contextlib.contextmanager
def _stopping() -> Iterator[threading.Event]:
    stop = threading.Event()

    def told(name: str) -> None:
        log.warning("%s: ending, calls under way are answered", name)
        stop.set()

    with on_signals(told):
        yield stop
