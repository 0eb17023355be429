"""The node manager as an application: its first routes, and those of ``/v1``; ``backends.liqo.messages`` has both."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rescheduler.backends.base import AlreadyGone, InstanceError
from rescheduler.backends.fleet.provider import hours
from rescheduler.backends.liqo import messages
from rescheduler.errors import NotFound, UsageError
from rescheduler.liqo.answers import answer, application, body, problem, status_of
from rescheduler.liqo.nodemanager import original, pricing
from rescheduler.liqo.nodemanager.groups import Group
from rescheduler.liqo.nodemanager.machines import Machine
from rescheduler.liqo.nodemanager.service import Service
from rescheduler.version import VERSION

_VERSION: Final = messages.Version(server="spot-rescheduler", version=VERSION, routes=(messages.V1,))


def node_manager(service: Service, *, post_only: bool = False) -> Starlette:
    """*post_only*: the old routes change nothing by GET."""
    machines = "/v1/groups/{group}/machines"
    return application(
        [
            *original.routes(service, post_only=post_only),
            Route("/version", lambda _: answer(_VERSION), methods=["GET"]),
            Route("/v1/fleet", lambda _: answer(fleet(service)), methods=["GET"]),
            Route(machines, original.with_body(lambda request, raw: _order(service, request, raw)), methods=["POST"]),
            Route(f"{machines}/{{name}}", lambda request: _remove(service, request), methods=["DELETE"]),
            Route(
                "/v1/groups/{group}/template",
                lambda request: answer(template(service.group(request.path_params["group"]))),
                methods=["GET"],
            ),
            Route("/v1/machines/{name}/price", lambda request: answer(_price(service, request)), methods=["GET"]),
            Route(
                "/v1/podprice", original.with_body(lambda _, raw: answer(_pod_price(service, raw))), methods=["POST"]
            ),
        ]
    )


def fleet(service: Service) -> messages.Fleet:
    """All groups, all machines, and the virtual nodes that others have made."""
    look = service.look()
    found = look.view
    groups = service.groups()
    nodes = look.seen.nodes
    foreign = sorted(nodes.keys() - found.machines.keys())
    return messages.Fleet(
        groups=tuple(
            messages.FleetGroup(id=one.id, min_size=one.min_size, max_size=one.max_size, debug=_debug(one))
            for one in groups.values()
        ),
        machines=(
            *(_machine(one, groups) for one in found.machines.values()),
            *(messages.FleetMachine(name=name, provider_id=nodes[name].spec.provider_id) for name in foreign),
        ),
    )


def template(group: Group) -> messages.Template:
    amounts = group.template_resources
    return messages.Template(
        labels=group.template_labels,
        taints=tuple(
            messages.TemplateTaint(key=one.key, value=one.value, effect=one.effect) for one in group.template_taints
        ),
        capacity=amounts,
        allocatable=amounts,
    )


def _machine(one: Machine, groups: Mapping[str, Group]) -> messages.FleetMachine:
    """One of a group that the configuration has lost is nobody's."""
    group = one.group if one.group in groups else ""
    return messages.FleetMachine(
        name=one.name, group=group, state=one.state, provider_id=one.provider_id, error=_error(one.error)
    )


def _error(one: InstanceError | None) -> messages.MachineError | None:
    if one is None:
        return None
    return messages.MachineError(code=one.code, message=one.message, out_of_resources=one.out_of_resources)


def _debug(group: Group) -> str:
    wanted = ", ".join(f"{key}={value}" for key, value in group.selector.items()) or "any"
    return f"Liqo group {group.id}: clusters with {wanted}; {group.cost:g} a node and hour"


def _order(service: Service, request: Request, raw: bytes) -> Response:
    count = body(raw, messages.Order).count
    return answer(messages.Ordered(names=tuple(service.increase(request.path_params["group"], count))), 202)


def _remove(service: Service, request: Request) -> Response:
    name = request.path_params["name"]
    outcome = service.remove(request.path_params["group"], name)
    if isinstance(outcome, AlreadyGone):
        raise NotFound(f"node {name}: {outcome.detail}")
    if (error := original.refusal(name, outcome)) is not None:
        return problem(status_of(error), str(error))
    return answer({"detail": getattr(outcome, "detail", "")}, 202)


def _price(service: Service, request: Request) -> messages.Price:
    window = {name: request.query_params.get(name, "") for name in ("start", "end")}
    if not all(window.values()):
        raise UsageError("start and end: expected both, as 2026-01-31T12:00:00Z")
    return messages.Price(price=original.node_price(service, request, request.path_params["name"]))


def _pod_price(service: Service, raw: bytes) -> messages.Price:
    share = body(raw, messages.PodShare)
    requests = {name: Decimal(str(amount)) for name, amount in share.requests.items()}
    window = hours(share.start, share.end)
    return messages.Price(price=pricing.pod_price(list(service.groups().values()), requests, window))
