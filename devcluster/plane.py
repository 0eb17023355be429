"""A control plane as a context manager."""

import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx2
from tenacity import RetryError

from devcluster import audit, build, components, kubeconfig, manifests, ports, stages
from devcluster.api import Api, Json
from devcluster.components import Component
from devcluster.errors import ApiError, PlaneError
from devcluster.polling import poll
from devcluster.processes import Processes

START_SECONDS = 90.0  #: for the start of all components; takes 4 s on an idle machine
WAIT_SECONDS = 120.0
CHECK_SECONDS = 1.0

#: The namespace of the shipped manifests, which do not create it.
INSTALLATION = "spot-rescheduler"

_Result = TypeVar("_Result")


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok, on free ports of 127.0.0.1.

    `with ControlPlane() as plane:` starts them and waits until the API server is ready. Several control planes may run
    side by side. The processes end with the `with` block, or with this process, however it ends.

    *folder* contains all files: data, certificates, kubeconfig, logs. It must be empty or new, and is not deleted. By
    default, a temporary folder is used and deleted. Components that are not in *running* can be started later with
    `start_component`; etcd and the API server are always started. *alpha* are feature gates of the API server.

    Raises SetupError if a requirement is missing on this machine, PlaneError if a component fails.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        running: Collection[Component] = components.ALL,
        alpha: Collection[str] = (),
    ) -> None:
        self._given = folder
        self._wanted = running
        self._alpha = tuple(alpha)
        self._until = ExitStack()
        self._processes = Processes()
        self._setting: components.Setting
        self._client_tokens = {component: secrets.token_hex(16) for component in components.CLIENTS}
        self.token = secrets.token_hex(16)  #: the token of an administrator (group system:masters)
        self.api: Api  #: a connection with that token

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start all components; stop them again if one fails."""
        try:
            self._prepare()
            self._start_server()
            self.start_stopped()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop all components, and delete the folder if it is temporary."""
        self._processes.stop_all()
        self._until.close()

    @property
    def layout(self) -> components.Layout:
        """The paths of the files."""
        return self._setting.layout

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://127.0.0.1:{self._setting.api_port}"

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the administrator."""
        return self.layout.kubeconfig

    @property
    def ca(self) -> Path:
        """The CA certificate of the API server, in PEM format."""
        return self.layout.certificate

    @property
    def etcd_port(self) -> int:
        """The port of etcd, for the functions of `etcd`."""
        return self._setting.etcd_port

    @property
    def processes(self) -> Mapping[str, int]:
        """The running components, and the process ids of their guards."""
        return self._processes.running

    def start_component(self, name: Component) -> None:
        """Start a stopped component; for the API server, wait until it is ready."""
        self._processes.start(name, components.command(name, self._setting), self.layout.log(name))
        if name == "kube-apiserver":
            self._wait_until_ready()

    def start_stopped(self) -> None:
        """Start all stopped components of this plane."""
        for name in components.ALL:
            if name in self._wanted and name not in self._processes.running:
                self.start_component(name)

    def stop_component(self, name: Component) -> None:
        """Kill a component but keep its data; `start_component` restarts it on the same port."""
        self._processes.stop(name)

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> list[Json]:
        """Apply manifests in the given order as administrator; see `Api.apply`."""
        return self.api.apply(objects)

    def wait_for(self, predicate: Callable[[], _Result], what: str = "", *, seconds: float = WAIT_SECONDS) -> _Result:
        """Call *predicate* until it returns a true value, and return that value.

        Raises PlaneError with the description *what* after *seconds*, or immediately if a component has exited.
        Exceptions of *predicate* propagate.
        """
        return self._poll(predicate, what or predicate.__name__, seconds)

    def wait_until(self, stopped: threading.Event) -> None:
        """Wait until *stopped* is set. Raises PlaneError if a component exits before that."""
        while not stopped.wait(CHECK_SECONDS):
            self._processes.check()

    def service_account_kubeconfig(
        self, namespace: str, name: str, *, pod: str | None = None, seconds: int = 3600
    ) -> Path:
        """Return a kubeconfig with a token of the ServiceAccount, valid for *seconds* (at least 600).

        The token comes from the TokenRequest API, so RBAC grants it exactly the permissions of the ServiceAccount. With
        *pod*, the token is bound to that pod, like the tokens that kubelets mount: it contains the pod's name and
        becomes invalid when the pod is deleted. The pod must exist and use the ServiceAccount.
        """
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        spec: Json = {"audiences": [components.SERVICE_ACCOUNT_ISSUER], "expirationSeconds": seconds}
        if pod is not None:
            uid = self.api.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")["metadata"]["uid"]
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        token = self.api.post(path, review)["status"]["token"]
        return self.token_kubeconfig("-".join(filter(None, (namespace, name, pod))), token)

    def token_kubeconfig(self, user: str, token: str) -> Path:
        """Return a kubeconfig in this plane's folder with *token*, which may be invalid."""
        target = self.layout.folder / f"kubeconfig-{user}"
        return kubeconfig.write(target, server=self.server, ca=self.ca, token=token, user=user)

    def _prepare(self) -> None:
        binaries = build.binaries()
        layout = components.Layout(self._claim_folder())
        for folder in (layout.certificates, layout.logs):
            folder.mkdir(mode=0o700)
        layout.tokens.touch(mode=0o600)
        layout.tokens.write_text("".join(f'{token},{user},{user},"system:masters"\n' for user, token in self._tokens()))
        audit.write_policy(layout.audit_policy, [components.user(component) for component in components.CLIENTS])
        self._setting = components.Setting(
            binaries=binaries,
            layout=layout,
            etcd_port=ports.reserve(self._until),
            api_port=ports.reserve(self._until),
            stages=stages.write(binaries.stages, layout.stages),
            alpha=self._alpha,
        )

    def _tokens(self) -> Iterable[tuple[str, str]]:
        """Yield the administrators' names and tokens: one for users of the plane, and one for each component."""
        yield components.ADMIN, self.token
        yield from ((components.user(component), token) for component, token in self._client_tokens.items())

    def _claim_folder(self) -> Path:
        if self._given is None:
            folder = Path(tempfile.mkdtemp(prefix="control-plane-"))
            self._until.callback(shutil.rmtree, folder, ignore_errors=True)
            return folder
        folder = self._given.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise PlaneError(f"{folder} is not empty; a control plane needs an empty folder")
        return folder

    def _start_server(self) -> None:
        for name in ("etcd", "kube-apiserver"):
            self._processes.start(name, components.command(name, self._setting), self.layout.log(name))
        self._poll(self.layout.key.exists, "the API server's certificate", START_SECONDS, of="kube-apiserver")
        self.api = self._until.enter_context(Api(self.server, ca=self.ca, token=self.token))
        self._wait_until_ready()
        self.apply([manifests.namespace(INSTALLATION)])
        self.token_kubeconfig(components.ADMIN, self.token).rename(self.kubeconfig)
        for component, token in self._client_tokens.items():
            self.token_kubeconfig(components.user(component), token)

    def _wait_until_ready(self) -> None:
        def ready() -> bool:
            self.api.get("/readyz")
            return bool(self.api.get("/api/v1/namespaces/default"))

        not_yet = (ApiError, httpx2.TransportError)
        self._poll(ready, "the API server", START_SECONDS, patient_with=not_yet, of="kube-apiserver")

    def _poll(
        self,
        predicate: Callable[[], _Result],
        what: str,
        seconds: float,
        *,
        patient_with: tuple[type[Exception], ...] = (),
        of: Component | None = None,
    ) -> _Result:
        def attempt() -> _Result:
            self._processes.check()
            return predicate()

        try:
            return poll(attempt, seconds, patient_with=patient_with)
        except RetryError as error:
            log = f"; the end of its log:\n{self._processes.tail(of)}" if of else ""
            raise PlaneError(f"timed out after {seconds:g} s waiting for {what}{log}") from error
