"""A node manager over HTTPS, in its newer routes where it has them and in its first ones where it has not."""

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Final, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from rescheduler import shapes
from rescheduler.backends.base import (
    InstanceError,
    InstanceState,
    NodeGroup,
    NodeTemplate,
    NotSupported,
    Refusal,
    Refused,
    Taint,
    UnknownGroup,
)
from rescheduler.backends.config import Endpoint
from rescheduler.backends.fleet.machine import Machine, View
from rescheduler.backends.fleet.provider import hours
from rescheduler.backends.http import UNREADABLE, Answer, BadAnswer, JsonClient, Missing
from rescheduler.backends.liqo import messages
from rescheduler.backends.liqo.messages import SCHEME
from rescheduler.backends.liqo.virtual_nodes import ADDED_RESOURCES, VIRTUAL_NODE_LABELS, VIRTUAL_NODE_TAINT
from rescheduler.clock import Clock

T = TypeVar("T")

#: Cluster Autoscaler's numbers.
_STATES: Final = {1: InstanceState.RUNNING, 2: InstanceState.CREATING, 3: InstanceState.DELETING}


class NodeManager(Protocol):
    """What both generations can be asked. Verbs raise the errors of `backends.base` and `backends.http`."""

    def look(self, *, deadline: float) -> View: ...

    def create(self, group: str, count: int, *, deadline: float) -> Sequence[str]:
        """Ask for *count* nodes; the names of those that are not there yet, as far as they are told."""
        ...

    def end(self, group: str, name: str, *, deadline: float) -> None:
        """Missing where there is no such node."""
        ...

    def template(self, group: str, *, deadline: float) -> NodeTemplate: ...

    def node_price(self, name: str, start: dt.datetime, end: dt.datetime, *, deadline: float) -> float: ...

    def pod_price(
        self, requests: Mapping[str, Decimal], start: dt.datetime, end: dt.datetime, *, deadline: float
    ) -> float: ...


def open_client(endpoint: Endpoint, folder: Path, clock: Clock) -> JsonClient:
    return JsonClient("liqo", endpoint, folder, clock, words=words)


def find(http: JsonClient, *, deadline: float) -> NodeManager:
    """Which of the two answers there. The first one answers paths that it does not know with nothing."""
    try:
        answer = http.send("GET", "/version", deadline=deadline, repeatable=True)
    except Missing:
        return First(http)
    if not answer.body.strip():
        return First(http)
    version = http.decode(answer, messages.Version, "GET /version")
    return Current(http) if messages.V1 in version.routes else First(http)


class Current:
    """Ours, under ``/v1``."""

    def __init__(self, http: JsonClient) -> None:
        self._http = http

    def look(self, *, deadline: float) -> View:
        fleet, _ = self._http.get("/v1/fleet", messages.Fleet, deadline=deadline)
        groups = [NodeGroup(one.id, one.min_size, one.max_size, one.debug) for one in fleet.groups]
        return View(groups, [_machine(one) for one in fleet.machines])

    def create(self, group: str, count: int, *, deadline: float) -> Sequence[str]:
        path = f"/v1/groups/{_part(group)}/machines"
        answer = self._http.send("POST", path, messages.Order(count=count), deadline=deadline)
        return self._http.decode(answer, messages.Ordered, f"POST {path}").names

    def end(self, group: str, name: str, *, deadline: float) -> None:
        self._http.send("DELETE", f"/v1/groups/{_part(group)}/machines/{_part(name)}", deadline=deadline)

    def template(self, group: str, *, deadline: float) -> NodeTemplate:
        path = f"/v1/groups/{_part(group)}/template"
        try:
            found, _ = self._http.get(path, messages.Template, deadline=deadline)
        except Missing as error:
            raise UnknownGroup(str(error)) from error
        taints = tuple(Taint(one.key, one.value, one.effect) for one in found.taints)
        return NodeTemplate(found.labels, taints, found.capacity, found.allocatable)

    def node_price(self, name: str, start: dt.datetime, end: dt.datetime, *, deadline: float) -> float:
        window = {"start": start.isoformat(), "end": end.isoformat()}
        path = f"/v1/machines/{_part(name)}/price"
        return self._http.get(path, messages.Price, deadline=deadline, params=window)[0].price

    def pod_price(
        self, requests: Mapping[str, Decimal], start: dt.datetime, end: dt.datetime, *, deadline: float
    ) -> float:
        amounts = {name: float(amount) for name, amount in requests.items()}
        share = messages.PodShare(requests=amounts, start=start, end=end)
        answer = self._http.send("POST", "/v1/podprice", share, deadline=deadline, repeatable=True)
        return self._http.decode(answer, messages.Price, "POST /v1/podprice").price


