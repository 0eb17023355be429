"""Credentials from exec plugins and auth providers, and connections through a proxy, by the official client.
Separate, because it imports the official client, which takes long, and is rarely needed.

Importing that client takes more time and memory than the rest of this program, so this module is imported only where it
is needed. Exceptions of its loaders can contain a whole user entry of a kubeconfig with its token, so their text is
used only if it is known to contain no secret.
"""

import contextlib
import datetime as dt
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import urllib3
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

from rescheduler.errors import Unauthorized, UsageError
from rescheduler.kube.endpoint import POOL_SIZE, ApiServerEndpoint


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the loader of the official client returned."""

    endpoint: ApiServerEndpoint
    authorization: str | None
    expires: dt.datetime | None


def load(name: str, files: Sequence[Path], context: str, plugin: str | None) -> Loaded:
    """Load the credentials of *context* in *files*. *plugin* is the command of the user's exec plugin, if any.

    *name* is the start of messages. Raises UsageError, or Unauthorized if the plugin returns no credentials.
    """
    settings = Configuration()
    with _loader_errors() as logged:
        try:
            merged = KubeConfigMerger(os.pathsep.join(map(str, files)))
            loader = KubeConfigLoader(
                merged.config, active_context=context, config_base_path=None, config_persister=merged.save_changes
            )
            loader.load_and_set(settings)
        except Exception as error:  # noqa: BLE001 - the loaders let through whatever their parsers raise
            raise UsageError(f"{name}: {_reason(error)}") from None
    if plugin and not (settings.api_key or settings.cert_file):
        why = "; ".join(logged) or "its output contains none"
        raise Unauthorized(f"{name}: exec plugin {plugin} returned no credentials: {why}")
    endpoint = ApiServerEndpoint(
        settings.host.rstrip("/"),
        settings.ssl_ca_cert,
        settings.cert_file,
        settings.key_file,
        settings.verify_ssl,
        settings.tls_server_name,
        getattr(loader, "proxy", None),
    )
    return Loaded(endpoint, settings.api_key.get("BearerToken"), getattr(loader, "expiry", None))


def proxied_pool(endpoint: ApiServerEndpoint) -> urllib3.PoolManager:
    """Return a pool of connections through the proxy of *endpoint* or of the environment, as ``NO_PROXY`` permits."""
    settings = Configuration()
    settings.host = endpoint.host
    settings.ssl_ca_cert, settings.cert_file, settings.key_file = endpoint.authority, endpoint.certificate, endpoint.key
    settings.verify_ssl, settings.tls_server_name = endpoint.verify, endpoint.server_name
    if endpoint.proxy:
        settings.proxy = endpoint.proxy
    settings.connection_pool_maxsize = POOL_SIZE
    settings.retries = False
    pool: urllib3.PoolManager = RESTClientObject(settings).pool_manager
    return pool


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


def _reason(error: Exception) -> str:
    """Return the loader's message if it cannot contain a secret."""
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, ConfigException) and str(error).startswith("File does not exist"):
        return " ".join(str(error).split()).rstrip(".")
    return f"loading the credentials failed with {type(error).__name__}"
