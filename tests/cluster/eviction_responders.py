"""A small program in the place of the controller of EvictionRequests and of a responder, from the contract of KEP-4563.

The controller observes the requests, creates one Eviction for each pod that is a target, and activates its responder
with the highest priority: the pod's own one, or the one that uses the eviction API.
"""

import threading
from collections.abc import Callable
from typing import Any, Final, Self

from devcluster.api import Json
from devcluster.errors import ApiError
from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock

ROOT: Final = "/apis/lifecycle.k8s.io/v1alpha1"
EVICTOR: Final = "imperative-eviction.k8s.io/evictor"
MIGRATOR: Final = "acme.io/migrator"
PASS_SECONDS: Final = 0.2


def now() -> str:
    return f"{SystemClock().now():%Y-%m-%dT%H:%M:%SZ}"


class EvictionController:
    """Runs within a `with` block. *migrate* is called once for each pod that MIGRATOR must move."""

    def __init__(self, plane: ControlPlane, migrate: Callable[[Json], object] | None = None) -> None:
        self._plane, self._migrate = plane, migrate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.moved: list[str] = []  #: names of the pods that MIGRATOR was asked to move
        self.evicted: list[str] = []  #: names of the pods that the controller evicted by the eviction API
        self.errors: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(PASS_SECONDS):
            for request in requests(self._plane):
                try:
                    self._reconcile(request)
                except ApiError as error:
                    self.errors.append(str(error))

    def _reconcile(self, request: Json) -> None:
        space, target = request["metadata"]["namespace"], request["spec"]["target"]["pod"]
        observed = {"observedGeneration": request["metadata"]["generation"]}
        if request.get("status", {}).get("observedGeneration") != observed["observedGeneration"]:
            self._status("evictionrequests", request, observed)
        pod = self._pod(space, target)
        eviction = self._eviction(request, pod)
        if pod is None or pod["metadata"].get("deletionTimestamp") or eviction is None:
            return
        active = next(each["name"] for each in eviction["status"]["targetResponders"] if each["state"] == "Active")
        if active == EVICTOR and target["name"] not in self.evicted:
            self.evicted.append(target["name"])
            self._plane.api.post(
                f"/api/v1/namespaces/{space}/pods/{target['name']}/eviction", _eviction_of(space, target)
            )
        elif active != EVICTOR and target["name"] not in self.moved:
            self.moved.append(target["name"])
            if self._migrate is not None:
                self._migrate(pod)

    def _pod(self, space: str, target: Json) -> Json | None:
        try:
            pod = self._plane.api.get(f"/api/v1/namespaces/{space}/pods/{target['name']}")
        except ApiError:
            return None
        return pod if pod["metadata"]["uid"] == target["uid"] else None

    def _eviction(self, request: Json, pod: Json | None) -> Json | None:
        """Return the Eviction of the pod, which is created with the first responder active."""
        space, target = request["metadata"]["namespace"], request["spec"]["target"]["pod"]
        path = f"{ROOT}/namespaces/{space}/evictions"
        for item in self._plane.api.items(path):
            if item["spec"]["target"]["pod"]["uid"] == target["uid"]:
                return item
        if pod is None:
            return None
        labels = {request["spec"]["requester"]: "requester"}
        body = {
            "apiVersion": "lifecycle.k8s.io/v1alpha1",
            "kind": "Eviction",
            "metadata": {"name": target["uid"], "namespace": space, "labels": labels},
            "spec": {"target": {"pod": target}},
        }
        created = self._plane.api.post(path, body)
        own = [each["name"] for each in pod["spec"].get("evictionResponders", ())]
        priorities = {**dict.fromkeys(own, 10000), EVICTOR: 100}
        first = next(iter(priorities))
        states = [
            {"name": name, "priority": priority, "state": "Active" if name == first else "Inactive"}
            for name, priority in priorities.items()
        ]
        times = [{"name": name, **({"startTime": now()} if name == first else {})} for name in priorities]
        status = {
            "observedGeneration": 1,
            "requesters": [{"name": request["spec"]["requester"], "intent": "Eviction"}],
            "targetResponders": states,
            "responders": times,
        }
        return self._status("evictions", created, status)

    def report(self, uid: str, message: str) -> None:
        """Let the active responder of the pod *uid* report *message*."""
        for item in self._plane.api.items(f"{ROOT}/evictions"):
            if item["spec"]["target"]["pod"]["uid"] == uid:
                active = next(each["name"] for each in item["status"]["targetResponders"] if each["state"] == "Active")
                responders = [
                    {**each, "message": message, "heartbeatTime": now()} if each["name"] == active else each
                    for each in item["status"]["responders"]
                ]
                self._status("evictions", item, {**item["status"], "responders": responders})

    def _status(self, plural: str, item: Json, status: Any) -> Json:
        path = f"{ROOT}/namespaces/{item['metadata']['namespace']}/{plural}/{item['metadata']['name']}/status"
        return self._plane.api.patch(path, {"status": status})


def requests(plane: ControlPlane) -> list[Json]:
    """Return all EvictionRequests."""
    return plane.api.items(f"{ROOT}/evictionrequests")


def _eviction_of(space: str, target: Json) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": target["name"], "namespace": space},
        "deleteOptions": {"preconditions": {"uid": target["uid"]}},
    }
