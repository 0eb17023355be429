"""External gRPC for tests: our service over any provider on the loopback interface, and our client."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rescheduler.clock import Clock
from rescheduler.grpc_service.server import serving
from rescheduler.grpc_service.service import ProviderService
from rescheduler.net.config_files import Duration
from rescheduler.net.files import Certificates
from rescheduler.providers.base import CloudProvider
from rescheduler.providers.externalgrpc.channel import ExternalGrpcFile
from rescheduler.providers.externalgrpc.provider import ExternalGrpcProvider
from rescheduler.settings import ListenAddress
from tests.providers.worlds import World

LOOPBACK = ListenAddress("127.0.0.1", 0)


@contextlib.contextmanager
def offered(provider: CloudProvider, clock: Clock, certificates: Certificates | None = None) -> Iterator[str]:
    """Serve the provider and return the address."""
    with serving(ProviderService(provider, clock), LOOPBACK, clock, certificates) as port:
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def connected(address: str, clock: Clock, folder: Path = Path(), **keys: Any) -> Iterator[ExternalGrpcProvider]:
    provider = ExternalGrpcProvider(ExternalGrpcFile(address=address, **keys), folder, clock)
    try:
        yield provider
    finally:
        provider.close()


class ExternalGrpcWorld:
    """Another provider's world (see `conformance`), through a service and its client."""

    def __init__(self, inner: World, stack: contextlib.ExitStack) -> None:
        self._inner, self._stack = inner, stack
        self.provider = self._open()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def restart(self) -> None:
        """Restart the service and its client."""
        self._inner.restart()
        self.provider = self._open()

    def _open(self) -> CloudProvider:
        address = self._stack.enter_context(offered(self._inner.provider, self._inner.clock))
        # Waiting takes no real time in these worlds, but calls do: only a broken test reaches the timeout.
        timeout = Duration(120)
        return self._stack.enter_context(connected(address, self._inner.clock, grpc_timeout=timeout))


def through(make: Callable[[int, int], AbstractContextManager[World]]) -> Callable[[int, int], Any]:
    """Return the same world behind external gRPC."""

    @contextlib.contextmanager
    def world(machines: int, minimum: int) -> Iterator[ExternalGrpcWorld]:
        with make(machines, minimum) as inner, contextlib.ExitStack() as stack:
            yield ExternalGrpcWorld(inner, stack)

    return world
