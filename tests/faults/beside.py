"""What disturbs a rolling update in a trial in which the daemon is killed as well.

Each disturbance begins directly before the first change of the Deployment arrives, after everything was planned.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import ClassVar, Final, Literal

from devcluster.api import Json
from devcluster.manifests import pod
from devcluster.stages import READY_ON, START_AFTER
from rescheduler.clock import SystemClock
from rescheduler.kube.deployments import RESTARTED_AT
from tests.cluster import webhooks
from tests.cluster.observer import ready
from tests.cluster.surge_scenes import autoscaler, counted, is_rejected, no_restarts, quota
from tests.faults.scene import PODS, WEB, Scene

#: The call by which the daemon changes a Deployment.
CHANGE: Final = "patch deployments"

BesideName = Literal["", "quota", "webhook", "image", "target", "autoscaler", "manifest"]


class Beside:
    """Nothing else happens."""

    lasts: ClassVar[bool] = False  #: whether a rolling update cannot complete, until the trial ends
    start_after: ClassVar[str] = "3s"  #: from when a pod is bound until it is Ready

    def __init__(self, env: Scene) -> None:
        self.env = env

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of the template."""
        return {START_AFTER: self.start_after}

    @contextmanager
    def built(self) -> Iterator[None]:
        """Prepare the disturbance, and end it after the block."""
        yield

    def begin(self) -> None:
        """Begin, before the Deployment is changed for the first time."""

    def go_on(self) -> None:
        """Act after the beginning, again and again."""

    def happened(self) -> bool:
        """Return whether it took effect after its beginning."""
        return True

    def _end(self, item: Json) -> None:
        self.env.plane.api.delete(self.env.plane.api.path(item))


class Quota(Beside):
    """A quota is used up: no pod can be created beside the old ones."""

    lasts = True

    def begin(self) -> None:
        counted(self.env.plane, self.env.site.name, pods=str(len(self.env.pods())))

    @contextmanager
    def built(self) -> Iterator[None]:
        yield
        self._end(quota(self.env.site.name))


class Webhook(Beside):
    """A webhook rejects new pods."""

    lasts = True

    @contextmanager
    def built(self) -> Iterator[None]:
        folder = self.env.site.folder / f"{self.env.name}-webhook"
        folder.mkdir()
        rules = webhooks.rule("", "pods", "CREATE")
        with webhooks.serving(f"no-restarts-{self.env.name}", rules, no_restarts, folder) as self._hook:
            self._hook["webhooks"][0]["namespaceSelector"] = {
                "matchLabels": {"kubernetes.io/metadata.name": self.env.site.name}
            }
            yield
            self._end(self._hook)

    def begin(self) -> None:
        namespace = self.env.site.name
        new = pod("new", namespace=namespace, annotations={RESTARTED_AT: "now"})
        request = ("POST", f"/api/v1/namespaces/{namespace}/pods", new, "application/json")
        self.env.plane.apply([self._hook])
        self.env.plane.wait_for(lambda: is_rejected(self.env.plane, request), "the webhook to be asked")


class Image(Beside):
    """New pods never start on spot nodes."""

    lasts = True

    @property
    def annotations(self) -> dict[str, str]:
        return {READY_ON: self.env.node}

    @contextmanager
    def built(self) -> Iterator[None]:
        api, path = self.env.plane.api, self.env.plane.api.path(self.env.web)
        changed = api.patch(path, {"spec": {"progressDeadlineSeconds": 5}})["metadata"]["generation"]
        self.env.plane.wait_for(
            lambda: api.get(path)["status"].get("observedGeneration") == changed, "the new deadline"
        )
        yield


class Target(Beside):
    """The spot node on which the first new pod starts vanishes, and the pod with it."""

    start_after = "10s"
    _soon: ClassVar = timedelta(seconds=4)  #: after its creation, in which a pod is surely not Ready

    def __init__(self, env: Scene) -> None:
        super().__init__(env)
        self._lost = False

    def go_on(self) -> None:
        for new in self.env.pods():
            on, of_web = new["spec"].get("nodeName", ""), new["metadata"]["labels"]["app"] == WEB
            if not self._lost and of_web and "-spot-" in on and self._is_new(new):
                self._lost = True
                self.env.plane.api.delete(f"/api/v1/nodes/{on}")
                path = self.env.plane.api.path({"apiVersion": "v1", "kind": "Pod", **new})
                self.env.plane.api.delete(path, gracePeriodSeconds=0)

    def happened(self) -> bool:
        return self._lost

    def _is_new(self, new: Json) -> bool:
        created = datetime.fromisoformat(new["metadata"]["creationTimestamp"])
        return SystemClock().now() - created < self._soon and not ready([new])


class Autoscaler(Beside):
    """An autoscaler wants a pod more."""

    start_after = "6s"

    def begin(self) -> None:
        self.env.plane.apply([autoscaler(PODS[WEB] + 1, self.env.site.name)])

    def happened(self) -> bool:
        wanted: int = self.env.plane.api.get(self.env.plane.api.path(self.env.web))["spec"]["replicas"]
        return wanted > PODS[WEB]

    @contextmanager
    def built(self) -> Iterator[None]:
        yield
        self._end(autoscaler(1, self.env.site.name))


class Manifest(Beside):
    """A controller applies its manifest again and again, and reverts `spec.replicas` if another client changes it."""

    def go_on(self) -> None:
        self.env.plane.apply([self.env.web])


BESIDE: Final[Mapping[BesideName, type[Beside]]] = {
    "": Beside,
    "quota": Quota,
    "webhook": Webhook,
    "image": Image,
    "target": Target,
    "autoscaler": Autoscaler,
    "manifest": Manifest,
}
