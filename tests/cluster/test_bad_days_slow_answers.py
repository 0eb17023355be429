"""The API server responds slowly to an eviction, and the daemon is stopped during the request."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

from devcluster.api import Json
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from devcluster.stages import READY_ON
from tests.cluster.bad_days import FLAGS, NODE_1
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer
from tests.cluster.test_bad_days_replacements import webhook

PODS = 2


@contextlib.contextmanager
def slow_evictions(cluster: ControlPlane) -> Iterator[list[Any]]:
    """Delay each eviction by 3 s with a webhook that does not respond; yield the webhook's connections so far."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections: list[Any] = []

        def accept() -> None:
            with contextlib.suppress(OSError):  # closed at the end
                while True:
                    connections.append(server.accept())

        threading.Thread(target=accept, name="webhook", daemon=True).start()
        configuration = on_evictions(webhook("default"), server.getsockname()[1])
        cluster.apply([configuration])
        try:
            yield connections
        finally:
            cluster.api.delete(cluster.api.path(configuration))
            server.shutdown(socket.SHUT_RDWR)
            for connection, _ in connections:
                connection.close()


def on_evictions(configuration: Json, port: int) -> Json:
    [hook] = configuration["webhooks"]
    hook["rules"][0]["resources"] = ["pods/eviction"]
    hook |= {"clientConfig": {"url": f"https://127.0.0.1:{port}/"}, "failurePolicy": "Ignore", "timeoutSeconds": 3}
    return configuration


def test_an_eviction_accepted_after_the_rollback_is_owed(cluster: ControlPlane, observer: Observer) -> None:
    observer.nodes(1, 2)
    observer.start_on(NODE_1, deployment("web", PODS, annotations={READY_ON: "on-demand"}), pods=PODS)
    observer.running(PODS)
    before = observer.uids()
    observer.open_all()
    with slow_evictions(cluster) as connections, Daemon(cluster, *FLAGS) as daemon:
        observer.eventually(lambda: len(connections) > PODS, "an eviction after the dry runs of all")
        daemon.terminate()
        observer.wait_unmarked()
        assert observer.uids() == before, "the eviction was answered too early"
        assert daemon.end() == 0
        observer.eventually(lambda: len(before & observer.uids()) == PODS - 1, "the eviction accepted")
    with Daemon(cluster, *FLAGS):
        observer.stays(lambda: len(before & observer.uids()), PODS - 1, seconds=10)
    assert len(observer.evictions()) == 1
