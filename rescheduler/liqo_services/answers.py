"""The responses of the HTTPS services: JSON, with errors in one line."""

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from rescheduler import decoding
from rescheduler.errors import Conflict, Forbidden, NotFound, RateLimited, ReschedulerError, Retryable, UsageError
from rescheduler.net.config_files import decode
from rescheduler.providers.base import AboveMaximum, BelowMinimum, UnknownGroup

T = TypeVar("T")

#: The first class that matches decides; 500 for all others.
_STATUSES: Final[Sequence[tuple[type[ReschedulerError], int]]] = (
    (UsageError, 400),
    (Forbidden, 403),
    (UnknownGroup, 404),
    (NotFound, 404),
    (BelowMinimum, 409),
    (AboveMaximum, 409),
    (Conflict, 409),
    (RateLimited, 429),
    (Retryable, 503),
)

log = logging.getLogger(__name__)


def json_response(value: object, status: int = 200) -> Response:
    """Return *value* as JSON."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def problem(status: int, text: str, **more: object) -> Response:
    """Return an error as ``{"error": text, …}``."""
    return json_response({"error": " ".join(text.split()), **more}, status)


def body(raw: bytes, shape: type[T]) -> T:
    """Decode a request's body as *shape*. Raises UsageError that names the key and the expected value."""
    try:
        return decoding.decode(raw, shape, dec_hook=decode)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"body: {error}") from error


def application(routes: Sequence[BaseRoute]) -> Starlette:
    """Return an application with *routes* and ``/healthz``, which converts our errors to responses."""
    handlers: Mapping[Any, Any] = {
        ReschedulerError: _failed,
        HTTPException: _refused,
        Exception: _unexpected,
    }
    health = Route("/healthz", lambda _: PlainTextResponse("ok\n"), methods=["GET"])
    return Starlette(routes=[*routes, health], exception_handlers=handlers)


def status_of(error: ReschedulerError) -> int:
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def _failed(request: Request, error: ReschedulerError) -> Response:
    status = status_of(error)
    ours = status == HTTPStatus.INTERNAL_SERVER_ERROR
    log.log(logging.WARNING if ours else logging.INFO, "%s %s: %s", request.method, request.url.path, error)
    response = problem(status, str(error))
    if (after := getattr(error, "retry_after", None)) is not None:
        response.headers["retry-after"] = str(int(after))
    return response


def _refused(_: Request, error: HTTPException) -> Response:
    response = problem(error.status_code, error.detail or HTTPStatus(error.status_code).phrase)
    response.headers.update(error.headers or {})
    return response


def _unexpected(_: Request, error: Exception) -> Response:
    # Starlette raises the error again after the response, and the server logs it.
    return problem(500, f"internal error: {type(error).__name__}")
