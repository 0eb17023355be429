"""The routes that Liqo's cluster autoscaler has always asked, with the answers that it understands.

They change things by GET, as its gRPC server asks it. POST does the same, and with *post_only* nothing else does.
"""

import datetime as dt
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rescheduler.backends.base import Accepted, DeleteOutcome, InstanceState, Refusal, Refused, error_of
from rescheduler.backends.config import Section
from rescheduler.backends.fleet.provider import hours
from rescheduler.backends.liqo.messages import Amounts as Bounds
from rescheduler.backends.liqo.messages import Group as GroupAnswer
from rescheduler.backends.liqo.messages import GroupTemplate, Node, NodeState, Size
from rescheduler.errors import Conflict, NotFound, ReschedulerError, UsageError
from rescheduler.liqo.answers import answer, body, problem, status_of
from rescheduler.liqo.nodemanager import pricing
from rescheduler.liqo.nodemanager.amounts import Amounts, amounts
from rescheduler.liqo.nodemanager.config import (
    Cost,
    GroupSection,
    ResourcesSection,
    TaintSection,
    check_group,
    group,
)
from rescheduler.liqo.nodemanager.config import Size as GroupSize
from rescheduler.liqo.nodemanager.groups import GPU, Group
from rescheduler.liqo.nodemanager.machines import Machine
from rescheduler.liqo.nodemanager.resources import DEFAULT_CLASS
from rescheduler.liqo.nodemanager.service import Service

#: Cluster Autoscaler's numbers.
_STATES: Final = {
    InstanceState.UNKNOWN: 0,
    InstanceState.RUNNING: 1,
    InstanceState.CREATING: 2,
    InstanceState.DELETING: 3,
}
_HOUR: Final = 1.0


class NewGroup(Section, frozen=True, kw_only=True):
    """The body of ``/nodegroup/create``: what it always had, and what a configured group can have."""

    id: str
    max_size: GroupSize
    min_size: GroupSize = 0
    current_size: GroupSize = 0
    nodes: list[Any] | None = None
    resources: ResourcesSection | None = None
    selector: dict[str, str] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    taints: list[TaintSection] = msgspec.field(default_factory=list)
    cost: Cost = 1.0
    slice_class: str = msgspec.field(default=DEFAULT_CLASS, name="class")


def routes(service: Service, *, post_only: bool) -> Sequence[Route]:
    changing = ["POST"] if post_only else ["POST", "GET"]
    asked: dict[str, Callable[[Request], Response]] = {
        "/nodegroup": lambda _: answer([_group(one) for one in service.groups().values()]),
        "/nodegroup/ownership": lambda request: answer(_owner(service, _text(request, "id"))),
        "/nodegroup/current-size": lambda request: answer(_size(service, _text(request, "id"))),
        "/nodegroup/nodes": lambda request: answer(_nodes(service, _text(request, "id"))),
        "/nodegroup/template": lambda request: answer(_template(service.group(_text(request, "id")))),
        "/nodegroup/nodeprice": lambda request: answer(node_price(service, request, _text(request, "id"))),
        "/nodegroup/podprice": lambda request: answer(_pod_price(service, request)),
        "/gpu/label": lambda _: answer(GPU),
        "/gpu/types": lambda _: answer([GPU]),
    }
    changes: dict[str, Callable[[Request], Response]] = {
        "/nodegroup/scaleup": lambda request: _scale_up(service, request),
        "/nodegroup/scaledown": lambda request: _scale_down(service, request),
        "/nodegroup/destroy": lambda request: _destroy(service, request),
    }
    return [
        *(Route(path, verb, methods=["GET"]) for path, verb in asked.items()),
        *(Route(path, verb, methods=changing) for path, verb in changes.items()),
        Route("/nodegroup/create", with_body(lambda _, raw: _create(service, raw)), methods=changing),
    ]


def _group(one: Group) -> GroupAnswer:
    return GroupAnswer(id=one.id, max_size=one.max_size, min_size=one.min_size)


def _owner(service: Service, node: str) -> GroupAnswer:
    """By name, by provider ID, or by a placeholder's name, which is a provider ID."""
    found = service.group_of(node)
    return _group(found) if found else GroupAnswer(id="", max_size=0, min_size=0)


def _size(service: Service, name: str) -> Size:
    service.group(name)
    return Size(current_size=service.view().size(name))


