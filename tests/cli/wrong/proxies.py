"""Invalid configuration files of the proxy, and invalid files that they name. More: tests/proxy/test_config.py."""

from tests.cli.wrong.facts import PROXY, Wrong, backend, proxy, tls, wrong

PROXIES: dict[str, Wrong] = {
    "file missing": wrong("proxy --config-file=absent", "configuration absent"),
    "file a directory": wrong("proxy --config-file=folder", "configuration folder"),
    "file not UTF-8": wrong("proxy --config-file=latin", "configuration latin"),
    "not JSON": wrong(PROXY, "configuration proxy.json", "line 1", proxy_json="{"),
    "empty": wrong(PROXY, "configuration proxy.json", proxy_json=""),
    "nested without end": wrong(PROXY, "configuration proxy.json", proxy_json="[" * 100_000),
    "a wrong type": wrong(PROXY, "proxy.json", "$.minSize", proxy_json=proxy(minSize="two")),
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
    "a CA that is not PEM": wrong(
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
    "a listener's certificate that is not PEM": wrong(
        PROXY, "server.tls", proxy_json=proxy(server=tls("secret", "server.key"))
    ),
    "a listener's key of another certificate": wrong(
        PROXY, "server.tls", proxy_json=proxy(server=tls("server.crt", "client.key"))
    ),
    "a listener's key with a password": wrong(
        PROXY, "server.tls", proxy_json=proxy(server=tls("client.crt", "encrypted.key"))
    ),
    "a listener's CA that is not PEM": wrong(
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
