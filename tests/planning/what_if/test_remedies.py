"""Each lever has a change that can be tried, and a patch that makes it: what they free is what the lever states."""

import copy
from collections.abc import Sequence
from typing import Any

import click
import pytest

from rescheduler.cli.plan import command
from rescheduler.cli.what_if import parse
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from rescheduler.planning.what_if.comparison import what_if
from rescheduler.planning.what_if.levers import rank_levers
from rescheduler.planning.what_if.overview import Lever
from rescheduler.planning.what_if.remedies import change_for, patches_for
from rescheduler.planning.what_if.unpinning import Unpinning
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, node, snapshot
from tests.planning.what_if.test_levers import PINNED, SHARED, SINGLE, TAINTED


def counted(objects: list[Manifest]) -> list[Manifest]:
    """Return *objects* with budgets that count all pods as healthy, as the disruption controller would."""
    pods = sum(item["kind"] == "Pod" for item in objects)
    healthy = {"currentHealthy": pods, "expectedPods": pods}
    return [
        {**item, "status": item["status"] | healthy} if item["kind"] == "PodDisruptionBudget" else item
        for item in objects
    ]


CASES: dict[str, tuple[list[Manifest], Policy]] = {
    **{
        name: ([node("od", ON_DEMAND), node("s"), *counted(objects)], policy)
        for name, (objects, policy, _) in SINGLE.items()
    },
    "pinned by one controller": (PINNED, Policy()),
    "a taint": (TAINTED, Policy()),
}


def levers(objects: Sequence[Manifest], policy: Policy) -> tuple[Lever, ...]:
    planner = Planner(snapshot(objects), policy)
    shared = planner.round(CIRCUMSTANCES)
    return rank_levers(planner.plan_all(CIRCUMSTANCES), shared, PriceList(), lambda: False).levers


def drained(objects: Sequence[Manifest], policy: Policy, changes: Sequence[str]) -> set[str]:
    params: list[click.Parameter] = command.params
    hypotheses = [parse(text, policy, params) for text in changes]
    return {plan.node for plan in what_if(snapshot(objects), policy, CIRCUMSTANCES, hypotheses).planning.plans}


@pytest.mark.parametrize(("objects", "policy"), CASES.values(), ids=CASES)
def test_the_change_of_a_lever_frees_its_nodes(objects: list[Manifest], policy: Policy) -> None:
    found = [lever for lever in levers(objects, policy) if lever.gain[0]]
    assert found
    for lever in found:
        assert set(lever.gain[0]) <= drained(objects, policy, lever.to_try)


def patched(objects: Sequence[Manifest], lever: Lever, policy: Policy) -> list[Manifest]:
    """Return *objects* after the patches of *lever*; a controller's pods get what its template gets."""
    cluster = snapshot(objects)
    planner = Planner(cluster, policy)
    shared = planner.round(CIRCUMSTANCES)
    unpinning = Unpinning(cluster, shared.room.filters, shared.groups.spot)
    after = copy.deepcopy(list(objects))
    for obstacle in lever.obstacles:
        change = change_for(obstacle, cluster)
        for target, patch in patches_for(obstacle, change, cluster, policy, unpinning):
            kind, name = target[-2], target[-1]
            for item in after:
                meta = item["metadata"]
                if item["kind"].lower() == kind and meta["name"] == name:
                    _merge(item, patch)
                elif item["kind"] == "Pod" and "template" in patch.get("spec", {}) and _owner(item).startswith(name):
                    _merge(item, patch["spec"]["template"])
    return after


def _owner(item: Manifest) -> str:
    return str(item["metadata"].get("ownerReferences", [{"name": ""}])[0]["name"])


def _merge(item: Any, patch: Any) -> None:
    """Apply a JSON merge patch (RFC 7386)."""
    for key, value in patch.items():
        if value is None:
            item.pop(key, None)
        elif isinstance(value, dict):
            if not isinstance(item.get(key), dict):
                item[key] = {}
            _merge(item[key], value)
        else:
            item[key] = value


#: Their status is computed by the disruption controller, or their rule is in the spec of running pods.
NOT_BY_A_PATCH = {"PodDisruptionBudget"}


@pytest.mark.parametrize("case", SHARED)
def test_what_pods_of_several_controllers_have_in_common_is_one_lever(case: str) -> None:
    """One line, with the sum of what the change of all frees; its command and its patches free that, too."""
    objects, name, changes = SHARED[case]
    [lever] = levers(objects, Policy())
    assert (lever.controller, lever.changes) == (name, changes)
    nodes = {item["metadata"]["name"] for item in objects if item["kind"] == "Node" and ON_DEMAND in _labels(item)}
    assert nodes == set(lever.frees) == drained(objects, Policy(), lever.to_try)
    planning = Planner(snapshot(patched(objects, lever, Policy())), Policy()).plan_all(CIRCUMSTANCES)
    assert {plan.node for plan in planning.plans} == nodes


def _labels(item: Manifest) -> Any:
    return item["metadata"].get("labels", {})


@pytest.mark.parametrize("case", SINGLE)
def test_the_patch_of_a_lever_frees_its_nodes(case: str) -> None:
    objects, policy = CASES[case]
    [lever] = levers(objects, policy)
    after = patched(objects, lever, policy)
    if lever.controller.split()[0] in NOT_BY_A_PATCH:
        assert after != list(objects)
        return
    planning = Planner(snapshot(after), policy).plan_all(CIRCUMSTANCES)
    assert [plan.node for plan in planning.plans] == ["od"]
