"""Each row of the table of versions matters: without it, the comparison with the scheduler's plugins fails."""

from dataclasses import dataclass

import pytest

from predicates.filters import Filters
from predicates.scheduler import Scheduler
from predicates.versions import Rule, SchedulerVersion
from tests.conformance import ours
from tests.conformance.compare import Comparison, FamilyCounts
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle
from tests.conformance.scores import scored_cluster
from tests.conformance.test_scores import known_owners, our_scores, requests_less_than_nothing, scorable, their_scores
from tests.conformance.verdicts import PerNode

#: The most clusters that are compared until a row is noticed. Most rows are within three.
CLUSTERS = 60

#: The family whose verdicts differ, by row.
VERDICTS = {
    Rule.DEVICES_AS_RESOURCES: "DynamicResources",
    Rule.PORTWORX_MIGRATED: "migrated volumes",
    Rule.POD_LEVEL_RESIZE: "NodeResourcesFit",
    Rule.RESIZE_BY_SUMS: "NodeResourcesFit",
    Rule.NAMESPACES_MERGED: "InterPodAffinity",
    Rule.DRIVER_REQUIRED: "NodeVolumeLimits",
    Rule.MOUNT_OPTIONS_DECLARED: "NodeDeclaredFeatures",
}
#: The family whose scores differ, by row.
SCORES = {
    Rule.IMAGE_VOLUMES_SCORE: "plannable",
    Rule.IMAGE_VOLUMES_COUNT: "plannable",
    Rule.BALANCE_BY_CHANGE: "plannable",
    Rule.CAPACITY_SCORES: "VolumeBinding",
}


@dataclass(frozen=True, slots=True)
class Wrong(SchedulerVersion):
    """A version with one wrong row."""

    row: Rule

    def has(self, rule: Rule) -> bool:
        right = self.minor >= rule.since
        return right != (rule is self.row)


def without(row: Rule, oracle: Oracle) -> Scheduler:
    """Return the rules of the oracle's version, but for one *row*. Skips the test if the row has no effect there."""
    if row is Rule.POD_LEVEL_RESIZE and oracle.version.has(Rule.RESIZE_BY_SUMS):
        pytest.skip(f"{row.name} has no effect since {Rule.RESIZE_BY_SUMS.name}")
    if row is Rule.MOUNT_OPTIONS_DECLARED and "NodeDeclaredFeatures" not in oracle.version.plugins:
        pytest.skip("these versions do not run NodeDeclaredFeatures")
    if row is Rule.IMAGE_VOLUMES_COUNT and not oracle.version.has(Rule.IMAGE_VOLUMES_SCORE):
        pytest.skip(f"{row.name} has no effect before {Rule.IMAGE_VOLUMES_SCORE.name}")
    return Scheduler(Wrong(oracle.version.minor, oracle.version.plugins, row))


def test_all_rows_are_tested() -> None:
    assert {*VERDICTS, *SCORES} == set(Rule)


@pytest.mark.parametrize("row", VERDICTS, ids=lambda row: row.name)
def test_a_wrong_row_changes_verdicts(oracle: Oracle, row: Rule) -> None:
    scheduler = without(row, oracle)

    def evaluate(snapshot: Json, _: Scheduler) -> dict[str, PerNode]:
        return ours.judge(snapshot, scheduler)

    comparison, tally = Comparison(oracle, evaluate), FamilyCounts()
    assert any(comparison.run(VERDICTS[row], seed, tally) for seed in range(CLUSTERS))


@pytest.mark.parametrize("row", SCORES, ids=lambda row: row.name)
def test_a_wrong_row_changes_scores(oracle: Oracle, row: Rule) -> None:
    scheduler = without(row, oracle)
    assert any(_differ(oracle, scheduler, scored_cluster(seed, SCORES[row])) for seed in range(CLUSTERS))


def _differ(oracle: Oracle, scheduler: Scheduler, given: Json) -> bool:
    table, known = ours.load(given, scheduler), known_owners(given)
    pods = {pod.key: pod for pod in table.pods.values() if scorable(pod, table)}
    filters = Filters(table)
    if requests_less_than_nothing(table):
        return False
    for scored in oracle.ask({"mode": "score", "snapshot": given, "pods": list(pods)})["scores"]:
        pod = pods[scored["pod"]]
        owned = (pod.namespace, pod.owner.name if pod.owner else "") in known
        if our_scores(table, filters, pod, owned=owned) != their_scores(scored):
            return True
    return False
