"""Validating webhooks: HTTPS servers of the tests, with the configuration that registers them."""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, TypeAlias

from devcluster.api import Json
from tests.providers import pki

#: Returns the status with which a request is denied, or None if it is allowed.
Verdict: TypeAlias = Callable[[Json], Json | None]

#: How long the API server waits for a webhook.
TIMEOUT_SECONDS: Final = 10


def rule(group: str, resource: str, operation: str) -> Json:
    return {"apiGroups": [group], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}


def configuration(name: str, rules: Json, port: int, authority: Path) -> Json:
    bundle = base64.b64encode(authority.read_bytes()).decode()
    hook = {
        "name": f"{name}.example.org",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": bundle},
        "rules": [rules],
        "failurePolicy": "Fail",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "admissionReviewVersions": ["v1"],
    }
    kind = "ValidatingWebhookConfiguration"
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": [hook],
    }


@contextmanager
def serving(name: str, rules: Json, verdict: Verdict, folder: Path) -> Iterator[Json]:
    """Serve a webhook. Yield its configuration, which the caller creates and deletes."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))["request"]
            status = verdict(request)
            response = {
                "uid": request["uid"],
                "allowed": status is None,
                **({} if status is None else {"status": status}),
            }
            review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
            content = json.dumps(review).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    pki.make(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield configuration(name, rules, server.server_address[1], folder / "ca.pem")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
