"""Files that users name in flags or configurations: regular files only, and certificates and keys in PEM files."""

import errno
import os
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias

from rescheduler.errors import ConfigError, UsageError

if TYPE_CHECKING:
    import ssl

# Read files that users name in flags or configurations. Only regular files are read, so that reading never blocks.
#
# Opening a FIFO without a writer blocks, and a device may never end. So the type of the file is checked before the file
# is opened, and again afterwards.

#: Maximum size in bytes of a file that is read at once. Configurations, credentials and certificates are small.
MOST: Final = 16 << 20

_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def opened(path: Path | str) -> BinaryIO:
    """Open the regular file *path* for reading. Raises OSError with a readable message."""
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "a path cannot contain a NUL character")
    _check_kind(Path(path).stat())  # before open(), which has side effects on some devices
    handle = os.open(path, _FLAGS)
    try:
        _check_kind(os.fstat(handle))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def check(path: Path | str) -> None:
    """Check that *path* is a readable regular file before a library opens it. Raises OSError (see `opened`)."""
    opened(path).close()


def read_bytes(path: Path | str) -> bytes:
    """Return the content of the file, at most `MOST` bytes. Raises OSError (see `opened`)."""
    with opened(path) as file:
        content = file.read(MOST + 1)
    if len(content) > MOST:
        raise OSError(errno.EFBIG, f"it is larger than {MOST >> 20} MiB")
    return content


def read_text(path: Path | str) -> str:
    """Return the content of the file as UTF-8 text. Raises OSError (see `read_bytes`) and UnicodeDecodeError."""
    return read_bytes(path).decode("utf-8").replace("\r\n", "\n")


#: The name of the price file in a folder, which is the key in the ConfigMap that `rescheduler prices` writes.
PRICES: Final = "prices"


def price_file(path: Path) -> Path:
    """Return *path*, or the price file in it if it is a folder: a mounted ConfigMap."""
    return path / PRICES if path.is_dir() else path


def printable(path: Path | str) -> str:
    """Return *path* for a message, with unprintable characters escaped."""
    return str(path).encode("unicode_escape").decode("ascii") if not str(path).isprintable() else str(path)


def _check_kind(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "expected a regular file, not a FIFO, device or socket")


# Load certificates and keys from PEM files into a TLS context. Errors name the file.
#
# The module ssl is imported on demand: most commands only read other files, and the import takes time.

_OF_ANOTHER: Final = "KEY_VALUES_MISMATCH"


@dataclass(frozen=True, slots=True)
class PemFile:
    """A PEM file named by a flag or a configuration key."""

    name: str  #: the flag or key, for messages
    path: Path
    inline: bool = False  #: the key contains the content itself, and *path* is a copy of it

    def __str__(self) -> str:
        return self.name if self.inline else f"{self.name} {printable(self.path)}"

    def read(self) -> bytes:
        """Return the content. Raises ConfigError."""
        try:
            return read_bytes(self.path)
        except OSError as error:
            raise ConfigError(f"{self}: cannot be read: {reason(error)}") from error


def trust(context: "ssl.SSLContext", authority: PemFile) -> None:
    """Make *context* trust certificates issued by *authority*. Raises ConfigError with the name of the file."""
    _check(authority)
    try:
        context.load_verify_locations(cafile=authority.path)
    except OSError as error:
        raise ConfigError(f"{authority}: no usable PEM certificate: {reason(error)}") from error


def present(context: "ssl.SSLContext", certificate: PemFile, key: PemFile | None = None) -> None:
    """Make *context* present *certificate* with *key*, or with the key in the certificate's own file.

    Raises ConfigError with the name of the wrong file, or of both if they do not match.
    """
    for file in filter(None, (certificate, key)):
        _check(file)
    try:
        # An empty password: without this callable, OpenSSL would prompt at the terminal.
        context.load_cert_chain(certificate.path, key.path if key else None, password=lambda: b"")
    except OSError as error:
        raise ConfigError(_invalid_file_message(certificate, key, error)) from error


def _check(file: PemFile) -> None:
    try:
        check(file.path)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {reason(error)}") from error


def _invalid_file_message(certificate: PemFile, key: PemFile | None, error: OSError) -> str:
    """Return a message that names the invalid file, because OpenSSL's error does not."""
    import ssl  # noqa: PLC0415 - imported on demand

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=certificate.path)
    except OSError as own:
        return f"{certificate}: no usable PEM certificate: {reason(own)}"
    if getattr(error, "reason", None) == _OF_ANOTHER:
        holder = f"{certificate}, {key}" if key else f"{certificate}"
        return f"{holder}: the private key does not match the certificate"
    if key is None:
        return f"{certificate}: no usable PEM private key; expected it in the certificate's file"
    return f"{key}: no usable PEM private key: expected one without a password"


def reason(error: Exception) -> str:
    """Return a short description of *error*."""
    import ssl  # noqa: PLC0415 - imported on demand

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


# The PEM files of mutual TLS, reloaded when they change.


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
        import logging  # noqa: PLC0415 - imported on demand

        log = logging.getLogger(__name__)
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

    def _check(self) -> "ssl.SSLContext":
        import ssl  # noqa: PLC0415 - imported on demand

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        present(context, self._cert, self._key)
        trust(context, self._ca)
        return context
