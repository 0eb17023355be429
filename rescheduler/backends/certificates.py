"""The PEM files of mutual TLS, read again when they change."""

import logging
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from rescheduler import pem
from rescheduler.backends.base import ConfigError
from rescheduler.errors import UsageError
from rescheduler.pem import File

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pems:
    key: bytes
    cert: bytes
    ca: bytes

    def __repr__(self) -> str:
        return "Pems(…)"  # a key is in it


#: The flag that permits a listener to do without certificates.
PLAINTEXT: Final = "--insecure-plaintext"

#: A flag and the path that it was given.
Named: TypeAlias = tuple[str, Path | None]


def of_listener(key: Named, cert: Named, ca: Named, *, plaintext: bool, permitted: bool) -> "Certificates | None":
    """Those of a listener: all three files, or none, where plain text is *permitted*.

    *plaintext* says that the flag for it was given. Raises UsageError for files that do not belong together, and
    ConfigError for files of no use.
    """
    named = (key, cert, ca)
    files = [File(name, path) for name, path in named if path is not None]
    names = f"{cert[0]}, {key[0]} and {ca[0]}"
    if plaintext and files:
        raise UsageError(f"{PLAINTEXT}: expected without {names}")
    if permitted and not files:
        return None
    if len(files) < len(named):
        raise UsageError(f"{names}: expected all three, for mutual TLS" + ("" if files else f", or {PLAINTEXT}"))
    return Certificates(key=files[0], cert=files[1], ca=files[2])


class Certificates:
    """Our certificate, its key, and the authority that the other side's certificate must be of."""

    def __init__(self, *, key: File, cert: File, ca: File) -> None:
        """Raises ConfigError for files of no use."""
        self._key, self._cert, self._ca = key, cert, ca
        self._lock = threading.Lock()
        self.current = self._seen = self._read()
        self.server_context = self._check()  #: of the current files, for servers: callers must show a certificate

    def renewed(self) -> Pems | None:
        """What the files hold, if that is news and of use; broken files are told of once, and change nothing."""
        with self._lock:
            try:
                found = self._read()
                if found == self._seen:
                    return None
                self._seen = found
                context = self._check()
                if self._read() != found:
                    self._seen = self.current  # in the middle of a change: the next call looks again
                    return None
            except ConfigError as error:
                log.warning("the reloaded certificates are invalid; keeping the old ones: %s", error)
                return None
            if found == self.current:
                return None
            self.current, self.server_context = found, context
        log.warning("%s: the certificate changed, the new one is used", self._cert)
        return found

    def _read(self) -> Pems:
        return Pems(self._key.read(), self._cert.read(), self._ca.read())

    def _check(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        pem.present(context, self._cert, self._key)
        pem.trust(context, self._ca)
        return context
