"""Tests of where replacement pods landed, compared with the forecast."""

from collections.abc import Sequence

import pytest

from predicates.objects import Pod
from rescheduler.planning.outcome import Landed, LandingOutcome, Placement, Plan, PodRef, compare, expect
from tests.planning.builders import pod, snapshot


def new_pod(name: str, on: str) -> Pod:
    return snapshot([pod(name, on)]).pods[f"default/{name}"]


def plan(*nodes: str) -> tuple[Plan, list[Pod]]:
    """Return a plan that moves one pod to each of *nodes*."""
    pods = [new_pod(f"w-{n}", "od") for n in range(len(nodes))]
    refs = [PodRef("default", f"w-{n}", f"uid-w-{n}") for n in range(len(nodes))]
    return Plan("od", tuple(map(Placement, refs, nodes))), pods


def is_spot(node: str) -> bool:
    return node.startswith("s")


CASES: dict[str, tuple[Sequence[str], Sequence[str], dict[LandingOutcome, int]]] = {
    "as forecast": (["s1", "s2"], ["s2", "s1"], {LandingOutcome.AS_FORECAST: 2}),
    "on other spot nodes": (["s1", "s1"], ["s1", "s3"], {LandingOutcome.AS_FORECAST: 1, LandingOutcome.OTHER_SPOT: 1}),
    "on an on-demand node": (["s1", "s1"], ["s1", "od2"], {LandingOutcome.AS_FORECAST: 1, LandingOutcome.RETURNED: 1}),
    "a return that was forecast": (
        ["s1", "od2"],
        ["s1", "od2"],
        {LandingOutcome.AS_FORECAST: 1, LandingOutcome.FORESEEN_RETURN: 1},
    ),
    "a return that was forecast for another node": (["od2"], ["od3"], {LandingOutcome.FORESEEN_RETURN: 1}),
    "more pods than were moved": (["s1"], ["s1", "s1"], {LandingOutcome.AS_FORECAST: 1}),
    "a replacement that is missing": (["s1", "s1"], ["s1"], {LandingOutcome.AS_FORECAST: 1, LandingOutcome.MISSING: 1}),
}


@pytest.mark.parametrize(("forecast", "landed", "outcomes"), CASES.values(), ids=CASES)
def test_landed_pods_are_compared_with_the_forecast(
    forecast: Sequence[str], landed: Sequence[str], outcomes: dict[LandingOutcome, int]
) -> None:
    expected = expect(*plan(*forecast))
    compared = compare(expected, [new_pod(f"w-new-{n}", node) for n, node in enumerate(landed)], is_spot)
    assert {outcome: pods for outcome, pods in compared.outcomes.items() if pods} == outcomes


def test_pods_that_ran_before_are_not_replacements() -> None:
    planned, pods = plan("s1")
    sibling = new_pod("w-sibling", "s1")
    expected = expect(planned, [*pods, sibling])
    assert compare(expected, [sibling], is_spot).outcomes[LandingOutcome.MISSING] == 1


def test_pods_of_another_namespace_that_name_the_same_owner_are_not_replacements() -> None:
    planned, pods = plan("s1")
    forged = snapshot([pod("tenant/w-2", "od2")]).pods["tenant/w-2"]
    landed = compare(expect(planned, pods), [forged], is_spot)
    assert landed.outcomes[LandingOutcome.MISSING] == 1
    assert landed.returned_from == frozenset()


@pytest.mark.parametrize(
    ("outcomes", "badly"),
    [
        pytest.param({LandingOutcome.AS_FORECAST: 3, LandingOutcome.RETURNED: 1}, False, id="most pods are on spot"),
        pytest.param(
            {LandingOutcome.AS_FORECAST: 1, LandingOutcome.RETURNED: 1}, False, id="half of the pods returned"
        ),
        pytest.param({LandingOutcome.OTHER_SPOT: 1, LandingOutcome.RETURNED: 2}, True, id="most pods returned"),
        pytest.param({LandingOutcome.FORESEEN_RETURN: 1}, True, id="a forecast return counts, too"),
    ],
)
def test_a_drain_whose_pods_mostly_returned_has_a_bad_landing(
    outcomes: dict[LandingOutcome, int], *, badly: bool
) -> None:
    assert Landed("od", outcomes, frozenset({"a", "b"})).badly is badly
    assert not Landed("od", outcomes, frozenset({"a"})).badly


def test_the_namespaces_of_returned_pods_are_known() -> None:
    pods = [snapshot([pod(name, "od")]).pods[name] for name in ("a/x-1", "b/y-1", "c/z-1")]
    placements = tuple(Placement(PodRef(one.namespace, one.name, one.uid), "s1") for one in pods)
    expected = expect(Plan("od", placements), pods)
    again = [snapshot([pod(name, on)]).pods[name] for name, on in (("a/x-2", "od"), ("b/y-2", "od"), ("c/z-2", "s1"))]
    compared = compare(expected, again, is_spot)
    assert (compared.returned, compared.returned_from, compared.badly) == (2, frozenset({"a", "b"}), True)
