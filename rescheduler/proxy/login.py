"""The credentials for the API server in the configuration file."""

import json
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from rescheduler.errors import ConfigError
from rescheduler.kube import connection
from rescheduler.kube.connection import Source
from rescheduler.net import files, pem
from rescheduler.proxy.config import ApiServerAuth, ApiServerSection


@contextmanager
def source(api: ApiServerSection) -> Iterator[Source]:
    """Provide the source of credentials for the block: a kubeconfig, the pod's service account, or single files."""
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
    """Check the PEM files here, so that errors name their keys instead of the generated kubeconfig."""

    def file(key: str, path: str | None) -> pem.PemFile | None:
        return pem.PemFile(f"apiServer.auth.{key}", Path(path)) if path else None

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority := file("caCertPath", auth.ca_cert_path):
        pem.trust(context, authority)
    if certificate := file("clientCertPath", auth.client_cert_path):
        pem.present(context, certificate, file("clientKeyPath", auth.client_key_path))


def _kubeconfig(url: str, auth: ApiServerAuth) -> dict[str, Any]:
    """Generate a kubeconfig that refers to files and contains no secrets."""
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
    """Return the context whose cluster is at *url*; `None` for the current one. Raises ConfigError if several match."""
    if not url:
        return None
    try:
        document = yaml.safe_load(files.read_text(path))
        servers = {named["name"]: str(named["cluster"].get("server", "")).rstrip("/") for named in document["clusters"]}
        contexts = {named["name"]: named["context"].get("cluster") for named in document.get("contexts") or ()}
    except (OSError, ValueError, RecursionError, yaml.YAMLError, TypeError, KeyError, AttributeError):
        return None  # the next reader of the file reports the error
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
