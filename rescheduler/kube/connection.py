"""The address of the API server and our credentials, from a kubeconfig or from the pod's ServiceAccount.

Tokens, certificates and passwords are read here. Exec plugins, auth providers and proxies are left to the official
client (:mod:`rescheduler.kube.loaders`), which is imported only where they are used.
"""

import atexit
import base64
import datetime as dt
import functools
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import urllib3

from rescheduler.errors import UsageError
from rescheduler.kube.endpoint import TLS_KEYS, ApiServerEndpoint, Entries, Entry, data_key
from rescheduler.kube.responses import enable_send_checks
from rescheduler.net import files

DEFAULT_KUBECONFIG: Final = "~/.kube/config"
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

#: How often token files are read again; the same interval as in client-go. Tokens are rotated long before they expire.
TOKEN_FILE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Login:
    """The credentials as last read. ``repr`` shows no secret."""

    host: str
    headers: Mapping[str, str]
    pool: urllib3.PoolManager
    endpoint: ApiServerEndpoint  #: the settings of the pool; a login with equal settings can reuse the pool
    reread_after: float | None = None  #: seconds after which to read the credentials again; None: never
    expires: dt.datetime | None = None

    def __repr__(self) -> str:
        return f"Login({self.host})"


class CredentialSource(Protocol):
    """A source of credentials that can be read repeatedly."""

    @property
    def name(self) -> str:
        """The file and the context, or the ServiceAccount, for error messages."""
        ...

    def login(self) -> Login:
        """Read the credentials. Raises UsageError, or Unauthorized if a plugin returns none."""
        ...


def source(
    kubeconfig: str | None = None,
    context: str | None = None,
    in_cluster: bool | None = None,  # noqa: FBT001
) -> CredentialSource:
    """Return the source of the credentials to use.

    A given file or context takes precedence. Otherwise *in_cluster* decides. If that is None, the source is the
    ServiceAccount in a pod, and elsewhere ``$KUBECONFIG`` (a list of files, merged as kubectl does) or
    ``~/.kube/config``.
    """
    if in_cluster is None:
        in_cluster = in_pod()
    if in_cluster and not kubeconfig and not context:
        return ServiceAccount()
    return Kubeconfig(kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG, context)


