"""A registry of container images on HTTPS, which wants a token first and whose responses can be told."""

import contextlib
import hashlib
import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.providers import pki

OCI: Final = "application/vnd.oci.image.index.v1+json"
DOCKER: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
TOKEN: Final = "a-token-of-the-registry"


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def index(*platforms: str, kind: str = OCI, **more: Any) -> Reply:
    """Return an index of manifests for *platforms*, as a registry sends it."""
    manifests = [
        {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest(platform.encode()),
            "size": 1,
            "platform": dict(zip(("os", "architecture", "variant"), platform.split("/"), strict=False)),
        }
        for platform in platforms
    ]
    body = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": manifests, **more}, indent=3).encode()
    return Reply(body=body, headers={"Content-Type": kind, "Docker-Content-Digest": digest(body)})


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Registry(ThreadingHTTPServer):
    """*replies* are those for a manifest, in order; the last one is repeated. *asked* are the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.daemon_threads = True
        self.replies: dict[str, list[Reply]] = {}
        self.token: Reply | None = None  #: in place of the token
        self.realm: str | None = None
        self.asked: list[str] = []

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not trust the certificate is no error of the registry."""


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.server.asked.append(url.path)
        if url.path == "/token":
            self._send(self.server.token or self._token(parse_qs(url.query)))
        elif self.headers["Authorization"] != f"Bearer {TOKEN}":
            self._send(Reply(401, headers={"WWW-Authenticate": self._challenge(url.path)}))
        else:
            assert {OCI, DOCKER} <= set(self.headers["Accept"].split(", "))
            name = url.path.removeprefix("/v2/").replace("/manifests/", ":")
            replies = self.server.replies.get(name) or [Reply(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')]
            self._send(replies.pop(0) if replies[1:] else replies[0])

    def _challenge(self, path: str) -> str:
        realm = self.server.realm or f"https://{self.server.host}/token"
        repository = path.removeprefix("/v2/").partition("/manifests/")[0]
        return f'Bearer realm="{realm}",service="the registry",scope="repository:{repository}:pull"'

    def _token(self, query: dict[str, list[str]]) -> Reply:
        assert query["service"] == ["the registry"]
        assert query["scope"][0].startswith("repository:")
        return Reply(body=json.dumps({"token": TOKEN, "expires_in": 300}).encode())

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in {**reply.headers, "Content-Length": str(len(reply.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Registry]:
    """Serve a registry whose certificate was issued by ``ca.pem`` in *folder*."""
    pki.make(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    with Registry() as registry:
        registry.socket = context.wrap_socket(registry.socket, server_side=True)
        thread = threading.Thread(target=registry.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield registry
        finally:
            registry.shutdown()
            thread.join()
