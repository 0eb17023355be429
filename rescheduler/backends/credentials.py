"""Secrets from files: read when they are needed, so that rotation needs no restart, and kept out of all texts."""

import base64
import contextlib
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from rescheduler import files, pem
from rescheduler.backends.base import AuthError, ConfigError
from rescheduler.backends.config import Endpoint
from rescheduler.pem import File

_KEYS: Final = re.compile(r"\b(?:caFile|clientCertFile|clientKeyFile|passwordFile|tokenFile)\b")


@contextlib.contextmanager
def keys_as(spelled: Callable[[str], str], where: str = "") -> Iterator[None]:
    """In the block, ConfigErrors about an endpoint's files begin with *where*, and have its keys as *spelled* says."""
    try:
        yield
    except ConfigError as error:
        text = _KEYS.sub(lambda key: spelled(key[0]), str(error))
        raise ConfigError(f"{where}: {text}" if where else text) from error


def is_token(text: str) -> bool:
    """Whether *text* can stand in a header as it is: a header has no blanks at its ends."""
    return bool(text) and text.isascii() and text.isprintable() and text == text.strip()


class Credentials:
    """What an endpoint wants to see: a bearer token or a password, a client certificate; and whom we trust.

    Relative paths count from *folder*. ConfigError if a file cannot be used at the start, AuthError if it cannot
    be read later on.
    """

    def __init__(self, endpoint: Endpoint, folder: Path, token: str = "", password: str | None = None) -> None:
        """*token* is a bearer token, *password* the user's; the files of *endpoint* are not asked for one then."""

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
        """The header that proves who we are, from the secret as it is in the file."""
        secret = self._secret()
        if secret is None:
            return {}
        if self._username is None:
            return {"authorization": f"Bearer {secret}"}
        pair = base64.b64encode(f"{self._username}:{secret}".encode()).decode("ascii")
        return {"authorization": f"Basic {pair}"}

    def redact(self, text: str) -> str:
        """*text* without our secret, should the other side have echoed it."""
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
        """The context for new connections, with the certificates as they are on disk.

        A CA that leaves the file stays trusted until a restart: a context can only learn.
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
            pem.trust(context, File("caFile", self._ca))
        if self._cert:
            key = File("clientKeyFile", self._key) if self._key else None
            pem.present(context, File("clientCertFile", self._cert), key)
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
            raise AuthError(f"{File(name, self._secret_file)}: cannot be read: {pem.reason(error)}") from error
        if not (secret and secret.isprintable() if self._username else is_token(secret)):
            raise AuthError(f"{name} {self._secret_file}: expected one line of printable characters")
        return secret


def _stamp(path: Path | None) -> object:
    if path is None:
        return None
    try:
        stat = path.stat()
    except (OSError, ValueError):  # ValueError: a NUL character in it
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
