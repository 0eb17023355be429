"""The command lines of the five components."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from devcluster import build
from devcluster.build import Binaries

Component = Literal["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"]

#: All components, in start order.
ALL: tuple[Component, ...] = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")

ADMIN = "local-admin"

#: Components with their own user, so that the audit policy can omit their requests.
CLIENTS: tuple[Component, ...] = ("kube-controller-manager", "kube-scheduler", "kwok")

_WITHOUT_CLOUDS = 37  #: since this minor version, kube-controller-manager has no controllers for clouds

SERVICE_ACCOUNT_ISSUER = "https://kubernetes.default.svc.cluster.local"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of a control plane's files, all below one folder."""

    folder: Path

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def data(self) -> Path:
        """The database of etcd."""
        return self.folder / "data"

    @property
    def certificates(self) -> Path:
        return self.folder / "certificates"

    @property
    def certificate(self) -> Path:
        """The serving certificate that the API server generates, followed by its CA."""
        return self.certificates / "apiserver.crt"

    @property
    def key(self) -> Path:
        """The serving certificate's RSA key, which also signs ServiceAccount tokens."""
        return self.certificates / "apiserver.key"

    @property
    def tokens(self) -> Path:
        return self.certificates / "tokens.csv"

    @property
    def stages(self) -> Path:
        return self.folder / "stages"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def audit_policy(self) -> Path:
        return self.folder / "audit-policy.json"

    @property
    def audit_log(self) -> Path:
        """The audit log; see `audit`."""
        return self.logs / "audit.log"

    def log(self, component: Component) -> Path:
        return self.logs / f"{component}.log"

    def client_kubeconfig(self, component: Component) -> Path:
        """Return the kubeconfig path of *component*, one of CLIENTS."""
        return self.folder / f"kubeconfig-{user(component)}"


def user(component: Component) -> str:
    """Return the user name of *component*, one of CLIENTS; the user is an administrator."""
    return f"local-{component}"


@dataclass(frozen=True, slots=True)
class Setting:
    """The parameters of the command lines."""

    binaries: Binaries
    layout: Layout
    etcd_port: int
    api_port: int
    stages: Sequence[Path]
    alpha: Sequence[str] = ()  #: feature gates to enable; if there are any, alpha versions of APIs are served as well


def command(component: Component, setting: Setting) -> list[str]:
    """Return the command line that runs *component*."""
    return _COMMANDS[component](setting)


def _etcd(setting: Setting) -> list[str]:
    client = f"http://127.0.0.1:{setting.etcd_port}"
    return [
        str(setting.binaries.controlplane),
        "etcd",
        f"--data-dir={setting.layout.data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        "--listen-peer-urls=http://127.0.0.1:0",  # a single member; any port works
        "--unsafe-no-fsync",  # the data need not survive a crash
        "--log-level=warn",
    ]


def _kube_apiserver(setting: Setting) -> list[str]:
    layout = setting.layout
    return [
        str(setting.binaries.controlplane),
        "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{setting.etcd_port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={setting.api_port}",
        f"--cert-dir={layout.certificates}",
        f"--token-auth-file={layout.tokens}",
        "--authorization-mode=Node,RBAC",
        f"--service-account-issuer={SERVICE_ACCOUNT_ISSUER}",
        f"--service-account-key-file={layout.key}",
        f"--service-account-signing-key-file={layout.key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--disable-admission-plugins=ServiceAccount",  # pods do not require an existing ServiceAccount
        "--endpoint-reconciler-type=none",
        f"--audit-policy-file={layout.audit_policy}",
        f"--audit-log-path={layout.audit_log}",
        "--audit-log-mode=blocking",  # the line is written before the client receives the response
        "--audit-log-maxsize=100000",  # megabytes; prevents rotation, after which readers would lose their position
        *(["--runtime-config=api/alpha=true", _gates(setting)] if setting.alpha else []),
    ]


def _gates(setting: Setting) -> str:
    return f"--feature-gates={','.join(f'{gate}=true' for gate in setting.alpha)}"


def _kube_controller_manager(setting: Setting) -> list[str]:
    layout = setting.layout
    return [
        str(setting.binaries.controlplane),
        "kube-controller-manager",
        *_client("kube-controller-manager", layout),
        f"--service-account-private-key-file={layout.key}",
        f"--root-ca-file={layout.certificate}",
        f"--controllers={','.join(('*', '-nodeipam', *_cloud_controllers()))}",
        # On a busy machine kwok's heartbeats are late. If a node became NotReady, its pods would be marked not Ready.
        # kwok never marks them Ready again, so disruption budgets would block evictions forever.
        "--node-monitor-grace-period=600s",
    ]


def _cloud_controllers() -> tuple[str, ...]:
    """Return the controllers that need a cloud, each with the prefix that disables it. Kubernetes 1.37 has none."""
    if int(build.version().partition(".")[2]) >= _WITHOUT_CLOUDS:
        return ()
    return "-cloud-node-lifecycle", "-service-lb-controller", "-node-route-controller"


def _kube_scheduler(setting: Setting) -> list[str]:
    return [str(setting.binaries.controlplane), "kube-scheduler", *_client("kube-scheduler", setting.layout)]


def _client(component: Component, layout: Layout) -> list[str]:
    """Return the flags of a single replica without a server and effectively without a client-side rate limit."""
    return [
        f"--kubeconfig={layout.client_kubeconfig(component)}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
    ]


def _kwok(setting: Setting) -> list[str]:
    return [
        str(setting.binaries.kwok),
        f"--kubeconfig={setting.layout.client_kubeconfig('kwok')}",
        # a node without the annotation keeps the status with which it was created
        f"--manage-nodes-with-annotation-selector={KWOK_NODE}=fake",
        # Status updates are sufficient heartbeats for the controller manager. A lease per node, renewed every 10 s,
        # would only cost CPU time, and kwok would stop managing a node if a renewal is late.
        "--node-lease-duration-seconds=0",
        *(f"--config={stage}" for stage in setting.stages),
    ]


KWOK_NODE = "kwok.x-k8s.io/node"  #: kwok's annotation for nodes that it manages

_COMMANDS: dict[Component, Callable[[Setting], list[str]]] = {
    "etcd": _etcd,
    "kube-apiserver": _kube_apiserver,
    "kube-controller-manager": _kube_controller_manager,
    "kube-scheduler": _kube_scheduler,
    "kwok": _kwok,
}
