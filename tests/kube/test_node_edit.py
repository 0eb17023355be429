"""The patch for an edit of a node."""

from typing import Any

import pytest

from predicates.objects import Taint
from rescheduler.kube.cluster import NodeEdit, patch

OURS = Taint(key="ours", effect="NoSchedule", value="1")
FOREIGN = {"key": "theirs", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z", "novel": "kept"}
BASE = {"uid": "u", "resourceVersion": "7"}

Case = tuple[dict[str, Any], NodeEdit, dict[str, Any] | None]

CASES: dict[str, Case] = {
    "no change": ({"taints": [FOREIGN]}, NodeEdit(), None),
    "a cordon": (
        {"taints": [FOREIGN]},
        NodeEdit(cordon=True, annotate={"by": "us"}),
        {"metadata": BASE | {"annotations": {"by": "us"}}, "spec": {"unschedulable": True}},
    ),
    "a node that is already cordoned": ({"unschedulable": True}, NodeEdit(cordon=True), None),
    "an uncordon": (
        {"unschedulable": True},
        NodeEdit(cordon=False),
        {"metadata": BASE, "spec": {"unschedulable": None}},
    ),
    "an uncordon of a schedulable node": ({}, NodeEdit(cordon=False), None),
    "taint on a bare node": (
        {},
        NodeEdit(taint=(OURS,)),
        {"metadata": BASE, "spec": {"taints": [{"key": "ours", "value": "1", "effect": "NoSchedule"}]}},
    ),
    "others' taints stay as they are": (
        {"taints": [FOREIGN]},
        NodeEdit(taint=(OURS,)),
        {"metadata": BASE, "spec": {"taints": [FOREIGN, {"key": "ours", "value": "1", "effect": "NoSchedule"}]}},
    ),
    "the same taint again": (
        {"taints": [{"key": "ours", "value": "1", "effect": "NoSchedule"}]},
        NodeEdit(taint=(OURS,)),
        None,
    ),
    "another value of the same taint": (
        {"taints": [{"key": "ours", "value": "0", "effect": "NoSchedule"}, FOREIGN]},
        NodeEdit(taint=(OURS,)),
        {"metadata": BASE, "spec": {"taints": [{"key": "ours", "value": "1", "effect": "NoSchedule"}, FOREIGN]}},
    ),
    "another effect is another taint": (
        {"taints": [{"key": "ours", "effect": "PreferNoSchedule"}]},
        NodeEdit(taint=(OURS,)),
        {
            "metadata": BASE,
            "spec": {
                "taints": [
                    {"key": "ours", "effect": "PreferNoSchedule"},
                    {"key": "ours", "value": "1", "effect": "NoSchedule"},
                ]
            },
        },
    ),
    "untaint takes every effect of the key": (
        {"taints": [{"key": "ours", "effect": "PreferNoSchedule"}, FOREIGN, {"key": "ours", "effect": "NoSchedule"}]},
        NodeEdit(untaint=("ours",)),
        {"metadata": BASE, "spec": {"taints": [FOREIGN]}},
    ),
    "the last taint is removed": (
        {"taints": [{"key": "ours", "effect": "NoSchedule"}]},
        NodeEdit(untaint=("ours",)),
        {"metadata": BASE, "spec": {"taints": None}},
    ),
    "untaint without taints": ({"taints": [FOREIGN]}, NodeEdit(untaint=("ours",)), None),
    "taint and untaint at once": (
        {"taints": [{"key": "soft", "effect": "PreferNoSchedule"}]},
        NodeEdit(taint=(OURS,), untaint=("soft",)),
        {"metadata": BASE, "spec": {"taints": [{"key": "ours", "value": "1", "effect": "NoSchedule"}]}},
    ),
    "annotations set, changed, removed and kept": (
        {},
        NodeEdit(annotate={"new": "1", "old": "2", "gone": None, "same": "s", "never": None}),
        {"metadata": BASE | {"annotations": {"new": "1", "old": "2", "gone": None}}},
    ),
}


@pytest.mark.parametrize(("spec", "edit", "expected"), CASES.values(), ids=CASES)
def test_the_patch_contains_only_the_changes(
    spec: dict[str, Any], edit: NodeEdit, expected: dict[str, Any] | None
) -> None:
    annotations = {"old": "1", "gone": "x", "same": "s", "theirs": "t"}
    node = {"metadata": {**BASE, "name": "n", "annotations": annotations}, "spec": spec}
    assert patch(node, edit) == expected
