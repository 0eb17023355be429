"""Our filters and plans agree with the real scheduler's plugins, on random clusters and on all saved cases."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from predicates import plugins
from tests.conformance.compare import Comparison, Difference, FamilyCounts, cases
from tests.conformance.generate import FAMILIES, cluster
from tests.conformance.generate.world import SPOT, Json
from tests.conformance.oracle import Oracle
from tests.conformance.plans import drains, replay, replay_cumulative, replay_independent, with_new_claims
from tests.conformance.verdicts import PerNode, accepted, differences, of_lines, of_oracle

#: Together, with "all" and "plannable", more than 300 clusters and 100,000 verdicts.
CLUSTERS, VERDICTS = 17, 6000
PLANS = 60
CASES = dict(cases())
_PLUGINS = {plugin.name for plugin in plugins.DEFAULT}


@pytest.mark.parametrize("family", ["all", "plannable", *FAMILIES])
def test_every_verdict_is_that_of_the_scheduler(oracle: Oracle, family: str) -> None:
    comparison, tally, seed = Comparison(oracle), FamilyCounts(), 0
    while tally.clusters < CLUSTERS or tally.verdicts < VERDICTS:
        if (difference := comparison.run(family, seed, tally)) is not None:
            pytest.fail(_description(comparison, difference))
        seed += 1
    assert 0 < tally.rejected < tally.verdicts
    assert family not in _PLUGINS or tally.first[family] > 0


def _description(comparison: Comparison, difference: Difference) -> str:
    return f"{difference}\nminimal snapshot:\n{json.dumps(comparison.shrink(difference))}"


@pytest.mark.parametrize("case", CASES)
def test_saved_cases_agree(oracle: Oracle, case: str) -> None:
    assert Comparison(oracle).differ(oracle.comparable(CASES[case])) == ()


@pytest.mark.parametrize("family", ["plannable", "all"])
@pytest.mark.parametrize("replay", [replay_independent, replay_cumulative])
def test_the_scheduler_accepts_every_placement_of_a_plan(oracle: Oracle, family: str, replay: object) -> None:
    assert callable(replay)
    moved = 0
    for seed in range(PLANS):
        replayed = replay(oracle, oracle.comparable(cluster(seed, family)))
        assert replayed.rejected == (), f"{family} seed {seed}"
        moved += replayed.placements
    assert moved > PLANS // 2


def _rescheduler(*arguments: str, stdin: Json) -> str:
    """Run the command with *stdin* on standard input, and return its standard output."""
    command = [str(Path(sys.executable).with_name("rescheduler")), *arguments, "--snapshot", "-", "-o", "json"]
    done = subprocess.run(command, input=json.dumps(stdin), text=True, stdout=subprocess.PIPE, check=True, timeout=60)
    return done.stdout


def _of_replacements(oracle: Oracle, snapshot: Json) -> dict[str, PerNode]:
    """Return the scheduler's verdicts about the pods that will be created, each beside the others as they run."""
    verdicts = of_oracle(oracle.explain(snapshot))
    for pod in verdicts:
        if (other := with_new_claims(snapshot, {pod})) != snapshot:
            verdicts |= of_oracle(oracle.explain(other, [pod]))
    return verdicts


def _version(oracle: Oracle) -> tuple[str, str]:
    return "--scheduler-version", str(oracle.version)


def _spot_nodes(snapshot: Json) -> set[str]:
    return {
        item["metadata"]["name"]
        for item in snapshot["items"]
        if item["kind"] == "Node" and SPOT in item["metadata"]["labels"]
    }


def test_explain_command_prints_the_verdicts_of_the_scheduler(oracle: Oracle) -> None:
    verdicts = 0
    for seed in range(4):
        given = oracle.comparable(cluster(seed))
        mine = of_lines(
            json.loads(line) for line in _rescheduler("explain", *_version(oracle), stdin=given).splitlines()
        )
        assert all(set(nodes) == _spot_nodes(given) for nodes in mine.values())
        assert not list(differences(_of_replacements(oracle, given), mine, accepted(given)))
        verdicts += sum(map(len, mine.values()))
    assert verdicts > 100


def test_plan_command_prints_placements_that_the_scheduler_accepts(oracle: Oracle) -> None:
    flags = ("--skip-nodes-with-system-pods=false", "--skip-nodes-with-local-storage=false")
    moved = 0
    for seed in range(8):
        given = oracle.comparable(cluster(seed, "plannable"))
        cumulative = list(drains(json.loads(_rescheduler("plan", *flags, *_version(oracle), stdin=given))))
        independent = list(
            drains(json.loads(_rescheduler("plan", "--independent", *flags, *_version(oracle), stdin=given)))
        )
        for drained in (cumulative, *([drain] for drain in independent)):
            verdicts = replay(oracle, given, drained)
            assert [verdict for verdict in verdicts if verdict["refused"]] == []
            moved += len(verdicts)
    assert moved > 10
