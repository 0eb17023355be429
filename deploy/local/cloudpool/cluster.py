"""Machines as Nodes of a cluster: they join when they have booted, and go when they are terminated, or stay."""

import datetime as dt
import http
import threading
from typing import Any

import kubernetes
from urllib3.exceptions import HTTPError

from deploy.local import manifests
from deploy.local.cloudpool.machines import Machine
from deploy.local.cloudpool.pool import Pool
from rescheduler.clock import Clock

_TIMEOUT = 10.0  #: seconds, of one request
_INTERVAL = 0.2  #: seconds between two looks at what is due


class Cluster:
    """Keeps the Nodes in step with the pool's machines, from a thread of its own."""

    def __init__(self, kubeconfig: str, pool: Pool, clock: Clock) -> None:
        self._api = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(kubeconfig))
        self._pool, self._clock = pool, clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cluster")
        self.trouble = ""  #: why the last step failed; empty if it did not

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._api.api_client.close()

    def step(self, now: dt.datetime) -> None:
        """Let Nodes join and go that are due. What was done before a crash is not done again."""
        self._pool.advance()
        for machine in self._pool.machines():
            if not machine.becomes_node:
                continue
            if not machine.joined and machine.state(now) == "RUNNING" and now >= machine.joins_at:
                self._join(machine)
                self._pool.save(machine, joined=True)
            elif machine.joined and not machine.left and machine.ended_at is not None and now >= machine.ended_at:
                if not self._pool.settings.nodes_stay:
                    self._leave(machine)
                self._pool.save(machine, left=True)

    def _run(self) -> None:
        while not self._clock.wait(_INTERVAL, self._stop):
            try:
                self.step(self._clock.now())
                self.trouble = ""
            except (kubernetes.client.ApiException, HTTPError, OSError) as error:
                self.trouble = " ".join(str(error).split())[:300]

    def _join(self, machine: Machine) -> None:
        """With its status at once, as kubelets do: a Node of unknown size would take any number of pods."""
        try:
            self._api.create_node(node_of(machine), _request_timeout=_TIMEOUT)
        except kubernetes.client.ApiException as error:
            if error.status != http.HTTPStatus.CONFLICT:
                raise

    def _leave(self, machine: Machine) -> None:
        try:
            self._api.delete_node(machine.name, _request_timeout=_TIMEOUT)
        except kubernetes.client.ApiException as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise


def node_of(machine: Machine) -> dict[str, Any]:
    """The Node with which a machine's kubelet registers."""
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
