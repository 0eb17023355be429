"""Clients of a node manager over HTTPS: for our ``/v1`` routes, and for the original ones, with their configuration."""

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import quote

import msgspec

from rescheduler import decoding
from rescheduler.clock import Clock
from rescheduler.errors import ConfigError
from rescheduler.liqo import messages
from rescheduler.liqo.messages import ADDED_RESOURCES, SCHEME, VIRTUAL_NODE_LABELS, VIRTUAL_NODE_TAINT
from rescheduler.net.config_files import Duration, Endpoint, Section, check_endpoint, private, read
from rescheduler.net.http import JsonClient
from rescheduler.net.http_errors import UNREADABLE, HttpResponse, InvalidResponse, Missing
from rescheduler.providers.base import (
    STATES_BY_NUMBER,
    InstanceError,
    InstanceState,
    NodeGroup,
    NodeTaint,
    NodeTemplate,
    NotSupported,
    Refusal,
    Refused,
    UnknownGroup,
)
from rescheduler.providers.fleet import SystemMachine, SystemView
from rescheduler.providers.fleet.provider import hours

T = TypeVar("T")


class NodeManager(Protocol):
    """A node manager of either generation. Verbs raise the errors of `providers.base` and `net.http_errors`."""

    def read(self, *, deadline: float) -> SystemView: ...

    def create(self, group: str, count: int, *, deadline: float) -> Sequence[str]:
        """Request *count* nodes; return the names of the nodes that do not exist yet, if they are in the response."""
        ...

    def delete(self, group: str, name: str, *, deadline: float) -> None:
        """Order the deletion of the node. Raises Missing if it does not exist."""
        ...

    def template(self, group: str, *, deadline: float) -> NodeTemplate: ...

    def node_price(self, name: str, start: dt.datetime, end: dt.datetime, *, deadline: float) -> float: ...

    def pod_price(
        self, requests: Mapping[str, Decimal], start: dt.datetime, end: dt.datetime, *, deadline: float
    ) -> float: ...


def open_client(endpoint: Endpoint, folder: Path, clock: Clock) -> JsonClient:
    return JsonClient("liqo", endpoint, folder, clock, error_text=error_text)


def find(http: JsonClient, *, deadline: float) -> NodeManager:
    """Return the client for the node manager's generation. The original sends an empty response for unknown paths."""
    try:
        response = http.send("GET", "/version", deadline=deadline, repeatable=True)
    except Missing:
        return OriginalNodeManager(http)
    if not response.body.strip():
        return OriginalNodeManager(http)
    version = http.decode(response, messages.Version, "GET /version")
    return OurNodeManager(http) if messages.V1 in version.routes else OriginalNodeManager(http)


class OurNodeManager:
    """Our node manager, under ``/v1``."""

    def __init__(self, http: JsonClient) -> None:
        self._http = http

    def read(self, *, deadline: float) -> SystemView:
        fleet, _ = self._http.get("/v1/fleet", messages.Fleet, deadline=deadline)
        groups = [NodeGroup(group.id, group.min_size, group.max_size, group.debug) for group in fleet.groups]
        return SystemView(groups, [_machine(machine) for machine in fleet.machines])

    def create(self, group: str, count: int, *, deadline: float) -> Sequence[str]:
        path = f"/v1/groups/{_part(group)}/machines"
        response = self._http.send("POST", path, messages.Order(count=count), deadline=deadline)
        return self._http.decode(response, messages.Ordered, f"POST {path}").names

    def delete(self, group: str, name: str, *, deadline: float) -> None:
        self._http.send("DELETE", f"/v1/groups/{_part(group)}/machines/{_part(name)}", deadline=deadline)

    def template(self, group: str, *, deadline: float) -> NodeTemplate:
        path = f"/v1/groups/{_part(group)}/template"
        try:
            template, _ = self._http.get(path, messages.MachineTemplate, deadline=deadline)
        except Missing as error:
            raise UnknownGroup(str(error)) from error
        taints = tuple(NodeTaint(taint.key, taint.value, taint.effect) for taint in template.taints)
        return NodeTemplate(template.labels, taints, template.capacity, template.allocatable)

    def node_price(self, name: str, start: dt.datetime, end: dt.datetime, *, deadline: float) -> float:
        window = {"start": start.isoformat(), "end": end.isoformat()}
        path = f"/v1/machines/{_part(name)}/price"
        return self._http.get(path, messages.MachinePrice, deadline=deadline, params=window)[0].price

    def pod_price(
        self, requests: Mapping[str, Decimal], start: dt.datetime, end: dt.datetime, *, deadline: float
    ) -> float:
        amounts = {name: float(amount) for name, amount in requests.items()}
        share = messages.PodShare(requests=amounts, start=start, end=end)
        response = self._http.send("POST", "/v1/podprice", share, deadline=deadline, repeatable=True)
        return self._http.decode(response, messages.MachinePrice, "POST /v1/podprice").price


