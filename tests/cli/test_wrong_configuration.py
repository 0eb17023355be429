"""Wrong configuration of each kind, as a person gives it to each command: one line that says what and where.

Each fact is the arguments, the exit code (2 wrong use, 1 failure) and what the line must name. Files are those of
`_furnish`; every secret in them has SECRET in it, and must not be told.
"""

import base64
import gzip
import json
import logging
import os
import re
import signal
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rescheduler import cli
from tests.backends import pki

SECRET = "SECRET"
LOGGED = re.compile(r"\d{4}-\d\d-\d\dT[^ ]+Z [A-Z]+ ")


@dataclass(frozen=True)
class Wrong:
    arguments: str
    names: tuple[str, ...]  #: what the line holds
    status: int = 2
    environ: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  #: made beside those that are there


def wrong(
    arguments: str, *names: str, status: int = 2, environ: Mapping[str, str] | None = None, **files: str
) -> Wrong:
    """*files* by their names, with _ for the dot before the ending."""
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
    """A configuration of the proxy, with *sections* in place of its own."""
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

COMMANDS: dict[str, Wrong] = {
    "no such command": wrong("drain", "No such command 'drain'"),
    "no such provider command": wrong("provider drain", "No such command 'drain'"),
    "no such liqo command": wrong("liqo drain", "No such command 'drain'"),
    "a flag of nobody, run": wrong("run --nothing", "--nothing"),
    "a flag of nobody, plan": wrong("plan --nothing", "--nothing"),
    "a flag of nobody, explain": wrong("explain --nothing", "--nothing"),
    "a flag of nobody, proxy": wrong("proxy --nothing", "--nothing"),
    "a flag of nobody, provider": wrong("provider serve --nothing", "--nothing"),
    "a flag of nobody, discovery": wrong("liqo discovery --nothing", "--nothing"),
    "a flag of nobody, node-manager": wrong("liqo node-manager --nothing", "--nothing"),
    "an argument too many": wrong("version now", "unexpected extra argument"),
    "a value in the environment": wrong("run", "--v", "RESCHEDULER_V", environ={"RESCHEDULER_V": "9"}),
    "a duration in the environment": wrong(
        "run", "--node-drain-delay", "'soon'", environ={"RESCHEDULER_NODE_DRAIN_DELAY": "soon"}
    ),
    "a log format": wrong("run --log-format=xml", "--log-format", "'xml'"),
    "an interval without a unit": wrong("run --housekeeping-interval=10", "--housekeeping-interval", "'10'"),
    "a negative delay": wrong("run --node-drain-delay=-1s", "--node-drain-delay", "'-1s'"),
    "a duration that is none, plan": wrong("plan --planning-timeout=2x", "--planning-timeout", "'2x'"),
    "a label without a key": wrong("run --spot-node-label==x", "--spot-node-label", "'=x'"),
    "a label with spaces": wrong("plan --spot-node-label a\tb", "--spot-node-label"),
    "a switch": wrong("run --dry-run=maybe", "--dry-run", "'maybe'"),
    "an output": wrong("plan -o yaml", "'yaml'"),
    "a port out of range": wrong("proxy --port=70000", "--port", "70000"),
    "a listener in use": wrong(
        "run --kubeconfig=kubeconfig --listen-address=127.0.0.1:{used}", "--listen-address 127.0.0.1:{used}", status=1
    ),
    "a listener without a port": wrong("run --listen-address=9235", "--listen-address", "'9235'"),
    "a provider that nobody knows": wrong("run --cloud-provider=nowhere", "--cloud-provider", "'nowhere'"),
    "a content type": wrong("plan --kube-api-content-type=text/xml", "--kube-api-content-type", "'text/xml'"),
}

