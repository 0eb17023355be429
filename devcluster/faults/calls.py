"""Classification of requests into calls: the verb and the resource, without object names."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A kind of call. Its `str` is used in rules and tables, such as `create pods/eviction (dry run)`."""

    verb: str  #: get, list, watch, create, update, patch, delete, deletecollection; the HTTP method for other servers
    resource: (
        str  #: resource and subresource, such as `pods/eviction`; the path for other servers and non-resource requests
    )
    dry_run: bool = False
    selected_by: tuple[str, ...] = ()  #: fields that restrict a list or watch, such as `spec.nodeName`

    def __str__(self) -> str:
        selected = f" by {','.join(self.selected_by)}" if self.selected_by else ""
        return f"{self.verb} {self.resource}{selected}{' (dry run)' if self.dry_run else ''}"

    @property
    def writes(self) -> bool:
        """Whether the call may change state on the server. Access and token reviews store nothing."""
        read_only = self.dry_run or self.resource.endswith("reviews")
        return self.verb.lower() not in ("get", "list", "watch", "head") and not read_only


#: Returns the call of a request from its method, target (path and query) and body.
Identify = Callable[[str, str, bytes], ApiCall]


def kubernetes_call(method: str, target: str, body: bytes = b"") -> ApiCall:
    """Return the call of a request to kube-apiserver."""
    split = urlsplit(target)
    query = parse_qs(split.query, keep_blank_values=True)
    resource, name, namespace = _resource(split.path)
    if not resource:
        return ApiCall(method.lower(), split.path)
    if method != "GET":
        verb = "deletecollection" if method == "DELETE" and not name else _VERBS.get(method, method.lower())
        return ApiCall(verb, resource, dry_run="dryRun" in query or _dry_run(resource, body))
    if query.get("watch", ["false"])[0] in ("true", "1"):
        verb = "watch"
    elif name:
        return ApiCall("get", resource)
    else:
        verb = "list"
    fields = {term.partition("=")[0].rstrip("!") for text in query.get("fieldSelector", ()) for term in text.split(",")}
    if namespace:
        fields.add("metadata.namespace")
    return ApiCall(verb, resource, selected_by=tuple(sorted(fields - {""})))


def http_call(method: str, target: str, body: bytes = b"") -> ApiCall:  # noqa: ARG001 - required by `Identify`
    """Return the call of a request to any other HTTP server."""
    return ApiCall(method, urlsplit(target).path)


def object_name(target: str) -> str:
    """Return the object of a request to kube-apiserver: `namespace/name`, `name`, or "" for a collection."""
    _, name, namespace = _resource(urlsplit(target).path)
    return f"{namespace}/{name}" if namespace and name else name


def _resource(path: str) -> tuple[str, str, str]:
    """Return the resource with subresource, the name and the namespace; all empty for non-resource paths."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api":
        parts = parts[2:]
    elif parts[0] == "apis":
        parts = parts[3:]
    else:
        return "", "", ""
    namespace = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2 and parts[2] not in ("status", "finalize"):  # noqa: PLR2004
        namespace, parts = parts[1], parts[2:]
    if not parts:
        return "", "", ""
    plural, name, subresource = (*parts, "", "")[:3]
    return (f"{plural}/{subresource}" if subresource else plural), name, namespace


def _dry_run(resource: str, body: bytes) -> bool:
    """Return whether the delete options in the body of an eviction request a dry run."""
    if resource != "pods/eviction":
        return False
    try:
        options = json.loads(body).get("deleteOptions") or {}
    except (ValueError, AttributeError):
        return False
    return bool(options.get("dryRun"))
