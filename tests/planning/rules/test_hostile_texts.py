"""Texts that tenants write into pods: they block the nodes of their pods, in a short and printable text."""

from typing import Any

import msgspec
import pytest

from predicates.objects import Pod
from predicates.texts import LONGEST_SHOWN, shown
from predicates.wire import Decoder, Interner
from rescheduler.planning.forms import instant
from rescheduler.planning.outcome import Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.pod_traits import INDEX_FAILURES, index_failures
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, node, pod, snapshot, summary

GOOD = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "web.a-1", "uid": "5d1f", "controller": True}

HOSTILE: dict[str, tuple[str, str]] = {
    "a dot": ("name", "."),
    "two dots": ("name", ".."),
    "no name": ("name", ""),
    "a path": ("name", "a/b"),
    "an encoded path": ("name", "a%2fb"),
    "a query": ("name", "a?watch=1"),
    "a long name": ("name", "a" * 254),
    "a line end": ("name", "web\n"),
    "colors": ("name", "web\x1b[31m"),
    "a mark of direction": ("name", "web\u202egpj"),
    "other letters": ("name", "wéb"),
    "a long kind": ("kind", "K" * 64),
    "a path as kind": ("kind", "../Pod"),
    "colors in the kind": ("kind", "Thing\x1b[31m"),
    "a long uid": ("uid", "u" * 65),
    "a uid of 120 KB": ("uid", "u" * 120_000),
    "a selector as uid": ("uid", "u,reason=x"),
    "colors in the uid": ("uid", "u\x1b[31m"),
    "a path as group": ("apiVersion", "example.com/../v1"),
    "a path as version": ("apiVersion", "example.com/.."),
    "no version": ("apiVersion", "example.com/"),
    "no group": ("apiVersion", "/v1"),
    "a version of 120 KB": ("apiVersion", "v" * 120_000),
}


def owned(**changed: Any) -> dict[str, Any]:
    raw = pod("default/web", "od1")
    raw["metadata"]["ownerReferences"] = [GOOD | changed]
    return raw


@pytest.mark.parametrize(("field", "text"), HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    "annotations", [{}, {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}], ids=["", "safe"]
)
def test_an_owner_that_cannot_exist_blocks_only_the_node_of_its_pod(
    field: str, text: str, annotations: dict[str, str]
) -> None:
    hostile = owned(**{field: text})
    hostile["metadata"]["annotations"] = annotations
    nodes = [node("od1", ON_DEMAND), node("od2", ON_DEMAND), node("s1")]
    state = snapshot([*nodes, hostile, pod("other", "od2")])
    assert state.pods["default/web"].owner is None
    planner = Planner(state, Policy(delete_non_replicated_pods=True))
    assert summary(planner.plan_each(CIRCUMSTANCES)) == {"od1": ["unreadable-object"], "od2": {"other": "s1"}}
    verdict = planner.plan_node("od1", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    [blocker] = verdict.blockers
    assert (blocker.pod, f"ownerReferences: {field} '" in blocker.detail) == ("default/web", True)
    assert blocker.detail.isprintable()
    assert len(blocker.detail) < LONGEST_SHOWN + 150


@pytest.mark.parametrize(
    "changed",
    [
        {"apiVersion": "v1", "kind": "Pod", "name": "a" * 253, "uid": "u" * 64},
        {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"},
        {"apiVersion": "x.io/stable", "kind": "my-kind"},
    ],
    ids=["longest", "group", "version"],
)
def test_owners_that_the_api_server_accepts_are_read(changed: dict[str, str]) -> None:
    decoded = Decoder(Interner()).decode("Pod", msgspec.json.encode(owned(**changed)))
    assert isinstance(decoded, Pod)
    assert decoded.owner is not None
    assert decoded.owner.name == changed.get("name", GOOD["name"])


def test_a_number_of_many_digits_is_not_parsed() -> None:
    decoded = Decoder(Interner()).decode("Pod", msgspec.json.encode(owned()))
    assert isinstance(decoded, Pod)
    for text, number in (("7", 7), ("9" * 5000, 0), ("9" * 250_000, 0)):
        assert index_failures(msgspec.structs.replace(decoded, annotations={INDEX_FAILURES: text})) == number


@pytest.mark.parametrize("text", ["9999-12-31T23:59:50Z", "0001-01-01T00:00:00+14:00"])
def test_times_at_the_ends_of_the_calendar_are_not_read(text: str) -> None:
    assert instant(text) is None


def test_shown_texts_are_printable_and_short() -> None:
    assert shown("a\x1b[31m\u202e\nb") == "a?[31m??b"
    assert len(shown("x" * 250_000)) == LONGEST_SHOWN
