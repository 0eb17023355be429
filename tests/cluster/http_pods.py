"""A real HTTP server behind each pod, and clients of Services, in place of containers and kube-proxy.

The server of a pod listens from when the pod is bound until it is deleted, as a container that ends after its grace
period. A client sends each request to one of the endpoints that the EndpointSlice controller reports as ready.
"""

import http.client
import random
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from kubernetes import client, config

from devcluster.api import Json
from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock
from tests.cluster.ready_watch import Watched

#: Seconds between the requests of one client, and until a request has failed.
INTERVAL: Final = 0.1
PATIENCE: Final = 5.0


def service(app: str) -> Json:
    """Return a Service of the pods of *app*."""
    spec = {"selector": {"app": app}, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": app, "namespace": "default"}, "spec": spec}


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, ThreadingHTTPServer)
        body = str(self.server.server_port).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def _close(server: ThreadingHTTPServer) -> None:
    server.shutdown()
    server.server_close()


class HttpPods:
    """The servers of all pods, and the endpoints of all Services, in the namespace `default`."""

    def __init__(self, plane: ControlPlane) -> None:
        connection = config.new_client_from_config(str(plane.kubeconfig))
        self._watched = (
            Watched(client.CoreV1Api(connection).list_namespaced_pod, self._pod),
            Watched(client.DiscoveryV1Api(connection).list_namespaced_endpoint_slice, self._slice),
        )
        self._lock = threading.Lock()
        self._servers: dict[str, ThreadingHTTPServer] = {}
        self._endpoints: dict[str, dict[str, tuple[str, ...]]] = {}  #: by Service and slice: UIDs of ready pods
        self.requests = 0
        self.failed: list[str] = []

    @contextmanager
    def running(self) -> Iterator["HttpPods"]:
        """Serve as the pods, until the end of the block."""
        for watched in self._watched:
            watched.start()
        try:
            yield self
        finally:
            for watched in self._watched:
                watched.stop()
            for uid in list(self._servers):
                self._end(uid)

    @contextmanager
    def clients(self, apps: Iterable[str]) -> Iterator[None]:
        """Send ten requests a second to the Service of each of *apps*, until the end of the block."""
        ended = threading.Event()
        threads = [threading.Thread(target=self._ask, args=(app, ended), daemon=True) for app in apps]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join()

    def ready(self, app: str) -> list[str]:
        """Return the UIDs of the pods that are ready endpoints of the Service *app*."""
        with self._lock:
            return [uid for uids in self._endpoints.get(app, {}).values() for uid in uids]

    def _ask(self, app: str, ended: threading.Event) -> None:
        clock = SystemClock()
        while not clock.wait(INTERVAL, ended):
            why = self._request(app)
            with self._lock:
                self.requests += 1
                if why:
                    self.failed.append(f"{clock.now():%H:%M:%S.%f} {app}: {why}")

    def _request(self, app: str) -> str:
        """Send a request to the Service *app*, and return why it failed, or ""."""
        if not (uids := self.ready(app)):
            return "no endpoint is ready"
        with self._lock:
            server = self._servers.get(random.choice(uids))
        if server is None:
            return "the server of the endpoint has ended"
        port = server.server_port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            connection.request("GET", "/")
            return "" if connection.getresponse().read() == str(port).encode() else "another server answered"
        except (OSError, http.client.HTTPException) as error:
            return repr(error)
        finally:
            connection.close()

    def _pod(self, kind: str, pod: Any) -> None:
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            self._end(uid)
        elif pod["spec"].get("nodeName") and uid not in self._servers:
            server = ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 1.0}, daemon=True).start()
            with self._lock:
                self._servers[uid] = server

    def _end(self, uid: str) -> None:
        with self._lock:
            server = self._servers.pop(uid, None)
        if server is not None:
            threading.Thread(target=_close, args=(server,), daemon=True).start()  # it takes a moment

    def _slice(self, kind: str, endpoints: Any) -> None:
        meta = endpoints["metadata"]
        of_service = meta.get("labels", {}).get("kubernetes.io/service-name", "")
        uids = tuple(
            each["targetRef"]["uid"] for each in endpoints.get("endpoints") or () if each["conditions"].get("ready")
        )
        with self._lock:
            self._endpoints.setdefault(of_service, {})[meta["name"]] = () if kind == "DELETED" else uids