def _nodes(service: Service, name: str) -> list[Node]:
    service.group(name)
    return [_node(one) for one in service.view().members(name)]


def _node(one: Machine) -> Node:
    error = f"{one.error.code}: {one.error.message}" if one.error else ""
    return Node(id=one.name, state=NodeState(instance_state=_STATES[one.state], instance_error_info=error))


def _template(one: Group) -> GroupTemplate:
    return GroupTemplate(
        nodegroup_id=one.id,
        resources=Bounds(min={**one.template_resources}, max={**one.template_resources, **one.most}),
        labels=one.template_labels,
        cost=one.cost,
    )


def _scale_up(service: Service, request: Request) -> Response:
    service.increase(_text(request, "id"), _count(request))
    return answer(True)


def _scale_down(service: Service, request: Request) -> Response:
    """Nothing but the status: 200 where the node is leaving or gone."""
    node = _text(request, "id")
    outcome = service.remove(_text(request, "nodegroupid"), node)
    if (error := refusal(node, outcome)) is not None:
        return problem(status_of(error), str(error))
    return Response()


def refusal(node: str, outcome: DeleteOutcome) -> ReschedulerError | None:
    """Why the machine stays; `None` where it leaves, soon or in a while, or has left."""
    match outcome:
        case Accepted():
            return None
        case Refused(Refusal.NOT_IN_GROUP, detail):
            return NotFound(f"node {node}: {detail}")
        case Refused(_, detail):
            return Conflict(f"node {node}: {detail}")
    return error_of(node, outcome)


def _destroy(service: Service, request: Request) -> Response:
    service.destroy_group(_text(request, "id"))
    return answer(True)


def _create(service: Service, raw: bytes) -> Response:
    new = body(raw, NewGroup)
    if new.current_size or new.nodes:
        raise UsageError("body: currentSize and nodes: expected 0 and none; a new group has no nodes")
    section = GroupSection(
        id=new.id,
        min_size=new.min_size,
        max_size=new.max_size,
        resources=new.resources or ResourcesSection(min=dict(Group("").least)),
        selector=new.selector,
        labels=new.labels,
        taints=new.taints,
        cost=new.cost,
        slice_class=new.slice_class,
    )
    check_group(section, "body")
    service.create_group(group(section))
    return answer(True)


def node_price(service: Service, request: Request, node: str) -> float:
    """Of a node that there is, or of one that Cluster Autoscaler thinks of. NotFound for a node that is not ours."""
    found = pricing.group_of_template(node, service.groups()) or service.group_of(node)
    if found is None:
        raise NotFound(f"node {node}: it is of no group")
    return pricing.node_price(found, _hours(request))


def _pod_price(service: Service, request: Request) -> float:
    requests = _requests(request.query_params.get("requests", "{}"))
    return pricing.pod_price(list(service.groups().values()), requests, _hours(request))


def _requests(text: str) -> Amounts:
    try:
        return amounts(msgspec.convert(json.loads(text), dict[str, str]))
    except (ValueError, msgspec.ValidationError) as error:
        raise UsageError(f'requests: expected quantities such as {{"cpu": "500m"}}: {error}') from error


def _hours(request: Request) -> float:
    """Of the window that `start` and `end` name; an hour without them."""
    texts = [request.query_params.get(name, "") for name in ("start", "end")]
    if not any(texts):
        return _HOUR
    try:
        start, end = (dt.datetime.fromisoformat(text) for text in texts)
        return hours(start, end)
    except (ValueError, TypeError) as error:
        raise UsageError("start and end: expected both, as 2026-01-31T12:00:00Z") from error


def _text(request: Request, name: str) -> str:
    found = request.query_params.get(name, "")
    if not found:
        raise UsageError(f"{name}: missing")
    return found


def _count(request: Request) -> int:
    text = _text(request, "count")
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) < 1:  # noqa: PLR2004
        raise UsageError(f"count: expected 1 or more, got {text[:20]!r}")
    return int(text)


def with_body(verb: Callable[[Request, bytes], Response]) -> Callable[[Request], Awaitable[Response]]:
    """*verb* on a thread, once the body is there."""

    async def answered(request: Request) -> Response:
        return await run_in_threadpool(verb, request, await request.body())

    return answered
