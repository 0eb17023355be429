"""Connections that ask when they are open, and before they send: making one may have taken seconds."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

#: Asked on the thread that sends; what it raises keeps the request from being sent.
_ASKED: Final[ContextVar[Callable[[], object] | None]] = ContextVar("asked", default=None)


@contextlib.contextmanager
def asking(ask: Callable[[], object]) -> Iterator[None]:
    """Within the block, requests of pools that were made by `let_ask` are sent only if *ask* returns."""
    token = _ASKED.set(ask)
    try:
        yield
    finally:
        _ASKED.reset(token)


def let_ask(pool: urllib3.PoolManager) -> urllib3.PoolManager:
    """Have *pool* open connections that ask."""
    pool.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
    return pool


class _HTTP(HTTPConnection):
    def request(self, *args: Any, **options: Any) -> None:
        _ask(self)
        super().request(*args, **options)


class _HTTPS(HTTPSConnection):
    def request(self, *args: Any, **options: Any) -> None:
        _ask(self)
        super().request(*args, **options)


def _ask(connection: HTTPConnection) -> None:
    ask = _ASKED.get()
    if ask is None:
        return
    if connection.is_closed:
        connection.connect()
    ask()


class _HTTPPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _HTTP


class _HTTPSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _HTTPS
