"""Secrets from files, read on each use, so that rotation needs no restart, and kept out of logs and errors."""

import base64
import contextlib
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from rescheduler.errors import AuthError, ConfigError
from rescheduler.net import files, pem
from rescheduler.net.config_files import Endpoint
from rescheduler.net.pem import PemFile

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
            pem.trust(context, PemFile("caFile", self._ca))
        if self._cert:
            key = PemFile("clientKeyFile", self._key) if self._key else None
            pem.present(context, PemFile("clientCertFile", self._cert), key)
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
            raise AuthError(f"{PemFile(name, self._secret_file)}: cannot be read: {pem.reason(error)}") from error
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
