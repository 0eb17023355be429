"""The address of an API server with its TLS settings, its connection pool, and the kubeconfig files that name it."""

import base64
import functools
import logging
import os
import shutil
import ssl
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.request import getproxies_environment

import urllib3
import yaml

from rescheduler.errors import UsageError
from rescheduler.net import files

#: Connections in the pool: one watch per kind, and parallel evictions.
POOL_SIZE: Final = 64

log = logging.getLogger(__name__)

#: The keys of a kubeconfig that name PEM files.
TLS_KEYS: Final = ("certificate-authority", "client-certificate", "client-key")


@dataclass(frozen=True, slots=True)
class ApiServerEndpoint:
    """The URL of an API server without a trailing slash, and how to connect to it."""

    host: str
    authority: str | None = None  #: file of CA certificates; None: those of the system
    certificate: str | None = None  #: file of the client certificate
    key: str | None = None  #: file of its key; None: in the file of the certificate
    verify: bool = True  #: check the certificate of the server
    server_name: str | None = None  #: expected in the certificate of the server; None: the name in the URL
    proxy: str | None = None  #: URL of the proxy in the kubeconfig; None: that of the environment, if any

    def check(self, name: str, keys: Mapping[str, str]) -> None:
        """Check the certificates, which the pool would check only at its first connection.

        *keys* maps each of TLS_KEYS to the key that is set in the kubeconfig. Raises ConfigError with *name* and the
        wrong key.
        """

        def file(path: str | None, key: str) -> files.PemFile | None:
            named = keys.get(key, key)
            return files.PemFile(f"{name}: {named}", Path(path), inline=named.endswith("-data")) if path else None

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority, certificate, key = map(file, (self.authority, self.certificate, self.key), TLS_KEYS)
        if authority:
            files.trust(context, authority)
        if certificate:
            files.present(context, certificate, key)
        if not self.verify:
            # urllib3 would warn at every connection, with its own source lines.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
            _warn_unverified(name)

    @property
    def proxied(self) -> bool:
        """Whether the kubeconfig or the environment sets a proxy for this server, ignoring ``NO_PROXY``."""
        environment = getproxies_environment()
        return bool(self.proxy or environment.get(urllib.parse.urlsplit(self.host).scheme) or environment.get("all"))

    def direct_pool(self) -> urllib3.PoolManager:
        """Return a pool of connections without a proxy."""
        options: dict[str, Any] = {
            "maxsize": POOL_SIZE,
            "retries": False,
            "cert_reqs": ssl.CERT_REQUIRED if self.verify else ssl.CERT_NONE,
            "ca_certs": self.authority,
            "cert_file": self.certificate,
            "key_file": self.key,
        }
        if self.server_name:
            options["server_hostname"] = self.server_name
        return urllib3.PoolManager(**options)


@functools.cache
def _warn_unverified(name: str) -> None:
    """Log the warning once, however often the credentials are renewed."""
    log.warning("%s: insecure-skip-tls-verify: the certificate of the API server is not checked", name)


# Read and check kubeconfig files. Errors name only files and entries, and never contain a value of a user entry.

#: Auth providers that the official client supports.
AUTH_PROVIDERS: Final = ("gcp", "oidc")

