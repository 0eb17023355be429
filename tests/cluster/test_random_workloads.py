"""A sample of ``make predictions``: the replacements of workloads of each kind are predicted."""

from devcluster.plane import ControlPlane
from tests.cluster import predictions
from tests.cluster.predicted_workloads import KINDS


def test_replacements_of_all_kinds_of_workloads_are_predicted(cluster: ControlPlane) -> None:
    figures = predictions.Figures()
    predictions.run(cluster, seed=0, count=len(KINDS), figures=figures)
    assert figures.pods >= len(KINDS)
    assert not figures.details
    assert figures.derived == figures.tried == figures.pods
