"""Our filters and plans before the real scheduler's plugins, on random clusters and on every case ever found."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from predicates import plugins
from tests.conformance.compare import Comparison, Found, Tally, cases
from tests.conformance.generate import FAMILIES, cluster
from tests.conformance.generate.world import SPOT, Json
from tests.conformance.oracle import Oracle
from tests.conformance.plans import drains, replay_cumulative, replay_independent
from tests.conformance.verdicts import claiming, differences, of_lines, of_oracle

#: Together, with "all" and "plannable", more than 300 clusters and 100,000 verdicts.
CLUSTERS, VERDICTS = 17, 6000
PLANS = 60
CASES = dict(cases())
_PLUGINS = {plugin.name for plugin in plugins.DEFAULT}


@pytest.mark.parametrize("family", ["all", "plannable", *FAMILIES])
def test_every_verdict_is_the_scheduler_s(oracle: Oracle, family: str) -> None:
    comparison, tally, seed = Comparison(oracle), Tally(), 0
    while tally.clusters < CLUSTERS or tally.verdicts < VERDICTS:
        if (found := comparison.run(family, seed, tally)) is not None:
            pytest.fail(_story(comparison, found))
        seed += 1
    assert 0 < tally.refused < tally.verdicts
    assert family not in _PLUGINS or tally.first[family] > 0


def _story(comparison: Comparison, found: Found) -> str:
    return f"{found}\nin small:\n{json.dumps(comparison.small(found))}"


@pytest.mark.parametrize("case", CASES)
def test_what_once_differed_is_judged_alike(oracle: Oracle, case: str) -> None:
    assert Comparison(oracle).differ(CASES[case]) == ()


@pytest.mark.parametrize("family", ["plannable", "all"])
@pytest.mark.parametrize("replay", [replay_independent, replay_cumulative])
def test_the_scheduler_takes_every_placement_of_a_plan(oracle: Oracle, family: str, replay: object) -> None:
    assert callable(replay)
    moved = 0
    for seed in range(PLANS):
        found = replay(oracle, cluster(seed, family))
        assert found.refused == (), f"{family} seed {seed}"
        moved += found.placements
    assert moved > PLANS // 2


def _rescheduler(*arguments: str, given: Json) -> str:
    """Standard output of the command, which got *given* on standard input."""
    command = [str(Path(sys.executable).with_name("rescheduler")), *arguments, "--snapshot", "-", "-o", "json"]
    done = subprocess.run(command, input=json.dumps(given), text=True, stdout=subprocess.PIPE, check=True, timeout=60)
    return done.stdout


def _spots(snapshot: Json) -> set[str]:
    return {
        one["metadata"]["name"]
        for one in snapshot["items"]
        if one["kind"] == "Node" and SPOT in one["metadata"]["labels"]
    }


def test_the_explain_command_prints_the_scheduler_s_verdicts(oracle: Oracle) -> None:
    verdicts = 0
    for seed in range(4):
        given = cluster(seed)
        mine = of_lines(json.loads(line) for line in _rescheduler("explain", given=given).splitlines())
        assert all(set(nodes) == _spots(given) for nodes in mine.values())
        assert not list(differences(of_oracle(oracle.explain(given)), mine, claiming(given)))
        verdicts += sum(map(len, mine.values()))
    assert verdicts > 100


def test_the_plan_command_prints_what_the_scheduler_takes(oracle: Oracle) -> None:
    flags = ("--skip-nodes-with-system-pods=false", "--skip-nodes-with-local-storage=false")
    moved = 0
    for seed in range(8):
        given = cluster(seed, "plannable")
        together = list(drains(json.loads(_rescheduler("plan", *flags, given=given))))
        each = list(drains(json.loads(_rescheduler("plan", "--independent", *flags, given=given))))
        for drained in (together, *([drain] for drain in each)):
            verdicts = oracle.replay(given, drained)
            assert [one for one in verdicts if one["refused"]] == []
            moved += len(verdicts)
    assert moved > 10
