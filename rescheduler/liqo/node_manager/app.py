"""The node manager as an ASGI application: the original routes and ``/v1`` (see ``rescheduler.liqo.messages``).
Separate from the composition root, so that tests can run it without a cluster.
"""

import datetime as dt
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rescheduler import VERSION
from rescheduler.errors import Conflict, NotFound, ReschedulerError, UsageError
from rescheduler.liqo import messages
from rescheduler.liqo.messages import Group as GroupAnswer
from rescheduler.liqo.messages import GroupNode, GroupTemplate, NodeState, Size
from rescheduler.liqo.messages import ResourceRange as Bounds
from rescheduler.liqo.node_manager import groups
from rescheduler.liqo.node_manager.config import (
    Cost,
    GroupSection,
    GroupTaintSection,
    ResourcesSection,
    check_group,
    group,
)
from rescheduler.liqo.node_manager.config import Size as GroupSize
from rescheduler.liqo.node_manager.groups import GPU, ExactAmounts, VirtualNodeGroup, amounts
from rescheduler.liqo.node_manager.machines import VirtualMachine
from rescheduler.liqo.node_manager.resources import DEFAULT_CLASS
from rescheduler.liqo.node_manager.service import NodeManagerService
from rescheduler.liqo.serving import application, body, client_names, json_response, problem, status_of
from rescheduler.net.config_files import Section
from rescheduler.providers.base import (
    STATE_NUMBERS,
    Accepted,
    AlreadyGone,
    DeleteOutcome,
    InstanceError,
    Refusal,
    Refused,
    error_of,
)
from rescheduler.providers.fleet.provider import hours

# The original routes of Liqo's cluster autoscaler, with the responses that it expects.
#
# They accept GET for changes, because the gRPC server of Liqo's cluster autoscaler sends GET requests. POST is
# equivalent, and required with *post_only*.

_HOUR: Final = 1.0


class NewGroup(Section, frozen=True, kw_only=True):
    """The body of ``/nodegroup/create``: the original keys, and the keys of configured groups."""

    id: str
    max_size: GroupSize
    min_size: GroupSize = 0
    current_size: GroupSize = 0
    nodes: list[Any] | None = None
    resources: ResourcesSection | None = None
    selector: dict[str, str] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    taints: list[GroupTaintSection] = msgspec.field(default_factory=list)
    cost: Cost = 1.0
    slice_class: str = msgspec.field(default=DEFAULT_CLASS, name="class")


def routes(service: NodeManagerService, *, post_only: bool) -> Sequence[Route]:
    changing = ["POST"] if post_only else ["POST", "GET"]
    get_routes: dict[str, Callable[[Request], Response]] = {
        "/nodegroup": lambda _: json_response([_group(known) for known in service.groups().values()]),
        "/nodegroup/ownership": lambda request: json_response(_owner(service, _text(request, "id"))),
        "/nodegroup/current-size": lambda request: json_response(_size(service, _text(request, "id"))),
        "/nodegroup/nodes": lambda request: json_response(_nodes(service, _text(request, "id"))),
        "/nodegroup/template": lambda request: json_response(_template(service.group(_text(request, "id")))),
        "/nodegroup/nodeprice": lambda request: json_response(node_price(service, request, _text(request, "id"))),
        "/nodegroup/podprice": lambda request: json_response(_original_pod_price(service, request)),
        "/gpu/label": lambda _: json_response(GPU),
        "/gpu/types": lambda _: json_response([GPU]),
    }
    changes: dict[str, Callable[[Request], Response]] = {
        "/nodegroup/scaleup": lambda request: _scale_up(service, request),
        "/nodegroup/scaledown": lambda request: _scale_down(service, request),
        "/nodegroup/destroy": lambda request: _destroy(service, request),
    }
    return [
        *(Route(path, verb, methods=["GET"]) for path, verb in get_routes.items()),
        *(Route(path, verb, methods=changing) for path, verb in changes.items()),
        Route("/nodegroup/create", with_body(lambda _, raw: _create(service, raw)), methods=changing),
    ]


def _group(known: VirtualNodeGroup) -> GroupAnswer:
    return GroupAnswer(id=known.id, max_size=known.max_size, min_size=known.min_size)


def _owner(service: NodeManagerService, node: str) -> GroupAnswer:
    """Return the group of a node by its name or provider ID, which is also the name of a placeholder."""
    owner = service.group_of(node)
    return _group(owner) if owner else GroupAnswer(id="", max_size=0, min_size=0)


def _size(service: NodeManagerService, name: str) -> Size:
    service.group(name)
    return Size(current_size=service.view().size(name))


def _nodes(service: NodeManagerService, name: str) -> list[GroupNode]:
    service.group(name)
    return [_node(machine) for machine in service.view().members(name)]