def in_pod() -> bool:
    """Return whether this process runs in a pod with a ServiceAccount."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and SERVICE_ACCOUNT.exists()


def has_default_kubeconfig() -> bool:
    """Return whether the kubeconfig exists that is used if none is named."""
    return Path(DEFAULT_KUBECONFIG).expanduser().exists()


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """The token and the CA certificate that the kubelet mounts into every pod."""

    directory: Path = SERVICE_ACCOUNT

    @property
    def name(self) -> str:
        return f"ServiceAccount in {self.directory}"

    def login(self) -> Login:
        host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
        if not host or not port:
            raise UsageError(self._expected("the address of the API server is not set"))
        token, authority = self._content("token"), self.directory / "ca.crt"
        self._content("ca.crt")
        bracketed = f"[{host}]" if ":" in host else host
        return _login(
            self.name,
            ApiServerEndpoint(f"https://{bracketed}:{port}", authority=str(authority)),
            f"Bearer {token}",
            reread_after=TOKEN_FILE_SECONDS,
        )

    def _content(self, name: str) -> str:
        """Return the content of a file of the directory. Raises UsageError if it cannot be read or is empty."""
        path = self.directory / name
        try:
            content = files.read_text(path).strip()
        except OSError as error:
            raise UsageError(self._expected(f"{path} cannot be read: {error.strerror}")) from error
        except UnicodeDecodeError as error:
            raise UsageError(self._expected(f"{path} is not UTF-8")) from error
        if not content:
            raise UsageError(self._expected(f"{path} is empty"))
        return content

    def _expected(self, why: str) -> str:
        return (
            f"not in a cluster: {why} (expected $KUBERNETES_SERVICE_HOST, $KUBERNETES_SERVICE_PORT and "
            f"{self.directory}/token; outside of a pod use --kubeconfig)"
        )


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """One kubeconfig file, or several joined by ``os.pathsep``. *context* None means the current-context."""

    paths: str
    context: str | None = None

    @property
    def name(self) -> str:
        return f"kubeconfig {self.paths}" + (f", context {self.context}" if self.context else "")

    def login(self) -> Login:
        entries = Entries(self.paths, self.context)
        entries.check(self.name)
        user = entries.user.value
        by_file = TOKEN_FILE_SECONDS if user.get("tokenFile") else None
        entry = {**entries.cluster.value, **user}
        keys = {key: data_key(key) if entry.get(data_key(key)) else key for key in TLS_KEYS}
        plugin = user.get("exec")
        if plugin or user.get("auth-provider"):
            from rescheduler.kube import loaders  # noqa: PLC0415 - imported on demand

            command = str(plugin["command"]) if plugin else None
            loaded = loaders.load(self.name, entries.files, entries.context, command)
            return _login(
                self.name, loaded.endpoint, loaded.authorization, keys, reread_after=by_file, expires=loaded.expires
            )
        return _login(
            self.name, _endpoint(entries), _authorization(self.name, entries.user), keys, reread_after=by_file
        )


def _endpoint(entries: Entries) -> ApiServerEndpoint:
    cluster, user = entries.cluster, entries.user
    host = str(cluster.value["server"]).rstrip("/")
    tls = host.startswith("https")
    return ApiServerEndpoint(
        host,
        authority=_file(cluster, "certificate-authority") if tls else None,
        certificate=_file(user, "client-certificate") if tls else None,
        key=_file(user, "client-key") if tls else None,
        verify=not cluster.value.get("insecure-skip-tls-verify", False),
        server_name=cluster.value.get("tls-server-name"),
        proxy=cluster.value.get("proxy-url"),
    )


def _authorization(name: str, user: Entry) -> str | None:
    """Return the header for the token or the password of *user*, if there is any. Raises UsageError."""
    if token := user.inline("tokenFile"):
        return f"Bearer {token}"
    if path := user.path("tokenFile"):
        try:
            return f"Bearer {files.read_text(path).strip()}"
        except OSError as error:
            raise UsageError(f"{name}: tokenFile {files.printable(path)}: {error.strerror}") from error
        except UnicodeDecodeError:
            raise UsageError(f"{name}: tokenFile {files.printable(path)}: expected UTF-8") from None
    if "username" in user.value and "password" in user.value:
        secret = f"{user.value['username']}:{user.value['password']}"
        return urllib3.util.make_headers(basic_auth=secret)["authorization"]
    return None


def _file(entry: Entry, key: str) -> str | None:
    """Return the path of the file *key*, or of a copy of its inline data: TLS contexts read files only."""
    if (data := entry.inline(key)) is None:
        return entry.path(key)
    content = base64.standard_b64decode(data)
    if not Path(path := _copied(content)).exists():  # deleted together with other temporary files
        _copied.cache_clear()
        path = _copied(content)
    return path


@functools.cache
def _copied(content: bytes) -> str:
    """Return the path of a copy of *content* that is gone when this process has ended, also if it was killed.

    Only Linux has files in memory. Elsewhere, the copy is deleted when the process exits.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("rescheduler")  # stays open: the path is valid as long as it is
        with open(descriptor, "wb", closefd=False) as written:
            written.write(content)
        return f"/proc/self/fd/{descriptor}"
    with tempfile.NamedTemporaryFile(prefix="rescheduler-", delete=False) as file:
        atexit.register(Path(file.name).unlink, missing_ok=True)
        file.write(content)
    return file.name


def _login(
    name: str,
    endpoint: ApiServerEndpoint,
    authorization: str | None,
    keys: Mapping[str, str] | None = None,
    *,
    reread_after: float | None,
    expires: dt.datetime | None = None,
) -> Login:
    endpoint.check(name, keys or {})
    headers = {"authorization": " ".join(authorization.split())} if authorization else {}
    return Login(endpoint.host, headers, enable_send_checks(_pool(endpoint)), endpoint, reread_after, expires)


def _pool(endpoint: ApiServerEndpoint) -> urllib3.PoolManager:
    if not endpoint.proxied:
        return endpoint.direct_pool()
    from rescheduler.kube import loaders  # noqa: PLC0415 - imported on demand

    return loaders.proxied_pool(endpoint)
