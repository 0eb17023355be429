"""An HTML document with inline style and script, and a Content Security Policy that allows nothing else."""

import base64
import hashlib
from importlib import resources
from typing import Final

from rescheduler.pages.element import Markup, element, joined

_STYLE: Final = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
_SCRIPT: Final = resources.files(__package__).joinpath("page.js").read_text(encoding="utf-8")

#: Seconds after which a browser without JavaScript reloads a live page.
_REFRESH_SECONDS: Final = 10


def document(title: str, body: Markup, *, live: bool = False) -> str:
    """Return the document. A *live* page polls its own URL and updates itself."""
    refresh = element("meta", http_equiv="refresh", content=_REFRESH_SECONDS)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(live=live)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("noscript", refresh) if live else None,
        element("title", title),
        element("style", Markup(_STYLE)),
    )
    script = element("script", Markup(_SCRIPT))
    page = element("html", joined((head, element("body", body, script, data_live=live))), lang="en")
    return f"<!doctype html>\n{page}\n"


def policy(*, live: bool) -> str:
    """Return a policy that allows the page's style and script and, if *live*, requests to the page's server."""
    rules = ["default-src 'none'", f"style-src {_source(_STYLE)}", f"script-src {_source(_SCRIPT)}"]
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'", *(["connect-src 'self'"] if live else [])])


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
