"""The PEM files of mutual TLS, reloaded when they change."""

import logging
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from rescheduler.errors import ConfigError, UsageError
from rescheduler.net import pem
from rescheduler.net.pem import PemFile

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pems:
    key: bytes
    cert: bytes
    ca: bytes

    def __repr__(self) -> str:
        return "Pems(…)"  # the contents include a private key


#: The flag that permits a listener without certificates.
PLAINTEXT: Final = "--insecure-plaintext"

#: A flag and its value, which is a path.
Named: TypeAlias = tuple[str, Path | None]


def of_listener(key: Named, cert: Named, ca: Named, *, plaintext: bool, permitted: bool) -> "Certificates | None":
    """Return a listener's certificates; `None` for plain text, which requires *permitted*.

    *plaintext* states whether the flag for plain text was set. Raises UsageError for an invalid combination of flags,
    and ConfigError for invalid files.
    """
    named = (key, cert, ca)
    files = [PemFile(name, path) for name, path in named if path is not None]
    names = f"{cert[0]}, {key[0]} and {ca[0]}"
    if plaintext and files:
        raise UsageError(f"{PLAINTEXT}: expected without {names}")
    if permitted and not files:
        return None
    if len(files) < len(named):
        raise UsageError(f"{names}: expected all three, for mutual TLS" + ("" if files else f", or {PLAINTEXT}"))
    return Certificates(key=files[0], cert=files[1], ca=files[2])


class Certificates:
    """Our certificate, its key, and the CA that must have signed the peer's certificate."""

    def __init__(self, *, key: PemFile, cert: PemFile, ca: PemFile) -> None:
        """Read the files. Raises ConfigError if they are invalid."""
        self._key, self._cert, self._ca = key, cert, ca
        self._lock = threading.Lock()
        self.current = self._seen = self._read()
        self.server_context = self._check()  #: for servers, from the current files; clients must present a certificate

    def renewed(self) -> Pems | None:
        """Return the files' contents if they have changed and are valid. Invalid files are logged once and ignored."""
        with self._lock:
            try:
                pems = self._read()
                if pems == self._seen:
                    return None
                self._seen = pems
                context = self._check()
                if self._read() != pems:
                    self._seen = self.current  # the files are being written; read them again on the next call
                    return None
            except ConfigError as error:
                log.warning("the reloaded certificates are invalid; keeping the old ones: %s", error)
                return None
            if pems == self.current:
                return None
            self.current, self.server_context = pems, context
        log.warning("%s: the certificate changed; using the new one", self._cert)
        return pems

    def _read(self) -> Pems:
        return Pems(self._key.read(), self._cert.read(), self._ca.read())

    def _check(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        pem.present(context, self._cert, self._key)
        pem.trust(context, self._ca)
        return context
