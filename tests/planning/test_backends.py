"""Which cloud provider a plan names for the nodes that can be emptied."""

import pytest

from rescheduler import providers
from rescheduler.cli.install import RIGHTS
from rescheduler.planning.backends import FITTING_BACKENDS, backend_suggestions
from rescheduler.planning.node_labels import PRESETS
from tests.planning.builders import Manifest, node, snapshot


def machine(name: str, provider_id: str = "", **labels: str) -> Manifest:
    item = node(name, labels={key.replace("_", "/"): value for key, value in labels.items()})
    return item | {"spec": {**item.get("spec", {}), "providerID": provider_id}}


def claimed(name: str, pool: str = "od", provider_id: str = "aws:///eu-north-1a/i-1") -> Manifest:
    return machine(name, provider_id, **{"karpenter.sh_nodepool": pool})


def of_machine(name: str, annotation: str) -> Manifest:
    item = machine(name, "aws:///eu-north-1a/i-1")
    return item | {"metadata": {**item["metadata"], "annotations": {annotation: "m"}}}


STATIC = {"kind": "NodePool", "metadata": {"name": "static"}, "spec": {"replicas": 1}}
#: The nodes, of which those whose names begin with "od" can be emptied → the backends, and how many nodes each is for.
CLUSTERS: dict[str, tuple[list[Manifest], dict[str, str]]] = {
    "no system that is known": ([machine("od"), machine("od-2", "kind://docker/kind/od-2")], {}),
    "all of Karpenter": ([claimed("od"), claimed("od-2")], {"karpenter": "all"}),
    "one of Karpenter": ([claimed("od"), machine("od-2")], {"karpenter": "1 of 2"}),
    "of Karpenter at a cloud that has a backend": ([claimed("od", provider_id="spc://1")], {"karpenter": "all"}),
    "static capacity": ([claimed("od", "static"), STATIC], {}),
    "static capacity at a cloud that has a backend": ([claimed("od", "static", "spc://1"), STATIC], {}),
    "a static NodePool beside another": ([claimed("od", "static"), claimed("od-2"), STATIC], {"karpenter": "1 of 2"}),
    "two groups of AWS": (
        [machine("od", "aws:///eu-north-1a/i-1"), machine("od-2", "aws:///eu-north-1b/i-2")],
        {"aws": "all"},
    ),
    "Fargate": ([machine("od", "aws:///eu-north-1a/0123-ab/fargate-ip-10-0-0-1.eu-north-1.compute.internal")], {}),
    "a Machine of Cluster API on AWS": ([of_machine("od", "cluster.x-k8s.io/machine")], {"clusterapi": "all"}),
    "a Machine of OpenShift": (
        [of_machine("od", "machine.openshift.io/machine"), machine("od-2")],
        {"clusterapi": "1 of 2"},
    ),
    "another annotation of Cluster API": ([of_machine("od", "cluster.x-k8s.io/owner-name")], {"aws": "all"}),
    "two systems": (
        [machine("od", "cherryservers://7"), machine("od-2", "spc://8"), claimed("od-3")],
        {"karpenter": "1 of 3", "cherryservers": "1 of 3", "stackpoint": "1 of 3"},
    ),
    "a scheme that only begins alike": ([machine("od", "spcx://8")], {}),
    "only a spot node": ([machine("od"), claimed("spot")], {}),
}


@pytest.mark.parametrize(("manifests", "expected"), CLUSTERS.values(), ids=CLUSTERS)
def test_the_backend_that_fits_is_named_with_its_nodes(manifests: list[Manifest], expected: dict[str, str]) -> None:
    here = snapshot(manifests)
    emptied = [each["metadata"]["name"] for each in manifests if each["metadata"]["name"].startswith("od")]
    told = list(backend_suggestions(here, emptied))
    assert len(told) == len(expected)
    for sentence, (name, number) in zip(told, expected.items(), strict=True):
        assert f" manages {number} of the nodes that can be emptied: --cloud-provider={name} " in sentence


def test_a_node_that_is_not_in_the_snapshot_is_of_no_backend() -> None:
    assert list(backend_suggestions(snapshot([claimed("od")]), ["gone"])) == []


def test_every_backend_of_the_table_exists_once_and_its_preset_too() -> None:
    names = [(backend.name, backend.owner) for backend in FITTING_BACKENDS]
    assert len(set(names)) == len(names)
    assert {name for name, _ in names} <= set(providers.BACKENDS)
    assert {backend.preset for backend in FITTING_BACKENDS} - {""} <= set(PRESETS)
    assert {backend.name for backend in FITTING_BACKENDS if backend.preset} <= set(RIGHTS)
