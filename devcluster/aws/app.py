"""The API as an ASGI application: AWS' query protocol, with XML in the forms of EC2 Auto Scaling and of EC2."""

import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from devcluster.aws.cloud import REGION, AwsCloud, AwsError
from devcluster.standin.faults import App

#: The access key that is accepted.
KEY: Final = "AKIDSTANDIN"
_EC2: Final = frozenset({"DescribeInstances"})
_SCOPE: Final = re.compile(rf"AWS4-HMAC-SHA256 Credential={KEY}/[0-9]{{8}}/{REGION}/(autoscaling|ec2)/aws4_request,.*")


def application(cloud: AwsCloud) -> App:
    async def answer(request: Request) -> Response:
        status, body = answered(cloud, request.headers.get("authorization", ""), await request.body())
        return Response(body, status, media_type="text/xml")

    return Starlette(routes=[Route("/", answer, methods=["POST"])])


def answered(cloud: AwsCloud, authorization: str, body: bytes) -> tuple[int, str]:
    """Return the status and the body of the response to a request."""
    form = dict(parse_qsl(body.decode(), keep_blank_values=True))
    action = form.get("Action", "")
    if not _SCOPE.fullmatch(authorization):
        return 403, failure("SignatureDoesNotMatch", f"The canonical request has: {authorization}")
    try:
        result = cloud.answer(action, _nested(form))
    except AwsError as error:
        return error.status, failure(error.code, error.message, ec2=action in _EC2)
    if action in _EC2:
        return 200, _element(f"{action}Response", result, "item")
    return 200, described(result, action)


def described(result: dict[str, Any], action: str = "DescribeAutoScalingGroups") -> str:
    """Return the body of a response of EC2 Auto Scaling."""
    return _element(f"{action}Response", {f"{action}Result": result}, "member")


def failure(code: str, message: str, *, ec2: bool = False) -> str:
    """Return the body of an error response."""
    error = _element("Error", {"Code": code, "Message": message}, "")
    if ec2:
        return f"<Response><Errors>{error}</Errors><RequestID>r</RequestID></Response>"
    return f"<ErrorResponse>{error}<RequestId>r</RequestId></ErrorResponse>"


def _nested(form: dict[str, str]) -> dict[str, Any]:
    """Return the parameters, whose lists have the form ``Name.member.1.Key`` or, in EC2, ``Name.1``."""
    tree: dict[str, Any] = {}
    for key, value in form.items():
        *path, last = [part for part in key.split(".") if part != "member"]
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        branch[last] = value
    named = {key: _lists(value) for key, value in tree.items()}
    return named | ({"InstanceIds": named["InstanceId"]} if isinstance(named.get("InstanceId"), list) else {})


def _lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _lists(each) for key, each in value.items()}
    return [inner[key] for key in sorted(inner, key=int)] if all(key.isdigit() for key in inner) else inner


def _element(name: str, value: Any, item: str) -> str:
    match value:
        case dict():
            content = "".join(_element(key, each, item) for key, each in value.items())
        case str():
            content = escape(value)
        case bool():
            content = str(value).lower()
        case Iterable():
            content = "".join(_element(item, each, item) for each in value)
        case _:
            content = str(value)
    return f"<{name}>{content}</{name}>"
