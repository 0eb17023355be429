"""External gRPC to test against: our service over any provider, on the loopback, and our client in front of it."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rescheduler.backends.base import CloudProvider
from rescheduler.backends.certificates import Certificates
from rescheduler.backends.config import Duration
from rescheduler.backends.externalgrpc.config import ExternalGrpcFile
from rescheduler.backends.externalgrpc.provider import ExternalGrpcProvider
from rescheduler.clock import Clock
from rescheduler.grpcservice.server import serving
from rescheduler.grpcservice.service import Service
from rescheduler.settings import Address
from tests.backends.worlds import World

LOOPBACK = Address("127.0.0.1", 0)


@contextlib.contextmanager
def offered(provider: CloudProvider, clock: Clock, certificates: Certificates | None = None) -> Iterator[str]:
    """The address of our service."""
    with serving(Service(provider, clock), LOOPBACK, clock, certificates) as port:
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def connected(address: str, clock: Clock, folder: Path = Path(), **keys: Any) -> Iterator[ExternalGrpcProvider]:
    provider = ExternalGrpcProvider(ExternalGrpcFile(address=address, **keys), folder, clock)
    try:
        yield provider
    finally:
        provider.close()


class ExternalGrpcWorld:
    """Another provider's world (see `conformance`), seen through a service and a client of it."""

    def __init__(self, inner: World, stack: contextlib.ExitStack) -> None:
        self._inner, self._stack = inner, stack
        self.provider = self._open()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def restart(self) -> None:
        """Both ends are started again."""
        self._inner.restart()
        self.provider = self._open()

    def _open(self) -> CloudProvider:
        address = self._stack.enter_context(offered(self._inner.provider, self._inner.clock))
        # Waiting costs no time on the clocks of these worlds, real calls do: only a broken test meets the timeout.
        timeout = Duration(120)
        return self._stack.enter_context(connected(address, self._inner.clock, grpc_timeout=timeout))


def through(make: Callable[[int, int], AbstractContextManager[World]]) -> Callable[[int, int], Any]:
    """The same world behind external gRPC."""

    @contextlib.contextmanager
    def world(machines: int, minimum: int) -> Iterator[ExternalGrpcWorld]:
        with make(machines, minimum) as inner, contextlib.ExitStack() as stack:
            yield ExternalGrpcWorld(inner, stack)

    return world
