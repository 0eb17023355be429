"""Random workloads of twenty kinds whose replacement pods are predicted, and what admission does to their pods."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeAlias

from devcluster.api import Json
from devcluster.manifests import IMAGE, deployment, job, statefulset
from devcluster.stages import COMPLETE_AFTER, NEVER
from tests.cluster.operators import PlayedOwner, definition

LIMITED: Final = "limited"  #: a namespace with a LimitRange
VPA: Final = PlayedOwner("autoscaling.k8s.io/v1/VerticalPodAutoscaler", "vpa", "", plays=False)
_ADMISSION: Final = {"apiVersion": "admissionregistration.k8s.io/v1"}
_PRIORITIES: Final = {"low": -5, "important": 1000}


@dataclass(frozen=True, slots=True)
class Sample:
    """A workload, and what happens to it while its pods run."""

    kind: str
    manifest: Json
    change: Json = field(default_factory=dict)  #: a merge patch of the workload
    resize: Json | None = None  #: the resources that the main container gets in place
    ephemeral: bool = False  #: its pods get an ephemeral container
    also: tuple[Json, ...] = ()  #: objects that are created after its pods

    @property
    def pods(self) -> int:
        spec = self.manifest["spec"]
        pods: int = spec.get("replicas", spec.get("completions"))
        return pods


Kind: TypeAlias = Callable[[str, Random], Sample]


def cpu(rng: Random) -> str:
    return f"{rng.randrange(1, 30)}m"


def memory(rng: Random) -> str:
    return f"{rng.randrange(8, 64)}Mi"


def replica_set(name: str, **fields: Any) -> Json:
    return {**deployment(name, **fields), "kind": "ReplicaSet"}


def replication_controller(name: str, **fields: Any) -> Json:
    workload = deployment(name, **fields)
    spec = workload["spec"]
    selector = spec["selector"]["matchLabels"]
    return {**workload, "apiVersion": "v1", "kind": "ReplicationController", "spec": {**spec, "selector": selector}}


def _fields(rng: Random) -> dict[str, Any]:
    """Return random fields of a pod template."""
    fields: dict[str, Any] = {"cpu": cpu(rng), "memory": memory(rng)}
    options: dict[str, Any] = {
        "tolerations": [{"key": rng.choice("xyz"), "operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "priorityClassName": rng.choice(list(_PRIORITIES)),
        "initContainers": [_container("init", rng)],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "terminationGracePeriodSeconds": rng.randrange(1, 9),
        "topologySpreadConstraints": [_spread(rng)],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_apart(rng)]}},
    }
    for name in rng.sample(sorted(options), rng.randrange(3)):
        fields[name] = options[name]
    return fields


def _container(name: str, rng: Random, **fields: Any) -> Json:
    return {"name": name, "image": IMAGE, "resources": {"requests": {"cpu": cpu(rng), "memory": memory(rng)}}, **fields}


def _spread(rng: Random) -> Json:
    selector = {"matchLabels": {"team": rng.choice("ab")}}
    spread = {"maxSkew": rng.randrange(1, 4), "topologyKey": "kubernetes.io/hostname"}
    return {**spread, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}


def _apart(rng: Random) -> Json:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"team": rng.choice("ab")}}}
    return {"weight": rng.randrange(1, 100), "podAffinityTerm": term}


def _changed(workload: Json, rng: Random, **spec: Any) -> Json:
    """Return the merge patch that gives *workload* another pod template.

    Unless *workload* has revisions, the template has the tolerations, init containers and volumes of the old one, if
    there are any: without a dry run, it is not known whether admission or the old template added those to the running
    pod, so they are expected again.
    """
    name, namespace = workload["metadata"]["name"], workload["metadata"]["namespace"]
    template = deployment(name, namespace=namespace, **_fields(rng))["spec"]["template"]
    template["metadata"]["labels"] |= workload["spec"]["template"]["metadata"]["labels"] | {"version": "2"}
    old = workload["spec"]["template"]["spec"]
    if workload["kind"] != "StatefulSet":
        template["spec"] |= {key: old[key] for key in ("tolerations", "initContainers", "volumes") if key in old}
    template["spec"] = {**dict.fromkeys(old.keys() - template["spec"].keys()), **template["spec"]}
    return {"spec": {"template": template, **spec}}


def _with(workload: Json, **spec: Any) -> Json:
    return {**workload, "spec": {**workload["spec"], **spec}}


def without_requests(workload: Json) -> Json:
    for container in workload["spec"]["template"]["spec"]["containers"]:
        container["resources"] = {}
    return workload


ON_DELETE: Final = {"type": "OnDelete"}


def _on_delete(name: str, rng: Random, **fields: Any) -> Json:
    return _with(statefulset(name, **{**_fields(rng), **fields}), updateStrategy=ON_DELETE)


def _plain(name: str, rng: Random) -> Sample:
    return Sample("Deployment", deployment(name, **_fields(rng)))


def _paused(name: str, rng: Random) -> Sample:
    workload = deployment(name, **_fields(rng))
    return Sample("Deployment, paused with a new template", workload, _changed(workload, rng, paused=True))


def _bare(name: str, rng: Random) -> Sample:
    return Sample("ReplicaSet", replica_set(name, **_fields(rng)))


def _bare_changed(name: str, rng: Random) -> Sample:
    workload = replica_set(name, **_fields(rng))
    return Sample("ReplicaSet with a new template", workload, _changed(workload, rng))


def _controller(name: str, rng: Random) -> Sample:
    workload = replication_controller(name, **_fields(rng))
    return Sample("ReplicationController with a new template", workload, _changed(workload, rng))


def _steady(name: str, rng: Random) -> Sample:
    return Sample("StatefulSet", statefulset(name, rng.randrange(1, 3), **_fields(rng)))


def _stateful(name: str, rng: Random) -> Sample:
    workload = _on_delete(name, rng)
    return Sample("StatefulSet, OnDelete with a new template", workload, _changed(workload, rng))


def _partition(name: str, rng: Random) -> Sample:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    workload = _with(statefulset(name, 2, **_fields(rng)), updateStrategy=rolling)
    return Sample("StatefulSet below its partition with a new template", workload, _changed(workload, rng))


def _job(name: str, rng: Random) -> Sample:
    return Sample("Job", job(name, annotations={COMPLETE_AFTER: NEVER}, **_fields(rng)))


def _indexed(name: str, rng: Random) -> Sample:
    workload = job(name, 2, annotations={COMPLETE_AFTER: NEVER}, **_fields(rng))
    return Sample("Job, indexed", _with(workload, completionMode="Indexed"))


def _resized(name: str, rng: Random) -> Sample:
    resize = {"requests": {"cpu": f"{rng.randrange(30, 60)}m"}}
    return Sample("Deployment, resized in place", deployment(name, **_fields(rng)), resize=resize)


def _resized_stateful(name: str, rng: Random) -> Sample:
    resize = {"requests": {"memory": f"{rng.randrange(64, 90)}Mi"}}
    return Sample("StatefulSet, resized in place", statefulset(name, **_fields(rng)), resize=resize)


def _limited(name: str, rng: Random) -> Sample:
    workload = without_requests(deployment(name, namespace=LIMITED, **_fields(rng)))
    return Sample("Deployment with the requests of a LimitRange", workload)


def _defaulted(name: str, rng: Random) -> Sample:
    workload = _on_delete(name, rng, namespace=LIMITED)
    change = _changed(workload, rng)
    without_requests(change)
    return Sample("StatefulSet, OnDelete, with the requests of a LimitRange from now on", workload, change)


def _mesh(name: str, rng: Random) -> Sample:
    return Sample("Deployment with an injected sidecar", deployment(name, labels={"mesh": "on"}, **_fields(rng)))


def _mesh_changed(name: str, rng: Random) -> Sample:
    workload = _on_delete(name, rng, labels={"mesh": "on"})
    kind = "StatefulSet, OnDelete with a new template and an injected sidecar"
    return Sample(kind, workload, _changed(workload, rng))


def _recommended(name: str, rng: Random) -> Sample:
    workload = deployment(name, labels={"vpa": "on"}, annotations={"team": "a"}, **_fields(rng))
    recommendation = {"containerRecommendations": [{"containerName": "main", "target": {"cpu": RECOMMENDED}}]}
    return Sample(
        "Deployment with a VerticalPodAutoscaler",
        workload,
        also=(
            {
                "apiVersion": "autoscaling.k8s.io/v1",
                "kind": "VerticalPodAutoscaler",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
                "status": {"recommendation": recommendation},
            },
        ),
    )


def _overhead(name: str, rng: Random) -> Sample:
    return Sample("Deployment of a RuntimeClass", deployment(name, runtimeClassName="kata", **_fields(rng)))


def _selected(name: str, rng: Random) -> Sample:
    fields = _fields(rng) | {"nodeSelector": {}}
    return Sample("ReplicaSet with a selector by admission", replica_set(name, labels={"pool": "on"}, **fields))


def _ephemeral(name: str, rng: Random) -> Sample:
    return Sample("Deployment with an ephemeral container", deployment(name, **_fields(rng)), ephemeral=True)


def _token(name: str, rng: Random) -> Sample:
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600 + rng.randrange(3000)}}
    fields = _fields(rng) | {
        "serviceAccountName": "default",
        "volumes": [{"name": "token", "projected": {"sources": [token]}}],
    }
    return Sample("Deployment with a projected token", deployment(name, **fields))


def _pod_level(name: str, rng: Random) -> Sample:
    own = {"requests": {"cpu": f"{rng.randrange(60, 90)}m", "memory": "256Mi"}}
    return Sample("Deployment with resources of the pod", deployment(name, resources=own, **_fields(rng)))


def _native(name: str, rng: Random) -> Sample:
    workload = _on_delete(name, rng, initContainers=[_container("proxy", rng, restartPolicy="Always")])
    change = _changed(workload, rng)
    change["spec"]["template"]["spec"]["initContainers"] = [_container("proxy", rng, restartPolicy="Always")]
    return Sample("StatefulSet, OnDelete with another native sidecar", workload, change)


def _priority(name: str, rng: Random) -> Sample:
    first, second = rng.sample(sorted(_PRIORITIES), 2)
    workload = _on_delete(name, rng, priorityClassName=first)
    change = _changed(workload, rng)
    change["spec"]["template"]["spec"]["priorityClassName"] = second
    return Sample("StatefulSet, OnDelete with another priority class", workload, change)


#: The kinds of workloads, in the order in which they are created.
KINDS: Final[tuple[Kind, ...]] = (
    *(_plain, _paused, _bare, _bare_changed, _controller, _steady, _stateful, _partition, _job, _indexed),
    *(_resized, _resized_stateful, _limited, _defaulted, _mesh, _mesh_changed, _recommended, _overhead, _selected),
    *(_ephemeral, _token, _pod_level, _native, _priority),
)

#: The CPU requests that the admission of the VPA sets, before and after the pods were created.
EARLIER: Final = "33m"
RECOMMENDED: Final = "44m"


def samples(seed: int, count: int) -> list[Sample]:
    """Return *count* workloads, each with its own random numbers, of one kind after the other."""
    return [KINDS[number % len(KINDS)](f"w{number}", Random(f"{seed}/{number}")) for number in range(count)]


def _policy(name: str, expression: str) -> list[Json]:
    """Return a policy that mutates new pods with the label *name*, and its binding."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule], "objectSelector": {"matchLabels": {name: "on"}}},
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    }
    return [
        {**_ADMISSION, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec},
        {
            **_ADMISSION,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name},
        },
    ]


