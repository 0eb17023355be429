"""Edits of a Node (taints, annotations, cordon), converted to a patch. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from predicates.objects import Taint


@dataclass(frozen=True, slots=True)
class NodeEdit:
    """The desired changes of a node. Other fields stay unchanged."""

    taint: tuple[Taint, ...] = ()  #: taints to add; a taint with the same key and effect is replaced
    untaint: tuple[str, ...] = ()  #: keys of taints to remove, with any effect and value
    annotate: Mapping[str, str | None] = field(default_factory=dict)  #: None removes the annotation
    cordon: bool | None = None  #: the desired value of spec.unschedulable
    #: Receives the node's annotations and returns why the edit must not be made, or "". The patch contains the
    #: resourceVersion of the node that was checked, so the check still holds when the patch is applied.
    only_if: Callable[[Mapping[str, str]], str] | None = None


def refused(node: Mapping[str, Any], edit: NodeEdit) -> str:
    """Return why the condition of *edit* does not allow it for *node* (as JSON), or ""."""
    return "" if edit.only_if is None else edit.only_if(node["metadata"].get("annotations") or {})


def patch(node: Mapping[str, Any], edit: NodeEdit) -> dict[str, Any] | None:
    """Return the merge patch that applies *edit* to *node* (as JSON), or None if nothing has to change.

    The patch contains the node's UID and resourceVersion, so the API server rejects it with 409 if the node has
    changed. The list of taints is replaced as a whole, but no taint that another client adds concurrently is lost.
    """
    spec: dict[str, Any] = {}
    taints = list(node.get("spec", {}).get("taints") or ())
    if (desired := _taints(taints, edit)) != taints:
        spec["taints"] = desired or None
    if edit.cordon is not None and edit.cordon != node.get("spec", {}).get("unschedulable", False):
        spec["unschedulable"] = edit.cordon or None
    present = node["metadata"].get("annotations") or {}
    annotations = {key: text for key, text in edit.annotate.items() if present.get(key) != text}
    if not spec and not annotations:
        return None
    metadata = {field_name: node["metadata"][field_name] for field_name in ("uid", "resourceVersion")}
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": spec} if spec else {"metadata": metadata}


def _taints(taints: list[dict[str, Any]], edit: NodeEdit) -> list[dict[str, Any]]:
    """Return the taints after the edit, as JSON. Unknown fields of other taints are kept."""
    ours = {(taint.key, taint.effect): taint for taint in edit.taint}
    remaining = [taint for taint in taints if taint["key"] not in edit.untaint]
    present = {(taint["key"], taint.get("effect", "")) for taint in remaining}
    replaced = [_merged(taint, ours.get((taint["key"], taint.get("effect", "")))) for taint in remaining]
    return replaced + [_as_json(taint) for key, taint in ours.items() if key not in present]


def _merged(taint: dict[str, Any], ours: Taint | None) -> dict[str, Any]:
    if ours is None or taint.get("value", "") == ours.value:
        return taint
    return _as_json(ours)


def _as_json(taint: Taint) -> dict[str, Any]:
    fields = {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": taint.time_added}
    return {name: text for name, text in fields.items() if text}
