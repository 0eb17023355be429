"""What of a cluster's description is accepted, whoever gives it. Messages name the place and hold no secret."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from predicates.quantity import QuantityError, parse
from rescheduler.errors import UsageError
from rescheduler.liqo.discovery.messages import Quantities

#: Liqo's rule for cluster IDs; they become names of objects and values of labels.
CLUSTER_ID: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_RESOURCE: Final = re.compile(r"([a-z0-9][-a-z0-9.]{0,252}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_MOST: Final = 64  #: resources, and labels, of a cluster
_LONGEST: Final = 256  #: characters of a label's key and of its value
_KUBECONFIG: Final = 256 << 10  #: characters
_DEAREST: Final = 1e9

#: What makes a client run a program, read a file or go elsewhere than the kubeconfig seems to say.
_FOREIGN: Final[Mapping[str, tuple[str, ...]]] = {
    "cluster": ("certificate-authority", "proxy-url", "insecure-skip-tls-verify"),
    "user": ("exec", "auth-provider", "client-certificate", "client-key", "tokenFile"),
}


def cluster_id(name: str) -> str:
    """*name*, if it is a cluster ID. Raises UsageError."""
    if not CLUSTER_ID.fullmatch(name):
        raise UsageError(f"name {name[:70]!r}: expected a cluster ID: at most 63 of a-z, 0-9 and -")
    return name


def quantities(found: Quantities, where: str) -> dict[str, str]:
    """*found* as texts. Raises UsageError for what is no quantity of 0 or more."""
    _bounded(found, where)
    for name, amount in found.items():
        if not _RESOURCE.fullmatch(name):
            raise UsageError(f"{where}: {name[:70]!r}: expected the name of a resource, such as cpu or nvidia.com/gpu")
        try:
            negative = parse(amount).mantissa < 0
        except QuantityError as error:
            raise UsageError(f"{where}.{name}: {error}") from error
        if negative:
            raise UsageError(f"{where}.{name}: expected 0 or more, got {amount}")
    return {name: str(amount).strip() for name, amount in found.items()}


def labels(found: Mapping[str, str]) -> dict[str, str]:
    """*found*, if it is short enough and printable. Raises UsageError."""
    _bounded(found, "labels")
    for key, value in found.items():
        if not key or not all(len(text) <= _LONGEST and text.isprintable() for text in (key, value)):
            expected = f"at most {_LONGEST} printable characters"
            raise UsageError(f"labels: {key[:70]!r}: expected a key and a value of {expected}")
    return dict(found)


def price(found: float) -> float:
    """*found*, if it can be the price of an hour. Raises UsageError."""
    if not 0 <= found <= _DEAREST:
        raise UsageError(f"price: expected 0 to {_DEAREST:g}, got {found}")
    return found


def kubeconfig(text: str) -> str:
    """*text*, if it is a kubeconfig that holds its own credentials. Raises UsageError.

    Whoever peers hands it to programs: it must not make them run a command or read a file of their machine.
    """
    if len(text) > _KUBECONFIG:
        raise UsageError(f"kubeconfig: expected at most {_KUBECONFIG} characters, got {len(text)}")
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UsageError("kubeconfig: expected YAML or JSON") from None
    for item in ("cluster", "user", "context"):
        for name, entry in _entries(document, item):
            for key in _FOREIGN.get(item, ()):
                if entry.get(key):
                    raise UsageError(f"kubeconfig: {item} {name[:70]!r}: {key}: expected it not to be there")
    return text


def _entries(document: Any, item: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    listed = document.get(f"{item}s") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not listed:
        raise UsageError(f"kubeconfig: {item}s: expected a list with one entry or more")
    for one in listed:
        entry = one.get(item) if isinstance(one, dict) else None
        if not isinstance(entry, dict) or not isinstance(one.get("name"), str):
            raise UsageError(f"kubeconfig: {item}s: expected entries with a name and a {item}")
        yield one["name"], entry


def _bounded(found: Mapping[str, object], where: str) -> None:
    if len(found) > _MOST:
        raise UsageError(f"{where}: expected at most {_MOST} entries, got {len(found)}")