class OriginalNodeManager:
    """Liqo's original node manager: it makes changes on GET requests, and responds when they are complete."""

    def __init__(self, http: JsonClient) -> None:
        self._http = http

    def read(self, *, deadline: float) -> SystemView:
        listed = self._get("/nodegroup", list[messages.Group], {}, deadline)
        groups = [NodeGroup(group.id, group.min_size, group.max_size) for group in listed or ()]
        machines: list[SystemMachine] = []
        for group in groups:
            members = self._get("/nodegroup/nodes", list[messages.GroupNode], {"id": group.id}, deadline)
            machines += [_first_machine(node, group.id) for node in members or ()]
        return SystemView(groups, machines)

    def create(self, group: str, count: int, *, deadline: float) -> Sequence[str]:
        response = self._ask("/nodegroup/scaleup", {"id": group, "count": str(count)}, deadline)
        if self._http.decode(response, object, "GET /nodegroup/scaleup") is not True:
            raise InvalidResponse("liqo: GET /nodegroup/scaleup: expected true")
        return ()

    def delete(self, group: str, name: str, *, deadline: float) -> None:
        self._ask("/nodegroup/scaledown", {"id": SCHEME + name, "nodegroupid": group}, deadline)

    def template(self, group: str, *, deadline: float) -> NodeTemplate:
        """Return the template, with the fields that Liqo adds to every Node but the node manager omits."""
        template = self._get("/nodegroup/template", messages.GroupTemplate, {"id": group}, deadline)
        if template is None or not template.resources.min:
            raise NotSupported(f"liqo: no template of group {group}")
        amounts = {**ADDED_RESOURCES, **{name: str(amount) for name, amount in template.resources.min.items()}}
        return NodeTemplate(VIRTUAL_NODE_LABELS | template.labels, (VIRTUAL_NODE_TAINT,), amounts, amounts)

    def node_price(self, name: str, start: dt.datetime, end: dt.datetime, *, deadline: float) -> float:
        """Return the price for the period; the node manager returns the price of one hour."""
        price, _ = self._http.get("/nodegroup/nodeprice", float, deadline=deadline, params={"id": name})
        return price * hours(start, end)

    def pod_price(
        self,
        requests: Mapping[str, Decimal],  # noqa: ARG002 -- ignored by the node manager
        start: dt.datetime,  # noqa: ARG002
        end: dt.datetime,  # noqa: ARG002
        *,
        deadline: float,  # noqa: ARG002
    ) -> float:
        raise NotSupported("liqo: per-pod prices are not available")

    def _get(self, path: str, shape: type[T], params: Mapping[str, str], deadline: float) -> T | None:
        """Return the document; `None` for null, which means an empty result."""
        response = self._http.send("GET", path, deadline=deadline, repeatable=True, params=params)
        return None if response.body.strip() == b"null" else self._http.decode(response, shape, f"GET {path}")

    def _ask(self, path: str, params: Mapping[str, str], deadline: float) -> HttpResponse:
        """Send a GET request that makes a change and must not be repeated."""
        return self._http.send("GET", path, deadline=deadline, params=params)


def _machine(message: messages.FleetMachine) -> SystemMachine:
    fault = message.error
    error = InstanceError(fault.code, fault.message, fault.out_of_resources) if fault else None
    protected = Refused(Refusal.PROTECTED, message.protected) if message.protected else None
    return SystemMachine(
        message.name,
        message.provider_id or SCHEME + message.name,
        message.group,
        message.state,
        names=frozenset({message.name.lower()}),
        error=error,
        protected=protected,
    )


def _first_machine(node: messages.GroupNode, group: str) -> SystemMachine:
    name = node.id.removeprefix(SCHEME)
    state = STATES_BY_NUMBER.get(node.state.instance_state, InstanceState.UNKNOWN)
    fault = node.state.instance_error_info
    error = InstanceError("node-manager", fault) if fault else None
    return SystemMachine(name, SCHEME + name, group, state, names=frozenset({name.lower()}), error=error)


def _part(text: str) -> str:
    return quote(text, safe="")


def error_text(body: bytes) -> str:
    """Return the message of an error from our node manager, or the unchanged text of an error from the original one."""
    try:
        return decoding.decode(body, _Problem).error
    except UNREADABLE:
        return body.decode("utf-8", "replace")


class _Problem(msgspec.Struct):
    error: str


# The ``--cloud-config`` file: the address of the node manager, and intervals.


class LiqoFile(Section, frozen=True, kw_only=True):
    """The keys of the file. Paths are relative to the file."""

    node_manager: Endpoint
    refresh_interval: Duration = Duration(5)  #: how long a view is cached
    poll_interval: Duration = Duration(2)  #: between two polls while nodes are being deleted
    settle_time: Duration = Duration(60)  #: how long an order may take to show an effect


def read_file(path: Path) -> LiqoFile:
    """Return the validated file. Raises ConfigError that names the file and the key."""
    file = read(path, LiqoFile)
    check_endpoint(file.node_manager, f"cloud configuration {path}", "nodeManager")
    rules = {
        "refreshInterval": (file.refresh_interval >= 0, "0s or more"),
        "pollInterval": (file.poll_interval > 0, "more than 0s"),
        "settleTime": (file.settle_time > 0, "more than 0s"),
        "nodeManager.url": (private(file.node_manager.url), "https, or http to a loopback address"),
    }
    for key, (holds, expected) in rules.items():
        if not holds:
            raise ConfigError(f"cloud configuration {path}: {key}: expected {expected}")
    return file
