"""What of a cluster's description is accepted, whoever gives it. Messages name the place and hold no secret."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from predicates.quantity import QuantityError, parse
from rescheduler.errors import UsageError
from rescheduler.liqo.discovery import plain_yaml
from rescheduler.liqo.discovery.messages import Quantities

#: Liqo's rule for cluster IDs; they become names of objects and values of labels.
CLUSTER_ID: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_RESOURCE: Final = re.compile(r"([a-z0-9][-a-z0-9.]{0,252}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_MOST: Final = 64  #: resources, and labels, of a cluster
_LONGEST: Final = 256  #: characters of a label's key and of its value
_KUBECONFIG: Final = 256 << 10  #: characters
DEAREST: Final = 1e9  #: price of an hour

#: What makes a client run a program, read a file, or trust anybody.
_FOREIGN: Final = frozenset(
    {
        "exec",
        "auth-provider",
        "tokenfile",
        "client-certificate",
        "client-key",
        "certificate-authority",
        "insecure-skip-tls-verify",
    }
)
#: How these are written where they mean nothing.
_UNSET: Final = ("", "null", "~", "false")


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
    if not 0 <= found <= DEAREST:
        raise UsageError(f"price: expected 0 to {DEAREST:g}, got {found}")
    return found


def kubeconfig(text: str) -> str:
    """*text*, if it is a kubeconfig that holds its own credentials. Raises UsageError.

    Whoever peers hands it to programs: it must not make them run a command or read a file of their machine.
    """
    if len(text) > _KUBECONFIG:
        raise UsageError(f"kubeconfig: expected at most {_KUBECONFIG} characters, got {len(text)}")
    try:
        document = plain_yaml.parse(text)
    except ValueError as error:
        raise UsageError(f"kubeconfig: {error}") from error
    for item in ("cluster", "user", "context"):
        _check_entries(document, item)
    if foreign := next(_foreign(document, "kubeconfig"), None):
        raise UsageError(f"{foreign}: this field is not allowed")
    return text


def _check_entries(document: Any, item: str) -> None:
    listed = document.get(f"{item}s") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not listed:
        raise UsageError(f"kubeconfig: {item}s: expected a list with one entry or more")
    for one in listed:
        if not isinstance(one, dict) or not isinstance(one.get(item), dict) or not isinstance(one.get("name"), str):
            raise UsageError(f"kubeconfig: {item}s: expected entries with a name and a {item}")


def _foreign(part: Any, where: str) -> Iterator[str]:
    """The places of keys that reach out of the kubeconfig; wherever they are and in whatever case: readers differ."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key.lower() in _FOREIGN and value not in _UNSET:
                yield f"{where}.{key}"
            yield from _foreign(value, f"{where}.{key[:70]}")
    elif isinstance(part, list):
        for index, value in enumerate(part):
            yield from _foreign(value, f"{where}[{index}]")


def _bounded(found: Mapping[str, object], where: str) -> None:
    if len(found) > _MOST:
        raise UsageError(f"{where}: expected at most {_MOST} entries, got {len(found)}")
