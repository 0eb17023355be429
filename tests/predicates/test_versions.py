"""What differs between the versions of kube-scheduler. The conformance test compares each version with its plugins."""

from typing import Any

import numpy as np
import pytest

from devcluster import build
from predicates import plugins, scores
from predicates.csi import DRIVERS, PORTWORX
from predicates.filters import Filters
from predicates.indexes.by_node import NonZero
from predicates.plugins import volumes
from predicates.plugins.volumes import REASON
from predicates.scheduler import Scheduler, default_profile
from predicates.snapshot import Snapshot
from predicates.versions import NEWEST, OLDEST, RELEASED, VERSIONS, VersionRule, nearest, parse_minor
from tests.conformance.builders import claim, node, pod, volume
from tests.conformance.generate.world import Json
from tests.predicates.asking import load, reasons
from tests.predicates.volumes import CSI, limited, mounting

NOT_INSTALLED = f"{CSI} CSI driver is not installed on the node"
BOUND = [volume("va"), claim("a", volume="va")]

TEXTS: dict[str, int | None] = {
    "1.36": 36,
    "v1.37.2": 37,
    "v1.34.4-eks-1234": 34,
    "v1.35.0+k3s1": 35,
    "1.38": 38,
    "2.0": None,
    "1": None,
    "1.x": None,
    "": None,
    "v1.99999": None,
}


@pytest.mark.parametrize(("text", "minor"), TEXTS.items())
def test_minor_version_is_parsed(text: str, minor: int | None) -> None:
    assert parse_minor(text) == minor


def test_unknown_versions_use_the_closest_known_one() -> None:
    assert [nearest(minor) for minor in (20, 36, 99)] == [OLDEST, VERSIONS[36], NEWEST]


def test_version_that_is_assumed_is_that_of_the_local_control_plane() -> None:
    assert str(RELEASED) == build.DEFAULT


def test_the_plugins_of_each_version_can_be_built() -> None:
    assert [str(version) for version in VERSIONS.values()] == list(build.PLUGINS)


def test_every_plugin_of_every_version_exists() -> None:
    for version in VERSIONS.values():
        names = list(dict.fromkeys(plugin.name for plugin in plugins.of(default_profile(version))[2:]))
        assert names == list(version.plugins[1:]), version
        assert {scorer.name for scorer in scores.of(default_profile(version))} == dict(
            default_profile(version).weights
        ).keys()


def test_no_two_rules_are_the_same_member() -> None:
    assert len(VersionRule) == len(VersionRule.__members__)


def test_each_rule_begins_with_a_known_version_but_not_the_oldest() -> None:
    assert all(OLDEST.minor < rule.since <= NEWEST.minor for rule in VersionRule)


def _driver(**spec: Any) -> Json:
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": CSI}, "spec": spec}


REQUIRED = _driver(preventPodSchedulingIfMissing=True)

MISSING: dict[str, tuple[list[Json], str]] = {
    "no CSINode": ([REQUIRED], NOT_INSTALLED),
    "CSINode without the driver": ([REQUIRED, limited("n", {"other": 1})], NOT_INSTALLED),
    "CSINode with the driver": ([REQUIRED, limited("n", {CSI: None})], ""),
    "driver installed, limit reached": ([REQUIRED, limited("n", {CSI: 0})], REASON),
    "driver that is not required": ([_driver(preventPodSchedulingIfMissing=False)], ""),
    "driver that says nothing": ([_driver()], ""),
    "no CSIDriver": ([], ""),
}


@pytest.mark.parametrize(("objects", "expected"), MISSING.values(), ids=MISSING)
def test_missing_driver_rejects_a_node_since_1_37(objects: list[Json], expected: str) -> None:
    table = load(node("n"), *BOUND, *objects, mounting("a"))
    for minor, version in VERSIONS.items():
        table.use(Scheduler(version))
        reason = reasons(volumes.NODE_VOLUME_LIMITS, table.pods["default/p"].cls, table)["n"]
        assert reason == (expected if minor >= 37 or expected == REASON else ""), minor