def _node(machine: VirtualMachine) -> GroupNode:
    error = f"{machine.error.code}: {machine.error.message}" if machine.error else ""
    return GroupNode(
        id=machine.name, state=NodeState(instance_state=STATE_NUMBERS[machine.state], instance_error_info=error)
    )


def _template(known: VirtualNodeGroup) -> GroupTemplate:
    return GroupTemplate(
        nodegroup_id=known.id,
        resources=Bounds(min={**known.template_resources}, max={**known.template_resources, **known.most}),
        labels=known.template_labels,
        cost=known.cost,
    )


def _scale_up(service: NodeManagerService, request: Request) -> Response:
    service.increase(_text(request, "id"), _count(request))
    return json_response(True)


def _scale_down(service: NodeManagerService, request: Request) -> Response:
    """Remove a node. If the node is gone or being deleted, the response is an empty 200."""
    node = _text(request, "id")
    outcome = service.remove(_text(request, "nodegroupid"), node)
    if (error := refusal(node, outcome)) is not None:
        return problem(status_of(error), str(error))
    return Response()


def refusal(node: str, outcome: DeleteOutcome) -> ReschedulerError | None:
    """Return the error if the machine is not removed; `None` if it is being deleted or gone."""
    match outcome:
        case Accepted():
            return None
        case Refused(Refusal.NOT_IN_GROUP, detail):
            return NotFound(f"node {node}: {detail}")
        case Refused(_, detail):
            return Conflict(f"node {node}: {detail}")
    return error_of(node, outcome)


def _destroy(service: NodeManagerService, request: Request) -> Response:
    service.destroy_group(_text(request, "id"))
    return json_response(True)


def _create(service: NodeManagerService, raw: bytes) -> Response:
    new = body(raw, NewGroup)
    if new.current_size or new.nodes:
        raise UsageError("body: currentSize and nodes: expected 0 and none; a new group has no nodes")
    section = GroupSection(
        id=new.id,
        min_size=new.min_size,
        max_size=new.max_size,
        resources=new.resources or ResourcesSection(min=dict(VirtualNodeGroup("").least)),
        selector=new.selector,
        labels=new.labels,
        taints=new.taints,
        cost=new.cost,
        slice_class=new.slice_class,
    )
    check_group(section, "body")
    service.create_group(group(section))
    return json_response(True)


def node_price(service: NodeManagerService, request: Request, node: str) -> float:
    """Return the price of an existing node or of a group's template. Raises NotFound for other nodes."""
    owner = groups.group_of_template(node, service.groups()) or service.group_of(node)
    if owner is None:
        raise NotFound(f"node {node}: it belongs to no group")
    return groups.node_price(owner, _hours(request))


def _original_pod_price(service: NodeManagerService, request: Request) -> float:
    requests = _requests(request.query_params.get("requests", "{}"))
    return groups.pod_price(list(service.groups().values()), requests, _hours(request))


def _requests(text: str) -> ExactAmounts:
    try:
        return amounts(msgspec.convert(json.loads(text), dict[str, str]))
    except (ValueError, msgspec.ValidationError) as error:
        raise UsageError(f'requests: expected quantities such as {{"cpu": "500m"}}: {error}') from error


def _hours(request: Request) -> float:
    """Return the hours between `start` and `end`; one hour if they are missing."""
    texts = [request.query_params.get(name, "") for name in ("start", "end")]
    if not any(texts):
        return _HOUR
    try:
        start, end = (dt.datetime.fromisoformat(text) for text in texts)
        return hours(start, end)
    except (ValueError, TypeError) as error:
        raise UsageError("start and end: expected both, as 2026-01-31T12:00:00Z") from error


def _text(request: Request, name: str) -> str:
    value = request.query_params.get(name, "")
    if not value:
        raise UsageError(f"{name}: missing")
    return value


def _count(request: Request) -> int:
    text = _text(request, "count")
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) < 1:  # noqa: PLR2004
        raise UsageError(f"count: expected 1 or more, got {text[:20]!r}")
    return int(text)


