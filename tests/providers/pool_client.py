"""A client for all operations of a cloudpool, including those that the program does not use."""

import enum
from typing import Any

import msgspec

from rescheduler.cloudpool.client import CloudPoolClient


class ServiceState(enum.StrEnum):
    BOOTING = "BOOTING"
    UNHEALTHY = "UNHEALTHY"


class PoolStatus(msgspec.Struct, frozen=True, kw_only=True):
    started: bool
    configured: bool


class FullPoolClient(CloudPoolClient):
    def attach(self, machine: str, *, deadline: float) -> None:
        """Add a running machine to the pool, whose desired size grows by one; sent once."""
        self._orders.send("POST", f"{self._machine}/attach", {"machineId": machine}, deadline=deadline)

    def set_service_state(self, machine: str, state: ServiceState, *, deadline: float) -> None:
        body = {"machineId": machine, "serviceState": state.value}
        self._post(f"{self._machine}/serviceState", body, deadline=deadline)

    def config(self, *, deadline: float) -> dict[str, Any]:
        """Return the configuration document, whose format depends on the pool. Raises Missing if there is none."""
        return self._http.get("/config", dict[str, Any], deadline=deadline)[0]

    def set_config(self, document: dict[str, Any], *, deadline: float) -> None:
        self._post("/config", document, deadline=deadline)

    def start(self, *, deadline: float) -> None:
        self._post("/start", None, deadline=deadline)

    def stop(self, *, deadline: float) -> None:
        self._post("/stop", None, deadline=deadline)

    def status(self, *, deadline: float) -> PoolStatus:
        return self._http.get("/status", PoolStatus, deadline=deadline)[0]
