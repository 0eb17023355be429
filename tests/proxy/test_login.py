"""Client certificates in each configuration format, sent to a server that requires one."""

import base64
import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rescheduler.clock import SystemClock
from rescheduler.cloudpool.proxy.config import ApiServerAuth, ApiServerSection
from rescheduler.cloudpool.proxy.run import source
from rescheduler.errors import ReschedulerError
from rescheduler.kube.client import Client
from tests.providers import pki


class _Who(BaseHTTPRequestHandler):
    """An HTTP handler that returns the common name of the client's certificate."""

    protocol_version = "HTTP/1.1"
    connection: ssl.SSLSocket

    def do_GET(self) -> None:
        shown: Any = self.connection.getpeercert()
        names = dict(part[0] for part in shown["subject"])
        body = json.dumps({"name": names["commonName"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore rejected clients."""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Run a server that requires a certificate of ca.pem."""
    server = _Quiet(("127.0.0.1", 0), _Who)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    # The connection's thread performs the handshake at its first read.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pki.make(tmp_path)
    return tmp_path


def files(folder: Path, url: str) -> ApiServerSection:
    certificate, key, ca = (str(folder / name) for name in ("client.crt", "client.key", "ca.pem"))
    return ApiServerSection(
        url=url, auth=ApiServerAuth(client_cert_path=certificate, client_key_path=key, ca_cert_path=ca)
    )


def kubeconfig(folder: Path, url: str, cluster: dict[str, str], user: dict[str, str]) -> ApiServerSection:
    document = {
        "clusters": [{"name": "c", "cluster": {"server": url, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    }
    (folder / "kubeconfig").write_text(json.dumps(document))
    return ApiServerSection(url=f"{url}/", auth=ApiServerAuth(kube_config_path=str(folder / "kubeconfig")))


def by_paths(folder: Path, url: str) -> ApiServerSection:
    """Write a kubeconfig with paths, which are relative to its folder."""
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    return kubeconfig(folder, url, {"certificate-authority": "ca.pem"}, user)


def by_data(folder: Path, url: str) -> ApiServerSection:
    def data(name: str) -> str:
        return base64.b64encode((folder / name).read_bytes()).decode()

    user = {"client-certificate-data": data("client.crt"), "client-key-data": data("client.key")}
    return kubeconfig(folder, url, {"certificate-authority-data": data("ca.pem")}, user)


def asked(api: ApiServerSection) -> Any:
    with source(api) as connection:
        return json.loads(Client(connection, SystemClock()).request("get x", "GET", "/x").body)


@pytest.mark.parametrize("form", [files, by_paths, by_data])
def test_certificates_are_sent(form: Any, folder: Path) -> None:
    with serving(folder) as url:
        assert asked(form(folder, url)) == {"name": "client"}


def test_a_certificate_of_another_ca_is_rejected(folder: Path) -> None:
    for name, kind in (("client.crt", "stranger.pem"), ("client.key", "stranger.key")):
        (folder / name).write_text((folder / kind).read_text())
    with serving(folder) as url, pytest.raises(ReschedulerError):
        asked(files(folder, url))
