"""Who may ask the node manager: whoever deletes nodes here must be meant to, not only be of our authority."""

import logging

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from rescheduler.liqo.answers import problem
from rescheduler.liqo.connection import peer

log = logging.getLogger(__name__)


class Clients:
    """The application, for clients whose certificate bears one of *names*."""

    def __init__(self, application: ASGIApp, names: frozenset[str]) -> None:
        self._application, self._names = application, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._application
        if scope["type"] == "http" and not self._names & (shown := peer(Request(scope))):
            who = ", ".join(sorted(shown)) or "a client without a name"
            log.warning("%s %s: %s may not ask this node manager", scope["method"], scope["path"], who)
            answer = problem(403, f"{who} may not ask this node manager")
        await answer(scope, receive, send)
