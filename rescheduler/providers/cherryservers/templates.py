"""The subset of Go's text/template used by cloud-init and host names: ``{{.Name}}``, with ``{{-`` and ``-}}``."""

import re
import secrets
from collections.abc import Callable, Mapping

CLOUD_INIT = ("BootstrapTokenID", "BootstrapTokenSecret", "APIServerEndpoint", "NodeGroup")
HOSTNAME = ("ClusterName", "NodeGroup", "RandString8")
DEFAULT_HOSTNAME = "k8s-{{.ClusterName}}-{{.NodeGroup}}-{{.RandString8}}"

_TRIM_LEFT = re.compile(r"-\s")
_TRIM_RIGHT = re.compile(r"\s-")
_LETTERS = "acdefghijklmnopqrstuvwxyz"  #: the original's alphabet, without b


def check(text: str, names: tuple[str, ...]) -> None:
    """Raise ValueError for a template that `render` cannot fill."""
    render(text, dict.fromkeys(names, ""))


def render(text: str, values: Mapping[str, str]) -> str:
    """Return *text* with its actions replaced by *values*. Raises ValueError."""
    filled: list[str] = []
    position, trim = 0, False
    while (opening := text.find("{{", position)) >= 0:
        if (closing := text.find("}}", opening)) < 0:
            raise ValueError("a {{ is not closed")
        before, content = text[position:opening], text[opening + 2 : closing]
        before = before.lstrip() if trim else before
        trimmed, trim = _TRIM_LEFT.match(content) is not None, _TRIM_RIGHT.fullmatch(content[-2:]) is not None
        filled += before.rstrip() if trimmed else before, _value(content[trimmed : -1 if trim else None], values)
        position = closing + 2
    rest = text[position:]
    return "".join((*filled, rest.lstrip() if trim else rest))


def _value(content: str, values: Mapping[str, str]) -> str:
    """Return the value for the *content* of an action; nothing for a comment. Raises ValueError."""
    content = content.strip()
    if len(content) >= len("/**/") and content.startswith("/*") and content.endswith("*/"):
        return ""
    name = content.removeprefix(".")
    if content.startswith(".") and name in values:
        return values[name]
    known = ", ".join("{{." + value + "}}" for value in values)
    raise ValueError(f"{{{{{content}}}}}: expected one of {known}")


def random_letters(count: int = 8, choice: Callable[[str], str] = secrets.choice) -> str:
    return "".join(choice(_LETTERS) for _ in range(count))
