"""The API server of the configuration file, as a source of credentials."""

import json
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from rescheduler import files, pem
from rescheduler.backends.base import ConfigError
from rescheduler.kube import connection
from rescheduler.kube.connection import Source
from rescheduler.proxy.config import ApiServer, ApiServerAuth


@contextmanager
def source(api: ApiServer) -> Iterator[Source]:
    """Where the credentials come from, for the length of the block: a kubeconfig, the pod's own, or single files."""
    auth = api.auth
    if auth.in_cluster:
        yield connection.source(in_cluster=True)
    elif auth.kube_config_path:
        path = str(Path(auth.kube_config_path).expanduser())
        yield connection.source(path, auth.context or _context_of(Path(path), api.url))
    else:
        _check_pems(auth)
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / "kubeconfig"
            written.write_text(json.dumps(_kubeconfig(api.url, auth)))
            yield connection.source(str(written))


def _check_pems(auth: ApiServerAuth) -> None:
    """Under their own keys: what is told of a kubeconfig would name the one that is made of them."""

    def file(key: str, path: str | None) -> pem.File | None:
        return pem.File(f"apiServer.auth.{key}", Path(path)) if path else None

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority := file("caCertPath", auth.ca_cert_path):
        pem.trust(context, authority)
    if certificate := file("clientCertPath", auth.client_cert_path):
        pem.present(context, certificate, file("clientKeyPath", auth.client_key_path))


def _kubeconfig(url: str, auth: ApiServerAuth) -> dict[str, Any]:
    """It names files, and holds no secret of its own."""
    files = {
        "client-certificate": auth.client_cert_path,
        "client-key": auth.client_key_path,
        "tokenFile": auth.token_path,
    }
    user = {key: str(Path(path).absolute()) for key, path in files.items() if path}
    cluster = {"server": url}
    if auth.ca_cert_path:
        cluster["certificate-authority"] = str(Path(auth.ca_cert_path).absolute())
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "api", "cluster": cluster}],
        "users": [{"name": "proxy", "user": user}],
        "contexts": [{"name": "proxy", "context": {"cluster": "api", "user": "proxy"}}],
        "current-context": "proxy",
    }


def _context_of(path: Path, url: str) -> str | None:
    """The context whose cluster is at *url*: the current one if it is, else the only one; `None` without a url."""
    if not url:
        return None
    try:
        document = yaml.safe_load(files.read_text(path))
        servers = {one["name"]: str(one["cluster"].get("server", "")).rstrip("/") for one in document["clusters"]}
        contexts = {one["name"]: one["context"].get("cluster") for one in document.get("contexts") or ()}
    except (OSError, ValueError, RecursionError, yaml.YAMLError, TypeError, KeyError, AttributeError):
        return None  # whoever reads the file next says what is wrong with it
    matching = [name for name, cluster in contexts.items() if servers.get(cluster) == url.rstrip("/")]
    if document.get("current-context") in matching:
        return None
    if len(matching) != 1:
        known = ", ".join(sorted(set(servers.values()))) or "none"
        raise ConfigError(
            f"apiServer.url: {len(matching)} contexts of {path} have {url}, expected one "
            f"(or apiServer.auth.context); its clusters are at: {known}"
        )
    return str(matching[0])