def test_driver_that_arrives_or_leaves_is_noticed() -> None:
    table = load(node("n"), *BOUND, REQUIRED, mounting("a"))
    filters, cls = Filters(table), table.pods["default/p"].cls
    assert not filters.feasible(cls).any()
    table.upsert("CSINode", load(limited("n", {CSI: None})).of("CSINode")["n"])
    assert filters.feasible(cls).any()
    table.delete("CSINode", "n")
    assert not filters.feasible(cls).any()
    table.delete("CSIDriver", CSI)
    assert filters.feasible(cls).any()


def test_portworx_volume_counts_where_its_plugin_is_migrated() -> None:
    in_tree = [volume("va", portworxVolume={"volumeID": "x"}), claim("a", volume="va"), mounting("a")]
    limits: dict[str, int | None] = {DRIVERS[PORTWORX]: 0}
    nodes = [node("named"), node("silent"), limited("named", limits, migrated=PORTWORX), limited("silent", limits)]
    for minor, version in VERSIONS.items():
        table = load(*nodes, *in_tree)
        table.use(Scheduler(version))
        found = reasons(volumes.NODE_VOLUME_LIMITS, table.pods["default/p"].cls, table)
        assert found == {"named": REASON, "silent": REASON if minor >= 36 else ""}, minor


def test_options_of_mounts_need_a_declared_feature_since_1_37() -> None:
    mounts = [{"name": "a", "mountPath": "/a", "bindMountOptions": ["nodev"]}]
    table = load(node("n", allocatable={"pods": "9"}), pod("p", containers=[{"name": "c", "volumeMounts": mounts}]))
    for minor, version in VERSIONS.items():
        table.use(Scheduler(version))
        fits = Filters(table).feasible(table.pods["default/p"].cls)[table.nodes.row["n"]]
        assert fits == (minor < 37), minor


NEEDING: dict[str, tuple[str, Json]] = {
    "an ML-DSA certificate": (
        "PodCertificateMLDSA",
        {"volumes": [{"name": "c", "projected": {"sources": [{"podCertificate": {"keyType": "MLDSA65"}}]}}]},
    ),
    "a seccomp profile of a registry": (
        "SecurityProfileOCI",
        {"securityContext": {"seccompProfile": {"type": "OCI"}}},
    ),
    "such a profile for a container": (
        "SecurityProfileOCI",
        {"containers": [{"name": "c", "securityContext": {"seccompProfile": {"type": "OCI"}}}]},
    ),
}


@pytest.mark.parametrize(("feature", "spec"), NEEDING.values(), ids=NEEDING)
def test_new_security_features_must_be_declared_since_1_38(feature: str, spec: Json) -> None:
    declaring = node("m", allocatable={"pods": "9"})
    declaring["status"]["declaredFeatures"] = [feature]
    table = load(node("n", allocatable={"pods": "9"}), declaring, pod("p", **spec))
    for minor, version in VERSIONS.items():
        table.use(Scheduler(version))
        fits = Filters(table).feasible(table.pods["default/p"].cls)
        assert (fits[table.nodes.row["m"]], fits[table.nodes.row["n"]]) == (True, minor < 38), minor


def test_empty_selector_counts_all_pods_since_1_38() -> None:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    zones = [node(name, labels={"zone": name}, allocatable={"pods": "9"}) for name in "ab"]
    table = load(*zones, pod("q", "a"), pod("p", topologySpreadConstraints=[constraint]))
    for minor, version in VERSIONS.items():
        table.use(Scheduler(version))
        assert Filters(table).feasible(table.pods["default/p"].cls)[table.nodes.row["a"]] == (minor < 38), minor


def test_load_of_a_resized_pod_follows_the_version() -> None:
    resized = pod("p", "n", requests={"cpu": "1"})
    resized["spec"]["containers"].append({"name": "d", "resources": {"requests": {"cpu": "3"}}})
    resized["status"]["containerStatuses"] = [
        {"name": resized["spec"]["containers"][0]["name"], "resources": {"requests": {"cpu": "2"}}},
        {"name": "d", "resources": {"requests": {"cpu": "1"}}},
    ]
    table = load(node("n", allocatable={"cpu": "16", "pods": "9"}), resized)
    free = {}
    for minor, version in VERSIONS.items():
        table.use(Scheduler(version))
        free[minor] = _free_cpu(table)
    # The sum of the maxima is 2 + 3, the maximum of the sums max(1 + 3, 2 + 1).
    assert free == {34: 11_000, 35: 11_000, 36: 11_000, 37: 12_000, 38: 12_000}
    table.delete("Pod", "default/p")
    assert _free_cpu(table) == 16_000


