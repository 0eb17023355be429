"""A whole control plane as a context manager."""

import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
from tenacity import RetryError, Retrying, retry_if_exception_type, retry_if_result, stop_after_delay, wait_fixed

from deploy.local import audit, build, components, kubeconfig, ports, stages
from deploy.local.api import Api, Json
from deploy.local.components import Component
from deploy.local.errors import ApiError, PlaneError
from deploy.local.processes import Processes

START_SECONDS = 90.0  #: for all to be up; 4 s where nothing else runs
WAIT_SECONDS = 120.0
POLL_SECONDS = 0.1
CHECK_SECONDS = 1.0

_Found = TypeVar("_Found")


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok, on free ports of 127.0.0.1.

    `with ControlPlane() as plane:` starts them, and returns when the API server is ready. Several may run
    side by side. Their processes end with the `with`, or with this process, however that ends.

    *folder* holds everything: data, certificates, kubeconfig, logs. It has to be empty or new, and is left
    behind; without one, a temporary folder is used and deleted. Components that are not in *running* can be
    started later with `start_component`; etcd and the API server always start.

    Raises SetupError where the machine lacks something, PlaneError where a component fails.
    """

    def __init__(self, folder: Path | None = None, *, running: Collection[Component] = components.ALL) -> None:
        self._given = folder
        self._wanted = running
        self._until = ExitStack()
        self._processes = Processes()
        self._setting: components.Setting
        self._client_tokens = {one: secrets.token_hex(16) for one in components.CLIENTS}
        self.token = secrets.token_hex(16)  #: of an administrator (group system:masters)
        self.api: Api  #: a connection as that administrator

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Bring everything up; what was started is stopped again where it fails."""
        try:
            self._prepare()
            self._start_server()
            self.start_stopped()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop everything, and delete the folder where it is a temporary one."""
        self._processes.stop_all()
        self._until.close()

    @property
    def layout(self) -> components.Layout:
        """Where the files are."""
        return self._setting.layout

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self._setting.api_port}"

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig for the administrator."""
        return self.layout.kubeconfig

    @property
    def ca(self) -> Path:
        """The certificate authority of the API server, PEM."""
        return self.layout.certificate

    @property
    def processes(self) -> Mapping[str, int]:
        """The components that run; the process id is that of a component's guard."""
        return self._processes.running

    def start_component(self, name: Component) -> None:
        """Start a component that does not run; for the API server, wait until it is ready."""
        self._processes.start(name, components.command(name, self._setting), self.layout.log(name))
        if name == "kube-apiserver":
            self._wait_until_ready()

    def start_stopped(self) -> None:
        """Start the components that belong to this plane and do not run."""
        for name in components.ALL:
            if name in self._wanted and name not in self._processes.running:
                self.start_component(name)

    def stop_component(self, name: Component) -> None:
        """Kill a component; its data stays, `start_component` brings it back on the same port."""
        self._processes.stop(name)

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> list[Json]:
        """Server-side apply of manifests in the given order, as administrator; see `Api.apply`."""
        return self.api.apply(objects)

    def wait_for(self, predicate: Callable[[], _Found], what: str = "", *, seconds: float = WAIT_SECONDS) -> _Found:
        """Call *predicate* until it returns something true, and return that.

        Raises PlaneError with *what* was waited for after *seconds*, or at once where a component ended.
        What *predicate* raises goes through.
        """
        return self._poll(predicate, what or predicate.__name__, seconds)

    def wait_until(self, stopped: threading.Event) -> None:
        """Stay until *stopped* is set; PlaneError where a component ends before."""
        while not stopped.wait(CHECK_SECONDS):
            self._processes.check()

    def service_account_kubeconfig(
        self, namespace: str, name: str, *, pod: str | None = None, seconds: int = 3600
    ) -> Path:
        """A kubeconfig with a token of the ServiceAccount, valid for *seconds* (600 at least).

        The token comes from the TokenRequest API, so its holder may do what RBAC allows the account and
        nothing more. It is bound to the *pod* of that name, as the tokens that kubelets mount are: it carries the
        pod's name, and ends with the pod, which has to be there and run as the ServiceAccount.
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
        """A kubeconfig in this plane's folder that authenticates with *token*, valid or not."""
        target = self.layout.folder / f"kubeconfig-{user}"
        return kubeconfig.write(target, server=self.server, ca=self.ca, token=token, user=user)

    def _prepare(self) -> None:
        binaries = build.binaries()
        layout = components.Layout(self._claim_folder())
        for folder in (layout.certificates, layout.logs):
            folder.mkdir(mode=0o700)
        layout.tokens.touch(mode=0o600)
        layout.tokens.write_text("".join(f'{token},{user},{user},"system:masters"\n' for user, token in self._tokens()))
        audit.write_policy(layout.audit_policy, [components.user(one) for one in components.CLIENTS])
        self._setting = components.Setting(
            binaries=binaries,
            layout=layout,
            etcd_port=ports.reserve(self._until),
            api_port=ports.reserve(self._until),
            stages=stages.write(binaries.stages, layout.stages),
        )

    def _tokens(self) -> Iterable[tuple[str, str]]:
        """Administrators: the one that users of the plane have, and one for each component."""
        yield components.ADMIN, self.token
        yield from ((components.user(one), token) for one, token in self._client_tokens.items())

    def _claim_folder(self) -> Path:
        if self._given is None:
            folder = Path(tempfile.mkdtemp(prefix="control-plane-"))
            self._until.callback(shutil.rmtree, folder, ignore_errors=True)
            return folder
        folder = self._given.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise PlaneError(f"{folder} is not empty; a control plane needs a folder of its own")
        return folder

    def _start_server(self) -> None:
        for name in ("etcd", "kube-apiserver"):
            self._processes.start(name, components.command(name, self._setting), self.layout.log(name))
        self._poll(self.layout.key.exists, "the API server's certificate", START_SECONDS, of="kube-apiserver")
        self.api = self._until.enter_context(Api(self.server, ca=self.ca, token=self.token))
        self._wait_until_ready()
        self.token_kubeconfig(components.ADMIN, self.token).rename(self.kubeconfig)
        for one, token in self._client_tokens.items():
            self.token_kubeconfig(components.user(one), token)

    def _wait_until_ready(self) -> None:
        def ready() -> bool:
            self.api.get("/readyz")
            return bool(self.api.get("/api/v1/namespaces/default"))

        not_yet = (ApiError, httpx.TransportError)
        self._poll(ready, "the API server", START_SECONDS, patient_with=not_yet, of="kube-apiserver")

    def _poll(
        self,
        predicate: Callable[[], _Found],
        what: str,
        seconds: float,
        *,
        patient_with: tuple[type[Exception], ...] = (),
        of: Component | None = None,
    ) -> _Found:
        def attempt() -> _Found:
            self._processes.check()
            return predicate()

        again = retry_if_result(lambda found: not found) | retry_if_exception_type(patient_with)
        polling = Retrying(retry=again, stop=stop_after_delay(seconds), wait=wait_fixed(POLL_SECONDS))
        try:
            return polling(attempt)
        except RetryError as error:
            words = f"; the end of its log:\n{self._processes.tail(of)}" if of else ""
            raise PlaneError(f"waited {seconds:g} s for {what}, in vain{words}") from error