CLUSTERS: dict[str, Wrong] = {
    f"{what}, {command}": one
    for command in ("run", "plan", "explain")
    for what, one in {
        "kubeconfig missing": wrong(f"{command} --kubeconfig=absent", "kubeconfig absent"),
        "kubeconfig a directory": wrong(f"{command} --kubeconfig=folder", "kubeconfig folder"),
        "kubeconfig below a file": wrong(f"{command} --kubeconfig=kubeconfig/x", "kubeconfig kubeconfig/x"),
        "kubeconfig not UTF-8": wrong(f"{command} --kubeconfig=latin", "kubeconfig latin"),
        "kubeconfig no YAML": wrong(
            f"{command} --kubeconfig=k.yaml", "kubeconfig k.yaml", k_yaml=f"users: [{{token: {SECRET}"
        ),
        "kubeconfig a list": wrong(f"{command} --kubeconfig=k.yaml", "kubeconfig k.yaml", k_yaml=f"[{SECRET}]"),
        "kubeconfig empty": wrong(f"{command} --kubeconfig=k.yaml", "kubeconfig k.yaml", k_yaml=""),
        "no such context": wrong(f"{command} --kubeconfig=kubeconfig --context=there", "kubeconfig", "there"),
        "no current context": wrong(f"{command} --kubeconfig=k.yaml", "k.yaml", k_yaml=kubeconfig(current="")),
        "a server that is no URL": wrong(
            f"{command} --kubeconfig=k.yaml", "k.yaml", "server", k_yaml=kubeconfig(server="nowhere at all")
        ),
        "a token file missing": wrong(
            f"{command} --kubeconfig=k.yaml", "k.yaml", "absent", k_yaml=kubeconfig(tokenFile="absent")
        ),
        "a client certificate missing": wrong(
            f"{command} --kubeconfig=k.yaml",
            "k.yaml",
            "absent",
            k_yaml=kubeconfig(
                server="https://127.0.0.1:1", **{"client-certificate": "absent", "client-key": "client.key"}
            ),
        ),
        "a client key of another certificate": wrong(
            f"{command} --kubeconfig=k.yaml",
            "k.yaml",
            k_yaml=kubeconfig(
                server="https://127.0.0.1:1", **{"client-certificate": "client.crt", "client-key": "server.key"}
            ),
        ),
        "a client key that is no base64": wrong(
            f"{command} --kubeconfig=k.yaml",
            "k.yaml",
            "client-key-data",
            k_yaml=kubeconfig(
                server="https://127.0.0.1:1", **{"client-certificate": "client.crt", "client-key-data": f"{SECRET}!"}
            ),
        ),
        "a client key that is no PEM": wrong(
            f"{command} --kubeconfig=k.yaml",
            "k.yaml",
            k_yaml=kubeconfig(
                server="https://127.0.0.1:1",
                **{
                    "client-certificate": "client.crt",
                    "client-key-data": base64.b64encode(f"{SECRET}-key".encode()).decode(),
                },
            ),
        ),
    }.items()
}

SNAPSHOTS: dict[str, Wrong] = {
    f"{what}, {command}": one
    for command in ("plan", "explain")
    for what, one in {
        "snapshot missing": wrong(f"{command} --snapshot=absent", "absent"),
        "snapshot a directory": wrong(f"{command} --snapshot=folder", "folder"),
        "snapshot not UTF-8": wrong(f"{command} --snapshot=latin", "latin", status=1),
        "snapshot no JSON": wrong(f"{command} --snapshot=s.json", "s.json", status=1, s_json="{"),
        "snapshot of another kind": wrong(f"{command} --snapshot=s.json", "s.json", status=1, s_json='{"kind": "Pod"}'),
        "snapshot a number": wrong(f"{command} --snapshot=s.json", "s.json", status=1, s_json="1"),
        "snapshot with a broken object": wrong(
            f"{command} --snapshot=s.json",
            "s.json",
            "p",
            status=1,
            s_json='{"kind": "List", "items": [{"kind": "Pod", "metadata": {"name": "p"}, "spec": 1}]}',
        ),
        "snapshot cut off": wrong(f"{command} --snapshot=cut.gz", "cut.gz", status=1),
    }.items()
} | {
    "a node that is not there": wrong(
        "explain --snapshot=s.json node-x", "node-x", s_json='{"kind": "List", "items": []}'
    ),
    "a pod that is not there": wrong(
        "explain --snapshot=s.json ns/pod-x", "ns/pod-x", s_json='{"kind": "List", "items": []}'
    ),
}