def recommending(amount: str) -> str:
    """Return what the admission of the VPA does to pods of which it recommends this *amount* of CPU."""
    return (
        f'[JSONPatch{{op: "add", path: "/spec/containers/0/resources/requests/cpu", value: "{amount}"}}, '
        'JSONPatch{op: "add", path: "/metadata/annotations/vpaUpdates", value: "Pod resources updated"}]'
    )


_INJECTING: Final = """[JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{
  name: "proxy", image: "proxy:1",
  resources: Object.spec.containers.resources{requests: {"cpu": "7m", "memory": "32Mi"}}}}]"""
_SELECTING: Final = '[JSONPatch{op: "add", path: "/spec/nodeSelector", value: {"kubernetes.io/os": "linux"}}]'

#: The policies by the label of the pods that they change.
POLICIES: Final = {"mesh": _INJECTING, "pool": _SELECTING, "vpa": recommending(EARLIER)}


def _vpa_definition() -> Json:
    resource = definition(VPA)
    [version] = resource["spec"]["versions"]
    version["subresources"] = {"status": {}}
    return resource


def surroundings() -> list[Json]:
    """Return what must exist before the workloads, except for nodes and the namespace LIMITED."""
    limits = {"type": "Container", "defaultRequest": {"cpu": "12m"}, "default": {"cpu": "1", "memory": "128Mi"}}
    overhead = {"podFixed": {"cpu": "5m", "memory": "16Mi"}}
    return [
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "defaults", "namespace": LIMITED},
            "spec": {"limits": [limits]},
        },
        *(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "preemptionPolicy": "Never",
            }
            for name, value in _PRIORITIES.items()
        ),
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "kata"},
            "handler": "kata",
            "overhead": overhead,
        },
        _vpa_definition(),
        *(item for name, expression in POLICIES.items() for item in _policy(name, expression)),
    ]
