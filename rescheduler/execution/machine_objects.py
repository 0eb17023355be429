"""Objects of the cluster that are machines, for providers: responses of the API server as errors of providers."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec

from rescheduler.errors import (
    AuthError,
    NotFound,
    NotLeading,
    RateLimited,
    ReschedulerError,
    Retryable,
    Unauthorized,
)
from rescheduler.kube.client import JSON, MERGE_PATCH, Client
from rescheduler.kube.lister import Resource, read_structs
from rescheduler.kube.responses import refusal, retry_after_seconds
from rescheduler.net.http_errors import Missing, NoResponse, RequestRejected, Unsent
from rescheduler.providers.base import ObjectVersion, Unserved

T = TypeVar("T", bound=msgspec.Struct)

#: The smallest limit of a response, in seconds.
_LEAST: Final = 0.001


class MachineObjects:
    """The objects at one API server; see :class:`rescheduler.providers.base.ClusterObjects`.

    Changes are writes of *client*: with a guarded client, only the leader sends them.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def all(self, path: str, shape: type[T], *, seconds: float) -> list[T]:
        resource = Resource(path.rpartition("/")[2], path)
        try:
            return read_structs(self._client, resource, shape, read_seconds=max(seconds, _LEAST))
        except NotFound as error:
            raise Unserved(f"the API server does not serve {resource.plural} of {resource.api_version}") from error
        except Unauthorized as error:
            raise AuthError(str(error)) from error

    def patch(self, version: ObjectVersion, change: Mapping[str, object], *, seconds: float) -> None:
        metadata = change.get("metadata", {})
        assert isinstance(metadata, Mapping)
        body = {**change, "metadata": {**metadata, **_preconditions(version)}}
        self._send("change", "PATCH", version, body, seconds, content_type=MERGE_PATCH)

    def delete(self, version: ObjectVersion, *, seconds: float) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": _preconditions(version)}
        self._send("delete", "DELETE", version, options, seconds)

    def _send(
        self, verb: str, method: str, version: ObjectVersion, body: Any, seconds: float, content_type: str = JSON
    ) -> None:
        plural, _, name = version.path.rpartition("/")
        act = f"{verb} {plural.rpartition('/')[2]} {name}"
        try:
            response = self._client.send(
                act, method, version.path, body=body, content_type=content_type, read_seconds=max(seconds, _LEAST)
            )
        except NotLeading as error:
            raise Unsent(str(error)) from error
        except Retryable as error:
            raise NoResponse(str(error)) from error
        if not response.ok:
            text = str(refusal(act, response))
            raise _error(response.code, text, retry_after_seconds(response, response.status()))


def _preconditions(version: ObjectVersion) -> dict[str, str]:
    return {"uid": version.uid, "resourceVersion": version.resource_version}


def _error(code: int, text: str, retry_after: float | None) -> ReschedulerError:
    """Return the error for a response with the status *code*. A change since the object was read (409) is no order."""
    match code:
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return AuthError(text)
        case HTTPStatus.NOT_FOUND:
            return Missing(text)
        case HTTPStatus.CONFLICT:
            return Unsent(text)
        case HTTPStatus.TOO_MANY_REQUESTS:
            return RateLimited(text, retry_after=retry_after)
        case HTTPStatus.REQUEST_TIMEOUT:
            return NoResponse(text)
    return RequestRejected(text) if code < HTTPStatus.INTERNAL_SERVER_ERROR else NoResponse(text)
