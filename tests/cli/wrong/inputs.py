"""Invalid paths, numbers and durations in each flag and key that takes one.

Opening `fifo` blocks forever, because it has no writer. `device` is /dev/zero. `no.pem` contains plain text.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.cli.wrong.facts import (
    CHERRY,
    DISCOVERY,
    FILE,
    MANAGER,
    NODES,
    PEMS,
    POOL,
    PROXY,
    SERVE,
    SPC,
    Wrong,
    proxy,
    wrong,
)

#: An invalid path → the text that the error must contain.
NO_FILES: Final = {"a\0b": "NUL", "fifo": "regular file", "device": "regular file"}
NO_PEM: Final = {"no.pem": "no usable PEM"}
_URL: Final = "https://127.0.0.1:1"
_SERVER_PEMS: Final = "--cert=server.crt --key-cert=server.key --ca-cert=ca.pem"
_CLOUDPOOL: Final = f"{SERVE}=cloudpool {FILE}"


def _of_flags() -> Iterator[tuple[str, Wrong]]:
    """Yield a case for each flag that takes a path."""
    commands: dict[str, tuple[str, Mapping[str, str]]] = {
        "--snapshot": ("plan", {}),
        "--kubeconfig": ("plan", {}),
        "--config-file": ("proxy --port=0 --listen-address=127.0.0.1:0", {}),
        "--cert": (f"provider serve {_SERVER_PEMS}", {}),
        "--key-cert": (f"provider serve {_SERVER_PEMS}", {}),
        "--ca-cert": (f"provider serve {_SERVER_PEMS}", {}),
        "--tls-cert": (f"{DISCOVERY} {PEMS} --database=:memory:", {}),
        "--tls-key": (f"{DISCOVERY} {PEMS} --database=:memory:", {}),
        "--tls-client-ca": (f"{DISCOVERY} {PEMS} --database=:memory:", {}),
        "--database": (f"{DISCOVERY} {PEMS}", {}),
        "--config": (f"{MANAGER} {PEMS} --database=:memory:", {}),
        "--discovery-ca": (f"{MANAGER} {PEMS} --database=:memory: --discovery-url={_URL}", {}),
        "--liqoctl": (f"{MANAGER} {PEMS} --database=:memory:", {}),
        **{f"--cloud-config of {name}": (f"{SERVE}={name}{more}", environ) for name, more, environ in _PROVIDERS},
    }
    for flag, (command, environ) in commands.items():
        for path, message in NO_FILES.items():
            name = flag.partition(" ")[0]
            expected = {"--database": "--database", "--liqoctl": "--liqoctl"}.get(name, message)
            yield f"{flag} {path!r}", wrong(f"{command} {name}={path}", expected, environ=environ)


_PROVIDERS: Final[tuple[tuple[str, str, Mapping[str, str]], ...]] = (
    ("cloudpool", "", {}),
    ("externalgrpc", "", {}),
    ("cherryservers", f" {NODES}", CHERRY),
    ("stackpoint", "", SPC),
    ("liqo", "", {}),
)


def _of_the_proxy() -> Iterator[tuple[str, Wrong]]:
    """Yield cases for each key of the proxy's file that takes a path, including invalid PEM files."""
    keys = {
        "server.tls": ("certPath", "keyPath", "clientCaPath"),
        "backend.auth": ("caCertPath", "clientCertPath", "clientKeyPath", "passwordPath", "tokenPath"),
        "apiServer.auth": ("caCertPath", "clientCertPath", "clientKeyPath", "tokenPath", "kubeConfigPath"),
        "server": ("bearerTokenPath",),
    }
    for section, names in keys.items():
        for key in names:
            pem = not key.startswith(("password", "token", "bearer", "kube"))
            for path, message in (NO_FILES | (NO_PEM if pem else {})).items():
                key_name = "kubeconfig" if key == "kubeConfigPath" else f"{section}.{key}"
                expected = "no such file" if (key, path) == ("kubeConfigPath", "a\0b") else message
                yield (
                    f"{section}.{key} {path!r}",
                    wrong(PROXY, key_name, expected, proxy_json=_proxy(section, key, path)),
                )


