"""The Nodes of machines: created when a machine has booted, and by default deleted when it is terminated."""

import datetime as dt
from typing import Any, Final

import kubernetes
from urllib3.exceptions import HTTPError

from devcluster import manifests
from devcluster.cloudpool.machines import PoolMachine
from devcluster.cloudpool.pool import ReferencePool
from devcluster.standin.nodes import NodeController
from rescheduler.clock import Clock

_SYSTEM: Final = "kube-system"
_OF_THE_NODE: Final = frozenset({"DaemonSet", "Node"})  #: owners of pods that are not rescheduled to other nodes


class Cluster(NodeController):
    """Synchronizes Nodes with the pool's machines, and reports the pods on each machine to the pool."""

    def __init__(self, kubeconfig: str, pool: ReferencePool, clock: Clock) -> None:
        super().__init__(kubeconfig, clock)
        self._pool, self._clock = pool, clock
        pool.pods_on = self.movable_pods

    def movable_pods(self, node: str) -> list[str]:
        """Return the pods that terminating the node's machine would kill, without DaemonSet, mirror and system pods."""
        try:
            pods = self._api.list_pod_for_all_namespaces(field_selector=f"spec.nodeName={node}", _request_timeout=10)
        except (kubernetes.client.ApiException, HTTPError, OSError) as error:
            return [f"unknown: {type(error).__name__}"]
        return sorted(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods.items if _is_movable(pod))

    def reconcile(self) -> None:
        self.step(self._clock.now())

    def step(self, now: dt.datetime) -> None:
        """Create and delete the Nodes that are due. The progress is stored, so a restart does not repeat it."""
        self._pool.advance()
        for machine in self._pool.machines():
            if not machine.becomes_node:
                continue
            if not machine.joined and machine.state(now) == "RUNNING" and now >= machine.joins_at:
                self.join(node_of(machine))
                self._pool.save(machine, joined=True)
            elif machine.joined and not machine.left and machine.ended_at is not None and now >= machine.ended_at:
                if not self._pool.settings.nodes_stay:
                    self.leave(machine.name)
                self._pool.save(machine, left=True)


def _is_movable(pod: Any) -> bool:
    owners = {owner.kind for owner in pod.metadata.owner_references or () if owner.controller}
    ended = pod.status.phase in {"Succeeded", "Failed"}
    mirror = "kubernetes.io/config.mirror" in (pod.metadata.annotations or {})
    return not (ended or mirror or pod.metadata.namespace == _SYSTEM or owners & _OF_THE_NODE)


def node_of(machine: PoolMachine) -> dict[str, Any]:
    """Return the Node that the kubelet of *machine* registers."""
    zone = {"topology.kubernetes.io/zone": machine.pool.region}
    size = {"node.kubernetes.io/instance-type": machine.pool.machine_size}
    known: dict[str, Any] = {"providerID": machine.provider_id} if machine.provider_id else {}
    node = manifests.node(
        machine.name,
        labels={**zone, **size, **machine.pool.labels},
        taints=machine.pool.taints,
        allocatable=machine.pool.allocatable,
        **known,
    )
    addresses = [
        {"type": "InternalIP", "address": machine.private_ip},
        {"type": "Hostname", "address": machine.name},
    ]
    node["status"]["addresses"] = addresses
    return node
