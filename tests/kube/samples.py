"""One object of every kind with many fields, in the API server's JSON (without managedFields)."""

from typing import Any

_META = {
    "name": "it",
    "uid": "0b7e",
    "resourceVersion": "7",
    "labels": {"app": "web", "zone": "b"},
    "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "noise": "long"},
    "creationTimestamp": "2026-05-04T03:02:01Z",
}
_IN_NAMESPACE = {**_META, "namespace": "shop"}
_SELECTOR = {
    "matchLabels": {"app": "web"},
    "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
}
_TERMS = [
    {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["c"]}]},
    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]},
]
_TERM = {
    "topologyKey": "zone",
    "labelSelector": _SELECTOR,
    "namespaces": ["shop"],
    "namespaceSelector": {},
    "matchLabelKeys": ["pod-template-hash"],
    "mismatchLabelKeys": ["tenant"],
}
_AFFINITY = {
    "requiredDuringSchedulingIgnoredDuringExecution": [_TERM],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": _TERM}],
}
_POD_SPEC: dict[str, Any] = {
    "nodeName": "node-1",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "priority": 100,
    "hostUsers": False,
    "nodeSelector": {"disk": "ssd"},
    "overhead": {"cpu": "10m"},
    "os": {"name": "linux"},
    "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "4Gi"}},
    "schedulingGates": [{"name": "wait"}],
    "tolerations": [
        {"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"operator": "Exists"},
    ],
    "topologySpreadConstraints": [
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
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": _TERMS},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": _TERMS[0]}],
        },
        "podAffinity": _AFFINITY,
        "podAntiAffinity": _AFFINITY,
    },
    "containers": [
        {
            "name": "main",
            "image": "web:1",
            "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"cpu": "1"}},
            "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1", "protocol": "UDP"}],
            "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}],
        },
        {"name": "second", "image": "x"},
    ],
    "initContainers": [
        {"name": "side", "image": "y", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}}
    ],
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "c1"}, {"name": "t", "resourceClaimTemplateName": "c2"}],
    "volumes": [
        {"name": "kube-api-access-abcde", "projected": {"defaultMode": 420}},
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}},
        {"name": "scratch", "emptyDir": {"medium": "Memory"}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "host", "hostPath": {"path": "/x"}},
        {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
        {"name": "gce", "gcePersistentDisk": {"pdName": "pd", "readOnly": True}},
        {"name": "aws", "awsElasticBlockStore": {"volumeID": "vol-1"}},
        {"name": "azure", "azureDisk": {"diskName": "d", "diskURI": "u", "kind": "Managed"}},
        {"name": "rbd", "rbd": {"monitors": ["m1", "m2"], "image": "i", "pool": "rbd", "readOnly": True}},
        {"name": "iscsi", "iscsi": {"targetPortal": "p", "iqn": "q", "readOnly": True}},
        {"name": "cinder", "cinder": {"volumeID": "c"}},
        {"name": "px", "portworxVolume": {"volumeID": "p"}},
        {"name": "inline", "csi": {"driver": "ebs.csi.aws.com"}},
    ],
}
_POD_STATUS: dict[str, Any] = {
    "phase": "Running",
    "startTime": "2026-05-04T03:02:03Z",
    "conditions": [
        {"type": "Ready", "status": "False", "lastTransitionTime": "2026-05-04T03:02:05Z"},
        {"type": "PodResizePending", "status": "True", "reason": "Deferred"},
    ],
    "containerStatuses": [
        {
            "name": "main",
            "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
            "allocatedResources": {"cpu": "500m", "memory": "1Gi"},
        }
    ],
}
_OWNERS = [
    {"kind": "Thing", "name": "t", "uid": "9", "apiVersion": "v1"},
    {"kind": "ReplicaSet", "name": "web", "uid": "8", "apiVersion": "apps/v1", "controller": True},
]

_TEMPLATE = {
    "metadata": {"labels": {"app": "db"}},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
}

