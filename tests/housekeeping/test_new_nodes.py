"""Nodes that join while their machine is being built are cordoned until it runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from rescheduler.errors import Retryable
from rescheduler.housekeeping.node_writes import LONGEST
from rescheduler.kube.cluster import NodeEdit
from rescheduler.observe.events import Held, Trouble, Waiting
from rescheduler.planning.outcome import Reason
from rescheduler.planning.rules.candidates import UNFINISHED
from rescheduler.providers.base import Deleted, NodeRef
from tests.housekeeping.world import IDENTITY, START, LoopWorld, ScriptedProvider, blockers, world
from tests.planning.builders import ON_DEMAND, Manifest, node


@dataclass
class Builder(ScriptedProvider):
    """A provider that builds the machines of some nodes."""

    built: frozenset[str] = frozenset()
    asked: int = 0

    def building(self, nodes: Sequence[NodeRef], *, deadline: float) -> frozenset[str]:  # noqa: ARG002
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        return frozenset(node.name for node in nodes) - self.built


def joined(name: str, role: str = ON_DEMAND, **fields: Any) -> Manifest:
    """Return a node that has just joined."""
    new_node = node(name, role, **fields)
    new_node["metadata"]["creationTimestamp"] = START.isoformat()
    return new_node


def cordoned(here: LoopWorld) -> list[str]:
    return [each.name for each in here.cluster.nodes if each.spec.unschedulable]


def become_ready(here: LoopWorld, name: str) -> None:
    new = here.node(name)
    ready = [replace(each, status="True") for each in new.status.conditions]
    here.cluster.upsert("Node", replace(new, status=replace(new.status, conditions=ready)))


def test_a_node_is_cordoned_until_its_machine_runs_and_it_is_ready() -> None:
    with world(joined("new", ready="False"), node("old", "other")) as here:
        provider = Builder([Deleted()])
        loop = here.loop(provider=provider)
        loop.round()
        loop.round()
        assert (cordoned(here), here.writes) == (["new"], [("cordon", "new")])
        assert here.node("new").metadata.annotations[UNFINISHED] == IDENTITY
        assert [each.reason for each in blockers(here, "new")] == [Reason.NODE_NOT_READY]
        provider.built = frozenset({"new"})
        loop.round()
        assert cordoned(here) == ["new"], "it is not Ready"
        become_ready(here, "new")
        loop.round()
        assert (cordoned(here), here.writes[:2]) == ([], [("cordon", "new"), ("uncordon", "new")])
        assert [held.waiting for held in here.of(Held)] == [Waiting.CLEANING_UP] * 2


def test_a_cordon_of_another_user_is_kept() -> None:
    others: dict[str, Any] = {"annotations": {UNFINISHED: "kube-system/other"}}
    apart: dict[str, Any] = {"role": "other", "unschedulable": True}
    with world(joined("a", **apart), joined("b", **apart, **others)) as here:
        here.loop(provider=Builder([Deleted()], built=frozenset({"a", "b"}))).round()
        here.loop(provider=Builder([Deleted()])).round()
        assert (cordoned(here), here.writes) == (["a", "b"], [])


def test_a_cordon_that_the_watch_does_not_show_is_kept() -> None:
    with world(joined("new", "other")) as here:
        before = here.node("new")
        here.edit_node("new", before.metadata.uid, NodeEdit(cordon=True))
        here.hide_change("new", before)
        provider = Builder([Deleted()])
        loop = here.loop(provider=provider)
        loop.round()
        provider.built = frozenset({"new"})
        loop.round()
        assert here.node("new").spec.unschedulable
        assert UNFINISHED not in here.node("new").metadata.annotations


def test_a_node_is_uncordoned_after_half_an_hour_at_the_latest() -> None:
    with world(joined("new")) as here:
        loop = here.loop(provider=Builder([Deleted()]))
        loop.round()
        here.pass_time(LONGEST.total_seconds() - 1)
        loop.round()
        assert cordoned(here) == ["new"]
        here.pass_time(1)
        loop.round()
        loop.round()
        assert (cordoned(here), here.writes[:2]) == ([], [("cordon", "new"), ("uncordon", "new")])


def test_nothing_is_changed_while_the_provider_does_not_respond() -> None:
    with world(joined("new")) as here:
        provider = Builder([Deleted()])
        provider.trouble = Retryable("no answer")
        here.loop(provider=provider).round()
        assert here.writes == []
        assert next(each.detail for each in here.of(Trouble)) == "pool: no answer"


@pytest.mark.parametrize("dry_run", [True, False])
def test_nothing_is_requested_without_a_new_node_or_written_in_a_dry_run(*, dry_run: bool) -> None:
    new_node = joined("new") if dry_run else node("old", ON_DEMAND)
    with world(new_node) as here:
        provider = Builder([Deleted()], built=frozenset({"old"}))
        here.loop(provider=provider, dry_run=dry_run).round()
        assert (provider.asked, [write for write in here.writes if "cordon" in write[0]]) == (0, [])
