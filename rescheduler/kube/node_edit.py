"""Changes of a Node that we make: taints, annotations, cordons. Pure: the object in, the patch out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from predicates.objects import Taint


@dataclass(frozen=True, slots=True)
class NodeEdit:
    """What a node is to look like. What it does not name stays as it is."""

    taint: tuple[Taint, ...] = ()  #: to be there; one of the same key and effect is replaced
    untaint: tuple[str, ...] = ()  #: keys of taints not to be there, whatever their effect and value
    annotate: Mapping[str, str | None] = field(default_factory=dict)  #: None removes it
    cordon: bool | None = None  #: whether it is to be unschedulable
    #: Given the node's annotations, why the edit must not be made; "" where it may be. The patch is valid only for
    #: the version of the node that was asked about, so the answer still holds when the patch is written.
    only_if: Callable[[Mapping[str, str]], str] | None = None


def refused(node: Mapping[str, Any], edit: NodeEdit) -> str:
    """Why *edit* must not be made to *node* (as JSON), by its own condition; "" where it may be."""
    return "" if edit.only_if is None else edit.only_if(node["metadata"].get("annotations") or {})


def patch(node: Mapping[str, Any], edit: NodeEdit) -> dict[str, Any] | None:
    """The merge patch that makes *edit* true of *node* (as JSON); None where it is true already.

    It holds only while the node is what we saw: its uid and resourceVersion are part of the patch, and any
    other answer is a 409. So the list of taints, which is replaced whole, loses nobody else's.
    """
    spec: dict[str, Any] = {}
    taints = list(node.get("spec", {}).get("taints") or ())
    if (wanted := _taints(taints, edit)) != taints:
        spec["taints"] = wanted or None
    if edit.cordon is not None and edit.cordon != node.get("spec", {}).get("unschedulable", False):
        spec["unschedulable"] = edit.cordon or None
    present = node["metadata"].get("annotations") or {}
    annotations = {key: text for key, text in edit.annotate.items() if present.get(key) != text}
    if not spec and not annotations:
        return None
    metadata = {one: node["metadata"][one] for one in ("uid", "resourceVersion")}
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": spec} if spec else {"metadata": metadata}


def _taints(taints: list[dict[str, Any]], edit: NodeEdit) -> list[dict[str, Any]]:
    """The taints afterwards, as JSON; fields of others' taints that we do not know are kept."""
    ours = {(one.key, one.effect): one for one in edit.taint}
    kept = [one for one in taints if one["key"] not in edit.untaint]
    there = {(one["key"], one.get("effect", "")) for one in kept}
    replaced = [_merged(one, ours.get((one["key"], one.get("effect", "")))) for one in kept]
    return replaced + [_as_json(one) for key, one in ours.items() if key not in there]


def _merged(taint: dict[str, Any], ours: Taint | None) -> dict[str, Any]:
    if ours is None or taint.get("value", "") == ours.value:
        return taint
    return _as_json(ours)


def _as_json(taint: Taint) -> dict[str, Any]:
    shown = {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": taint.time_added}
    return {name: text for name, text in shown.items() if text}
