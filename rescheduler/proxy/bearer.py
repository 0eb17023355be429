"""Authentication of the proxy's clients by bearer token."""

import hmac
from collections.abc import Callable

from starlette.responses import Response

from rescheduler.errors import AuthError
from rescheduler.proxy.proxy_responses import error
from rescheduler.proxy.request_client import Scope


def unauthorized(scope: Scope, token: Callable[[], str]) -> Response | None:
    """Return the response to a request without the expected *token*; `None` if the request has the token."""
    shown = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    scheme, _, sent = shown.partition(b" ")
    try:
        expected = token().encode()
    except AuthError as failure:
        return error(500, "the proxy cannot check the bearer token", str(failure))
    if scheme.lower() == b"bearer" and hmac.compare_digest(sent.strip(), expected):
        return None
    refused = error(401, "a bearer token is required")
    refused.headers["www-authenticate"] = "Bearer"
    return refused
