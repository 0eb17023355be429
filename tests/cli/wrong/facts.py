"""Cases of invalid input with the expected error, and their common parts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SECRET = "SECRET"


@dataclass(frozen=True)
class Wrong:
    arguments: str
    names: tuple[str, ...]  #: texts that the error line must contain
    status: int = 2
    environ: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  #: additional files: name and content


def wrong(
    arguments: str, *names: str, status: int = 2, environ: Mapping[str, str] | None = None, **files: str
) -> Wrong:
    """Return a case. *files* are named with ``_`` in place of the dot before the extension."""
    named = {".".join(name.rsplit("_", 1)): text for name, text in files.items()}
    return Wrong(arguments, names, status, environ or {}, named)


CHERRY = {"CHERRY_AUTH_TOKEN": f"{SECRET}-cherry", "BOOTSTRAP_TOKEN_ID": "abcdef", "BOOTSTRAP_TOKEN_SECRET": SECRET}
SPC = {
    "CLUSTER_API_TOKEN": f"{SECRET}-spc",
    "SPC_API_BASE_URL": "http://127.0.0.1:1",
    "ORGANIZATION_ID": "6",
    "CLUSTER_ID": "810",
}
GLOBAL = "[global]\ncluster-name = c\nproject-id = 1\n"
POOL = "pools: [{{id: a, backend: {{url: 'http://127.0.0.1:1'{more}}}}}]"
NODES = "--nodes=1:2:pool1"


def proxy(**sections: Any) -> str:
    """Return a configuration file of the proxy in which *sections* replace the valid ones."""
    whole = {
        "apiServer": {"url": "http://127.0.0.1:1", "auth": {"kubeConfigPath": "kubeconfig"}},
        "backend": {"url": "http://127.0.0.1:1"},
    }
    return json.dumps(whole | sections)


def backend(**auth: str) -> dict[str, Any]:
    return {"url": "http://127.0.0.1:1", "auth": auth}


def tls(cert: str, key: str, ca: str = "ca.pem") -> dict[str, Any]:
    return {"tls": {"certPath": cert, "keyPath": key, "clientCaPath": ca}}


def kubeconfig(server: str = "http://127.0.0.1:1", current: str = "here", **user: str) -> str:
    document = {
        "current-context": current,
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {"token": f"{SECRET}-token"}}],
    }
    return json.dumps(document)


PROXY = "proxy --config-file=proxy.json --port=0 --host=127.0.0.1 --listen-address=127.0.0.1:0"
SERVE = "provider serve --address=127.0.0.1:0 --cloud-provider"
FILE = "--cloud-config=cloud.yaml"
MANAGER = "liqo node-manager --kubeconfig=kubeconfig --health-address=127.0.0.1:0 --listen=127.0.0.1:0"
DISCOVERY = "liqo discovery --kubeconfig=kubeconfig --health-address=127.0.0.1:0 --listen=127.0.0.1:0"
PEMS = "--tls-cert=server.crt --tls-key=server.key --tls-client-ca=ca.pem"
