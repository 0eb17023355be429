"""Each row of the table of versions matters: without it, the comparison with the scheduler's plugins fails."""

from dataclasses import dataclass

import pytest

from predicates.filters import Filters
from predicates.scheduler import Scheduler
from predicates.versions import SchedulerVersion, VersionRule
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
    VersionRule.DEVICES_AS_RESOURCES: "DynamicResources",
    VersionRule.PORTWORX_MIGRATED: "migrated volumes",
    VersionRule.POD_LEVEL_RESIZE: "NodeResourcesFit",
    VersionRule.RESIZE_BY_SUMS: "NodeResourcesFit",
    VersionRule.NAMESPACES_MERGED: "InterPodAffinity",
    VersionRule.DRIVER_REQUIRED: "NodeVolumeLimits",
    VersionRule.MOUNT_OPTIONS_DECLARED: "NodeDeclaredFeatures",
    VersionRule.EMPTY_SELECTOR_COUNTS: "PodTopologySpread",
    VersionRule.SECURITY_DECLARED: "NodeDeclaredFeatures",
}
#: The family whose scores differ, by row.
SCORES = {
    VersionRule.IMAGE_VOLUMES_SCORE: "plannable",
    VersionRule.IMAGE_VOLUMES_COUNT: "plannable",
    VersionRule.BALANCE_BY_CHANGE: "plannable",
    VersionRule.CAPACITY_SCORES: "VolumeBinding",
    VersionRule.POD_LEVEL_SCORES: "NodeResourcesFit",
}


@dataclass(frozen=True, slots=True)
class Wrong(SchedulerVersion):
    """A version with one wrong row."""

    row: VersionRule

    def has(self, rule: VersionRule) -> bool:
        right = self.minor >= rule.since
        return right != (rule is self.row)


def without(row: VersionRule, oracle: Oracle) -> Scheduler:
    """Return the rules of the oracle's version, but for one *row*. Skips the test if the row has no effect there."""
    if row is VersionRule.POD_LEVEL_RESIZE and oracle.version.has(VersionRule.RESIZE_BY_SUMS):
        pytest.skip(f"{row.name} has no effect since {VersionRule.RESIZE_BY_SUMS.name}")
    if row.gate == "NodeDeclaredFeatures" and "NodeDeclaredFeatures" not in oracle.version.plugins:
        pytest.skip("these versions do not run NodeDeclaredFeatures")
    if row is VersionRule.IMAGE_VOLUMES_COUNT and not oracle.version.has(VersionRule.IMAGE_VOLUMES_SCORE):
        pytest.skip(f"{row.name} has no effect before {VersionRule.IMAGE_VOLUMES_SCORE.name}")
    return Scheduler(Wrong(oracle.version.minor, oracle.version.plugins, row))


def test_all_rows_are_tested() -> None:
    assert {*VERDICTS, *SCORES} == set(VersionRule)


@pytest.mark.parametrize("row", VERDICTS, ids=lambda row: row.name)
def test_a_wrong_row_changes_verdicts(oracle: Oracle, row: VersionRule) -> None:
    scheduler = without(row, oracle)

    def evaluate(snapshot: Json, _: Scheduler) -> dict[str, PerNode]:
        return ours.judge(snapshot, scheduler)

    comparison, tally = Comparison(oracle, evaluate), FamilyCounts()
    assert any(comparison.run(VERDICTS[row], seed, tally) for seed in range(CLUSTERS))


@pytest.mark.parametrize("row", SCORES, ids=lambda row: row.name)
def test_a_wrong_row_changes_scores(oracle: Oracle, row: VersionRule) -> None:
    scheduler = without(row, oracle)
    assert any(
        _differ(oracle, scheduler, oracle.comparable(scored_cluster(seed, SCORES[row]))) for seed in range(CLUSTERS)
    )


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