PROXIES: dict[str, Wrong] = {
    "file missing": wrong("proxy --config-file=absent", "configuration absent"),
    "file a directory": wrong("proxy --config-file=folder", "configuration folder"),
    "file not UTF-8": wrong("proxy --config-file=latin", "configuration latin"),
    "no JSON": wrong(PROXY, "configuration proxy.json", "line 1", proxy_json="{"),
    "not an object": wrong(PROXY, "configuration proxy.json", "object", proxy_json="[]"),
    "empty": wrong(PROXY, "configuration proxy.json", proxy_json=""),
    "nested without end": wrong(PROXY, "configuration proxy.json", proxy_json="[" * 100_000),
    "an unknown key": wrong(PROXY, "proxy.json", "`bakcend`", proxy_json=proxy(bakcend={})),
    "a key twice": wrong(PROXY, "proxy.json", "'minSize'", proxy_json='{"minSize": 1, "minSize": 2}'),
    "a key twice in different case": wrong(PROXY, "proxy.json", "'minSize'", proxy_json='{"minSize": 1, "MINSIZE": 2}'),
    "a wrong type": wrong(PROXY, "proxy.json", "$.minSize", proxy_json=proxy(minSize="two")),
    "a negative minimum": wrong(PROXY, "proxy.json", "minSize", proxy_json=proxy(minSize=-1)),
    "a bad duration": wrong(PROXY, "proxy.json", "$.server.timeout", proxy_json=proxy(server={"timeout": "60"})),
    "a number for a duration": wrong(PROXY, "proxy.json", "$.server.timeout", proxy_json=proxy(server={"timeout": 60})),
    "no backend": wrong(PROXY, "proxy.json", "backend.url", proxy_json=proxy(backend={})),
    "a backend that is no URL": wrong(PROXY, "proxy.json", "backend.url", proxy_json=proxy(backend={"url": "pool"})),
    "a password in the backend's URL": wrong(
        PROXY, "proxy.json", "backend.url", proxy_json=proxy(backend={"url": f"http://me:{SECRET}@pool"})
    ),
    "two URLs": wrong(
        PROXY, "backend.cloudPoolUrl", proxy_json=proxy(backend={"url": "http://a", "cloudPoolUrl": "http://b"})
    ),
    "no API server": wrong(PROXY, "proxy.json", "apiServer.url", proxy_json=proxy(apiServer={})),
    "an API server that is no URL": wrong(
        PROXY, "proxy.json", "apiServer.url", proxy_json=proxy(apiServer={"url": "k8s", "auth": {"inCluster": True}})
    ),
    "an API server without credentials": wrong(
        PROXY, "apiServer.auth.clientCertPath", proxy_json=proxy(apiServer={"url": "http://a"})
    ),
    "a kubeconfig that is missing": wrong(
        PROXY, "absent", proxy_json=proxy(apiServer={"auth": {"kubeConfigPath": "absent"}})
    ),
    "a kubeconfig of another cluster": wrong(
        PROXY,
        "apiServer.url",
        "kubeconfig",
        proxy_json=proxy(apiServer={"url": "http://other", "auth": {"kubeConfigPath": "kubeconfig"}}),
    ),
    "a token of the API server that is missing": wrong(
        PROXY, "absent", proxy_json=proxy(apiServer={"url": "http://127.0.0.1:1", "auth": {"tokenPath": "absent"}})
    ),
    "a username without a password": wrong(
        PROXY, "backend.auth.passwordPath", proxy_json=proxy(backend=backend(username="me"))
    ),
    "a username and a token": wrong(
        PROXY,
        "backend.auth.tokenPath",
        proxy_json=proxy(backend=backend(username="me", passwordPath="secret", tokenPath="secret")),
    ),
    "a password that is missing": wrong(
        PROXY,
        "backend.auth.passwordPath",
        "absent",
        proxy_json=proxy(backend=backend(username="me", passwordPath="absent")),
    ),
    "a token that is empty": wrong(
        PROXY, "backend.auth.tokenPath", "empty", proxy_json=proxy(backend=backend(tokenPath="empty"))
    ),
    "a token of two lines": wrong(
        PROXY, "backend.auth.tokenPath", "two", proxy_json=proxy(backend=backend(tokenPath="two"))
    ),
    "a token that is not UTF-8": wrong(
        PROXY, "backend.auth.tokenPath", "latin", proxy_json=proxy(backend=backend(tokenPath="latin"))
    ),
    "a CA that is no PEM": wrong(
        PROXY, "backend.auth.caCertPath", "secret", proxy_json=proxy(backend=backend(caCertPath="secret"))
    ),
    "a client certificate without its key": wrong(
        PROXY,
        "backend.auth.clientCertPath",
        "client.crt",
        proxy_json=proxy(backend=backend(clientCertPath="client.crt")),
    ),
    "a client key of another certificate": wrong(
        PROXY,
        "backend.auth.clientCertPath",
        proxy_json=proxy(backend=backend(clientCertPath="client.crt", clientKeyPath="server.key")),
    ),
    "a listener's certificate that is missing": wrong(
        PROXY, "server.tls", proxy_json=proxy(server=tls("absent", "server.key"))
    ),
    "a listener's certificate that is no PEM": wrong(
        PROXY, "server.tls", proxy_json=proxy(server=tls("secret", "server.key"))
    ),
    "a listener's key of another certificate": wrong(
        PROXY, "server.tls", proxy_json=proxy(server=tls("server.crt", "client.key"))
    ),
    "a listener's key with a password": wrong(
        PROXY, "server.tls", proxy_json=proxy(server=tls("client.crt", "encrypted.key"))
    ),
    "a listener's CA that is no PEM": wrong(
        PROXY, "server.tls", proxy_json=proxy(server=tls("server.crt", "server.key", "secret"))
    ),
    "a listener's token that is missing": wrong(
        PROXY, "server.bearerTokenPath", "absent", proxy_json=proxy(server={"bearerTokenPath": "absent"})
    ),
    "a listener's token that is empty": wrong(
        PROXY, "server.bearerTokenPath", "empty", proxy_json=proxy(server={"bearerTokenPath": "empty"})
    ),
    "a port in use": wrong(PROXY.replace("--port=0", "--port={used}"), "--port {used}", status=1, proxy_json=proxy()),
    "pages' port in use": wrong(
        PROXY.replace(":0", ":{used}"), "--listen-address 127.0.0.1:{used}", status=1, proxy_json=proxy()
    ),
}


