"""The namespaces whose pods may be evicted. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from predicates.objects import LabelSelector, Requirement
from predicates.selectors import EVERYTHING, Selector, compile_selector
from rescheduler.errors import UsageError

#: The label that the API server sets on each namespace.
NAME_LABEL: Final = "kubernetes.io/metadata.name"

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PART: Final = re.compile(r"(?:[^,(]|\([^()]*+\)?)*+")  #: up to a comma that is not within parentheses
_SET: Final = re.compile(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)")
_EXPECTED: Final = "expected requirements such as team=web, team!=ci, team, '!team' or 'team in (web, shop)'"


@dataclass(frozen=True, slots=True)
class NamespaceScope:
    """The namespaces whose pods may be evicted: they are named, not excluded, and match the selector."""

    included: frozenset[str] = frozenset()  #: names; empty: all
    excluded: frozenset[str] = frozenset()
    selector: Selector = EVERYTHING
    selector_text: str = ""  #: the selector as it was given

    @property
    def everything(self) -> bool:
        """Whether the pods of all namespaces may be evicted."""
        return not (self.included or self.excluded) and self.selector.everything

    def why_excluded(self, name: str, labels: Mapping[str, str]) -> str:
        """Return why pods of the namespace *name*, which has these *labels*, must not be evicted, or ""."""
        if name in self.excluded:
            return f"--exclude-namespaces contains its namespace {name}"
        if self.included and name not in self.included:
            return f"--namespaces does not contain its namespace {name}"
        if not self.selector.matches({NAME_LABEL: name, **labels}):
            return f"its namespace {name} does not match --namespace-selector={self.selector_text}"
        return ""


ALL_NAMESPACES: Final = NamespaceScope()


def is_label(name: str) -> bool:
    """Return whether *name* is a DNS label, as the names of namespaces and volumes are."""
    return _NAME.fullmatch(name) is not None


def parse_names(text: str) -> tuple[str, ...]:
    """Parse names of namespaces, separated by commas. Raises UsageError."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if not is_label(name):
            raise UsageError(f"namespace {name!r}: expected at most 63 lower-case letters, digits and '-'")
    return names


def parse_selector(text: str) -> Selector:
    """Parse a label selector in the syntax of ``kubectl --selector``. Raises UsageError."""
    requirements = tuple(_requirement(part.strip(), text) for part in _parts(text))
    selector = compile_selector(LabelSelector(match_expressions=requirements))
    if selector.error:
        raise UsageError(f"label selector {text!r}: {selector.error}")
    return selector


def namespace_scope(included: Iterable[str], excluded: Iterable[str], selector: str = "") -> NamespaceScope:
    """Return the scope for these names and the label selector; "" matches all namespaces.

    Raises UsageError if a namespace is both included and excluded.
    """
    scope = NamespaceScope(
        frozenset(included), frozenset(excluded), parse_selector(selector) if selector else EVERYTHING, selector
    )
    if overlap := scope.included & scope.excluded:
        raise UsageError(
            f"namespace {min(overlap)!r}: expected in --namespaces or in --exclude-namespaces, not in both"
        )
    return scope


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of *text* between commas that are not within parentheses."""
    position = 0
    while position <= len(text) and (part := _PART.match(text, position)) is not None:
        yield part[0]
        position = part.end() + 1


def _requirement(part: str, text: str) -> Requirement:
    if named := _SET.fullmatch(part):
        key, operator, values = named.groups()
        listed = tuple(value.strip() for value in values.split(","))
        return Requirement(key=key, operator="In" if operator == "in" else "NotIn", values=listed)
    for sign, operator in (("!=", "NotIn"), ("==", "In"), ("=", "In")):
        key, separator, value = part.partition(sign)
        if separator:
            return Requirement(key=key.strip(), operator=operator, values=(value.strip(),))
    key = part.removeprefix("!").strip()
    if not key or " " in key or "(" in key:
        raise UsageError(f"label selector {text!r}: {part!r}: {_EXPECTED}")
    return Requirement(key=key, operator="DoesNotExist" if part.startswith("!") else "Exists")
