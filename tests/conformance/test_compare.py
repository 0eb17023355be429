"""The comparison finds what is wrong, makes it small and keeps it."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from predicates import plugins
from tests.conformance import ours
from tests.conformance.compare import Comparison, Found, Tally, keep
from tests.conformance.generate import cluster
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle
from tests.conformance.verdicts import Disagreement, PerNode, Refusal, differences


def _without(plugin: str) -> Comparison:
    using = [one for one in plugins.DEFAULT if one.name != plugin]
    return Comparison(Oracle(), lambda snapshot: ours.judge(snapshot, using))


def _first(comparison: Comparison, family: str) -> Found:
    runs = (comparison.run(family, seed, Tally()) for seed in range(20))
    return next(found for found in runs if found is not None)


@pytest.mark.parametrize("plugin", ["TaintToleration", "NodePorts", "NodeDeclaredFeatures"])
def test_a_plugin_that_is_missing_is_found_and_shown_on_few_objects(plugin: str) -> None:
    comparison = _without(plugin)
    with comparison.oracle:
        found = _first(comparison, plugin)
        small = comparison.small(found)
        left = comparison.differ(small)
    assert found.kind == plugin
    assert len(small["items"]) <= 3
    assert {refusal.plugin for one in left for refusal in {*one.scheduler} - {*one.ours}} == {plugin}


def test_an_error_of_ours_is_a_finding() -> None:
    def fail(snapshot: Json) -> Mapping[str, PerNode]:
        raise KeyError(len(snapshot["items"]))

    with Oracle() as oracle:
        found = Comparison(oracle, fail).run("all", 0, Tally())
    assert found is not None
    assert found.kind == "KeyError"


def test_a_case_is_kept_once_under_its_digest(tmp_path: Path) -> None:
    given = cluster(0)
    first = keep(given, "about", tmp_path)
    again = keep(given, "about", tmp_path)
    assert (first, json.loads(first.read_text())) == (again, {"about": "about", "snapshot": given})


TAINT = Refusal("TaintToleration", ("t",))
CLAIM = Refusal("DynamicResources", ("d",))
OTHER = Refusal("DynamicResources", ("e",))

JUDGED: dict[str, tuple[tuple[Refusal, ...], tuple[Refusal, ...], bool, bool]] = {
    "alike": ((TAINT,), (TAINT,), False, True),
    "fits on one side": ((TAINT,), (), False, False),
    "other words": ((CLAIM,), (OTHER,), False, False),
    "other words about devices": ((CLAIM,), (OTHER,), True, True),
    "another order": ((TAINT, CLAIM), (CLAIM, TAINT), False, False),
    "devices refused for want of proof": ((TAINT,), (CLAIM, TAINT), True, True),
    "devices taken for granted": ((CLAIM, TAINT), (TAINT,), True, False),
    "more than devices refused": ((), (TAINT, CLAIM), True, False),
}


@pytest.mark.parametrize(("scheduler", "mine", "claims", "alike"), JUDGED.values(), ids=JUDGED)
def test_verdicts_are_alike(
    scheduler: tuple[Refusal, ...], mine: tuple[Refusal, ...], claims: bool, alike: bool
) -> None:
    found = list(differences({"p": {"n": scheduler}}, {"p": {"n": mine}}, frozenset({"p"} if claims else ())))
    assert found == ([] if alike else [Disagreement("p", "n", scheduler, mine)])
