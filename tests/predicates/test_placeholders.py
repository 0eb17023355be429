"""Tests that a snapshot keeps placeholders apart: they are not load, and they do not wait for room."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from predicates.nodes import CPU
from predicates.objects import Pod
from predicates.snapshot import PLACEHOLDER, ROOM_NAMESPACE, Snapshot
from predicates.wire import Decoder, Interner
from tests.planning.builders import Manifest, node, pod, snapshot

State = tuple[list[str], list[str], list[str], int]
KEY = f"{ROOM_NAMESPACE}/room-1"


def placeholder(on: str = "s", **fields: Any) -> Manifest:
    return pod(KEY, on=on, cpu="2", labels={PLACEHOLDER: "true"}, **fields)


def decoded(manifest: Manifest) -> Pod:
    built = Decoder(Interner()).decode("Pod", msgspec.json.encode(manifest))
    assert isinstance(built, Pod)
    return built


def listed(*manifests: Manifest) -> Snapshot:
    """Return a snapshot whose pods were added in bulk."""
    built = snapshot([node("s")])
    built.replace("Pod", map(decoded, manifests))
    return built


def state(cluster: Snapshot) -> State:
    """Return the pods, those on the node, the placeholders and the free CPU of the node."""
    row = cluster.nodes.row["s"]
    return (
        sorted(cluster.pods),
        sorted(cluster.pods_on["s"]),
        sorted(cluster.placeholders),
        int(cluster.nodes.free[row, CPU]),
    )


WEB = pod("web", on="s")
APART = (["default/web"], ["default/web"], [KEY], 3000)

CASES: dict[str, Callable[[], Snapshot]] = {
    "one by one": lambda: snapshot([node("s"), WEB, placeholder()]),
    "in bulk": lambda: listed(WEB, placeholder()),
    "unbound": lambda: snapshot([node("s"), WEB, placeholder(on="")]),
    "finished": lambda: snapshot([node("s"), WEB, placeholder(status={"phase": "Failed"})]),
    "bound later": lambda: snapshot([node("s"), WEB, placeholder(on=""), placeholder()]),
}


@pytest.mark.parametrize("build", CASES.values(), ids=CASES)
def test_placeholders_are_kept_apart(build: Callable[[], Snapshot]) -> None:
    assert state(build()) == APART


def test_a_pod_without_the_label_or_in_another_namespace_counts() -> None:
    cluster = snapshot([node("s"), pod(KEY, on="s"), pod("x", on="s", labels={PLACEHOLDER: "true"})])
    assert state(cluster) == (["default/x", KEY], ["default/x", KEY], [], 2000)


@pytest.mark.parametrize("build", [CASES["one by one"], CASES["in bulk"]], ids=["one by one", "in bulk"])
def test_deleted_placeholders_are_not_counted(build: Callable[[], Snapshot]) -> None:
    gone: State = (["default/web"], ["default/web"], [], 3000)
    cluster = build()
    cluster.delete("Pod", KEY)
    assert state(cluster) == gone
    cluster = build()
    cluster.replace("Pod", [decoded(WEB)])
    assert state(cluster) == gone


def test_a_pod_counts_while_the_placeholder_label_is_removed() -> None:
    cluster = snapshot([node("s"), WEB, placeholder()])
    cluster.upsert("Pod", decoded(pod(KEY, on="s", cpu="2")))
    assert state(cluster) == (["default/web", KEY], ["default/web", KEY], [], 1000)
    cluster.upsert("Pod", decoded(placeholder()))
    assert state(cluster) == APART