def _of_files(provider: str, environ: Mapping[str, str], more: str = "") -> dict[str, Wrong]:
    """What can be wrong with the file of any provider."""
    start = f"{SERVE}={provider}{more} --cloud-config"
    return {
        f"{provider}: file missing": wrong(f"{start}=absent", "cloud configuration absent", environ=environ),
        f"{provider}: file a directory": wrong(f"{start}=folder", "cloud configuration folder", environ=environ),
        f"{provider}: file below a file": wrong(f"{start}=empty/x", "cloud configuration empty/x", environ=environ),
        f"{provider}: file not UTF-8": wrong(f"{start}=latin", "cloud configuration latin", "UTF-8", environ=environ),
        f"{provider}: an unknown key": wrong(
            f"{start}=cloud.yaml",
            "cloud configuration cloud.yaml",
            "pol",
            environ=environ,
            cloud_yaml=GLOBAL + "pol = 1" if provider == "cherryservers" else "pol: 1",
        ),
        f"{provider}: broken": wrong(
            f"{start}=cloud.yaml", "cloud configuration cloud.yaml", "line 1", environ=environ, cloud_yaml="{[ :"
        ),
    }


PROVIDERS: dict[str, Wrong] = {
    **_of_files("cloudpool", {}),
    **_of_files("externalgrpc", {}),
    **_of_files("cherryservers", CHERRY, f" {NODES}"),
    **_of_files("stackpoint", SPC),
    **_of_files("liqo", {}),
    "none: a file": wrong(f"{SERVE}=none --cloud-config=empty", "--cloud-config"),
    "none: groups": wrong(f"{SERVE}=none {NODES}", "--nodes=1:2:pool1", "'none'"),
    "cloudpool: no file": wrong(f"{SERVE}=cloudpool", "--cloud-config FILE is missing"),
    "externalgrpc: no file": wrong(f"{SERVE}=externalgrpc", "--cloud-config FILE is missing"),
    "cherryservers: no file": wrong(f"{SERVE}=cherryservers {NODES}", "--cloud-config FILE is missing", environ=CHERRY),
    "liqo: no file": wrong(f"{SERVE}=liqo", "--cloud-config FILE is missing"),
    # -- cloudpool
    "cloudpool: a token that is missing": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "cloud.yaml",
        "pools[0].backend.tokenFile",
        "absent",
        cloud_yaml=POOL.format(more=", tokenFile: absent"),
    ),
    "cloudpool: a token that is empty": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "pools[0].backend.tokenFile",
        "empty",
        cloud_yaml=POOL.format(more=", tokenFile: empty"),
    ),
    "cloudpool: a token of two lines": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "pools[0].backend.tokenFile",
        "two",
        cloud_yaml=POOL.format(more=", tokenFile: two"),
    ),
    "cloudpool: a password that is a directory": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "pools[0].backend.passwordFile",
        "folder",
        cloud_yaml=POOL.format(more=", username: me, passwordFile: folder"),
    ),
    "cloudpool: a CA that is no PEM": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "pools[0].backend.caFile",
        "secret",
        cloud_yaml=POOL.format(more=", caFile: secret"),
    ),
    "cloudpool: a key of another certificate": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "pools[0].backend.clientCertFile",
        "client.crt",
        cloud_yaml=POOL.format(more=", clientCertFile: client.crt, clientKeyFile: server.key"),
    ),
    "cloudpool: a key with a password": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "clientKeyFile",
        "encrypted.key",
        cloud_yaml=POOL.format(more=", clientCertFile: client.crt, clientKeyFile: encrypted.key"),
    ),
    "cloudpool: a password in the URL": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "pools[0].backend.url",
        cloud_yaml=f"pools: [{{id: a, backend: {{url: 'http://me:{SECRET}@a'}}}}]",
    ),
    "cloudpool: a quantity": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "cloud.yaml",
        "pools[0].template.capacity",
        "lots",
        cloud_yaml="pools: [{id: a, backend: {url: 'http://a'}, template: {capacity: {cpu: lots}}}]",
    ),
    "cloudpool: an effect": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "$.pools[0].template.taints[0].effect",
        cloud_yaml=POOL.format(more="}, template: {capacity: {}, taints: [{key: k, effect: no}]"),
    ),
    # -- externalgrpc
    "externalgrpc: no address": wrong(f"{SERVE}=externalgrpc {FILE}", "cloud.yaml", "`address`", cloud_yaml="cert: x"),
    "externalgrpc: an address": wrong(
        f"{SERVE}=externalgrpc {FILE}", "address", "host:port", cloud_yaml="address: nowhere"
    ),
    "externalgrpc: a certificate alone": wrong(
        f"{SERVE}=externalgrpc {FILE}", "cloud.yaml", "key", cloud_yaml="address: a:1\ncert: client.crt"
    ),
    "externalgrpc: a certificate that is missing": wrong(
        f"{SERVE}=externalgrpc {FILE}",
        "absent",
        cloud_yaml="address: a:1\ncert: absent\nkey: client.key\ncacert: ca.pem",
    ),
    "externalgrpc: a key of another certificate": wrong(
        f"{SERVE}=externalgrpc {FILE}",
        "server.key",
        cloud_yaml="address: a:1\ncert: client.crt\nkey: server.key\ncacert: ca.pem",
    ),
    "externalgrpc: a CA that is no PEM": wrong(
        f"{SERVE}=externalgrpc {FILE}",
        "secret",
        cloud_yaml="address: a:1\ncert: client.crt\nkey: client.key\ncacert: secret",
    ),
    "externalgrpc: a duration": wrong(
        f"{SERVE}=externalgrpc {FILE}", "$.grpc_timeout", cloud_yaml="address: a:1\ngrpc_timeout: 5"
    ),
    # -- cherryservers
    "cherryservers: no token": wrong(f"{SERVE}=cherryservers {NODES} {FILE}", "CHERRY_AUTH_TOKEN", cloud_yaml=GLOBAL),
    "cherryservers: a token of two lines": wrong(
        f"{SERVE}=cherryservers {NODES} {FILE}",
        "CHERRY_AUTH_TOKEN",
        environ=CHERRY | {"CHERRY_AUTH_TOKEN": f"{SECRET}\n{SECRET}"},
        cloud_yaml=GLOBAL,
    ),
    "cherryservers: an address": wrong(
        f"{SERVE}=cherryservers {NODES} {FILE}",
        "CHERRY_API_URL",
        environ=CHERRY | {"CHERRY_API_URL": f"https://me:{SECRET}@api"},
        cloud_yaml=GLOBAL,
    ),
    "cherryservers: no groups": wrong(f"{SERVE}=cherryservers {FILE}", "--nodes", environ=CHERRY, cloud_yaml=GLOBAL),
    "cherryservers: no project": wrong(
        f"{SERVE}=cherryservers {NODES} {FILE}",
        "pool1",
        "project-id",
        environ=CHERRY,
        cloud_yaml="[global]\ncluster-name = c",
    ),
    "cherryservers: no cluster": wrong(
        f"{SERVE}=cherryservers {NODES} {FILE}",
        "pool1",
        "cluster-name",
        environ=CHERRY,
        cloud_yaml="[global]\nproject-id = 1",
    ),
    "cherryservers: a project that is no number": wrong(
        f"{SERVE}=cherryservers {NODES} {FILE}",
        "line 3",
        "project-id",
        environ=CHERRY,
        cloud_yaml="[global]\ncluster-name = c\nproject-id = x",
    ),
    "cherryservers: cloud-init that is no base64": wrong(
        f"{SERVE}=cherryservers {NODES} {FILE}",
        "line 4",
        "cloudinit",
        "base64",
        environ=CHERRY,
        cloud_yaml=f"{GLOBAL}cloudinit = {SECRET}!",
    ),
    "cherryservers: a template that does more": wrong(
        f"{SERVE}=cherryservers {NODES} {FILE}",
        "line 4",
        "hostname-pattern",
        environ=CHERRY,
        cloud_yaml=GLOBAL + "hostname-pattern = {{if .ClusterName}}x{{end}}",
    ),
    "cherryservers: a section of nothing": wrong(
        f"{SERVE}=cherryservers {NODES} {FILE}", "line 4", "[global]", environ=CHERRY, cloud_yaml=GLOBAL + "[other]\n"
    ),
    "cherryservers: another manager": wrong(
        f"{SERVE}=cherryservers {NODES} {FILE}",
        "CHERRY_MANAGER",
        environ=CHERRY | {"CHERRY_MANAGER": "grpc"},
        cloud_yaml=GLOBAL,
    ),
    **{
        f"cherryservers: --nodes={spec}": wrong(
            f"{SERVE}=cherryservers {FILE} --nodes={spec}", f"--nodes={spec}", name, environ=CHERRY, cloud_yaml=GLOBAL
        )
        for spec, name in {
            "pool1": "min:max:pool",
            "1:2": "min:max:pool",
            "a:2:pool1": "min",
            "-1:2:pool1": "min",
            "3:2:pool1": "max",
            "1:x:pool1": "max",
            "1:2:": "pool",
            "1:2:po/ol": "pool",
        }.items()
    },
    "cherryservers: a group twice": wrong(
        f"{SERVE}=cherryservers {FILE} {NODES} --nodes=0:1:pool1",
        "--nodes=0:1:pool1",
        "twice",
        environ=CHERRY,
        cloud_yaml=GLOBAL,
    ),
    # -- stackpoint
    **{f"stackpoint: no {name}": wrong(f"{SERVE}=spc", name, environ={**SPC, name: ""}) for name in SPC},
    "stackpoint: an organization that is no number": wrong(
        f"{SERVE}=spc", "ORGANIZATION_ID", "'x'", environ=SPC | {"ORGANIZATION_ID": "x"}
    ),
    "stackpoint: an address": wrong(
        f"{SERVE}=spc", "SPC_API_BASE_URL", environ=SPC | {"SPC_API_BASE_URL": f"http://me:{SECRET}@a"}
    ),
    "stackpoint: a group twice": wrong(
        f"{SERVE}=spc --nodes=1:2:t --nodes=1:3:t", "--nodes=1:3:t", "twice", environ=SPC
    ),
    "stackpoint: a group without a type": wrong(f"{SERVE}=spc --nodes=1:2", "--nodes=1:2", environ=SPC),
    "stackpoint: a maximum below": wrong(f"{SERVE}=spc --nodes=3:2:t", "--nodes=3:2:t", "max", environ=SPC),
    "stackpoint: groups and a file of pools": wrong(
        f"{SERVE}=spc --nodes=1:2:t {FILE}",
        "--nodes=1:2:t",
        "nodePoolsFile",
        environ=SPC,
        cloud_yaml="nodePoolsFile: p",
    ),
    "stackpoint: no time": wrong(
        f"{SERVE}=spc {FILE}", "cloud.yaml", "pollInterval", environ=SPC, cloud_yaml="pollInterval: 0s"
    ),
    # -- liqo
    "liqo: no TLS": wrong(
        f"{SERVE}=liqo {FILE}", "nodeManager.url", "https", cloud_yaml="nodeManager: {url: 'http://manager'}"
    ),
    "liqo: a certificate that is missing": wrong(
        f"{SERVE}=liqo {FILE}",
        "nodeManager.clientCertFile",
        "absent",
        cloud_yaml="nodeManager: {url: 'https://manager', clientCertFile: absent}",
    ),
    # -- the listener
    "serve: an address": wrong("provider serve --address=8086", "--address", "'8086'"),
    "serve: an address in use": wrong(
        "provider serve --address=127.0.0.1:{used}", "--address 127.0.0.1:{used}", status=1
    ),
    "serve: two of three files": wrong("provider serve --cert=server.crt --key-cert=server.key", "--ca-cert"),
    "serve: a certificate that is missing": wrong(
        "provider serve --cert=absent --key-cert=server.key --ca-cert=ca.pem", "--cert absent"
    ),
    "serve: a certificate that is no PEM": wrong(
        "provider serve --cert=secret --key-cert=server.key --ca-cert=ca.pem", "--cert secret"
    ),
    "serve: a key of another certificate": wrong(
        "provider serve --cert=server.crt --key-cert=client.key --ca-cert=ca.pem", "--key-cert client.key"
    ),
    "serve: an authority that is a directory": wrong(
        "provider serve --cert=server.crt --key-cert=server.key --ca-cert=folder", "--ca-cert folder"
    ),
}

