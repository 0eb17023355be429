"""Tests of the manifests of placeholders: a pod of the same shape, which must run on a spot node."""

from datetime import UTC, datetime
from typing import Any

import pytest

from predicates.objects import Pod
from rescheduler.planning.node_labels import NodeLabels
from rescheduler.planning.policy import SPOT_LABEL
from rescheduler.planning.room.manifests import PlaceholderTerms, label_keys_of, manifest, volume_terms, why_not_served
from rescheduler.planning.room.placeholders import Placeholder, read
from tests.planning.builders import HOST, SPOT, ZONE, Manifest, pod, repels, seeks, snapshot

UNTIL = datetime(2026, 1, 1, 12, 15, tzinfo=UTC)
TERMS = PlaceholderTerms("kube-system/lease", SPOT_LABEL, UNTIL, "uid-od", "uid-namespace", "pause:1", 3600)
ON_SPOT = {"key": SPOT, "operator": "Exists"}
ROOM = "spot-rescheduler-room"


def pod_of(pod_manifest: Manifest, *objects: Manifest) -> tuple[Pod, list[Any]]:
    """Return the pod and the node selector terms of its volumes."""
    cluster = snapshot([*objects, pod_manifest])
    [built] = cluster.pods.values()
    return built, volume_terms(cluster, built)


def spec_of(pod_manifest: Manifest, *objects: Manifest) -> Manifest:
    """Return the spec of the placeholder for a pod whose order has no other pods."""
    built, volumes = pod_of(pod_manifest, *objects)
    spec: Manifest = manifest(built, TERMS, volumes, label_keys_of([built.cls]))["spec"]
    return spec


def node_terms(pod_manifest: Manifest, *objects: Manifest) -> Any:
    affinity = spec_of(pod_manifest, *objects)["affinity"]["nodeAffinity"]
    return affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]


def test_a_plain_pod_gets_this_placeholder() -> None:
    built, volumes = pod_of(pod("web-1", on="od", cpu="1500m"))
    assert manifest(built, TERMS, volumes, frozenset()) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "room-uid-web-1",
            "namespace": ROOM,
            "labels": {"spot-rescheduler/placeholder": "true"},
            "annotations": {
                "spot-rescheduler/placeholder-for-node": "od",
                "spot-rescheduler/placeholder-for-node-uid": "uid-od",
                "spot-rescheduler/placeholder-for-pod": "default/web-1",
                "spot-rescheduler/placeholder-for-pod-uid": "uid-web-1",
                "spot-rescheduler/placeholder-until": "2026-01-01T12:15:00Z",
                "spot-rescheduler/placeholder-installation": "kube-system/lease",
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
            },
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Namespace", "name": ROOM, "uid": "uid-namespace", "controller": True}
            ],
        },
        "spec": {
            "containers": [
                {
                    "name": "pause",
                    "image": "pause:1",
                    "resources": {"requests": {"cpu": "1500m"}, "limits": {}},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                        "readOnlyRootFilesystem": True,
                    },
                }
            ],
            "nodeSelector": {},
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [ON_SPOT], "matchFields": []}]
                    }
                }
            },
            "tolerations": [],
            "topologySpreadConstraints": [],
            "priorityClassName": "spot-rescheduler-room",
            "preemptionPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "activeDeadlineSeconds": 3600,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        },
    }


def containers(**resources: dict[str, str]) -> list[Manifest]:
    return [{"name": "main", "image": "app:1", "resources": resources}]


