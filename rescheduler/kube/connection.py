"""Where the API server is and who we are there: a kubeconfig, or the pod's own ServiceAccount.

The official client's loaders do the work (tokens, client certificates, exec plugins, auth providers); what
they leave out is done here: errors as one clear line without a secret in it, and credentials that are read
anew when they expire. The loaders' exceptions can quote the whole user entry of a kubeconfig, token and
all, so their text is passed on only where it is known to hold none.
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

from rescheduler import pem
from rescheduler.errors import Unauthorized, UsageError
from rescheduler.kube.asking import let_ask
from rescheduler.kube.kubeconfig import Entries, check_data, check_exec, check_provider, data_key, merged_files

DEFAULT_KUBECONFIG: Final = "~/.kube/config"
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

#: Connections kept open: a watch a kind, and evictions in parallel.
POOL_SIZE: Final = 64

#: Bound ServiceAccount tokens and token files are rotated long before they expire; a minute is client-go's.
TOKEN_FILE_SECONDS: Final = 60.0

#: The keys of a kubeconfig that name PEM files.
_TLS_KEYS: Final = ("certificate-authority", "client-certificate", "client-key")


@dataclass(frozen=True, slots=True)
class Login:
    """One reading of the credentials. ``repr`` shows no secret."""

    host: str
    headers: Mapping[str, str]
    pool: urllib3.PoolManager
    tls: tuple[object, ...]  #: what the pool was made from; equal settings can go on with the old pool
    reread_after: float | None = None  #: seconds until the credentials may have changed; None: not by time
    expires: dt.datetime | None = None

    def __repr__(self) -> str:
        return f"Login({self.host})"


class Source(Protocol):
    """Where credentials are read from, again and again."""

    @property
    def name(self) -> str:
        """For error messages: the file and the context, or the ServiceAccount."""
        ...

    def login(self) -> Login:
        """Read the credentials. Raises UsageError, or Unauthorized where a plugin gives none."""
        ...


def source(kubeconfig: str | None = None, context: str | None = None, in_cluster: bool | None = None) -> Source:  # noqa: FBT001
    """The credentials to use.

    A named file or context wins. Otherwise *in_cluster* decides, and where it is None: the ServiceAccount
    if this is a pod, else ``$KUBECONFIG`` (a list of files, merged as kubectl does) or ``~/.kube/config``.
    """
    if in_cluster is None:
        in_cluster = bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and SERVICE_ACCOUNT.exists()
    if in_cluster and not kubeconfig and not context:
        return ServiceAccount()
    return Kubeconfig(kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG, context)


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """The token and the CA that the kubelet mounts into every pod."""

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
    """A kubeconfig file, or several joined by ``os.pathsep``; *context* None is its current-context."""

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
        with _said_by_loader() as said:
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
            why = "; ".join(said) or "it printed none"
            raise Unauthorized(f"{self.name}: exec plugin {user['exec']['command']} gave no credentials: {why}")
        settings.refresh_api_key_hook = None
        by_file = TOKEN_FILE_SECONDS if user.get("tokenFile") else None
        entry = {**entries.cluster, **user}
        keys = {key: data_key(key) if data_key(key) in entry else key for key in _TLS_KEYS}
        return _login(self.name, settings, keys, reread_after=by_file, expires=getattr(loader, "expiry", None))


@contextlib.contextmanager
def _said_by_loader() -> Iterator[list[str]]:
    """What the loader tells the root logger in place of raising; it goes to us and not to the log."""
    said: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        if "kubernetes" not in record.pathname:
            return True
        said.append(" ".join(record.getMessage().split()))
        return False

    root, silent = logging.getLogger(), logging.NullHandler()
    root.addFilter(keep)
    root.addHandler(silent)  # logging.error() configures a root logger that has no handler
    try:
        yield said
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
        headers["authorization"] = " ".join(token.split())  # files end in a newline
    return Login(
        host=settings.host.rstrip("/"),
        headers=headers,
        pool=let_ask(RESTClientObject(settings).pool_manager),
        tls=(settings.host, *(getattr(settings, key) for key in kept)),
        reread_after=reread_after,
        expires=expires,
    )


def _check_tls(name: str, settings: Configuration, keys: Mapping[str, str]) -> None:
    """See that the certificates are of use, which the pool would do at its first connection.

    *keys* are those that named them, by the key of a file. Raises UsageError with the key that is wrong.
    """

    def file(path: str | None, key: str) -> pem.File | None:
        named = keys.get(key, key)
        return pem.File(f"{name}: {named}", Path(path), inline=named.endswith("-data")) if path else None

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
    """The loader's own words where they cannot hold a secret."""
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, ConfigException) and str(error).startswith("File does not exist"):
        return _plain(error)
    return f"the loader of credentials failed with {type(error).__name__}"
