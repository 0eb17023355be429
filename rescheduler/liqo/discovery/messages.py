"""The JSON messages of discovery, and the validation of cluster descriptions from any source."""

import datetime as dt
import re
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec
import yaml
from msgspec import UNSET, UnsetType
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from predicates.quantity import QuantityError
from predicates.quantity import parse as quantity_parse
from rescheduler.errors import UsageError
from rescheduler.net.config_files import Duration, Section

# The JSON messages of discovery.
#
# ``GET /list`` has the format of Liqo's cluster autoscaler (discovery ``types/``), with additional keys.

QuantityTexts: TypeAlias = dict[str, str | int | float]


class Description(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One source's description of a cluster; `None` means unknown. ``repr`` contains no secrets."""

    kubeconfig: str | None = None
    resources: dict[str, str] | None = None  #: resources that the cluster shares
    labels: dict[str, str] | None = None
    has_nat: bool | None = None
    price: float | None = None  #: per hour
    free: dict[str, str] | None = None  #: the currently free part of the resources

    def over(self, other: "Description") -> "Description":
        """Return this description with its unknown values filled in from *other*."""
        given = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(other, **given)

    def __repr__(self) -> str:
        return f"Description({', '.join(name for name in self.__struct_fields__ if getattr(self, name) is not None)})"


class Listed(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An entry of ``/list``; the first five keys are Liqo's."""

    name: str  #: Liqo's cluster ID
    kubeconfig: str = ""
    resources: dict[str, str] = {}
    labels: dict[str, str] = {}
    has_nat: bool = False
    price: float | None = None
    free: dict[str, str] | None = None
    last_seen: dt.datetime

    def __repr__(self) -> str:
        return f"Listed({self.name})"


class Info(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The key ``info`` of a Secret; the first three keys are Liqo's, and unknown keys are ignored."""

    resources: QuantityTexts
    labels: dict[str, str] = {}
    has_nat: bool = False
    price: float | None = None
    free: QuantityTexts | None = None


class ClusterUpdate(Section, frozen=True, kw_only=True):
    """An agent's update of its cluster. Missing keys keep their value; null deletes it."""

    name: str
    kubeconfig: str | UnsetType | None = UNSET
    resources: QuantityTexts | UnsetType | None = UNSET
    labels: dict[str, str] | UnsetType | None = UNSET
    has_nat: bool | UnsetType | None = UNSET
    price: float | UnsetType | None = UNSET
    free: QuantityTexts | UnsetType | None = UNSET
    ttl: Duration | None = None  #: how long the update is valid; default: --expire-after

    def __repr__(self) -> str:
        return f"ClusterUpdate({self.name})"


class UpdateRequest(Section, frozen=True, kw_only=True):
    """The body of ``POST /update``, which is applied completely or not at all."""

    clusters: tuple[ClusterUpdate, ...] = ()
    deleted: tuple[str, ...] = ()


class Updated(msgspec.Struct, frozen=True):
    """The response: the number of updated clusters, and the number of deleted clusters that existed."""

    updated: int
    deleted: int


# A parser for untrusted YAML: only maps, lists and strings.
#
# Without aliases, a document cannot expand; without tags, no constructor runs; and without merges and duplicate keys,
# all parsers agree on the keys.


def parse(text: str) -> object:
    """Parse a document into dicts, lists and strings. Raises ValueError for invalid YAML and for all other features."""
    loader = _Plain(text)
    try:
        return loader.get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError):
        # The library's message may quote the document.
        expected = f"expected YAML or JSON without aliases, merges and duplicate keys, at most {_DEEPEST} levels deep"
        raise ValueError(expected) from None
    finally:
        loader.dispose()


#: Lists and objects of a document are at most so deep in each other: the time of the parser is quadratic in the depth.
_DEEPEST: Final = 50


class _Plain(yaml.BaseLoader):
    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise ComposerError(problem="an alias")
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ComposerError(problem="too many lists and objects in each other")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        keys = [key.value if isinstance(key, yaml.ScalarNode) else "<<" for key, _ in node.value]
        if "<<" in keys or len(set(keys)) < len(keys):
            raise ConstructorError(problem="a merge, a duplicate key, or one that is not a string")
        return super().construct_mapping(node, deep)


# Validation of cluster descriptions from any source. Messages name the invalid key and contain no secrets.

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


def quantities(amounts: QuantityTexts, where: str) -> dict[str, str]:
    """Return *amounts* as strings. Raises UsageError for invalid or negative quantities."""
    _bounded(amounts, where)
    for name, amount in amounts.items():
        if not _RESOURCE.fullmatch(name):
            raise UsageError(f"{where}: {name[:70]!r}: expected the name of a resource, such as cpu or nvidia.com/gpu")
        try:
            negative = quantity_parse(amount).mantissa < 0
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
        document = parse(text)
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