GROUP = "{id: A, maxSize: 1, resources: {min: {cpu: 1, memory: 1Gi, pods: 10}}}"

LIQO: dict[str, Wrong] = {
    f"{what}, {start.split()[1]}": one
    for start in (MANAGER, DISCOVERY)
    for what, one in {
        "no certificates": wrong(start, "--tls-cert, --tls-key and --tls-client-ca"),
        "two of three": wrong(f"{start} --tls-cert=server.crt --tls-key=server.key", "--tls-client-ca"),
        "plain text elsewhere": wrong(
            start.replace("127.0.0.1:0", "0.0.0.0:0") + " --insecure-plaintext", "--insecure-plaintext", "loopback"
        ),
        "certificate missing": wrong(f"{start} {PEMS.replace('server.crt', 'absent')}", "--tls-cert absent"),
        "certificate no PEM": wrong(f"{start} {PEMS.replace('server.crt', 'secret')}", "--tls-cert secret"),
        "key of another certificate": wrong(
            f"{start} {PEMS.replace('server.key', 'client.key')}", "--tls-key client.key"
        ),
        "authority no PEM": wrong(f"{start} {PEMS.replace('ca.pem', 'secret')}", "--tls-client-ca secret"),
        "database a directory": wrong(f"{start} {PEMS} --database=folder", "--database folder"),
        "database in no folder": wrong(f"{start} {PEMS} --database=absent/db", "--database absent/db"),
        "database no database": wrong(f"{start} {PEMS} --database=ca.pem", "--database ca.pem", status=1),
        "listener in use": wrong(
            f"{start} {PEMS} --database=db".replace("--listen=127.0.0.1:0", "--listen=127.0.0.1:{used}"),
            "--listen 127.0.0.1:{used}",
            status=1,
        ),
        "listener without a port": wrong(f"{start} {PEMS} --listen=9010", "--listen", "'9010'"),
        "kubeconfig missing": wrong(f"{start} {PEMS} --database=db --kubeconfig=absent", "kubeconfig absent"),
    }.items()
} | {
    "expiry": wrong(f"{DISCOVERY} --expire-after=5", "--expire-after", "'5'"),
    "discovery's URL": wrong(f"{MANAGER} {PEMS} --database=db --discovery-url=nowhere", "--discovery-url"),
    "a secret in discovery's URL": wrong(
        f"{MANAGER} {PEMS} --database=db --discovery-url=https://me:{SECRET}@a", "--discovery-url"
    ),
    "groups missing": wrong(f"{MANAGER} {PEMS} --database=db --config=absent", "configuration absent"),
    "groups a directory": wrong(f"{MANAGER} {PEMS} --database=db --config=folder", "configuration folder"),
    "groups not UTF-8": wrong(f"{MANAGER} {PEMS} --database=db --config=latin", "configuration latin"),
    "groups of a wrong type": wrong(
        f"{MANAGER} {PEMS} --database=db --config=g.yaml", "configuration g.yaml", "$.groups", g_yaml="groups: 1"
    ),
    "group twice": wrong(
        f"{MANAGER} {PEMS} --database=db --config=g.yaml",
        "configuration g.yaml",
        "groups[1]",
        g_yaml=f"groups: [{GROUP}, {GROUP}]",
    ),
    "group with a maximum below": wrong(
        f"{MANAGER} {PEMS} --database=db --config=g.yaml",
        "configuration g.yaml",
        "groups[0]",
        g_yaml="groups: [{id: A, minSize: 2, maxSize: 1, resources: {min: {cpu: 1, memory: 1Gi, pods: 10}}}]",
    ),
    "group with a bad quantity": wrong(
        f"{MANAGER} {PEMS} --database=db --config=g.yaml",
        "configuration g.yaml",
        "groups[0]",
        "lots",
        g_yaml="groups: [{id: A, maxSize: 1, resources: {min: {cpu: lots, memory: 1Gi, pods: 10}}}]",
    ),
    "liqoctl missing": wrong(f"{MANAGER} {PEMS} --database=db --liqoctl=absent", "--liqoctl absent"),
}

