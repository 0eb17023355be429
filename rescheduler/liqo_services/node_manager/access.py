"""Access to the node manager by name: clients need a certificate of the CA that contains an allowed name."""

import logging

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from rescheduler.liqo_services.answers import problem
from rescheduler.liqo_services.connection import client_names

log = logging.getLogger(__name__)


class Clients:
    """A middleware that rejects clients whose certificate has none of *names*."""

    def __init__(self, application: ASGIApp, names: frozenset[str]) -> None:
        self._application, self._names = application, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = self._application
        if scope["type"] == "http" and not self._names & (presented := client_names(Request(scope))):
            who = ", ".join(sorted(presented)) or "a client without a name"
            log.warning("%s %s: %s may not use this node manager", scope["method"], scope["path"], who)
            response = problem(403, f"{who} may not use this node manager")
        await response(scope, receive, send)
