"""Watches from outside: the lowest number of Ready pods of each app, by every change that the API server reports."""

import contextlib
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from kubernetes import client, config, watch
from urllib3.exceptions import ProtocolError

from devcluster.plane import ControlPlane
from tests.cluster.observer import Observer


class Watched:
    """All objects in *namespace* that *listing* returns, and each later change of them, for *apply*."""

    def __init__(
        self, listing: Callable[..., Any], apply: Callable[[str, Any], None], namespace: str = "default"
    ) -> None:
        self._listing = listing
        self._apply = apply
        self._namespace = namespace
        self._stream = watch.Watch()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Apply the objects as they are now, and then the changes, in a thread."""
        body = json.loads(self._listing(self._namespace, _preload_content=False).data)
        for item in body["items"]:
            self._apply("ADDED", item)
        since = str(body["metadata"]["resourceVersion"])
        self._thread = threading.Thread(target=self._follow, args=(since,), daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the watch has not failed."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """End after the next change."""
        self._stream.stop()

    def _follow(self, since: str) -> None:
        with contextlib.suppress(ProtocolError):  # the end of the stream after the end of the test
            for event in self._stream.stream(self._listing, self._namespace, resource_version=since):
                self._apply(event["type"], event["raw_object"])


class ReadyWatch:
    """The lowest number of Ready pods of each app in *namespace* since :meth:`judge`."""

    def __init__(self, plane: ControlPlane, namespace: str = "default") -> None:
        api = client.CoreV1Api(config.new_client_from_config(str(plane.kubeconfig)))
        self.pods = Watched(api.list_namespaced_pod, self._apply, namespace)
        self._ready: defaultdict[str, set[str]] = defaultdict(set)
        self.least: dict[str, int] = {}
        self.events = 0

    def judge(self, apps: Iterable[str]) -> None:
        """Record from now on the lowest number of Ready pods of *apps*."""
        self.least |= {app: len(self._ready[app]) for app in apps}

    def _apply(self, kind: str, pod: Any) -> None:
        self.events += 1
        app, uid = pod["metadata"].get("labels", {}).get("app", ""), pod["metadata"]["uid"]
        conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
        ready = kind != "DELETED" and "deletionTimestamp" not in pod["metadata"] and conditions.get("Ready") == "True"
        (self._ready[app].add if ready else self._ready[app].discard)(uid)
        if app in self.least:
            self.least[app] = min(self.least[app], len(self._ready[app]))


@contextmanager
def never_down(observer: Observer, *apps: str, replicas: int = 1) -> Iterator[ReadyWatch]:
    """Assert at the end that each of *apps* always had *replicas* Ready pods, and that none of them was evicted."""
    watched = ReadyWatch(observer.plane)
    watched.pods.start()
    watched.judge(apps)
    assert watched.least == dict.fromkeys(apps, replicas)
    yield watched
    before = watched.events
    pod = f"/api/v1/namespaces/default/pods/{observer.pods(apps[0])[0]['metadata']['name']}"
    observer.plane.api.patch(pod, {"metadata": {"labels": {"seen": "1"}}})
    observer.eventually(lambda: watched.events > before, "the watch to be up to date")
    assert watched.pods.running
    watched.pods.stop()
    assert watched.least == dict.fromkeys(apps, replicas)
    assert not {owner.partition("/")[2] for owner in observer.evicted()} & set(apps)