SAMPLES: dict[str, tuple[str, dict[str, Any]]] = {
    "a pod with everything": (
        "Pod",
        {"metadata": {**_IN_NAMESPACE, "ownerReferences": _OWNERS}, "spec": _POD_SPEC, "status": _POD_STATUS},
    ),
    "a pod with nothing": ("Pod", {"metadata": {"namespace": "shop", "name": "bare"}}),
    "a pod that is Ready": (
        "Pod",
        {
            "metadata": _IN_NAMESPACE,
            "spec": _POD_SPEC,
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-05-04T03:02:05Z"}],
            },
        },
    ),
    "an unschedulable pod": (
        "Pod",
        {
            "metadata": _IN_NAMESPACE,
            "spec": {"containers": [{"name": "c", "image": "i"}]},
            "status": {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "lastTransitionTime": "2026-05-04T03:02:05Z",
                    }
                ],
            },
        },
    ),
    "a terminating pod": (
        "Pod",
        {"metadata": {**_IN_NAMESPACE, "deletionTimestamp": "2026-05-04T03:02:09Z"}, "spec": _POD_SPEC},
    ),
    "a node": (
        "Node",
        {
            "metadata": _META,
            "spec": {
                "providerID": "aws:///z/i-1",
                "unschedulable": True,
                "taints": [
                    {"key": "a", "value": "b", "effect": "NoExecute", "timeAdded": "2026-05-04T03:02:05Z"},
                    {"key": "c", "effect": "NoSchedule"},
                ],
            },
            "status": {
                "allocatable": {"cpu": "3920m", "memory": "15Gi", "pods": "110", "example.com/gpu": "1"},
                "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110", "example.com/gpu": "1"},
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "reason": "KubeletReady",
                        "lastTransitionTime": "2026-05-04T03:02:05Z",
                    }
                ],
                "images": [{"names": ["web:1", "web@sha256:0"], "sizeBytes": 123456789}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}],
                "declaredFeatures": ["x"],
            },
        },
    ),
    "a bare node": ("Node", {"metadata": _META}),
    "a namespace": ("Namespace", {"metadata": _META}),
    "a volume by CSI": (
        "PersistentVolume",
        {
            "metadata": _META,
            "spec": {
                "capacity": {"storage": "8Gi"},
                "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
                "claimRef": {"namespace": "shop", "name": "data-0", "uid": "5"},
                "storageClassName": "fast",
                "volumeMode": "Filesystem",
                "nodeAffinity": {"required": {"nodeSelectorTerms": _TERMS}},
                "volumeAttributesClassName": "gold",
                "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
            },
            "status": {"phase": "Bound"},
        },
    ),
    "an in-tree volume": (
        "PersistentVolume",
        {"metadata": _META, "spec": {"awsElasticBlockStore": {"volumeID": "vol-2", "readOnly": True}}},
    ),
    "a claim": (
        "PersistentVolumeClaim",
        {
            "metadata": _IN_NAMESPACE,
            "spec": {
                "volumeName": "pv-1",
                "storageClassName": "",
                "accessModes": ["ReadWriteOncePod"],
                "volumeMode": "Block",
                "selector": _SELECTOR,
                "resources": {"requests": {"storage": "8Gi"}},
                "volumeAttributesClassName": "gold",
            },
            "status": {"phase": "Bound"},
        },
    ),
    "a claim of the default class": ("PersistentVolumeClaim", {"metadata": _IN_NAMESPACE, "spec": {}}),
    "a storage class": (
        "StorageClass",
        {
            "metadata": _META,
            "provisioner": "ebs.csi.aws.com",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}],
        },
    ),
    "a CSI node": (
        "CSINode",
        {
            "metadata": _META,
            "spec": {
                "drivers": [
                    {"name": "d", "nodeID": "n", "topologyKeys": ["zone"], "allocatable": {"count": 0}},
                    {"name": "e", "nodeID": "m"},
                ]
            },
        },
    ),
    "a CSI driver": (
        "CSIDriver",
        {"metadata": _META, "spec": {"storageCapacity": True}},
    ),
    "a capacity": (
        "CSIStorageCapacity",
        {
            "metadata": _IN_NAMESPACE,
            "nodeTopology": _SELECTOR,
            "storageClassName": "fast",
            "capacity": "100Gi",
            "maximumVolumeSize": "10Gi",
        },
    ),
    "an attachment": (
        "VolumeAttachment",
        {
            "metadata": _META,
            "spec": {"attacher": "d", "nodeName": "node-1", "source": {"persistentVolumeName": "pv-1"}},
            "status": {"attached": True, "detachError": {"message": "in use"}},
        },
    ),
    "a budget in per cent": (
        "PodDisruptionBudget",
        {
            "metadata": _IN_NAMESPACE,
            "spec": {"selector": _SELECTOR, "maxUnavailable": "25%", "unhealthyPodEvictionPolicy": "AlwaysAllow"},
            "status": {
                "disruptionsAllowed": 1,
                "currentHealthy": 4,
                "desiredHealthy": 3,
                "expectedPods": 4,
                "observedGeneration": 9,
                "disruptedPods": {"web-1": "2026-05-04T03:02:05Z"},
            },
        },
    ),
    "an empty budget": (
        "PodDisruptionBudget",
        {"metadata": _IN_NAMESPACE, "spec": {"minAvailable": 0, "selector": {}}},
    ),
    "a resource claim": (
        "ResourceClaim",
        {
            "metadata": _IN_NAMESPACE,
            "spec": {
                "devices": {
                    "requests": [
                        {"name": "a", "exactly": {"deviceClassName": "gpu"}},
                        {"name": "b", "firstAvailable": [{"name": "c", "deviceClassName": "gpu"}]},
                    ]
                }
            },
            "status": {
                "allocation": {
                    "devices": {"results": [{"bindingConditions": ["ready"]}, {}]},
                    "nodeSelector": {"nodeSelectorTerms": _TERMS},
                },
                "reservedFor": [{"uid": "0b7e"}],
            },
        },
    ),
    "a device class": ("DeviceClass", {"metadata": _META, "spec": {"extendedResourceName": "example.com/gpu"}}),
    "a replica set": ("ReplicaSet", {"metadata": _IN_NAMESPACE, "spec": {"replicas": 2, "template": _TEMPLATE}}),
    "a replication controller": ("ReplicationController", {"metadata": _IN_NAMESPACE, "spec": {"template": _TEMPLATE}}),
    "a deployment": (
        "Deployment",
        {
            "metadata": _IN_NAMESPACE | {"generation": 2},
            "spec": {
                "replicas": 2,
                "template": _TEMPLATE,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 0}},
            },
            "status": {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2},
        },
    ),
    "a stateful set": (
        "StatefulSet",
        {
            "metadata": _IN_NAMESPACE,
            "spec": {
                "replicas": 3,
                "template": _TEMPLATE,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
            },
            "status": {"currentRevision": "db-1", "updateRevision": "db-2"},
        },
    ),
    "a job": ("Job", {"metadata": _IN_NAMESPACE, "spec": {"parallelism": 2, "template": _TEMPLATE}}),
    "a revision": ("ControllerRevision", {"metadata": _IN_NAMESPACE, "data": {"spec": {"template": _TEMPLATE}}}),
    "a priority class": ("PriorityClass", {"metadata": {"name": "high"}, "value": 1000, "globalDefault": True}),
    "a runtime class": (
        "RuntimeClass",
        {
            "metadata": {"name": "kata"},
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"runtime": "kata"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
        },
    ),
    "a limit range": (
        "LimitRange",
        {
            "metadata": _IN_NAMESPACE,
            "spec": {
                "limits": [
                    {
                        "type": "Container",
                        "defaultRequest": {"cpu": "50m"},
                        "default": {"cpu": "1"},
                        "min": {"cpu": "1m"},
                        "max": {"cpu": "2"},
                        "maxLimitRequestRatio": {"cpu": "4"},
                    }
                ]
            },
        },
    ),
    "a quota": (
        "ResourceQuota",
        {
            "metadata": _IN_NAMESPACE,
            "spec": {"hard": {"requests.cpu": "4"}},
            "status": {"hard": {"requests.cpu": "4"}, "used": {"requests.cpu": "1"}},
        },
    ),
    "a vertical pod autoscaler": (
        "VerticalPodAutoscaler",
        {
            "metadata": _IN_NAMESPACE,
            "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}},
            "status": {
                "recommendation": {"containerRecommendations": [{"containerName": "c", "target": {"cpu": "2"}}]}
            },
        },
    ),
}
