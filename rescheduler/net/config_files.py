"""Configuration files in JSON or YAML, decoded into structs. Every error names the file and the key."""

import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml

from rescheduler import durations
from rescheduler.errors import ConfigError
from rescheduler.net import files, pem

T = TypeVar("T")

INT32 = 2**31 - 1  #: the largest group size: gRPC and the cloud providers use 32 bits
_MOST_ATTEMPTS = 100


class Duration(float):
    """A duration in seconds, which files contain in Go's format: ``300ms``, ``90s``, ``1m35s``."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> "Duration":
        if not isinstance(text, str):
            raise ValueError(f'expected a duration such as "90s" or "1m35s", got {json.dumps(text)}')  # noqa: TRY004
        try:
            return cls(durations.seconds(text))
        except ValueError as error:
            raise ValueError(f'{error}, got "{text}"') from None


class Section(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The base class of all sections: keys are in camelCase, and unknown keys are errors."""


class Endpoint(Section, frozen=True, kw_only=True):
    """The HTTP address of a system and the credentials for it. Paths are relative to the file."""

    url: str
    timeout: Duration = Duration(60)  #: of one request
    connect_timeout: Duration = Duration(10)
    attempts: int = 4  #: of a request that is safe to repeat
    max_answer_bytes: int = 64 << 20
    ca_file: str | None = None  #: PEM; replaces the system's trusted CAs
    client_cert_file: str | None = None
    client_key_file: str | None = None  #: default: the key is in client_cert_file
    username: str | None = None  #: HTTP Basic, with password_file
    password_file: str | None = None
    token_file: str | None = None  #: bearer token


def read(path: Path, shape: type[T], what: str = "cloud configuration", *, may_be_empty: bool = True) -> T:
    """Decode the file as *shape*. Raises ConfigError that names the kind of file (*what*), the path and the key.

    With *may_be_empty* false, a file without keys is an error: it is probably the output of a failed template.
    """
    where = f"{what} {files.printable(path)}"
    try:
        text = files.read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: cannot be read: {pem.reason(error)}") from error
    try:
        document = _parse(text)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{where}: {' '.join(str(error).split())}") from error
    if not may_be_empty and document in (None, {}):
        raise ConfigError(f"{where}: it is empty; expected at least one key")
    return shaped({} if document is None else document, shape, where)  # an empty file has no keys


def shaped(document: object, shape: type[T], where: str) -> T:
    """Convert a parsed document to *shape*. Raises ConfigError, whose message begins with *where*."""
    try:
        return msgspec.convert(document, shape, dec_hook=decode)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from error


def check_endpoint(endpoint: Endpoint, where: str, key: str) -> None:
    """Check the rules that types cannot express, for example, that the URL has no secrets."""
    rules = {
        "attempts": (1 <= endpoint.attempts <= _MOST_ATTEMPTS, f"1 to {_MOST_ATTEMPTS}"),
        "maxAnswerBytes": (1 <= endpoint.max_answer_bytes <= INT32, f"1 to {INT32}"),
        "timeout": (endpoint.timeout > 0, "more than 0s"),
        "connectTimeout": (endpoint.connect_timeout > 0, "more than 0s"),
        "passwordFile": (
            bool(endpoint.username) == bool(endpoint.password_file),
            "username and passwordFile, both or neither",
        ),
        "tokenFile": (not (endpoint.token_file and endpoint.username), "a token or a username, not both"),
        "clientKeyFile": (
            not endpoint.client_key_file or bool(endpoint.client_cert_file),
            "clientCertFile as well",
        ),
        "username": (":" not in (endpoint.username or ""), "a name without a colon"),
        "url": (plain_http(endpoint.url), "http(s)://host[:port][/path], without user, query or fragment"),
    }
    for name, (holds, expected) in rules.items():
        if not holds:
            raise ConfigError(f"{where}: {key}.{name}: expected {expected}")


def plain_http(url: str) -> bool:
    """Return whether *url* is an HTTP URL with a host and without user, query and fragment."""
    if not usable_url(url):
        return False
    parts = urlsplit(url)
    return not any((parts.username, parts.password, parts.query, parts.fragment))


def usable_url(url: str) -> bool:
    """Return whether *url* is a valid HTTP URL with a host."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if the port is not a number
        (parts.hostname or "").encode("idna")  # raises for invalid host names, as resolvers do
    except ValueError:
        return False
    readable = url.isprintable() and not any(character in url for character in ' "<>\\^`{|}')  # RFC 3986, appendix A
    return readable and parts.scheme in {"http", "https"} and bool(parts.hostname)


def decode(shape: type, value: object) -> object:
    """Decode types that msgspec does not support (the `dec_hook`)."""
    if shape is Duration:
        return Duration.parse(value)
    raise NotImplementedError(f"no decoder for {shape}")


def _parse(text: str) -> object:
    """Parse text that begins like JSON as JSON, for better error messages, and all other text as YAML."""
    if text.lstrip().startswith(("{", "[")):
        return json.loads(text, object_pairs_hook=unique)
    return yaml.load(text, Loader=_UniqueKeys)  # noqa: S506 -- a SafeLoader


def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the pairs as a dict, but reject duplicate keys (an `object_pairs_hook` of json)."""
    document: dict[str, object] = {}
    for key, value in pairs:
        if key in document:
            raise ValueError(f"the key {key!r} occurs twice")
        document[key] = value
    return document


class _UniqueKeys(yaml.SafeLoader):
    """A YAML loader that rejects duplicate keys, which YAML forbids and PyYAML accepts."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                line = node.start_mark.line + 1
                raise ValueError(f"the key {key!r} occurs twice in the mapping that begins in line {line}")
        return super().construct_mapping(node, deep)
