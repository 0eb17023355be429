"""The comparison detects differences, shrinks them and saves them as cases."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from predicates import plugins
from predicates.scheduler import Scheduler
from tests.conformance import ours
from tests.conformance.compare import Comparison, Difference, FamilyCounts, keep
from tests.conformance.generate import cluster
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle
from tests.conformance.verdicts import Accepted, Disagreement, PerNode, Rejection, differences


def _without(plugin: str) -> Comparison:
    using = [each for each in plugins.DEFAULT if each.name != plugin]
    return Comparison(Oracle(), lambda snapshot, scheduler: ours.judge(snapshot, scheduler, using))


def _first(comparison: Comparison, family: str) -> Difference:
    runs = (comparison.run(family, seed, FamilyCounts()) for seed in range(20))
    return next(difference for difference in runs if difference is not None)


@pytest.mark.parametrize("plugin", ["TaintToleration", "NodePorts", "NodeDeclaredFeatures"])
def test_missing_plugin_is_detected_and_shrunk(plugin: str) -> None:
    comparison = _without(plugin)
    with comparison.oracle:
        difference = _first(comparison, plugin)
        minimal = comparison.shrink(difference)
        disagreements = comparison.differ(minimal)
    assert difference.kind == plugin
    assert len(minimal["items"]) <= 3
    missing = (rejection for each in disagreements for rejection in {*each.scheduler} - {*each.ours})
    assert {rejection.plugin for rejection in missing} == {plugin}


def test_exception_of_our_side_is_a_difference() -> None:
    def fail(snapshot: Json, _: Scheduler) -> Mapping[str, PerNode]:
        raise KeyError(len(snapshot["items"]))

    with Oracle() as oracle:
        difference = Comparison(oracle, fail).run("all", 0, FamilyCounts())
    assert difference is not None
    assert difference.kind == "KeyError"


def test_case_is_saved_once_under_its_digest(tmp_path: Path) -> None:
    given = cluster(0)
    first = keep(given, "about", tmp_path)
    again = keep(given, "about", tmp_path)
    assert (first, json.loads(first.read_text())) == (again, {"about": "about", "snapshot": given})


TAINT = Rejection("TaintToleration", ("t",))
CLAIM = Rejection("DynamicResources", ("d",))
OTHER = Rejection("DynamicResources", ("e",))

VERDICTS: dict[str, tuple[tuple[Rejection, ...], tuple[Rejection, ...], bool, bool]] = {
    "equal": ((TAINT,), (TAINT,), False, True),
    "fits on one side": ((TAINT,), (), False, False),
    "different reasons": ((CLAIM,), (OTHER,), False, False),
    "different reasons about devices": ((CLAIM,), (OTHER,), True, True),
    "different order": ((TAINT, CLAIM), (CLAIM, TAINT), False, False),
    "devices rejected without proof": ((TAINT,), (CLAIM, TAINT), True, True),
    "devices accepted, scheduler rejects": ((CLAIM, TAINT), (TAINT,), True, False),
    "another plugin rejects as well": ((), (TAINT, CLAIM), True, False),
}

DRIVERS = {
    name: (Rejection("NodeVolumeLimits", (f"{name} CSI driver is not installed on the node",)),) for name in ("a", "b")
}


def test_any_missing_driver_is_accepted_if_several_are_required() -> None:
    scheduler, mine = {"p": {"n": DRIVERS["a"]}}, {"p": {"n": DRIVERS["b"]}}
    assert list(differences(scheduler, mine, Accepted())) != []
    assert list(differences(scheduler, mine, Accepted(any_driver=True))) == []
    assert list(differences(scheduler, {"p": {"n": ()}}, Accepted(any_driver=True))) != []


@pytest.mark.parametrize(("scheduler", "mine", "claims", "equal"), VERDICTS.values(), ids=VERDICTS)
def test_only_the_accepted_differences_are_ignored(
    scheduler: tuple[Rejection, ...], mine: tuple[Rejection, ...], claims: bool, equal: bool
) -> None:
    actual = list(
        differences({"p": {"n": scheduler}}, {"p": {"n": mine}}, Accepted(frozenset({"p"} if claims else ())))
    )
    assert actual == ([] if equal else [Disagreement("p", "n", scheduler, mine)])
