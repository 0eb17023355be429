"""Classification of requests into calls: the verb and the resource, without object names."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from rescheduler.draining.actions import ANNOTATION

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A kind of call. Its `str` is used in rules and tables, such as `create pods/eviction (dry run)`.

    *step* is what the write of a drain's mark says: `draining`, `owing` (debts are stored), `surging` (a rolling update
    is stored), `removing`, or `release` (the mark is removed).
    """

    verb: str  #: get, list, watch, create, update, patch, delete, deletecollection; the HTTP method for other servers
    resource: (
        str  #: resource and subresource, such as `pods/eviction`; the path for other servers and non-resource requests
    )
    dry_run: bool = False
    selected_by: tuple[str, ...] = ()  #: fields that restrict a list or watch, such as `spec.nodeName`
    step: str = ""

    def __str__(self) -> str:
        selected = f" by {','.join(self.selected_by)}" if self.selected_by else ""
        step = "dry run" if self.dry_run else self.step
        return f"{self.verb} {self.resource}{selected}{f' ({step})' if step else ''}"

    @property
    def of_pool(self) -> bool:
        """Whether this is a call of a server other than kube-apiserver, whose verbs are HTTP methods."""
        return self.verb.isupper()

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
        dry_run = "dryRun" in query or _dry_run(resource, body)
        return ApiCall(verb, resource, dry_run, step=_step(body) if (verb, resource) == ("patch", "nodes") else "")
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


def _step(patch: bytes) -> str:
    """Return the step of a drain whose mark a merge patch of a Node sets or removes; "" if it does neither."""
    try:
        mark = json.loads(json.loads(patch)["metadata"]["annotations"][ANNOTATION] or "{}")
    except (ValueError, KeyError, TypeError):
        return ""
    if mark.get("step") != "draining":
        return str(mark.get("step", "release"))
    return "surging" if "surge" in mark else "owing" if "debts" in mark else "draining"
