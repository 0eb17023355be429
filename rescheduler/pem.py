"""Certificates and keys in PEM files, loaded into a TLS context: an error names the file that is wrong."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rescheduler import files
from rescheduler.errors import ConfigError

_OF_ANOTHER: Final = "KEY_VALUES_MISMATCH"


@dataclass(frozen=True, slots=True)
class File:
    name: str  #: the flag or the key that named it, for messages
    path: Path
    inline: bool = False  #: the key holds the content itself, and *path* is a copy of it

    def __str__(self) -> str:
        return self.name if self.inline else f"{self.name} {files.printable(self.path)}"

    def read(self) -> bytes:
        """Raises ConfigError."""
        try:
            return files.read_bytes(self.path)
        except OSError as error:
            raise ConfigError(f"{self}: cannot be read: {reason(error)}") from error


def trust(context: ssl.SSLContext, authority: File) -> None:
    """Accept certificates of *authority*. Raises ConfigError, which names the file."""
    _check(authority)
    try:
        context.load_verify_locations(cafile=authority.path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{authority}: no usable PEM certificate: {reason(error)}") from error


def present(context: ssl.SSLContext, certificate: File, key: File | None = None) -> None:
    """Present *certificate*, with *key*, or with the key that its own file holds.

    Raises ConfigError, which names the file that is wrong, and both where they do not belong together.
    """
    for file in filter(None, (certificate, key)):
        _check(file)
    try:
        # The callable stands for "no password"; without it OpenSSL would ask at the terminal.
        context.load_cert_chain(certificate.path, key.path if key else None, password=lambda: b"")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(_wrong(certificate, key, error)) from error


def _check(file: File) -> None:
    try:
        files.check(file.path)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {reason(error)}") from error


def _wrong(certificate: File, key: File | None, error: OSError) -> str:
    """Which of the two files *error* is about; OpenSSL does not tell."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=certificate.path)
    except (OSError, ssl.SSLError) as own:
        return f"{certificate}: no usable PEM certificate: {reason(own)}"
    if getattr(error, "reason", None) == _OF_ANOTHER:
        holder = f"{certificate}, {key}" if key else f"{certificate}"
        return f"{holder}: the private key is not that of the certificate"
    if key is None:
        return f"{certificate}: no usable PEM private key, which is expected in the certificate's file"
    return f"{key}: no usable PEM private key: expected one without a password"


def reason(error: Exception) -> str:
    """Why, in a few words."""
    match error:
        case ssl.SSLError(reason=str() as text):
            return text.replace("_", " ").lower()
        case ssl.SSLError():
            return "it holds none"
        case OSError(strerror=str() as text):
            return text
        case UnicodeDecodeError():
            return "it is not UTF-8"
    return type(error).__name__
