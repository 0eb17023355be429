"""The keys of the API server's objects in etcd, read and deleted without the API server.

All functions take the port of etcd on 127.0.0.1, and raise OSError or http.client.HTTPException if it does not respond.
"""

import base64
import contextlib
import json
from collections.abc import Iterable
from http.client import HTTPConnection
from typing import Final

from devcluster.api import Json

_TIMEOUT_SECONDS: Final = 90.0


def keys(port: int) -> list[str]:
    """Return the keys of all objects, such as ``/registry/pods/default/web``."""
    every = {"key": _encoded("/registry/"), "range_end": _encoded("/registry0"), "keys_only": True}
    [response] = _responses(port, "range", [every])
    return [base64.b64decode(item["key"]).decode() for item in response["kvs"]]


def delete(port: int, keys: Iterable[str]) -> None:
    """Delete the objects with these *keys*. Watches of the API server report the deletions."""
    _responses(port, "deleterange", [{"key": _encoded(key)} for key in keys])


def _responses(port: int, verb: str, requests: Iterable[Json]) -> list[Json]:
    """Send *requests* over one connection, and return the responses."""
    with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_SECONDS)) as connection:
        responses = []
        for request in requests:
            connection.request("POST", f"/v3/kv/{verb}", json.dumps(request))
            responses.append(json.load(connection.getresponse()))
        return responses


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