SHAPES: dict[str, tuple[Manifest, dict[str, Any]]] = {
    "a node selector": (pod("a", nodeSelector={"disk": "ssd"}), {"nodeSelector": {"disk": "ssd"}}),
    "tolerations": (
        pod("a", tolerations=[{"key": "spot", "operator": "Exists"}]),
        {"tolerations": [{"key": "spot", "operator": "Exists"}]},
    ),
    "another scheduler": (pod("a", schedulerName="other"), {"schedulerName": "other"}),
    "anti-affinity within a node": (
        pod("web-1", affinity=repels("web")),
        {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": HOST,
                        "labelSelector": {"matchLabels": {"app": "web"}, "matchExpressions": []},
                        "namespaces": [ROOM, "default"],
                    }
                ]
            }
        },
    ),
    "anti-affinity within a zone, where the pod itself still runs": (
        pod("web-1", affinity=repels("web", ZONE)),
        {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": ZONE,
                        "labelSelector": {"matchLabels": {"app": "web"}, "matchExpressions": []},
                        "namespaces": [ROOM],
                    }
                ]
            }
        },
    ),
    "affinity": (
        pod("web-1", affinity=seeks("db", ZONE)),
        {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": ZONE,
                        "labelSelector": {"matchLabels": {"app": "db"}, "matchExpressions": []},
                        "namespaces": [ROOM, "default"],
                    }
                ]
            }
        },
    ),
    "spread, without the constraints that the scheduler may ignore": (
        pod(
            "web-1",
            labels={"app": "web", "pod-template-hash": "1"},
            topologySpreadConstraints=[
                {
                    "maxSkew": 1,
                    "topologyKey": ZONE,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                    "matchLabelKeys": ["pod-template-hash", "absent"],
                    "minDomains": 3,
                },
                {"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "ScheduleAnyway"},
            ],
        ),
        {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": ZONE,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {
                        "matchLabels": {"app": "web"},
                        "matchExpressions": [{"key": "pod-template-hash", "operator": "In", "values": ["1"]}],
                    },
                }
            ]
        },
    ),
}


@pytest.mark.parametrize(("pod_manifest", "expected"), SHAPES.values(), ids=SHAPES)
def test_a_placeholder_has_the_shape_of_its_pod(pod_manifest: Manifest, expected: dict[str, Any]) -> None:
    spec = spec_of(pod_manifest)
    fields = {**spec, **spec["affinity"]}
    assert {name: fields[name] for name in expected} == expected


def test_extended_resources_and_huge_pages_have_limits() -> None:
    requests = {"cpu": "1", "example.com/gpu": "2", "hugepages-2Mi": "4Mi"}
    [container] = spec_of(pod("a", containers=containers(requests=requests, limits=requests)))["containers"]
    limits = {"example.com/gpu": "2", "hugepages-2Mi": str(4 << 20)}
    assert container["resources"] == {"requests": {"cpu": "1000m", **limits}, "limits": limits}


def requires(*terms: list[dict[str, Any]]) -> Manifest:
    selector = {"nodeSelectorTerms": [{"matchExpressions": rules} for rules in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


SSD, ARM = {"key": "disk", "operator": "In", "values": ["ssd"]}, {"key": "arm", "operator": "Exists"}
IN_B = {"key": ZONE, "operator": "In", "values": ["b"]}


def claim_and_volume(**volume: Any) -> tuple[Manifest, Manifest]:
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"volumeName": "pv"},
        "status": {"phase": "Bound"},
    }
    labels = volume.pop("labels", {})
    return claim, {"kind": "PersistentVolume", "metadata": {"name": "pv", "labels": labels}, "spec": volume}


WITH_CLAIM = pod("db-0", on="od", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
AFFINE = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [IN_B]}]}}}

NODE_TERMS: dict[str, tuple[Manifest, tuple[Manifest, ...], list[list[dict[str, Any]]]]] = {
    "no rules": (pod("a"), (), [[ON_SPOT]]),
    "each of several terms": (pod("a", affinity=requires([SSD], [ARM])), (), [[SSD, ON_SPOT], [ARM, ON_SPOT]]),
    "the zone of a volume": (WITH_CLAIM, claim_and_volume(**AFFINE), [[IN_B, ON_SPOT]]),
    "the zone label of a volume": (
        WITH_CLAIM,
        claim_and_volume(labels={ZONE: "b__c"}),
        [[{"key": ZONE, "operator": "In", "values": ["b", "c"]}, ON_SPOT]],
    ),
    "a claim that is missing": (WITH_CLAIM, (), [[ON_SPOT]]),
}


