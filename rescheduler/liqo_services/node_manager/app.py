"""The node manager as an ASGI application: the original routes and ``/v1`` (see ``providers.liqo.messages``)."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rescheduler.errors import NotFound, UsageError
from rescheduler.liqo_services.answers import application, body, json_response, problem, status_of
from rescheduler.liqo_services.node_manager import original, pricing
from rescheduler.liqo_services.node_manager.groups import VirtualNodeGroup
from rescheduler.liqo_services.node_manager.machines import VirtualMachine
from rescheduler.liqo_services.node_manager.service import NodeManagerService
from rescheduler.providers.base import AlreadyGone, InstanceError
from rescheduler.providers.fleet.provider import hours
from rescheduler.providers.liqo import messages
from rescheduler.version import VERSION

_VERSION: Final = messages.Version(server="spot-rescheduler", version=VERSION, routes=(messages.V1,))


def node_manager(service: NodeManagerService, *, post_only: bool = False) -> Starlette:
    """Return the application. With *post_only*, the original routes reject changes by GET."""
    machines = "/v1/groups/{group}/machines"
    return application(
        [
            *original.routes(service, post_only=post_only),
            Route("/version", lambda _: json_response(_VERSION), methods=["GET"]),
            Route("/v1/fleet", lambda _: json_response(fleet(service)), methods=["GET"]),
            Route(machines, original.with_body(lambda request, raw: _order(service, request, raw)), methods=["POST"]),
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
                original.with_body(lambda _, raw: json_response(_pod_price(service, raw))),
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


def template(group: VirtualNodeGroup) -> messages.Template:
    amounts = group.template_resources
    return messages.Template(
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
    if (error := original.refusal(name, outcome)) is not None:
        return problem(status_of(error), str(error))
    return json_response({"detail": getattr(outcome, "detail", "")}, 202)


def _price(service: NodeManagerService, request: Request) -> messages.Price:
    window = {name: request.query_params.get(name, "") for name in ("start", "end")}
    if not all(window.values()):
        raise UsageError("start and end: expected both, as 2026-01-31T12:00:00Z")
    return messages.Price(price=original.node_price(service, request, request.path_params["name"]))


def _pod_price(service: NodeManagerService, raw: bytes) -> messages.Price:
    share = body(raw, messages.PodShare)
    requests = {name: Decimal(str(amount)) for name, amount in share.requests.items()}
    window = hours(share.start, share.end)
    return messages.Price(price=pricing.pod_price(list(service.groups().values()), requests, window))