TABLES = {"commands": COMMANDS, "clusters": CLUSTERS, "snapshots": SNAPSHOTS, "proxy": PROXIES}
TABLES |= {"providers": PROVIDERS, "liqo": LIQO}
FACTS = {f"{table}: {fact}": one for table, facts in TABLES.items() for fact, one in facts.items()}


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pems")
    pki.make(folder)
    return folder


@pytest.fixture(scope="module")
def used() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """Commands set the log up for their process."""
    root = logging.getLogger()
    before = root.handlers, root.level, logging.getLogger("rescheduler").level
    yield
    root.handlers, root.level = before[:2]
    logging.getLogger("rescheduler").setLevel(before[2])


@pytest.fixture(autouse=True)
def _end() -> Iterator[None]:
    """A command that finds nothing wrong would serve for ever."""

    def late(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _furnish(folder: Path, pems: Path) -> None:
    for pem in pems.iterdir():
        (folder / pem.name).write_bytes(pem.read_bytes())
    (folder / "folder").mkdir()
    (folder / "empty").write_text("")
    (folder / "latin").write_bytes(b'{"k\xe4se": "\xff' + SECRET.encode() + b'"}')
    (folder / "two").write_text(f"{SECRET}-1\n{SECRET}-2\n")
    (folder / "secret").write_text(f"{SECRET}-one\n")
    (folder / "kubeconfig").write_text(kubeconfig())
    (folder / "cut.gz").write_bytes(gzip.compress(b'{"kind": "List", "items": []}')[:-12])


@pytest.mark.parametrize("fact", FACTS)
def test_one_line_says_what_is_wrong_and_where(
    fact: str, used: int, pems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    one = FACTS[fact]
    _furnish(tmp_path, pems)
    for name, text in one.files.items():
        (tmp_path / name).write_text(text)
    for name in [name for name in os.environ if name.startswith(("RESCHEDULER_", "CHERRY_", "KUBE", "SPC_"))]:
        monkeypatch.delenv(name)
    for name, value in {"HOME": str(tmp_path), **one.environ}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(one.arguments.replace("{used}", str(used)).split(" "))
    out, everything = capfd.readouterr()
    # What was begun before may have been logged.
    said = "".join(line for line in everything.splitlines(keepends=True) if not LOGGED.match(line))
    assert (ended.value.code, out, said.count("\n")) == (one.status, "", 1), said
    assert said.startswith("rescheduler")
    missing = [name for name in one.names if name.replace("{used}", str(used)) not in said]
    assert not missing, said
    assert not [sign for sign in (SECRET, "Traceback", "internal error") if sign in everything], everything
