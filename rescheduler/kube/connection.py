"""The address of the API server and our credentials, from a kubeconfig or from the pod's ServiceAccount.

The official client's loaders read tokens, client certificates, exec plugins and auth providers. This module adds
one-line errors without secrets, and reads credentials again when they expire. Exceptions of the loaders can contain a
whole user entry of a kubeconfig with its token, so their text is used only if it is known to contain no secret.
"""

import contextlib
import datetime as dt
import logging
import os
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import urllib3
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.incluster_config import InClusterConfigLoader
from kubernetes.config.kube_config import KubeConfigLoader

from rescheduler.errors import Unauthorized, UsageError
from rescheduler.kube.asking import enable_send_checks
from rescheduler.kube.kubeconfig import Entries, check_data, check_exec, check_provider, data_key, merged_files
from rescheduler.net import pem

DEFAULT_KUBECONFIG: Final = "~/.kube/config"
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

#: Connections in the pool: one watch per kind, and parallel evictions.
POOL_SIZE: Final = 64

#: How often token files are read again; the same interval as in client-go. Tokens are rotated long before they expire.
TOKEN_FILE_SECONDS: Final = 60.0

#: The keys of a kubeconfig that name PEM files.
_TLS_KEYS: Final = ("certificate-authority", "client-certificate", "client-key")


@dataclass(frozen=True, slots=True)
class Login:
    """The credentials as they were when last read. ``repr`` shows no secret."""

    host: str
    headers: Mapping[str, str]
    pool: urllib3.PoolManager
    tls: tuple[object, ...]  #: TLS settings of the pool; a login with equal settings can reuse the pool
    reread_after: float | None = None  #: seconds after which to read the credentials again; None: never
    expires: dt.datetime | None = None

    def __repr__(self) -> str:
        return f"Login({self.host})"


class Source(Protocol):
    """A source of credentials that can be read repeatedly."""

    @property
    def name(self) -> str:
        """The file and the context, or the ServiceAccount, for error messages."""
        ...

    def login(self) -> Login:
        """Read the credentials. Raises UsageError, or Unauthorized if a plugin returns none."""
        ...


def source(kubeconfig: str | None = None, context: str | None = None, in_cluster: bool | None = None) -> Source:  # noqa: FBT001
    """Return the source of the credentials to use.

    A given file or context takes precedence. Otherwise *in_cluster* decides. If that is None, it is the ServiceAccount
    in a pod, and elsewhere ``$KUBECONFIG`` (a list of files, merged as kubectl does) or ``~/.kube/config``.
    """
    if in_cluster is None:
        in_cluster = bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and SERVICE_ACCOUNT.exists()
    if in_cluster and not kubeconfig and not context:
        return ServiceAccount()
    return Kubeconfig(kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG, context)


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """The token and the CA certificate that the kubelet mounts into every pod."""

    directory: Path = SERVICE_ACCOUNT

    @property
    def name(self) -> str:
        return f"ServiceAccount in {self.directory}"

    def login(self) -> Login:
        settings = Configuration()
        loader = InClusterConfigLoader(
            token_filename=str(self.directory / "token"),
            cert_filename=str(self.directory / "ca.crt"),
            try_refresh_token=False,
        )
        try:
            loader.load_and_set(settings)
        except (ConfigException, OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"not in a cluster: {_plain(error)} (expected $KUBERNETES_SERVICE_HOST, "
                f"$KUBERNETES_SERVICE_PORT and {self.directory}/token; outside of a pod use --kubeconfig)"
            ) from error
        return _login(self.name, settings, {}, reread_after=TOKEN_FILE_SECONDS)


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """One kubeconfig file, or several joined by ``os.pathsep``. *context* None means the current-context."""

    paths: str
    context: str | None = None

    @property
    def name(self) -> str:
        return f"kubeconfig {self.paths}" + (f", context {self.context}" if self.context else "")

    def login(self) -> Login:
        merged = merged_files(self.paths)
        entries = Entries(self.paths, merged, self.context)
        user = entries.user()
        check_data(user, self.name)
        check_data(entries.cluster, self.name)
        check_exec(user.get("exec"), self.name)
        check_provider(user.get("auth-provider"), self.name)
        entries.check_files(self.name)
        settings = Configuration()
        with _loader_errors() as logged:
            try:
                loader = KubeConfigLoader(
                    merged.config,
                    active_context=entries.context,
                    config_base_path=None,
                    config_persister=merged.save_changes,
                )
                loader.load_and_set(settings)
            except Exception as error:  # noqa: BLE001 - the loaders let through whatever their parsers raise
                raise UsageError(f"{self.name}: {_reason(error)}") from None
        if user.get("exec") and not (settings.api_key or settings.cert_file):
            why = "; ".join(logged) or "it printed none"
            raise Unauthorized(f"{self.name}: exec plugin {user['exec']['command']} gave no credentials: {why}")
        settings.refresh_api_key_hook = None
        by_file = TOKEN_FILE_SECONDS if user.get("tokenFile") else None
        entry = {**entries.cluster, **user}
        keys = {key: data_key(key) if data_key(key) in entry else key for key in _TLS_KEYS}
        return _login(self.name, settings, keys, reread_after=by_file, expires=getattr(loader, "expiry", None))


@contextlib.contextmanager
def _loader_errors() -> Iterator[list[str]]:
    """Capture the errors that the loader logs to the root logger instead of raising them."""
    logged: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        if "kubernetes" not in record.pathname:
            return True
        logged.append(" ".join(record.getMessage().split()))
        return False

    root, silent = logging.getLogger(), logging.NullHandler()
    root.addFilter(keep)
    root.addHandler(silent)  # logging.error() configures a root logger that has no handler
    try:
        yield logged
    finally:
        root.removeFilter(keep)
        root.removeHandler(silent)


def _login(
    name: str,
    settings: Configuration,
    keys: Mapping[str, str],
    *,
    reread_after: float | None,
    expires: dt.datetime | None = None,
) -> Login:
    _check_tls(name, settings, keys)
    settings.connection_pool_maxsize = POOL_SIZE
    settings.retries = False
    kept = ("ssl_ca_cert", "cert_file", "key_file", "verify_ssl", "tls_server_name", "proxy")
    headers = {}
    if token := settings.get_api_key_with_prefix("BearerToken", alias="authorization"):
        headers["authorization"] = " ".join(token.split())  # files end with a newline
    return Login(
        host=settings.host.rstrip("/"),
        headers=headers,
        pool=enable_send_checks(RESTClientObject(settings).pool_manager),
        tls=(settings.host, *(getattr(settings, key) for key in kept)),
        reread_after=reread_after,
        expires=expires,
    )


def _check_tls(name: str, settings: Configuration, keys: Mapping[str, str]) -> None:
    """Check the certificates, which the pool would only do at its first connection.

    *keys* maps each key of a file to the key that is set in the kubeconfig. Raises UsageError with the wrong key.
    """

    def file(path: str | None, key: str) -> pem.PemFile | None:
        named = keys.get(key, key)
        return pem.PemFile(f"{name}: {named}", Path(path), inline=named.endswith("-data")) if path else None

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    paths = (settings.ssl_ca_cert, settings.cert_file, settings.key_file)
    authority, certificate, key = map(file, paths, _TLS_KEYS)
    if authority:
        pem.trust(context, authority)
    if certificate:
        pem.present(context, certificate, key)


def _plain(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _reason(error: Exception) -> str:
    """Return the loader's message if it cannot contain a secret."""
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, ConfigException) and str(error).startswith("File does not exist"):
        return _plain(error)
    return f"loading the credentials failed with {type(error).__name__}"
