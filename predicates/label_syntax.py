"""Validation of label keys and values, with the error messages of the API server.

Source: ``apimachinery/pkg/api/validate/content/kube.go``, ``pkg/labels/selector.go`` (``NewRequirement``). The
scheduler quotes these messages when it rejects a pod with an invalid selector. Lengths are in bytes of UTF-8.
"""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_DOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_IS_NAME: Final = re.compile(_NAME)
_IS_DOMAIN: Final = re.compile(_DOMAIN)
_LONGEST_NAME: Final = 63
_LONGEST_DOMAIN: Final = 253

_CHARACTERS: Final = (
    "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_NAME_RULE: Final = (
    f"must {_CHARACTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME}')"
)
_VALUE_RULE: Final = (
    f"a valid label must be an empty string or {_CHARACTERS} "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '({_NAME})?')"
)
_DOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_DOMAIN}')"
)


@lru_cache(maxsize=4096)
def key_errors(key: str) -> Sequence[str]:
    """Return the reasons why *key* is not a valid label key; empty if it is valid."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [
            f"a valid label key {_NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    errors = [f"prefix part {error}" for error in _domain_errors(prefix)] if slash else []
    if not name:
        errors.append("name part must be non-empty")
    elif _bytes(name) > _LONGEST_NAME:
        errors.append(f"name part {_too_long(_LONGEST_NAME)}")
    if not _IS_NAME.fullmatch(name):
        errors.append(f"name part {_NAME_RULE}")
    return errors


def value_errors(value: str) -> Sequence[str]:
    """Return the reasons why *value* is not a valid label value; empty if it is valid."""
    if not value or (_IS_NAME.fullmatch(value) and len(value) <= _LONGEST_NAME):
        return ()
    errors = [_too_long(_LONGEST_NAME)] if _bytes(value) > _LONGEST_NAME else []
    if not _IS_NAME.fullmatch(value):
        errors.append(_VALUE_RULE)
    return errors


def requirement_errors(key: str, values: Sequence[str], values_error: str | None) -> list[str]:
    """Return all errors of a requirement. *values_error* is the error if the values are invalid for its operator."""
    errors = []
    if invalid := key_errors(key):
        errors.append(f"key: Invalid value: {_quoted(key)}: {'; '.join(invalid)}")
    if values_error is not None:
        values_json = json.dumps(values, ensure_ascii=False, separators=(",", ":")) if values else "null"
        errors.append(f"values: Invalid value: {values_json}: {values_error}")
    for position, value in enumerate(values):
        if invalid := value_errors(value):
            errors.append(f"values[{position}][{key}]: Invalid value: {_quoted(value)}: {'; '.join(invalid)}")
    return errors


def joined(errors: Sequence[str]) -> str:
    """Join *errors* into one message without duplicates (``apimachinery/pkg/util/errors``)."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def _domain_errors(prefix: str) -> list[str]:
    if not prefix:
        return ["must be non-empty"]
    errors = [_too_long(_LONGEST_DOMAIN)] if _bytes(prefix) > _LONGEST_DOMAIN else []
    if not _IS_DOMAIN.fullmatch(prefix):
        errors.append(_DOMAIN_RULE)
    return errors


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