@pytest.mark.parametrize(("pod_manifest", "objects", "expected"), NODE_TERMS.values(), ids=NODE_TERMS)
def test_node_terms_require_a_spot_node(
    pod_manifest: Manifest, objects: tuple[Manifest, ...], expected: list[list[dict[str, Any]]]
) -> None:
    assert node_terms(pod_manifest, *objects) == [{"matchExpressions": rules, "matchFields": []} for rules in expected]


LABELS: dict[str, list[dict[str, Any]]] = {
    "spot": [{"key": "spot", "operator": "Exists"}],
    "!on-demand": [{"key": "on-demand", "operator": "DoesNotExist"}],
    "type=spot": [{"key": "type", "operator": "In", "values": ["spot"]}],
    "type in (a,b)": [{"key": "type", "operator": "In", "values": ["a", "b"]}],
    "type!=od,pool": [{"key": "type", "operator": "NotIn", "values": ["od"]}, {"key": "pool", "operator": "Exists"}],
}


@pytest.mark.parametrize(("label", "rules"), LABELS.items())
def test_the_spot_label_is_required(label: str, rules: list[dict[str, Any]]) -> None:
    built, volumes = pod_of(pod("a", on="od"))
    terms = PlaceholderTerms("", NodeLabels.parse(label), UNTIL, "", "", "pause:1", 3600)
    affinity = manifest(built, terms, volumes, frozenset())["spec"]["affinity"]["nodeAffinity"]
    selector = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert selector == {"nodeSelectorTerms": [{"matchExpressions": rules, "matchFields": []}]}


def test_each_spot_label_is_a_choice_of_the_placeholder() -> None:
    built, volumes = pod_of(pod("a", on="od"))
    label = NodeLabels.any_of(map(NodeLabels.parse, ("type=spot", "spot")))
    affinity = manifest(built, PlaceholderTerms("", label, UNTIL, "", "", "pause:1", 3600), volumes, frozenset())[
        "spec"
    ]["affinity"]
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": LABELS[text], "matchFields": []} for text in ("type=spot", "spot")]


def test_only_labels_that_selectors_of_the_order_use_are_copied() -> None:
    """Other labels could have effects elsewhere, such as the injection of a sidecar."""
    near, _ = pod_of(pod("api-1", affinity=seeks("web")))
    built, volumes = pod_of(pod("web-1", on="od", labels={"app": "web", "inject": "true"}))
    labels = manifest(built, TERMS, volumes, label_keys_of([near.cls, built.cls]))["metadata"]["labels"]
    assert labels == {"app": "web", "spot-rescheduler/placeholder": "true"}


UNSERVED: dict[str, tuple[Manifest, str]] = {
    "a plain pod": (pod("a"), ""),
    "the lowest priority": (pod("a", priority=-5), ""),
    "a lower priority": (pod("a", priority=-6), "its priority -6 is below that of placeholders (-5)"),
    "host ports": (
        pod("a", containers=[{"name": "m", "ports": [{"containerPort": 80, "hostPort": 80}]}]),
        "it uses host ports, which placeholders do not",
    ),
    "Windows": (pod("a", os={"name": "windows"}), "its operating system is windows"),
}


@pytest.mark.parametrize(("pod_manifest", "why"), UNSERVED.values(), ids=UNSERVED)
def test_pods_without_a_placeholder_have_a_reason(pod_manifest: Manifest, why: str) -> None:
    built, _ = pod_of(pod_manifest)
    assert why_not_served(built.cls) == why


def test_a_written_placeholder_is_read_unchanged() -> None:
    built, volumes = pod_of(pod("web-1", on="od"))
    written = manifest(built, TERMS, volumes, frozenset())
    written["metadata"]["uid"] = "uid-placeholder"
    written["spec"]["nodeName"] = "spot-1"
    written["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    cluster = snapshot([written])
    assert not cluster.pods
    [kept] = cluster.placeholders.values()
    seen = read(kept)
    assert (seen.ref.name, seen.ref.uid) == ("room-uid-web-1", "uid-placeholder")
    assert seen == Placeholder(
        seen.ref,
        "od",
        "uid-od",
        "default/web-1",
        "uid-web-1",
        UNTIL,
        "kube-system/lease",
        "spot-1",
        running=True,
    )
