"""The subset of Go's text/template used by cloud-init and host names: ``{{.Name}}``, with ``{{-`` and ``-}}``."""

import re
import secrets
from collections.abc import Callable, Mapping

CLOUD_INIT = ("BootstrapTokenID", "BootstrapTokenSecret", "APIServerEndpoint", "NodeGroup")
HOSTNAME = ("ClusterName", "NodeGroup", "RandString8")
DEFAULT_HOSTNAME = "k8s-{{.ClusterName}}-{{.NodeGroup}}-{{.RandString8}}"

_ACTION = re.compile(r"(\s*\{\{-\s+|\{\{\s*)(.*?)(\s+-\}\}\s*|\s*\}\})", re.DOTALL)
_COMMENT = re.compile(r"/\*.*\*/", re.DOTALL)
_LETTERS = "acdefghijklmnopqrstuvwxyz"  #: the original's alphabet, without b


def check(text: str, names: tuple[str, ...]) -> None:
    """Raise ValueError for a template that `render` cannot fill."""
    render(text, dict.fromkeys(names, ""))


def render(text: str, values: Mapping[str, str]) -> str:
    def fill(action: re.Match[str]) -> str:
        content = action[2].strip()
        if _COMMENT.fullmatch(content):
            return ""
        name = content.removeprefix(".")
        if content.startswith(".") and name in values:
            return values[name]
        known = ", ".join("{{." + value + "}}" for value in values)
        raise ValueError(f"{{{{{content}}}}}: expected one of {known}")

    for opening in re.finditer(r"\{\{", _ACTION.sub("", text)):
        raise ValueError(f"a {opening[0]} is not closed")
    return _ACTION.sub(fill, text)


def random_letters(count: int = 8, choice: Callable[[str], str] = secrets.choice) -> str:
    return "".join(choice(_LETTERS) for _ in range(count))