def _proxy(section: str, key: str, path: str) -> str:
    """Return a configuration that is valid except for the *path* of one key."""
    pair = {"certPath": "server.crt", "keyPath": "server.key"}
    client = {"clientCertPath": "client.crt", "clientKeyPath": "client.key", "caCertPath": "ca.pem"}
    match section:
        case "server":
            return proxy(server={key: path})
        case "server.tls":
            return proxy(server={"tls": pair | {key: path}})
        case "backend.auth":
            needed = {"username": "me"} if key == "passwordPath" else client if key.startswith("client") else {}
            return proxy(backend={"url": _URL, "auth": needed | {key: path}})
    own = {key: path} if key == "kubeConfigPath" else client | {key: path}
    return proxy(apiServer={"url": _URL, "auth": own})


def _of_kubeconfigs() -> Iterator[tuple[str, Wrong]]:
    for key in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
        for path, message in (NO_FILES | (NO_PEM if key != "tokenFile" else {})).items():
            yield f"kubeconfig {key} {path!r}", wrong("plan --kubeconfig=k", key, message, k=_kubeconfig(key, path))
    for key in ("certificate-authority-data", "client-certificate-data", "client-key-data"):
        text = _kubeconfig(key, "bm8gUEVNCg==")
        yield f"kubeconfig {key}", wrong("plan --kubeconfig=k", f"{key}: no usable PEM", k=text)
    many = "9" * 5000
    yield "kubeconfig, a number without end", wrong("plan --kubeconfig=k", "kubeconfig k", k=f"clusters: {many}")
    nested = "[" * 20_000
    yield "kubeconfig nested without end", wrong("plan --kubeconfig=k", "kubeconfig k", k=nested)


