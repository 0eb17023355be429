"""A sample of ``make landings``: the first plan of a random cluster is carried out."""

from devcluster.plane import ControlPlane
from tests.cluster import landings


def test_the_first_plan_of_a_random_cluster_is_carried_out(cluster: ControlPlane) -> None:
    outcomes = landings.Outcomes()
    landings.carry_out(cluster, 1, outcomes)
    assert outcomes == landings.Outcomes(clusters=1, drained=1)
