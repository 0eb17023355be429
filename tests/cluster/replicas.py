"""Replicas of the daemon with the shipped RBAC and a pod-bound token each, with or without fencing."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from devcluster.api import Json
from devcluster.audit import AuditEvent
from devcluster.errors import ApiError
from devcluster.manifests import namespace, node, pod
from devcluster.plane import ControlPlane
from rescheduler.settings import LEASE
from tests.cluster.daemon import Daemon
from tests.forking import PROGRAM

NAMESPACE: Final = "spot-rescheduler"
ACCOUNT: Final = "spot-rescheduler"
FENCED: Final[Json] = {"resources": ["../base"], "components": ["../components/machines", "../components/fencing"]}
BARE: Final[Json] = {"resources": ["../base"], "components": ["../components/machines"]}

#: The rendered objects that are installed: RBAC, stored state and fencing. The replicas are processes of the test.
_RIGHTS: Final = frozenset({"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"})
_FENCE: Final = ("ConfigMap", "Lease", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")

#: A policy without effect that is never deleted. If the last policy with a Lease as parameter is deleted, the API
#: server later reads Leases from a stopped cache until it is restarted (kubernetes/kubernetes#130887).
_KEEPER: Final[tuple[Json, ...]] = (
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "local-keeper-of-leases"},
        "spec": {
            "paramKind": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"},
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["local.example.org"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["nothing"],
                    }
                ]
            },
            "validations": [{"expression": "true"}],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "local-keeper-of-leases"},
        "spec": {
            "policyName": "local-keeper-of-leases",
            "validationActions": ["Deny"],
            "paramRef": {"name": "none", "namespace": "default", "parameterNotFoundAction": "Allow"},
        },
    },
)

#: A node that is neither on-demand nor spot, with room for the replicas and nothing else.
_HOME: Final = "control-1"


@dataclass(frozen=True)
class ReplicatedInstallation:
    """An installation: namespace, ServiceAccount and Lease of its replicas."""

    plane: ControlPlane
    namespace: str = NAMESPACE
    account: str = ACCOUNT
    lease: str = LEASE

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.account}"

    @property
    def lease_path(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{self.lease}"

    @property
    def leader(self) -> str:
        """The pod that holds the Lease, or ""."""
        try:
            holder: str = self.plane.api.get(self.lease_path).get("spec", {}).get("holderIdentity", "")
        except ApiError:
            return ""
        return holder.partition("_")[0]

    def kubeconfig(self, replica: str | None) -> Path:
        """Return a kubeconfig with a token that is bound to the replica's pod, or to no pod."""
        return self.plane.service_account_kubeconfig(self.namespace, self.account, pod=replica)

    def daemon(self, replica: str, *flags: str, program: Sequence[str] = PROGRAM) -> Daemon:
        own = (f"--namespace={self.namespace}", f"--lease-name={self.lease}", f"--pod-name={replica}")
        return Daemon(self.plane, *flags, *own, kubeconfig=self.kubeconfig(replica), program=program)


@contextlib.contextmanager
def installed(
    installation: ReplicatedInstallation, objects: Sequence[Json], replicas: Sequence[str] = ("a", "b")
) -> Iterator[ReplicatedInstallation]:
    """Install RBAC, stored state and fencing of *objects* and the pods of *replicas* for the duration of the block."""
    plane = installation.plane
    rights = [item for item in objects if item["kind"] in _RIGHTS]
    fence = sorted((item for item in objects if item["kind"] in _FENCE), key=lambda item: _FENCE.index(item["kind"]))
    pods = [_replica(installation, name) for name in replicas]
    home = node(_HOME, allocatable={"pods": str(len(pods))})
    plane.apply([*_KEEPER, namespace(installation.namespace), home, *pods, *rights, *fence])
    try:
        yield installation
    finally:
        for item in [*reversed(fence), *rights]:
            path = plane.api.path(item)
            plane.wait_for(partial(_deleted, plane, path), f"the deletion of {path}")


def _replica(installation: ReplicatedInstallation, name: str) -> Json:
    """Return the pod of a replica. No pod preempts it: its token would become invalid."""
    account, priority = installation.account, "system-node-critical"
    spec: Json = {"nodeName": _HOME, "serviceAccountName": account, "priorityClassName": priority}
    return pod(name, namespace=installation.namespace, **spec)


def _deleted(plane: ControlPlane, path: str) -> bool:
    """Delete the object at *path*; a Lease can be deleted only after the API server has dropped its policy."""
    try:
        plane.api.delete(path)
    except ApiError:
        return False
    return True


def written_by(events: Sequence[AuditEvent], replica: str) -> list[AuditEvent]:
    """Return the successful writes with the token of the replica's pod."""
    return [event for event in events if event.user.pod == replica and event.accepted and not event.dry_run]
