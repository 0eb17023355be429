"""Load certificates and keys from PEM files into a TLS context. Errors name the file."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rescheduler.errors import ConfigError
from rescheduler.net import files

_OF_ANOTHER: Final = "KEY_VALUES_MISMATCH"


@dataclass(frozen=True, slots=True)
class PemFile:
    """A PEM file named by a flag or a configuration key."""

    name: str  #: the flag or key, for messages
    path: Path
    inline: bool = False  #: the key contains the content itself, and *path* is a copy of it

    def __str__(self) -> str:
        return self.name if self.inline else f"{self.name} {files.printable(self.path)}"

    def read(self) -> bytes:
        """Return the content. Raises ConfigError."""
        try:
            return files.read_bytes(self.path)
        except OSError as error:
            raise ConfigError(f"{self}: cannot be read: {reason(error)}") from error


def trust(context: ssl.SSLContext, authority: PemFile) -> None:
    """Make *context* trust certificates issued by *authority*. Raises ConfigError with the name of the file."""
    _check(authority)
    try:
        context.load_verify_locations(cafile=authority.path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{authority}: no usable PEM certificate: {reason(error)}") from error


def present(context: ssl.SSLContext, certificate: PemFile, key: PemFile | None = None) -> None:
    """Make *context* present *certificate* with *key*, or with the key in the certificate's own file.

    Raises ConfigError with the name of the wrong file, or of both if they do not match.
    """
    for file in filter(None, (certificate, key)):
        _check(file)
    try:
        # An empty password: without this callable, OpenSSL would prompt at the terminal.
        context.load_cert_chain(certificate.path, key.path if key else None, password=lambda: b"")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(_invalid_file_message(certificate, key, error)) from error


def _check(file: PemFile) -> None:
    try:
        files.check(file.path)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {reason(error)}") from error


def _invalid_file_message(certificate: PemFile, key: PemFile | None, error: OSError) -> str:
    """Return a message that names the invalid file, because OpenSSL's error does not."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=certificate.path)
    except (OSError, ssl.SSLError) as own:
        return f"{certificate}: no usable PEM certificate: {reason(own)}"
    if getattr(error, "reason", None) == _OF_ANOTHER:
        holder = f"{certificate}, {key}" if key else f"{certificate}"
        return f"{holder}: the private key does not match the certificate"
    if key is None:
        return f"{certificate}: no usable PEM private key; expected it in the certificate's file"
    return f"{key}: no usable PEM private key: expected one without a password"


def reason(error: Exception) -> str:
    """Return a short description of *error*."""
    match error:
        case ssl.SSLError(reason=str() as text):
            return text.replace("_", " ").lower()
        case ssl.SSLError():
            return "the file contains none"
        case OSError(strerror=str() as text):
            return text
        case UnicodeDecodeError():
            return "it is not UTF-8"
    return type(error).__name__