_SECTIONS: Final = ("clusters", "contexts", "users")


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a kubeconfig, and the folder of its file. Relative paths in the entry are relative to that folder."""

    value: Mapping[str, Any]
    folder: Path

    def path(self, key: str) -> str | None:
        """Return the path of the file that *key* names; None if there is none, or if the entry has inline data."""
        named = self.value.get(key)
        return os.path.normpath(self.folder / str(named)) if named and not self.inline(key) else None

    def inline(self, key: str) -> str | None:
        """Return the inline data that replaces the file *key*, if any."""
        data = self.value.get(data_key(key))
        return str(data) if data else None


class Entries:
    """The context, cluster and user of one or more kubeconfig files.

    The files are merged as kubectl does: the first entry with a name takes precedence. Errors contain only names.
    """

    def __init__(self, paths: str, context: str | None) -> None:
        """Read the existing files among *paths*, which are separated by ``os.pathsep``. Raises UsageError."""
        self._paths = paths
        self.files = _present(paths)
        contents = [(path.parent.absolute(), _content(path)) for path in self.files]
        self._sections = {section: _merged(contents, section) for section in _SECTIONS}
        named = (content.get("current-context") for _, content in contents)
        self.context = context or next((str(name) for name in named if name), "")
        if not self.context:
            raise UsageError(f"kubeconfig {paths}: no current-context; expected one, or --context")
        chosen = self._named("contexts", "context", self.context).value
        self.cluster = self._named("clusters", "cluster", str(chosen.get("cluster", "")))
        if not str(self.cluster.value.get("server", "")).startswith(("http://", "https://")):
            raise UsageError(
                f"kubeconfig {paths}: the cluster of context {self.context} has no server; expected an https URL"
            )
        user = chosen.get("user")
        self.user = self._named("users", "user", str(user)) if user else Entry({}, Path.cwd())

    def check(self, name: str) -> None:
        """Check the entries before they are used. Raises UsageError with a message that starts with *name*."""
        _check_data(self.user.value, name)
        _check_data(self.cluster.value, name)
        _check_exec(self.user.value.get("exec"), name)
        _check_provider(self.user.value.get("auth-provider"), name)
        keys = dict.fromkeys(("tokenFile", "client-certificate", "client-key"), self.user)
        for key, entry in {"certificate-authority": self.cluster, **keys}.items():
            if path := entry.path(key):
                try:
                    files.check(path)
                except OSError as error:
                    text = f"{name}: {key} {files.printable(str(entry.value[key]))}: {error.strerror}"
                    raise UsageError(text) from None

    def _named(self, section: str, item: str, name: str) -> Entry:
        entries = self._sections[section]
        if name not in entries:
            known = ", ".join(sorted(entries)) or "none"
            raise UsageError(f"kubeconfig {self._paths}: no {item} {name!r}; expected one of: {known}")
        value = entries[name].value.get(item)
        return Entry(value if isinstance(value, Mapping) else {}, entries[name].folder)


def _present(paths: str) -> tuple[Path, ...]:
    """Return the files of *paths* that exist. Raises UsageError if there is none."""
    try:
        named = [Path(part).expanduser() for part in paths.split(os.pathsep) if part]
    except RuntimeError as error:
        raise UsageError(f"kubeconfig {paths}: there is no home directory; specify the full path") from error
    present = tuple(path for path in named if _exists(path))
    if not present:
        raise UsageError(f"kubeconfig {files.printable(paths)}: no such file")
    return present


def _merged(contents: Sequence[tuple[Path, Mapping[str, Any]]], section: str) -> Mapping[str, Entry]:
    """Return the entries of a section of all files, by name."""
    merged: dict[str, Entry] = {}
    for folder, content in contents:
        for entry in content.get(section) or ():
            merged.setdefault(str(entry["name"]), Entry(entry, folder))
    return merged


def _content(path: Path) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(files.read_text(path))
    except OSError as error:
        raise UsageError(f"kubeconfig {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"kubeconfig {path}: expected YAML, found bytes that are not UTF-8") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UsageError(f"kubeconfig {path}: not YAML{where}") from None
    if not isinstance(content, dict) or not all(
        isinstance(content.get(section) or [], list)
        and all(isinstance(entry, dict) and "name" in entry for entry in content.get(section) or [])
        for section in _SECTIONS
    ):
        raise UsageError(f"kubeconfig {path}: expected lists of named clusters, contexts and users")
    return content


def data_key(key: str) -> str:
    """Return the key for inline data that replaces the file key *key*."""
    return "token" if key == "tokenFile" else f"{key}-data"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except ValueError:  # the path contains a NUL character
        return False


def _check_data(entry: Mapping[str, Any], name: str) -> None:
    """Check that inline data is valid base64. Raises UsageError."""
    for key, value in entry.items():
        if str(key).endswith("-data"):
            try:
                base64.standard_b64decode(value)
            except (ValueError, TypeError):
                raise UsageError(f"{name}: {key}: expected base64") from None


def _check_exec(plugin: Any, name: str) -> None:
    """Check that the exec plugin can be run. Raises UsageError."""
    if plugin is None:
        return
    command = plugin.get("command") if isinstance(plugin, Mapping) else None
    if not command or "apiVersion" not in plugin:
        raise UsageError(f"{name}: the user's exec plugin needs a command and an apiVersion")
    relative = os.sep in str(command) and not Path(str(command)).is_absolute()  # relative to the kubeconfig's folder
    if not relative and shutil.which(str(command)) is None:
        hint = " ".join(str(plugin.get("installHint") or "").split())
        raise UsageError(f"{name}: exec plugin {command} not found on the PATH" + (f" ({hint})" if hint else ""))


def _check_provider(provider: Any, name: str) -> None:
    """Check that the official client supports the auth provider. Raises UsageError."""
    kind = provider.get("name") if isinstance(provider, Mapping) else None
    if provider is not None and kind not in AUTH_PROVIDERS:
        raise UsageError(f"{name}: auth provider {kind!r} is not supported; expected an exec plugin, or gcp or oidc")
