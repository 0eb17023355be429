"""The verbs of the simulated API server: what it answers to requests, as the real one does."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final
from urllib.parse import unquote

import msgspec

from rescheduler.simulation import admission, eviction
from rescheduler.simulation.deletion import SimulatedDeletion
from rescheduler.simulation.requests import ApiRequest, RequestRefused, Target, conflict, not_found
from rescheduler.simulation.selectors import by_fields, by_labels
from rescheduler.simulation.store import KINDS, Json, ServedKind, Store, key_of, merged

_STRATEGIC: Final = "application/strategic-merge-patch+json"

#: Seconds for which the pages of a list that follow can be read.
_CONTINUE_SECONDS: Final = 300.0

#: The number of paths that are parsed only once. Each pod has its own, so there are always new ones.
_TARGETS: Final = 4096

_PATH: Final = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<subresource>[^/]+))?)?"
)


#: The namespace of the Leases of kubelets.
NODE_LEASES: Final = "kube-node-lease"


class ApiServer:
    """Answers requests from the objects in *store*. *version* is that of Kubernetes."""

    def __init__(self, store: Store, version: str = "v1.36.0") -> None:
        self.store = store
        self.deletion = SimulatedDeletion(store)
        self._version = version
        self._targets: dict[str, Target] = {}  # by path; at most _TARGETS
        self._pages: dict[str, tuple[float, list[bytes], str]] = {}
        self.custom: dict[str, ServedKind] = {}  #: kinds of custom resources, by plural
        #: Returns the object of a virtual resource, such as the Leases of kubelets, or None.
        self.virtual: Callable[[Target], Json | None] = lambda _: None
        self.deny: list[Callable[[str, Json], str]] = []  #: admission webhooks: plural and object, why it is denied

    def answer(self, request: ApiRequest) -> tuple[int, bytes]:
        """Return the code and the body of the response."""
        try:
            return self._answer(request)
        except RequestRefused as refused:
            return refused.code, refused.body

    def target(self, request: ApiRequest) -> Target | None:
        """Return what the path of *request* names, or None if it is not a resource."""
        if (known := self._targets.get(request.path)) is not None:
            return known
        if (found := self._found(request.path)) is not None:
            if len(self._targets) >= _TARGETS:
                self._targets.clear()
            self._targets[request.path] = found
        return found

    def _found(self, path: str) -> Target | None:
        if (found := _PATH.fullmatch(path)) is None:
            return None
        served = self.custom.get(found["plural"]) or KINDS.get(found["plural"])
        group = found["group"] or ""
        if served is None or served.group != group or served.version != (found["core"] or found["version"]):
            return None
        name = unquote(found["name"] or "")
        return Target(served, unquote(found["namespace"] or ""), name, found["subresource"] or "")

    def _answer(self, request: ApiRequest) -> tuple[int, bytes]:
        if request.path == "/version":
            return 200, msgspec.json.encode({"gitVersion": self._version})
        if request.path.endswith("/selfsubjectaccessreviews"):
            return 201, msgspec.json.encode({**request.body, "status": {"allowed": True}})
        if (target := self.target(request)) is None:
            return self._discovery(request.path)
        match request.method:
            case "GET":
                return 200, self._read(request, target)
            case "POST":
                return 201, msgspec.json.encode(self._create(request, target))
            case "PATCH":
                return 200, msgspec.json.encode(self._patch(request, target))
            case "DELETE":
                return 200, msgspec.json.encode(self._delete(request, target))
        raise RequestRefused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _discovery(self, path: str) -> tuple[int, bytes]:
        """Answer which custom resources an API group has."""
        parts = path.strip("/").split("/")
        of_group = [served for served in self.custom.values() if [*parts, ""][1] == served.group]
        if parts[0] != "apis" or not of_group or len(parts) > 3:  # noqa: PLR2004 - apis, group, version
            raise RequestRefused(404, "NotFound", "the server could not find the requested resource")
        if len(parts) == 2:  # noqa: PLR2004 - apis and group
            version = {"groupVersion": of_group[0].api_version, "version": of_group[0].version}
            return 200, msgspec.json.encode({"versions": [version], "preferredVersion": version})
        found: list[Json] = []
        for served in of_group:
            found += [
                {"name": served.plural, "kind": served.kind, "namespaced": served.namespaced},
                {"name": f"{served.plural}/scale", "kind": "Scale", "namespaced": served.namespaced},
            ]
        return 200, msgspec.json.encode({"resources": found})

    # Reads

    def _read(self, request: ApiRequest, target: Target) -> bytes:
        if not target.name:
            return self._list(request, target)
        item = self.virtual(target) or self.store.get(target.plural, target.key)
        if item is None:
            raise not_found(target)
        if target.subresource == "scale":
            return msgspec.json.encode({"spec": {"replicas": item["spec"].get("replicas", 1)}})
        return msgspec.json.encode(item)

    def _list(self, request: ApiRequest, target: Target) -> bytes:
        limit = int(request.query.get("limit", 0)) or None
        if token := request.query.get("continue"):
            until, items, revision = self._pages.pop(token, (0.0, [], ""))
            if until < self.store.engine.now:
                raise RequestRefused(410, "Expired", "The provided continue parameter is too old")
        else:
            items, revision = list(self.selected(request, target)), str(self.store.revision)
        page, rest = items[:limit], items[limit:] if limit else []
        meta = {"resourceVersion": revision}
        if rest:
            meta["continue"] = f"{self.store.new_uid()}"
            self._pages[meta["continue"]] = self.store.engine.now + _CONTINUE_SECONDS, rest, revision
        head = {"apiVersion": target.served.api_version, "kind": f"{target.served.kind}List", "metadata": meta}
        return msgspec.json.encode(head)[:-1] + b',"items":[' + b",".join(page) + b"]}"

    def selected(self, request: ApiRequest, target: Target) -> Iterator[bytes]:
        """Yield the objects that a list selects, encoded."""
        if target.plural == "leases" and target.namespace == NODE_LEASES:
            for name in sorted(self.store.tables["nodes"]):
                if (lease := self.virtual(replace(target, name=name))) is not None:
                    yield msgspec.json.encode(lease)
            return
        wanted, table = self.selector(request, target), self.store.tables[target.plural]
        fields = request.query.get("fieldSelector", "")
        if target.plural == "pods" and fields.startswith("spec.nodeName="):
            node = fields.removeprefix("spec.nodeName=").partition(",")[0]
            keys = sorted(self.store.pods_on[node])
        elif target.namespace:
            start = f"{target.namespace}/"
            keys = sorted(key for key in table if key.startswith(start))
        else:
            keys = sorted(table)
        for key in keys:
            if wanted(table[key].object):
                yield table[key].encoded

    def selector(self, request: ApiRequest, target: Target) -> Callable[[Json], bool]:
        """Return the filter of a list or a watch."""
        filters: list[Callable[[Json], bool]] = []
        if target.namespace:
            filters.append(lambda item: item["metadata"].get("namespace") == target.namespace)
        if labels := request.query.get("labelSelector"):
            filters.append(by_labels(labels))
        if fields := request.query.get("fieldSelector"):
            filters.append(by_fields(fields))
        return lambda item: all(each(item) for each in filters)

    # Writes

    def _create(self, request: ApiRequest, target: Target) -> Json:
        if target.subresource == "eviction":
            return eviction.evict(self.store, self.deletion, target, request)
        meta = dict(request.body.get("metadata") or {})
        if target.namespace:
            meta["namespace"] = target.namespace
            if self.store.get("namespaces", target.namespace) is None:
                raise RequestRefused(404, "NotFound", f'namespaces "{target.namespace}" not found')
        if not meta.get("name"):
            meta["name"] = f"{meta.get('generateName', '')}{self.store.new_uid()[:5]}"
        item = {**request.body, "metadata": meta}
        return self.create(target.served, item, dry_run=request.dry_run)

    def create(self, served: ServedKind, item: Json, *, dry_run: bool = False) -> Json:
        """Create *item* after admission. Raises Refused."""
        named = f'{served.plural} "{item["metadata"]["name"]}"'
        if self.store.get(served.plural, key_of(item)) is not None:
            raise RequestRefused(409, "AlreadyExists", f"{named} already exists")
        for deny in self.deny:
            if why := deny(served.plural, item):
                raise RequestRefused(403, "Forbidden", f'admission webhook "simulated" denied the request: {why}')
        if served.plural == "pods":
            item = admission.admitted(self.store, item)
        return item if dry_run else self.store.create(served.plural, item)

    def _patch(self, request: ApiRequest, target: Target) -> Json:
        item = self.store.get(target.plural, target.key)
        if item is None:
            raise not_found(target)
        meta, asked = item["metadata"], request.body.get("metadata") or {}
        for name in ("uid", "resourceVersion"):
            if name in asked and asked[name] != meta.get(name):
                raise conflict(target, "the object has been modified; please apply your changes to the latest version")
        change = dict(request.body)
        if target.subresource == "status":
            change = {"status": change.get("status", {})}
            if request.content_type.startswith(_STRATEGIC):
                change = _by_type(change, item)
        elif target.served.has_status:
            change.pop("status", None)
        after = merged(item, change)
        identity = {name: meta[name] for name in ("uid", "name", "namespace", "resourceVersion") if name in meta}
        after["metadata"] = {**after["metadata"], **identity}
        return item if request.dry_run else self.store.replace(target.plural, item, after)

    def _delete(self, request: ApiRequest, target: Target) -> Json:
        item = self.store.get(target.plural, target.key)
        if item is None:
            raise not_found(target)
        if request.dry_run:
            return item
        return self.deletion.delete(target, item, request.body or {})


def _by_type(change: Json, item: Json) -> Json:
    """Return the merge patch of a strategic merge patch of conditions, which are merged by their type."""
    given = change.get("status", {}).get("conditions")
    if given is None:
        return change
    present = {each["type"]: each for each in item.get("status", {}).get("conditions") or ()}
    for each in given:
        if each.get("$patch") == "delete":
            present.pop(each["type"], None)
        else:
            present[each["type"]] = {**present.get(each["type"], {}), **each}
    status = {**change["status"], "conditions": list(present.values())}
    return {**change, "status": status}