class First:
    """Liqo's own: it changes things by GET, and waits until they are done."""

    def __init__(self, http: JsonClient) -> None:
        self._http = http

    def look(self, *, deadline: float) -> View:
        groups = self._get("/nodegroup", list[messages.Group], {}, deadline)
        found = [NodeGroup(one.id, one.min_size, one.max_size) for one in groups or ()]
        machines: list[Machine] = []
        for group in found:
            members = self._get("/nodegroup/nodes", list[messages.Node], {"id": group.id}, deadline)
            machines += [_first_machine(one, group.id) for one in members or ()]
        return View(found, machines)

    def create(self, group: str, count: int, *, deadline: float) -> Sequence[str]:
        answer = self._ask("/nodegroup/scaleup", {"id": group, "count": str(count)}, deadline)
        if self._http.decode(answer, object, "GET /nodegroup/scaleup") is not True:
            raise BadAnswer("liqo: GET /nodegroup/scaleup: expected true")
        return ()

    def end(self, group: str, name: str, *, deadline: float) -> None:
        self._ask("/nodegroup/scaledown", {"id": SCHEME + name, "nodegroupid": group}, deadline)

    def template(self, group: str, *, deadline: float) -> NodeTemplate:
        """With what Liqo adds to every Node, which the node manager leaves out."""
        found = self._get("/nodegroup/template", messages.GroupTemplate, {"id": group}, deadline)
        if found is None or not found.resources.min:
            raise NotSupported(f"liqo: no template of group {group}")
        amounts = {**ADDED_RESOURCES, **{name: str(amount) for name, amount in found.resources.min.items()}}
        return NodeTemplate(VIRTUAL_NODE_LABELS | found.labels, (VIRTUAL_NODE_TAINT,), amounts, amounts)

    def node_price(self, name: str, start: dt.datetime, end: dt.datetime, *, deadline: float) -> float:
        """It tells that of an hour."""
        price, _ = self._http.get("/nodegroup/nodeprice", float, deadline=deadline, params={"id": name})
        return price * hours(start, end)

    def pod_price(
        self,
        requests: Mapping[str, Decimal],  # noqa: ARG002 -- it does not look at them
        start: dt.datetime,  # noqa: ARG002
        end: dt.datetime,  # noqa: ARG002
        *,
        deadline: float,  # noqa: ARG002
    ) -> float:
        raise NotSupported("liqo: per-pod prices are not available")

    def _get(self, path: str, shape: type[T], params: Mapping[str, str], deadline: float) -> T | None:
        """`None` where it answers null, which is how it says that there is nothing."""
        answer = self._http.send("GET", path, deadline=deadline, repeatable=True, params=params)
        return None if answer.body.strip() == b"null" else self._http.decode(answer, shape, f"GET {path}")

    def _ask(self, path: str, params: Mapping[str, str], deadline: float) -> Answer:
        """A GET that changes things: not to be repeated."""
        return self._http.send("GET", path, deadline=deadline, params=params)


def _machine(one: messages.FleetMachine) -> Machine:
    told = one.error
    error = InstanceError(told.code, told.message, told.out_of_resources) if told else None
    protected = Refused(Refusal.PROTECTED, one.protected) if one.protected else None
    return Machine(
        one.name,
        one.provider_id or SCHEME + one.name,
        one.group,
        one.state,
        names=frozenset({one.name.lower()}),
        error=error,
        protected=protected,
    )


def _first_machine(one: messages.Node, group: str) -> Machine:
    name = one.id.removeprefix(SCHEME)
    state = _STATES.get(one.state.instance_state, InstanceState.UNKNOWN)
    said = one.state.instance_error_info
    error = InstanceError("node-manager", said) if said else None
    return Machine(name, SCHEME + name, group, state, names=frozenset({name.lower()}), error=error)


def _part(text: str) -> str:
    return quote(text, safe="")


def words(body: bytes) -> str:
    """The line of an error of ours; the text that the first node manager answers with, as it is."""
    try:
        return shapes.decode(body, _Problem).error
    except UNREADABLE:
        return body.decode("utf-8", "replace")


class _Problem(msgspec.Struct):
    error: str