#: The status of a pod with a container "a", which requests cpu, and "b", which requests nothing. By version: the cpu
#: of the pod, and the cpu and memory that scoring adds.
RESIZED: dict[str, tuple[Json, dict[int, tuple[int, int, int]]]] = {
    "the kubelet reports nothing": ({}, {36: (1000, 100, 400), 37: (1000, 100, 400)}),
    "a first request is in progress": (
        {"b": {"resources": {"requests": {"cpu": "300m"}}}},
        {36: (1300, 0, 400), 37: (1300, 0, 400)},
    ),
    "infeasible, and nothing else is reported: 1.37 knows no request of such a pod": (
        {"infeasible": True},
        {36: (1000, 100, 400), 37: (0, 200, 400)},
    ),
    "infeasible, with less than the spec": (
        {"infeasible": True, "a": {"resources": {"requests": {"memory": "1Mi"}}}},
        {36: (0, 200, 200), 37: (0, 200, 399)},
    ),
    "the other container has the largest sum": (
        {"a": {"allocatedResources": {"memory": "1Mi"}, "resources": {"requests": {"cpu": "2"}}}},
        {36: (2000, 100, 200), 37: (2000, 100, 399)},
    ),
}


@pytest.mark.parametrize(("status", "expected"), RESIZED.values(), ids=RESIZED)
def test_default_requests_of_a_resized_pod_follow_its_status(
    status: Json, expected: dict[int, tuple[int, int, int]]
) -> None:
    """By :func:`predicates.requests.loads`, as long as the pod exists, also in trials and after changes of its node."""
    resized = pod("p", "n", requests={"cpu": "1"})
    resized["spec"]["containers"] = [
        {"name": "a", "resources": {"requests": {"cpu": "1"}}},
        {"name": "b", "resources": {}},
    ]
    reported = [{"name": name, **status[name]} for name in ("a", "b") if name in status]
    stuck = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}] if "infeasible" in status else []
    given = node("n", allocatable={"cpu": "16", "memory": "16Gi", "pods": "9"})
    plain = load(given, resized)
    resized["status"] |= {"containerStatuses": reported, "conditions": stuck}
    table = load(given, resized)
    for minor, version in VERSIONS.items():
        table.use(Scheduler(version))
        assert _charged(table) == expected[min(max(minor, 36), 37)], minor
        with table.trial() as trial:
            trial.evict(table.pods["default/p"])
            assert _charged(table) == (0, 0, 0)
        assert _charged(table) == expected[min(max(minor, 36), 37)], minor
    table.delete("Node", "n")
    table.upsert("Node", next(iter(plain.nodes)))
    assert _charged(table) == expected[37]
    table.upsert("Pod", plain.pods["default/p"])
    assert _charged(table) == _charged(plain) == (1000, 100, 400)
    table.delete("Pod", "default/p")
    assert _charged(table) == (0, 0, 0)


def _charged(table: Snapshot) -> tuple[int, int, int]:
    """Return the cpu that the pods of the node request, and the cpu and memory (MiB) that scoring adds."""
    row = table.nodes.row["n"]
    cpu, memory = table.index(NonZero).defaults()[row].tolist()
    return int(table.nodes.requested[row, table.nodes.resources["cpu"]]), cpu, memory // 2**20


def _free_cpu(table: Snapshot) -> int:
    return int(table.nodes.free[table.nodes.row["n"], table.nodes.resources["cpu"]])


def test_change_of_the_scheduler_drops_all_cached_results() -> None:
    table = load(node("n"), node("m"), *BOUND, REQUIRED, limited("m", {CSI: None}), mounting("a"))
    filters, cls = Filters(table), table.pods["default/p"].cls
    fitting = []
    for minor in (36, 37, 36, 37):
        table.use(Scheduler(VERSIONS[minor]))
        fitting.append({table.nodes.names[row] for row in np.flatnonzero(filters.feasible(cls))})
    assert fitting == [{"n", "m"}, {"m"}, {"n", "m"}, {"m"}]
