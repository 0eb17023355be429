"""The proxy warns at any verbosity if unauthenticated clients can remove machines."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.apiserver import ApiServer
from tests.fuzz.process import watched
from tests.fuzz.targets import kubeconfig
from tests.providers import pki

TLS = {"certPath": "server.crt", "keyPath": "server.key"}
TOKEN = {"bearerTokenPath": "token"}
PLAIN = "traffic is not encrypted; set server.tls, and server.tls.clientCaPath or server.bearerTokenPath"
UNKNOWN = "clients are not authenticated; set server.tls.clientCaPath or server.bearerTokenPath"

#: --host, the section `server` of the configuration: the warning
SERVERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "plain text on every interface": ("", {}, PLAIN),
    "plain text on all of IPv4": ("0.0.0.0", {}, PLAIN),
    "plain text with a token": ("0.0.0.0", TOKEN, PLAIN),
    "TLS without authentication": ("0.0.0.0", {"tls": TLS}, UNKNOWN),
    "TLS with a token": ("0.0.0.0", {"tls": TLS, **TOKEN}, ""),
    "TLS with client certificates": ("0.0.0.0", {"tls": {**TLS, "clientCaPath": "ca.pem"}}, ""),
    "plain text on loopback": ("127.0.0.1", {}, ""),
    "plain text on localhost": ("::1", {}, ""),
}


@pytest.mark.parametrize("name", SERVERS)
def test_unauthenticated_listeners_cause_a_warning_at_level_0(name: str, tmp_path: Path) -> None:
    host, server, expected = SERVERS[name]
    pki.make(tmp_path)
    (tmp_path / "token").write_text("a-token\n")
    paths = {key: str(tmp_path / value) for key, value in server.items() if isinstance(value, str)}
    if "tls" in server:
        paths["tls"] = {key: str(tmp_path / value) for key, value in server["tls"].items()}  # type: ignore[assignment]
    with ApiServer().running() as api:
        file = tmp_path / "proxy.json"
        auth = {"kubeConfigPath": str(kubeconfig(tmp_path, api, "secret"))}
        file.write_text(
            json.dumps({"server": paths, "apiServer": {"auth": auth}, "backend": {"url": "http://127.0.0.1:1"}})
        )
        flags = (f"--config-file={file}", "--port=0", f"--host={host}", "--listen-address=127.0.0.1:0", "-v=0")
        with watched(("proxy", *flags), {}, []) as process:
            port = process.wait_for(r"forwarding port (\d+) to ")[1]
            assert process.stop() == 0
            exposed = [line for line in process.lines if "can remove machines" in line]
    whole = f"WARNING anyone who can reach port {port} can remove machines: {expected}"
    assert [line.partition(" ")[2] for line in exposed] == ([whole] if expected else [])
    # It may be stopped before it has read the version of the API server.
    expected_too = [*exposed, *(line for line in process.lines if "--scheduler-version" in line)]
    warnings = [line for line in process.lines if " WARNING " in line and line not in expected_too]
    assert warnings == [], "a start is no WARNING"
