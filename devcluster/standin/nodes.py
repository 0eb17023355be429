"""The Nodes of machines: created when a machine runs, and deleted when it is terminated."""

import abc
import http
from collections.abc import Callable, Mapping
from typing import Any

import kubernetes
from urllib3.exceptions import HTTPError

from devcluster.standin.rounds import PeriodicTask
from rescheduler.clock import Clock

_TIMEOUT = 10.0  #: seconds per request


class NodeController(abc.ABC):
    """Base class of controllers that create and delete Nodes in a background thread."""

    def __init__(self, kubeconfig: str, clock: Clock) -> None:
        self._api = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(kubeconfig))
        self._task = PeriodicTask("nodes", self.reconcile, clock, (kubernetes.client.ApiException, HTTPError, OSError))

    def start(self) -> None:
        self._task.start()

    def close(self) -> None:
        self._task.close()
        self._api.api_client.close()

    @abc.abstractmethod
    def reconcile(self) -> None:
        """Create and delete the Nodes that are due with `join` and `leave`; API errors are retried."""

    def join(self, node: dict[str, Any]) -> None:
        """Create the Node with its status, like a kubelet; without allocatable it would accept any number of pods."""
        try:
            self._api.create_node(node, _request_timeout=_TIMEOUT)
        except kubernetes.client.ApiException as error:
            if error.status != http.HTTPStatus.CONFLICT:
                raise

    def leave(self, name: str) -> None:
        try:
            self._api.delete_node(name, _request_timeout=_TIMEOUT)
        except kubernetes.client.ApiException as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise


class Nodes(NodeController):
    """Synchronizes the Nodes that this process created with *desired*, which returns manifests by name."""

    def __init__(self, kubeconfig: str, desired: Callable[[], Mapping[str, dict[str, Any]]], clock: Clock) -> None:
        super().__init__(kubeconfig, clock)
        self._desired = desired
        self._joined: set[str] = set()

    def reconcile(self) -> None:
        desired = self._desired()
        for name in desired.keys() - self._joined:
            self.join(desired[name])
            self._joined.add(name)
        for name in self._joined - desired.keys():
            self.leave(name)
            self._joined.discard(name)
