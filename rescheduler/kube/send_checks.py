"""Checks that run right before each request is sent, because opening a connection may take seconds."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

#: Called on the sending thread. If it raises, the request is not sent.
_CHECK: Final[ContextVar[Callable[[], object] | None]] = ContextVar("asked", default=None)


@contextlib.contextmanager
def checking_before_send(check: Callable[[], object]) -> Iterator[None]:
    """Call *check* before each request of pools with `enable_send_checks`. If it raises, the request is not sent."""
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)


def enable_send_checks(pool: urllib3.PoolManager) -> urllib3.PoolManager:
    """Make the connections of *pool* run the check before each request."""
    pool.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
    return pool


class _HTTP(HTTPConnection):
    def request(self, *args: Any, **options: Any) -> None:
        _check_before_send(self)
        super().request(*args, **options)


class _HTTPS(HTTPSConnection):
    def request(self, *args: Any, **options: Any) -> None:
        _check_before_send(self)
        super().request(*args, **options)


def _check_before_send(connection: HTTPConnection) -> None:
    check = _CHECK.get()
    if check is None:
        return
    if connection.is_closed:
        connection.connect()
    check()


class _HTTPPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _HTTP


class _HTTPSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _HTTPS
