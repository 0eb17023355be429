"""What a dump of a cluster lacks: it has only the fields that plans read, and empty values for fields without one."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from rescheduler.simulation.store import Json, controller_of

_HASH: Final = "pod-template-hash"
_REVISION: Final = "deployment.kubernetes.io/revision"
#: Kinds whose pods are created from a template.
_WITH_TEMPLATE: Final = frozenset({"ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job"})


def completed(items: Iterable[Json]) -> list[Json]:
    """Return *items* as an API server has them: without nulls, workloads with templates and selectors, and owner
    references with all fields.

    The template of a Deployment is that of its newest ReplicaSet, and the claims of a StatefulSet are those of its
    pods. Workloads whose template is not known are left out.
    """
    known = [_copied(item) for item in items]
    _complete_owners(known)
    owned: defaultdict[str, list[Json]] = defaultdict(list)  # ReplicaSets and pods, by UID of their owner
    for item in known:
        if item.get("kind") in ("ReplicaSet", "Pod") and (owner := controller_of(item)) is not None:
            owned[owner["uid"]].append(item)
    result = []
    for item in known:
        if item.get("kind") not in _WITH_TEMPLATE:
            result.append(item)
        elif (template := _template(item, owned)) is not None:
            derived = {**_selector(template), **_claims(item, owned)}
            result.append({**item, "spec": {**derived, **item["spec"], "template": template}})
    return result


def _complete_owners(items: list[Json]) -> None:
    """Add to owner references what they lack. Those that do not name an owner are removed."""
    metas = [(item.get("kind", ""), item["metadata"]) for item in items]
    uids = {(kind, meta.get("namespace", ""), meta["name"]): meta.get("uid") for kind, meta in metas}
    for _, meta in metas:
        owners = meta.get("ownerReferences") or ()
        named = [owner for owner in owners if owner and owner.get("kind") and owner.get("name")]
        for owner in named:
            identity = owner["kind"], meta.get("namespace", ""), owner["name"]
            owner.setdefault("apiVersion", "")
            owner.setdefault("uid", uids.get(identity) or "/".join(identity))
        if "ownerReferences" in meta:
            meta["ownerReferences"] = named


def _template(item: Json, owned: dict[str, list[Json]]) -> Json | None:
    """Return the pod template of a workload, or None if it is not known."""
    template: Json | None = item.get("spec", {}).get("template")
    if (
        template is None
        and item["kind"] == "Deployment"
        and (replica_sets := owned.get(item["metadata"].get("uid", "")))
    ):
        newest = max(replica_sets, key=lambda each: int(each["metadata"].get("annotations", {}).get(_REVISION, 0)))
        template = newest["spec"].get("template")
        meta = (template or {}).get("metadata", {})
        labels = {name: value for name, value in meta.get("labels", {}).items() if name != _HASH}
        template = None if template is None else {**template, "metadata": {**meta, "labels": labels}}
    if template is None:
        return None
    parts = {name: _filled(template.get(name) or {}) for name in ("metadata", "spec")}
    return {**template, **parts}


def _selector(template: Json) -> Json:
    return {"selector": {"matchLabels": template["metadata"].get("labels", {})}}


def _claims(item: Json, owned: dict[str, list[Json]]) -> Json:
    """Return the volumeClaimTemplates of a StatefulSet, by the claims of its pods that are named after the pod."""
    if item["kind"] != "StatefulSet":
        return {}
    names: dict[str, None] = {}
    for pod in owned.get(item["metadata"].get("uid", ""), ()):
        for volume in pod["spec"].get("volumes") or ():
            claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if claim == f"{volume['name']}-{pod['metadata']['name']}":
                names[volume["name"]] = None
    return {"volumeClaimTemplates": [{"metadata": {"name": name}, "spec": {}} for name in names]}


def _filled(fields: Json) -> Json:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value not in ("", [], {})}


def _copied(item: Json) -> Json:
    """Return a copy of *item* without nulls."""
    encoded = msgspec.json.encode(item)
    copy: Json = msgspec.json.decode(encoded)
    return copy if b":null" not in encoded else _without_nulls(copy)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
