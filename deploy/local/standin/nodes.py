"""Machines as Nodes of a cluster: they join when they run, and go when the machine has ended."""

import abc
import http
from collections.abc import Callable, Mapping
from typing import Any

import kubernetes
from urllib3.exceptions import HTTPError

from deploy.local.standin.rounds import Rounds
from rescheduler.clock import Clock

_TIMEOUT = 10.0  #: seconds, of one request


class Keeper(abc.ABC):
    """Lets Nodes join and go that are due, from a thread of its own."""

    def __init__(self, kubeconfig: str, clock: Clock) -> None:
        self._api = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(kubeconfig))
        self._rounds = Rounds("nodes", self.due, clock, (kubernetes.client.ApiException, HTTPError, OSError))

    def start(self) -> None:
        self._rounds.start()

    def close(self) -> None:
        self._rounds.close()
        self._api.api_client.close()

    @abc.abstractmethod
    def due(self) -> None:
        """Do what is due, with `join` and `leave`; what they raise is tried again."""

    def join(self, node: dict[str, Any]) -> None:
        """With its status at once, as kubelets do: a Node of unknown size would take any number of pods."""
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


class Nodes(Keeper):
    """Keeps the Nodes that this process made in step with *wanted*: manifests by name, as of now."""

    def __init__(self, kubeconfig: str, wanted: Callable[[], Mapping[str, dict[str, Any]]], clock: Clock) -> None:
        super().__init__(kubeconfig, clock)
        self._wanted = wanted
        self._joined: set[str] = set()

    def due(self) -> None:
        wanted = self._wanted()
        for name in wanted.keys() - self._joined:
            self.join(wanted[name])
            self._joined.add(name)
        for name in self._joined - wanted.keys():
            self.leave(name)
            self._joined.discard(name)
