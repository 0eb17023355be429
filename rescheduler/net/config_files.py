"""Configuration files in JSON or YAML, and secrets from files. Every error names the file and the key, no secret."""

import base64
import contextlib
import json
import re
import ssl
import threading
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar, get_args
from urllib.parse import urlsplit

import msgspec
import yaml

from predicates.texts import did_you_mean
from rescheduler import durations
from rescheduler.errors import AuthError, ConfigError
from rescheduler.net import files
from rescheduler.net.files import PemFile
from rescheduler.settings import ListenAddress

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
        raise ConfigError(f"{where}: cannot be read: {files.reason(error)}") from error
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
        raise ConfigError(f"{where}: {with_similar_key(error, shape)}") from error


_UNKNOWN_FIELD: Final = re.compile(r"unknown field `([^`]*)`")


def with_similar_key(error: msgspec.ValidationError, shape: Any) -> str:
    """Return the message of *error*, with the key of *shape* that an unknown one is likely to mean."""
    unknown = _UNKNOWN_FIELD.search(str(error))
    return f"{error}{did_you_mean(unknown[1], sorted(_keys_of(shape)))}" if unknown else str(error)


def _keys_of(shape: Any) -> set[str]:
    """Return the keys of *shape* and of all sections within it."""
    if not (isinstance(shape, type) and issubclass(shape, msgspec.Struct)):
        return set().union(*map(_keys_of, get_args(shape)))
    found = msgspec.structs.fields(shape)
    return {field.encode_name for field in found}.union(*(_keys_of(field.type) for field in found))


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


def private(url: str) -> bool:
    """Return whether traffic to *url* is encrypted or stays on this host."""
    parts = urlsplit(url)
    return parts.scheme == "https" or ListenAddress(parts.hostname or "", 0).loopback


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


# Secrets from files, read on each use, so that rotation needs no restart, and kept out of logs and errors.

_KEYS: Final = re.compile(r"\b(?:caFile|clientCertFile|clientKeyFile|passwordFile|tokenFile)\b")


@contextlib.contextmanager
def keys_as(spelled: Callable[[str], str], where: str = "") -> Iterator[None]:
    """Prefix ConfigErrors about an endpoint's files with *where*, and rename the keys in them as in *spelled*."""
    try:
        yield
    except ConfigError as error:
        text = _KEYS.sub(lambda key: spelled(key[0]), str(error))
        raise ConfigError(f"{where}: {text}" if where else text) from error


def is_token(text: str) -> bool:
    """Return whether *text* is valid as a token in a header: printable ASCII without surrounding whitespace."""
    return bool(text) and text.isascii() and text.isprintable() and text == text.strip()


class Credentials:
    """The credentials for an endpoint (bearer token or password, client certificate) and its trusted CAs.

    Relative paths are resolved against *folder*. Raises ConfigError if a file is invalid at the start, and AuthError
    if a file cannot be read later.
    """

    def __init__(self, endpoint: Endpoint, folder: Path, token: str = "", password: str | None = None) -> None:
        """Read the files of *endpoint*, without its secrets if a bearer *token* or the user's *password* is given."""

        def file(name: str | None) -> Path | None:
            return folder / name if name else None

        self._token, self._password = token, password
        self._username = endpoint.username
        self._secret_file = file(endpoint.token_file) or file(endpoint.password_file)
        self._ca, self._cert, self._key = (
            file(endpoint.ca_file),
            file(endpoint.client_cert_file),
            file(endpoint.client_key_file),
        )
        self._seen: tuple[object, ...] = ()
        self._lock = threading.Lock()
        self._tls = self._first_context()
        try:
            self._secret()
        except AuthError as error:
            raise ConfigError(str(error)) from error

    def __repr__(self) -> str:
        return f"Credentials(secret={self._secret_file}, certificate={self._cert}, ca={self._ca})"

    def headers(self) -> dict[str, str]:
        """Return the Authorization header with the current secret from the file."""
        secret = self._secret()
        if secret is None:
            return {}
        if self._username is None:
            return {"authorization": f"Bearer {secret}"}
        pair = base64.b64encode(f"{self._username}:{secret}".encode()).decode("ascii")
        return {"authorization": f"Basic {pair}"}

    def redact(self, text: str) -> str:
        """Replace our secret in *text*, in case the server has echoed it."""
        try:
            values = [*self.headers().values(), self._secret() or ""]
        except AuthError:
            return text
        for value in values:
            for part in (value, value.partition(" ")[2]):
                if part:
                    text = text.replace(part, "***")
        return text

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context for new connections, with the certificates that are currently on disk.

        A CA that was removed from the file is trusted until a restart, because a context cannot drop CAs.
        """
        with self._lock:
            if self._stamps() != self._seen:
                try:
                    self._load(self._tls)
                except ConfigError as error:
                    raise AuthError(str(error)) from error
        return self._tls

    def _first_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context() if self._ca is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        stamps = self._stamps()
        if self._ca:
            files.trust(context, PemFile("caFile", self._ca))
        if self._cert:
            key = PemFile("clientKeyFile", self._key) if self._key else None
            files.present(context, PemFile("clientCertFile", self._cert), key)
        self._seen = stamps

    def _stamps(self) -> tuple[object, ...]:
        return tuple(_stamp(path) for path in (self._ca, self._cert, self._key))

    def _secret(self) -> str | None:
        if self._token:
            return self._token
        if self._password is not None:
            return self._password
        if self._secret_file is None:
            return None
        name = "passwordFile" if self._username else "tokenFile"
        try:
            secret = files.read_text(self._secret_file).strip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise AuthError(f"{PemFile(name, self._secret_file)}: cannot be read: {files.reason(error)}") from error
        if not (secret and secret.isprintable() if self._username else is_token(secret)):
            raise AuthError(f"{name} {self._secret_file}: expected one line of printable characters")
        return secret


def _stamp(path: Path | None) -> object:
    if path is None:
        return None
    try:
        stat = path.stat()
    except (OSError, ValueError):  # ValueError: the path contains a NUL character
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