def with_body(verb: Callable[[Request, bytes], Response]) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler that receives the body and then runs *verb* in a thread."""

    async def answered(request: Request) -> Response:
        return await run_in_threadpool(verb, request, await request.body())

    return answered


_VERSION: Final = messages.Version(server="spot-rescheduler", version=VERSION, routes=(messages.V1,))


def node_manager(service: NodeManagerService, *, post_only: bool = False) -> Starlette:
    """Return the application. With *post_only*, the original routes reject changes by GET."""
    machines = "/v1/groups/{group}/machines"
    return application(
        [
            *routes(service, post_only=post_only),
            Route("/version", lambda _: json_response(_VERSION), methods=["GET"]),
            Route("/v1/fleet", lambda _: json_response(fleet(service)), methods=["GET"]),
            Route(machines, with_body(lambda request, raw: _order(service, request, raw)), methods=["POST"]),
            Route(f"{machines}/{{name}}", lambda request: _remove(service, request), methods=["DELETE"]),
            Route(
                "/v1/groups/{group}/template",
                lambda request: json_response(template(service.group(request.path_params["group"]))),
                methods=["GET"],
            ),
            Route(
                "/v1/machines/{name}/price", lambda request: json_response(_price(service, request)), methods=["GET"]
            ),
            Route(
                "/v1/podprice",
                with_body(lambda _, raw: json_response(_pod_price(service, raw))),
                methods=["POST"],
            ),
        ]
    )


def fleet(service: NodeManagerService) -> messages.Fleet:
    """Return all groups, all machines, and the virtual nodes that we did not create."""
    reading = service.read()
    view = reading.view
    groups = service.groups()
    nodes = reading.objects.nodes
    foreign = sorted(nodes.keys() - view.machines.keys())
    return messages.Fleet(
        groups=tuple(
            messages.FleetGroup(id=group.id, min_size=group.min_size, max_size=group.max_size, debug=_debug(group))
            for group in groups.values()
        ),
        machines=(
            *(_machine(machine, groups) for machine in view.machines.values()),
            *(messages.FleetMachine(name=name, provider_id=nodes[name].spec.provider_id) for name in foreign),
        ),
    )


def template(group: VirtualNodeGroup) -> messages.MachineTemplate:
    amounts = group.template_resources
    return messages.MachineTemplate(
        labels=group.template_labels,
        taints=tuple(
            messages.TemplateTaint(key=taint.key, value=taint.value, effect=taint.effect)
            for taint in group.template_taints
        ),
        capacity=amounts,
        allocatable=amounts,
    )


def _machine(machine: VirtualMachine, groups: Mapping[str, VirtualNodeGroup]) -> messages.FleetMachine:
    """Convert a machine. If its group is no longer configured, the group is empty."""
    group = machine.group if machine.group in groups else ""
    return messages.FleetMachine(
        name=machine.name,
        group=group,
        state=machine.state,
        provider_id=machine.provider_id,
        error=_error(machine.error),
    )


def _error(error: InstanceError | None) -> messages.MachineError | None:
    if error is None:
        return None
    return messages.MachineError(code=error.code, message=error.message, out_of_resources=error.out_of_resources)


def _debug(group: VirtualNodeGroup) -> str:
    wanted = ", ".join(f"{key}={value}" for key, value in group.selector.items()) or "any"
    return f"Liqo group {group.id}: clusters with {wanted}; {group.cost:g} per node and hour"


def _order(service: NodeManagerService, request: Request, raw: bytes) -> Response:
    count = body(raw, messages.Order).count
    return json_response(messages.Ordered(names=tuple(service.increase(request.path_params["group"], count))), 202)


def _remove(service: NodeManagerService, request: Request) -> Response:
    name = request.path_params["name"]
    outcome = service.remove(request.path_params["group"], name)
    if isinstance(outcome, AlreadyGone):
        raise NotFound(f"node {name}: {outcome.detail}")
    if (error := refusal(name, outcome)) is not None:
        return problem(status_of(error), str(error))
    return json_response({"detail": getattr(outcome, "detail", "")}, 202)


def _price(service: NodeManagerService, request: Request) -> messages.MachinePrice:
    window = {name: request.query_params.get(name, "") for name in ("start", "end")}
    if not all(window.values()):
        raise UsageError("start and end: expected both, as 2026-01-31T12:00:00Z")
    return messages.MachinePrice(price=node_price(service, request, request.path_params["name"]))


def _pod_price(service: NodeManagerService, raw: bytes) -> messages.MachinePrice:
    share = body(raw, messages.PodShare)
    requests = {name: Decimal(str(amount)) for name, amount in share.requests.items()}
    window = hours(share.start, share.end)
    return messages.MachinePrice(price=groups.pod_price(list(service.groups().values()), requests, window))


# Access to the node manager by name: clients need a certificate of the CA that contains an allowed name.

log = logging.getLogger(__name__)


class Clients:
    """A middleware that rejects clients whose certificate has none of *names*."""

    def __init__(self, application: ASGIApp, names: frozenset[str]) -> None:
        self._application, self._names = application, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = self._application
        if scope["type"] == "http" and not self._names & (presented := client_names(Request(scope))):
            who = ", ".join(sorted(presented)) or "a client without a name"
            log.warning("%s %s: %s may not use this node manager", scope["method"], scope["path"], who)
            response = problem(403, f"{who} may not use this node manager")
        await response(scope, receive, send)
