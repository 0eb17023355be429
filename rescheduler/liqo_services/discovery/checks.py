"""Validation of cluster descriptions from any source. Messages name the invalid key and contain no secrets."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from predicates.quantity import QuantityError, parse
from rescheduler.errors import UsageError
from rescheduler.liqo_services.discovery import plain_yaml
from rescheduler.liqo_services.discovery.messages import Quantities

#: Liqo's format of cluster IDs, which become object names and label values.
CLUSTER_ID: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_RESOURCE: Final = re.compile(r"([a-z0-9][-a-z0-9.]{0,252}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_MOST: Final = 64  #: maximum number of resources, and of labels, of a cluster
_LONGEST: Final = 256  #: maximum characters of a label's key, and of its value
_KUBECONFIG: Final = 256 << 10  #: maximum characters
DEAREST: Final = 1e9  #: the highest price per hour

#: Fields that make a client run a program, read a file, or skip verification.
_FORBIDDEN_FIELDS: Final = frozenset(
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
#: Values with which these fields have no effect.
_UNSET: Final = ("", "null", "~", "false")


def cluster_id(name: str) -> str:
    """Return *name* if it is a cluster ID. Raises UsageError."""
    if not CLUSTER_ID.fullmatch(name):
        raise UsageError(f"name {name[:70]!r}: expected a cluster ID: at most 63 of a-z, 0-9 and -")
    return name


def quantities(amounts: Quantities, where: str) -> dict[str, str]:
    """Return *amounts* as strings. Raises UsageError for invalid or negative quantities."""
    _bounded(amounts, where)
    for name, amount in amounts.items():
        if not _RESOURCE.fullmatch(name):
            raise UsageError(f"{where}: {name[:70]!r}: expected the name of a resource, such as cpu or nvidia.com/gpu")
        try:
            negative = parse(amount).mantissa < 0
        except QuantityError as error:
            raise UsageError(f"{where}.{name}: {error}") from error
        if negative:
            raise UsageError(f"{where}.{name}: expected 0 or more, got {amount}")
    return {name: str(amount).strip() for name, amount in amounts.items()}


def labels(texts: Mapping[str, str]) -> dict[str, str]:
    """Return *texts* if its entries are short and printable. Raises UsageError."""
    _bounded(texts, "labels")
    for key, value in texts.items():
        if not key or not all(len(text) <= _LONGEST and text.isprintable() for text in (key, value)):
            expected = f"at most {_LONGEST} printable characters"
            raise UsageError(f"labels: {key[:70]!r}: expected a key and a value of {expected}")
    return dict(texts)


def price(number: float) -> float:
    """Return *number* if it is a valid price per hour. Raises UsageError."""
    if not 0 <= number <= DEAREST:
        raise UsageError(f"price: expected 0 to {DEAREST:g}, got {number}")
    return number


def kubeconfig(text: str) -> str:
    """Return *text* if it is a kubeconfig with embedded credentials. Raises UsageError.

    Node managers pass it to programs, so it must not make them run a command or read a local file.
    """
    if len(text) > _KUBECONFIG:
        raise UsageError(f"kubeconfig: expected at most {_KUBECONFIG} characters, got {len(text)}")
    try:
        document = plain_yaml.parse(text)
    except ValueError as error:
        raise UsageError(f"kubeconfig: {error}") from error
    for item in ("cluster", "user", "context"):
        _check_entries(document, item)
    if foreign := next(_forbidden_fields(document, "kubeconfig"), None):
        raise UsageError(f"{foreign}: this field is not allowed")
    return text


def _check_entries(document: Any, item: str) -> None:
    listed = document.get(f"{item}s") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not listed:
        raise UsageError(f"kubeconfig: {item}s: expected a list with one entry or more")
    for entry in listed:
        valid = isinstance(entry, dict) and isinstance(entry.get(item), dict) and isinstance(entry.get("name"), str)
        if not valid:
            raise UsageError(f"kubeconfig: {item}s: expected entries with a name and a {item}")


def _forbidden_fields(part: Any, where: str) -> Iterator[str]:
    """Yield the paths of forbidden fields at any depth and in any case, because some parsers ignore case."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key.lower() in _FORBIDDEN_FIELDS and value not in _UNSET:
                yield f"{where}.{key}"
            yield from _forbidden_fields(value, f"{where}.{key[:70]}")
    elif isinstance(part, list):
        for index, value in enumerate(part):
            yield from _forbidden_fields(value, f"{where}[{index}]")


def _bounded(entries: Mapping[str, object], where: str) -> None:
    if len(entries) > _MOST:
        raise UsageError(f"{where}: expected at most {_MOST} entries, got {len(entries)}")