def _kubeconfig(key: str, value: str) -> str:
    """Return a kubeconfig that is valid except for one key."""
    cluster = {"server": _URL, "certificate-authority": "ca.pem"}
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    (cluster if key.startswith("certificate") else user)[key] = value
    return json.dumps(
        {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
    )


def _of_cloud_configurations() -> Iterator[tuple[str, Wrong]]:
    further_keys = {
        "clientKeyFile": ", clientCertFile: client.crt",
        "clientCertFile": ", clientKeyFile: client.key",
        "passwordFile": ", username: me",
    }
    for key in ("caFile", "clientCertFile", "clientKeyFile", "passwordFile", "tokenFile"):
        pem = key not in {"passwordFile", "tokenFile"}
        for path, message in (NO_FILES | (NO_PEM if pem else {})).items():
            text = POOL.format(more=f", {key}: {json.dumps(path)}{further_keys.get(key, '')}")
            yield f"cloudpool {key} {path!r}", wrong(_CLOUDPOOL, f"pools[0].backend.{key}", message, cloud_yaml=text)
            text = f"nodeManager: {{url: '{_URL}', {key}: {json.dumps(path)}{further_keys.get(key, '')}}}"
            key_name = f"nodeManager.{key}"
            yield f"liqo {key} {path!r}", wrong(f"{SERVE}=liqo {FILE}", key_name, message, cloud_yaml=text)
    for key in ("cert", "key", "cacert"):
        for path, message in (NO_FILES | NO_PEM).items():
            pems = {"cert": "client.crt", "key": "client.key", "cacert": "ca.pem"} | {key: path}
            text = json.dumps({"address": "a:1"} | pems)
            yield (
                f"externalgrpc {key} {path!r}",
                wrong(f"{SERVE}=externalgrpc {FILE}", f"{key} ", message, cloud_yaml=text),
            )
    for path, message in NO_FILES.items():
        text = json.dumps({"nodePoolsFile": path})
        command = f"{SERVE}=stackpoint {FILE}"
        yield f"nodePoolsFile {path!r}", wrong(command, "nodePoolsFile", message, environ=SPC, cloud_yaml=text)


def _of_pems() -> Iterator[tuple[str, Wrong]]:
    """Yield flags with an invalid PEM file; the error names only that flag."""
    for flag in ("--cert", "--key-cert", "--ca-cert"):
        yield (
            f"{flag} is not PEM",
            wrong(f"provider serve {_SERVER_PEMS} {flag}=no.pem", f" {flag} no.pem: no usable PEM"),
        )
    for flag in ("--tls-cert", "--tls-key", "--tls-client-ca"):
        command = f"{DISCOVERY} {PEMS} --database=:memory: {flag}=no.pem"
        yield f"{flag} is not PEM", wrong(command, f" {flag} no.pem: no usable PEM")


_EMPTY: Final = {"nothing": "", "a comment": "# groups\n", "null": "null", "braces": "{}", "a document": "---\n"}
_LONG_DURATIONS: Final = {
    "past a datetime": "100000000h",
    "past a float": "9" * 63 + "h",
    "past ten years": "87600h1s",
}
_DURATIONS: Final = (
    "run --housekeeping-interval",
    "run --node-drain-delay",
    "run --pod-eviction-timeout",
    "run --max-graceful-termination",
    "run --pending-patience",
    "run --landing-timeout",
    "run --failure-pause",
    "run --failure-pause-max",
    "run --node-cooldown",
    "run --node-cooldown-max",
    "run --return-wait",
    "run --return-wait-max",
    "run --spot-settle",
    "run --spot-pool-cooldown",
    "run --room-timeout",
    "plan --planning-timeout",
    "run --max-node-age",
    "liqo discovery --expire-after",
    "liqo node-manager --liqoctl-timeout",
)
_NUMBERS: Final[dict[str, str]] = {
    "run --min-on-demand-nodes": "9" * 5000,
    "run --max-moves-per-pod-per-day": "9" * 5000,
    "run --v": "9" * 50,
    "run --listen-address": "localhost:" + "9" * 5000,
    "proxy --port": "9" * 5000,
    "provider serve --address": ":" + "9" * 5000,
    "provider serve --nodes": "1:" + "9" * 50 + ":t",
}


def _of_ranges() -> Iterator[tuple[str, Wrong]]:
    for flag in _DURATIONS:
        for what, text in _LONG_DURATIONS.items():
            yield f"{flag} {what}", wrong(f"{flag}={text}", flag.split()[-1], "at most 87600h")
    for flag, text in _NUMBERS.items():
        more = " --cloud-provider=stackpoint --insecure-plaintext" if flag.endswith("--nodes") else ""
        yield f"{flag} past any range", wrong(f"{flag}={text}{more}", flag.split()[-1], environ=SPC)
    sizes: dict[str, Any] = {"minSize": 2**31, "maxSize": 2**31, "attempts": 10**30, "maxAnswerBytes": 10**30}
    for key, number in sizes.items():
        inside = key in {"attempts", "maxAnswerBytes"}
        more = f", {key}: {number}" if inside else f"}}, {key}: {number}, template: {{capacity: {{}}"
        key_name = f"pools[0].{'backend.' if inside else ''}{key}" if key != "minSize" else "pools[0].maxSize"
        yield f"cloudpool {key}", wrong(_CLOUDPOOL, key_name, cloud_yaml=POOL.format(more=more))
    digits = "9" * 5000
    yield "cloudpool, a number without end", wrong(_CLOUDPOOL, "cloud.yaml", cloud_yaml=f"pools: {digits}")
    yield "proxy minSize", wrong(PROXY, "minSize: expected 0 to", proxy_json=proxy(minSize=2**31))
    yield "proxy, a number without end", wrong(PROXY, "proxy.json", proxy_json=f'{{"minSize": {digits}}}')
    yield "proxy, a duration", wrong(PROXY, "at most 87600h", proxy_json=proxy(drain={"evictionTimeout": "90000h"}))


def _of_empty_files() -> Iterator[tuple[str, Wrong]]:
    """Yield empty files where groups are expected: using defaults would hide the mistake."""
    for what, text in _EMPTY.items():
        command = f"{MANAGER} {PEMS} --database=:memory: --config=g.yaml"
        yield f"groups: {what}", wrong(command, "configuration g.yaml", "empty", g_yaml=text)
        for name, more, environ in _PROVIDERS:
            if name not in {"cherryservers", "stackpoint"}:  # their groups come from flags or from the API
                command = f"{SERVE}={name}{more} {FILE}"
                yield (
                    f"{name}: {what}",
                    wrong(command, "cloud.yaml: Object missing required field", environ=environ, cloud_yaml=text),
                )
    command = f"{MANAGER} {PEMS} --database=:memory: --config=g.yaml"
    yield "groups: without a value", wrong(command, "$.groups", g_yaml="groups:\n")
    yield "groups: none", wrong(command, "groups", "at least one", g_yaml="groups: []\n")
    command = f"{SERVE}=cherryservers {NODES} {FILE}"
    yield "cherryservers: nothing", wrong(command, "[global]", environ=CHERRY, cloud_yaml="")
    yield "cherryservers: an empty section", wrong(command, "[global]", environ=CHERRY, cloud_yaml="[global]\n")


INPUTS: Final[dict[str, Wrong]] = dict(
    [
        *_of_flags(),
        *_of_the_proxy(),
        *_of_kubeconfigs(),
        *_of_cloud_configurations(),
        *_of_pems(),
        *_of_ranges(),
        *_of_empty_files(),
    ]
)
