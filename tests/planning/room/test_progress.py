"""Tests of the progress of an order, from its placeholders, the pods of its node and the time."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predicates.objects import Pod
from rescheduler.planning.outcome import PodRef
from rescheduler.planning.room.placeholders import OrderProgress, OrderState, Placeholder, of_installation, progress
from tests.planning.builders import NOW, pod, snapshot

TIMEOUT = timedelta(minutes=15)
PODS: list[Pod] = list(snapshot([pod("a", on="od"), pod("b", on="od")]).pods.values())


def placeholder(name: str, node: str = "spot", *, running: bool = True, minutes: float = 5) -> Placeholder:
    """Return the placeholder of pod *name*; its order times out in *minutes*."""
    return Placeholder(
        PodRef("room", f"room-{name}", f"uid-room-{name}"),
        "od",
        "uid-od",
        f"default/{name}",
        f"uid-{name}",
        NOW + timedelta(minutes=minutes),
        "ours",
        node,
        running=running,
    )


def judged(*placeholders: Placeholder, uid: str | None = "uid-od", pods: list[Pod] = PODS) -> OrderProgress:
    return progress(placeholders, uid, pods, lambda node: node == "spot", NOW, TIMEOUT)


A, B = placeholder("a"), placeholder("b")

CASES: dict[str, tuple[tuple[Placeholder, ...], OrderState, int, list[str], list[str]]] = {
    "all run": ((A, B), OrderState.READY, 2, [], []),
    "one is pending": ((A, placeholder("b", "", running=False)), OrderState.WAITING, 1, [], []),
    "one is not on a spot node": ((A, placeholder("b", "other")), OrderState.WAITING, 1, [], []),
    "one was not created": ((A,), OrderState.WAITING, 1, ["b"], []),
    "one is being deleted": ((A, replace(B, leaving=True)), OrderState.WAITING, 1, ["b"], []),
    "one has finished": (
        (A, replace(B, running=False, finished=True)), OrderState.WAITING, 1, ["b"], ["room-b"],
    ),
    "one is for a pod that has left": ((A, B, placeholder("c")), OrderState.READY, 2, [], ["room-c"]),
    "the time is over": (
        (placeholder("a", minutes=0), placeholder("b", "", running=False)), OrderState.TIMED_OUT, 1, [], [],
    ),
    "all run after the time": ((placeholder("a", minutes=-14), placeholder("b")), OrderState.READY, 2, [], []),
    "they run, but are not used": ((placeholder("a", minutes=-15), placeholder("b")), OrderState.UNUSED, 2, [], []),
}  # fmt: skip


@pytest.mark.parametrize(("placeholders", "state", "running", "missing", "surplus"), CASES.values(), ids=CASES)
def test_progress_is_derived_from_placeholders_and_pods(
    placeholders: tuple[Placeholder, ...], state: OrderState, running: int, missing: list[str], surplus: list[str]
) -> None:
    seen = judged(*placeholders)
    assert (seen.node, seen.state, seen.running, seen.total) == ("od", state, running, 2)
    assert ([pod.name for pod in seen.missing], [each.ref.name for each in seen.surplus]) == (missing, surplus)
    assert seen.open == (state in (OrderState.READY, OrderState.WAITING))
    assert str(seen) == f"{running} of 2 placeholders for the pods of node od run on spot nodes"


@pytest.mark.parametrize(
    ("uid", "pods"),
    [
        pytest.param(None, [], id="the node is gone"),
        pytest.param("uid-new", PODS, id="another node has its name"),
        pytest.param("uid-od", [], id="nothing has to move"),
    ],
)
def test_an_order_ends_with_its_node(uid: str | None, pods: list[Pod]) -> None:
    assert judged(A, B, uid=uid, pods=pods) == OrderProgress(
        "od", OrderState.ENDED, NOW + timedelta(minutes=5), surplus=(A, B)
    )


placeholders = st.builds(
    placeholder,
    st.sampled_from("abc"),
    st.sampled_from(["", "spot", "other"]),
    running=st.booleans(),
    minutes=st.sampled_from([-20, -1, 0, 1]),
).map(lambda each: replace(each, running=each.running and bool(each.node)))


@given(st.lists(placeholders, min_size=1, max_size=3, unique_by=lambda each: each.for_pod_uid))
def test_progress_is_consistent_for_any_placeholders(group: list[Placeholder]) -> None:
    seen = judged(*group)
    served = {each.for_pod_uid for each in group}
    assert seen.state is not OrderState.READY or {pod.uid for pod in PODS} <= served
    assert {pod.uid for pod in seen.missing} == {pod.uid for pod in PODS} - served
    assert seen.running + len(seen.missing) <= seen.total
    late = min(each.until for each in group) <= NOW
    assert late or seen.open
    assert not late or seen.state is not OrderState.WAITING


def test_placeholders_of_other_installations_are_excluded() -> None:
    other, unknown = replace(A, installation="other"), replace(B, installation="")
    assert of_installation([B, other, unknown, A], "ours") == [A, B, unknown]
