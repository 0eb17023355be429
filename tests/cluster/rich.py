"""Valid objects that use every field that the daemon reads."""

from devcluster.api import Json
from devcluster.manifests import pod

_SELECTOR = {
    "matchLabels": {"app": "web"},
    "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
}
_TERM = {
    "topologyKey": "topology.kubernetes.io/zone",
    "labelSelector": _SELECTOR,
    "namespaces": ["default"],
    "namespaceSelector": {},
    "matchLabelKeys": ["pod-template-hash"],
}
_AFFINITY = {
    "requiredDuringSchedulingIgnoredDuringExecution": [_TERM],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": _TERM}],
}
_NODE_TERMS = [
    {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["c"]}]},
    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
]


def _cluster_wide(version: str, kind: str, name: str, **fields: object) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": {"rich": "yes"}}, **fields}


def _named(version: str, kind: str, name: str, **fields: object) -> Json:
    document = _cluster_wide(version, kind, name, **fields)
    document["metadata"]["namespace"] = "default"
    return document


_STORAGE = "storage.k8s.io/v1"
_DRA = "resource.k8s.io/v1"

#: Some of the pods stay Pending, which does not matter for reading them.
RICH: list[Json] = [
    _cluster_wide(
        _STORAGE,
        "StorageClass",
        "rich",
        provisioner="ebs.csi.aws.com",
        volumeBindingMode="WaitForFirstConsumer",
        allowedTopologies=[{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}],
    ),
    _cluster_wide(_STORAGE, "CSIDriver", "ebs.csi.aws.com", spec={"storageCapacity": True, "attachRequired": True}),
    _cluster_wide(
        _STORAGE,
        "CSINode",
        "rich",
        spec={
            "drivers": [
                {"name": "d", "nodeID": "n", "topologyKeys": ["zone"], "allocatable": {"count": 25}},
                {"name": "e", "nodeID": "m"},
            ]
        },
    ),
    _named(
        _STORAGE,
        "CSIStorageCapacity",
        "rich",
        nodeTopology=_SELECTOR,
        storageClassName="rich",
        capacity="100Gi",
        maximumVolumeSize="10Gi",
    ),
    _cluster_wide(
        "v1",
        "PersistentVolume",
        "rich",
        spec={
            "capacity": {"storage": "8Gi"},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "rich",
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": _NODE_TERMS[:1]}},
        },
    ),
    _cluster_wide(
        _STORAGE,
        "VolumeAttachment",
        "rich",
        spec={"attacher": "ebs.csi.aws.com", "nodeName": "n1", "source": {"persistentVolumeName": "rich"}},
    ),
    _named(
        "v1",
        "PersistentVolumeClaim",
        "rich",
        spec={
            "storageClassName": "rich",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "8Gi"}},
            "selector": _SELECTOR,
        },
    ),
    _named(
        "v1",
        "PersistentVolumeClaim",
        "classless",
        spec={"storageClassName": "", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}},
    ),
    _named("policy/v1", "PodDisruptionBudget", "rich", spec={"selector": _SELECTOR, "minAvailable": 0}),
    _named(
        "policy/v1",
        "PodDisruptionBudget",
        "per-cent",
        spec={"selector": {}, "maxUnavailable": "25%", "unhealthyPodEvictionPolicy": "AlwaysAllow"},
    ),
    _cluster_wide(_DRA, "DeviceClass", "rich", spec={"extendedResourceName": "example.com/gpu"}),
    _named(
        _DRA,
        "ResourceClaim",
        "rich",
        spec={
            "devices": {
                "requests": [
                    {"name": "a", "exactly": {"deviceClassName": "rich", "allocationMode": "ExactCount", "count": 1}},
                    {"name": "b", "firstAvailable": [{"name": "c", "deviceClassName": "rich"}]},
                ]
            }
        },
    ),
    pod(
        "rich",
        nodeName="n1",
        annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "noise": "x" * 100},
        tolerations=[
            {"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
            {"operator": "Exists"},
        ],
        nodeSelector={"kubernetes.io/os": "linux"},
        terminationGracePeriodSeconds=7,
        topologySpreadConstraints=[
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": _SELECTOR,
                "minDomains": 2,
                "nodeAffinityPolicy": "Honor",
                "nodeTaintsPolicy": "Ignore",
                "matchLabelKeys": ["pod-template-hash"],
            }
        ],
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": _NODE_TERMS},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": _NODE_TERMS[0]}],
            },
            "podAffinity": _AFFINITY,
            "podAntiAffinity": _AFFINITY,
        },
        initContainers=[
            {
                "name": "side",
                "image": "x",
                "restartPolicy": "Always",
                "resources": {"requests": {"cpu": "50m"}, "limits": {"memory": "1Gi"}},
                "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1", "protocol": "UDP"}],
            }
        ],
        volumes=[
            {"name": "token", "projected": {"sources": [{"configMap": {"name": "ca"}}]}},
            {"name": "settings", "configMap": {"name": "settings"}},
            {"name": "scratch", "emptyDir": {"medium": "Memory"}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "host", "hostPath": {"path": "/x"}},
            {"name": "nfs", "nfs": {"server": "s", "path": "/"}},
        ],
    ),
    pod(
        "disks",
        volumes=[
            {"name": "data", "persistentVolumeClaim": {"claimName": "rich"}},
            {
                "name": "own",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
                    }
                },
            },
            {"name": "gce", "gcePersistentDisk": {"pdName": "pd", "readOnly": True}},
            {"name": "aws", "awsElasticBlockStore": {"volumeID": "vol-1"}},
            {"name": "azure", "azureDisk": {"diskName": "d", "diskURI": "https://d", "kind": "Dedicated"}},
            {"name": "rbd", "rbd": {"monitors": ["m1", "m2"], "image": "i"}},
            {"name": "iscsi", "iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2001-04.com.example:x", "lun": 0}},
            {"name": "cinder", "cinder": {"volumeID": "c"}},
            {"name": "px", "portworxVolume": {"volumeID": "p"}},
            {"name": "inline", "csi": {"driver": "ebs.csi.aws.com"}},
        ],
    ),
    pod("gated", schedulingGates=[{"name": "example.com/wait"}], os={"name": "linux"}, hostUsers=False),
    pod("claiming", resourceClaims=[{"name": "gpu", "resourceClaimName": "rich"}]),
    pod("sized", resources={"requests": {"cpu": "2"}, "limits": {"memory": "4Gi"}}, hostNetwork=True),
]
