"""The address of an API server with its TLS settings, and the connection pool for them."""

import ssl
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.request import getproxies_environment

import urllib3

from rescheduler.net import pem

#: Connections in the pool: one watch per kind, and parallel evictions.
POOL_SIZE: Final = 64

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

        def file(path: str | None, key: str) -> pem.PemFile | None:
            named = keys.get(key, key)
            return pem.PemFile(f"{name}: {named}", Path(path), inline=named.endswith("-data")) if path else None

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority, certificate, key = map(file, (self.authority, self.certificate, self.key), TLS_KEYS)
        if authority:
            pem.trust(context, authority)
        if certificate:
            pem.present(context, certificate, key)

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
