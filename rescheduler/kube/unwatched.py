"""Objects that plans need and the daemon does not watch: pod templates, quotas, and groups of pods."""

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, Final, TypeAlias, cast
from urllib.parse import quote

import msgspec
import yaml
from msgspec import structs

from predicates.objects import (
    AutoscalerGroup,
    AutoscalerGroups,
    CapacityBuffer,
    GangWorkload,
    Job,
    JobCounts,
    LeaderWorkerSet,
    MachineSet,
    NodePool,
    Object,
    ObjectMeta,
    OwnerReference,
    PodGroup,
    PodSpec,
    PodTemplate,
    PodTemplateObject,
    ResourceQuota,
    StatefulSet,
    Volume,
    Wire,
    Workload,
)
from predicates.objects.pods import KARPENTER
from predicates.snapshot import Snapshot, key_of
from predicates.texts import is_name, one_line
from predicates.wire import Decoder, Interner, WireError
from rescheduler.clock import Clock
from rescheduler.errors import NotFound, ReschedulerError
from rescheduler.kube.client import Client
from rescheduler.kube.codec import JsonCodec
from rescheduler.kube.lister import TEMPLATES, Resource, read_all
from rescheduler.kube.responses import decoded, refusal
from rescheduler.planning.admission import CLASSES
from rescheduler.planning.new_specs import is_token
from rescheduler.planning.placement.pending import keeps_room
from rescheduler.planning.replacements import ADMISSION, TEMPLATED
from rescheduler.planning.rules.candidates import is_pooled
from rescheduler.planning.rules.gangs import (
    COMPOSITE,
    COSCHEDULING,
    KUBERNETES,
    LEADER_WORKER_SETS,
    OLD_COSCHEDULING,
    VOLCANO,
    has_parent,
    objects_of,
)

log = logging.getLogger(__name__)

# Read what replacement pods are created from, for the plan of a node that is about to be drained.
#
# The pod templates of its controllers are read with GET requests; LimitRanges, VerticalPodAutoscalers and
# ResourceQuotas are listed in the namespaces of its pods.

#: The path of each kind's API group and version, and its resource name.
_PATHS: Final[Mapping[str, tuple[str, str]]] = {
    resource.kind: (resource.path.rpartition("/")[0], resource.plural)
    for resource in TEMPLATES
    if resource.kind in TEMPLATED
}

#: What changes the pods that are created, and what limits them, by namespace.
_ADMISSION: Final = tuple(each for each in TEMPLATES if each.kind in ADMISSION)
_CLASSES: Final = tuple(each for each in TEMPLATES if each.kind in CLASSES)
_REVISIONS: Final = next(each for each in TEMPLATES if each.kind == "ControllerRevision")
_QUOTAS: Final = next(each for each in TEMPLATES if each.kind == "ResourceQuota")


def read_templates(
    client: Client, owners: Collection[tuple[str, OwnerReference]], *, dry_run: bool = False
) -> list[tuple[str, Object]]:
    """Return the controllers among *owners* that have a pod template, each with its kind.

    With *dry_run*, a pod of each is created in a dry run, and its template is what admission made of it. Older
    revisions of StatefulSets, the LimitRanges and VerticalPodAutoscalers of their namespaces, and the classes of
    priorities and runtimes follow. Those that are gone, or that cannot be decoded, are left out. Raises the other
    errors of requests.
    """
    decoder = Decoder(Interner())
    found = []
    for namespace, owner in sorted(owners, key=lambda pair: (pair[0], pair[1].kind, pair[1].name)):
        if owner.kind not in _PATHS or owner.fault:
            continue
        base, plural = _PATHS[owner.kind]
        try:
            name = quote(owner.name, safe="")
            path = f"{base}/namespaces/{quote(namespace, safe='')}/{plural}/{name}"
            response = client.request(f"get {plural} {namespace}/{owner.name}", "GET", path)
            controller = decoder.decode(owner.kind, response.body)
            if isinstance(controller, StatefulSet) and has_old_pods(controller):
                found += [(_REVISIONS.kind, each) for each in _revisions(client, namespace, response.body)]
            if dry_run and isinstance(controller, Workload | StatefulSet):
                controller = with_admission(client, owner.kind, controller, response.body)
            if isinstance(controller, Job):  # its counts, which change all the time, are not what pods are created from
                controller = structs.replace(controller, status=JobCounts())
            found.append((owner.kind, controller))
        except (NotFound, WireError):
            continue
    for resource in _CLASSES:
        with contextlib.suppress(NotFound):
            found += [(resource.kind, each) for each in _all(client, resource)]
    for resource in _ADMISSION:
        with contextlib.suppress(NotFound):  # the API server does not serve the kind
            for namespace in sorted({namespace for namespace, _ in owners}):
                found += [(resource.kind, each) for each in _in_namespace(client, resource, namespace)]
    return found


def read_quotas(client: Client, namespaces: Collection[str]) -> list[ResourceQuota]:
    """Return the ResourceQuotas of *namespaces* that can be decoded. Raises the errors of requests but NotFound."""
    found: list[Object] = []
    with contextlib.suppress(NotFound):  # the API server does not serve the kind
        for namespace in sorted(namespaces):
            found += _in_namespace(client, _QUOTAS, namespace)
    return [each for each in found if isinstance(each, ResourceQuota)]


def has_old_pods(stateful_set: StatefulSet) -> bool:
    """Return whether pods of *stateful_set* may be of an older revision than its template."""
    status, by_hand = stateful_set.status, stateful_set.spec.update_strategy.type == "OnDelete"
    outdated = not status.has_observed(stateful_set.metadata)
    return by_hand or outdated or status.current_revision != status.update_revision


def _revisions(client: Client, namespace: str, stateful_set: bytes) -> list[Object]:
    """Return the revisions of the StatefulSet with this JSON: they have the labels of its pods."""
    labels = ((msgspec.json.decode(stateful_set)["spec"].get("selector") or {}).get("matchLabels") or {}).items()
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels))
    return _in_namespace(client, replace(_REVISIONS, selector=selector), namespace)


def _in_namespace(client: Client, resource: Resource, namespace: str) -> list[Object]:
    base, _, plural = resource.path.rpartition("/")
    return _all(client, replace(resource, path=f"{base}/namespaces/{quote(namespace, safe='')}/{plural}"))


def _all(client: Client, resource: Resource) -> list[Object]:
    return read_all(client, resource, JsonCodec(resource.kind, Interner()), lambda _: False)


# Create the pods of controllers in a dry run, which tells what admission makes of them.

#: Parts of messages that say nothing about the pod itself: our account has no permission, or the quota is used up
#: while the pod to be evicted still runs (see :func:`read_quotas`), or a webhook does not support dry runs.
_NO_VERDICT: Final = ("cannot create resource", "exceeded quota", "does not support dry run")


class AdmittedPod(Wire, frozen=True):
    """The pod in the response to its creation."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()


def with_admission(
    client: Client, kind: str, controller: Workload | StatefulSet, body: bytes
) -> Workload | StatefulSet:
    """Return *controller*, whose JSON is *body*, with what admission makes of its pods, or why it rejects them.

    Raises Retryable if there is no response. If the response tells nothing about the pod, the result is *controller*.
    """
    meta = controller.metadata
    act = f"create a pod of {kind} {meta.namespace}/{meta.name} in a dry run"
    path = f"/api/v1/namespaces/{quote(meta.namespace, safe='')}/pods"
    given = msgspec.json.decode(body)
    claims = _claims(given)
    answer = client.send(act, "POST", path, query={"dryRun": "All"}, body=_new_pod(kind, given, claims))
    if answer.ok:
        pod = decoded(act, answer.body, AdmittedPod)
        spec = structs.replace(pod.spec, volumes=_shared_volumes(pod.spec, claims))
        admitted = PodTemplate(ObjectMeta(labels=pod.metadata.labels), spec)
        return structs.replace(controller, admitted=admitted)
    message = answer.status().message
    if answer.code not in _REJECTIONS or any(text in message for text in _NO_VERDICT):
        log.info("%s: the replacement is derived from the pod template", refusal(act, answer))
        return controller
    return structs.replace(controller, rejected=one_line(f"the API server rejects new pods: {message}"))


#: The status codes by which admission rejects a pod; 500 is that of a webhook that cannot be called.
_REJECTIONS: Final = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.INTERNAL_SERVER_ERROR,
)


def _new_pod(kind: str, controller: Mapping[str, Any], claims: Collection[str]) -> dict[str, Any]:
    """Return the pod that *controller* creates next, with a random name: its own may be in use."""
    meta, template = controller["metadata"], controller["spec"]["template"]
    owner = {"apiVersion": controller.get("apiVersion", _api_version(kind)), "kind": kind, "controller": True}
    described = template.get("metadata") or {}
    spec = dict(template["spec"])
    if claims:
        others = [volume for volume in spec.get("volumes") or () if volume["name"] not in claims]
        own = [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{meta['name']}-0"}} for name in claims]
        spec["volumes"] = [*own, *others]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{meta['name']}-",
            "labels": described.get("labels") or {},
            "annotations": described.get("annotations") or {},
            "ownerReferences": [owner | {"name": meta["name"], "uid": meta["uid"]}],
        },
        "spec": spec,
    }


def _api_version(kind: str) -> str:
    return next(each.api_version for each in TEMPLATES if each.kind == kind)


def _claims(controller: Mapping[str, Any]) -> list[str]:
    """Return the names of the volumes of which each pod has a claim of its own."""
    return [claim["metadata"]["name"] for claim in controller["spec"].get("volumeClaimTemplates") or ()]


def _shared_volumes(spec: PodSpec, claims: Collection[str]) -> tuple[Volume, ...]:
    """Return the volumes that all pods of the controller have: without *claims* of their own, and without tokens."""
    return tuple(volume for volume in spec.volumes if volume.name not in claims and not is_token(volume.name))


# Read the groups of pods, such as PodGroups, where pods name one, the NodePools of nodes, and CapacityBuffers.
#
# The API servers of most clusters do not serve them, and those that do serve them in different versions. So they are
# neither watched, nor listed unless a pod belongs to a group. CapacityBuffers are always looked for: nothing names one.

#: Seconds until the groups are read again.
REREAD_SECONDS: Final = 60.0

_NODE_POOLS: Final = (KARPENTER, "NodePool")
_MACHINES: Final = (
    ("cluster.x-k8s.io", "MachineDeployment"),
    ("cluster.x-k8s.io", "MachineSet"),
    ("machine.openshift.io", "MachineSet"),
)
#: What creates nodes, by API group and kind. It tells which spot nodes can be bought.
CREATORS: Final = (_NODE_POOLS, *_MACHINES)
#: Group and kind of CapacityBuffers.
BUFFERS: Final = ("autoscaling.x-k8s.io", "CapacityBuffer")

#: The resource of each API group and kind.
KINDS: Final[Mapping[tuple[str, str], str]] = {
    (KUBERNETES, "PodGroup"): "podgroups",
    (KUBERNETES, COMPOSITE): "compositepodgroups",
    (KUBERNETES, "Workload"): "workloads",
    (COSCHEDULING, "PodGroup"): "podgroups",
    (OLD_COSCHEDULING, "PodGroup"): "podgroups",
    (VOLCANO, "PodGroup"): "podgroups",
    (LEADER_WORKER_SETS, "LeaderWorkerSet"): "leaderworkersets",
    _NODE_POOLS: "nodepools",
    BUFFERS: "capacitybuffers",
    **{(group, kind): f"{kind.lower()}s" for group, kind in _MACHINES},
}

_Read: TypeAlias = PodGroup | GangWorkload | LeaderWorkerSet | NodePool | MachineSet | CapacityBuffer

#: What is assumed if the objects of a group cannot be read.
_ASSUMED: Final = "planning assumes that a group of pods needs all of them"
_STAY: Final = "pods of these groups stay: the scheduler binds none without the object"
_NOT_STATIC: Final = "planning assumes that no NodePool has static capacity"
_NO_BUFFERS: Final = "planning assumes that no CapacityBuffer keeps room"
_NO_MACHINES: Final = "planning assumes that there are none"

#: The templates of at most this many CapacityBuffers of a namespace are read, each with a request.
_MOST_BUFFERS: Final = 20


class _Version(Wire, frozen=True):
    group_version: str = ""


class _Group(Wire, frozen=True):
    versions: tuple[_Version, ...] = ()


def served(client: Client, group: str, kind: str) -> Iterator[Resource]:
    """Yield the resource of *kind* in each version of this API group, the preferred order of the API server first.

    A version may not have the resource. Raises the errors of requests, except NotFound.
    """
    act = f"get group {group}"
    try:
        versions = decoded(act, client.request(act, "GET", f"/apis/{group}").body, _Group).versions
    except NotFound:
        return
    for version in versions:
        if version.group_version.startswith(f"{group}/v"):
            yield Resource(kind, f"/apis/{version.group_version}/{KINDS[group, kind]}", optional=True)


def read_kind(client: Client, group: str, kind: str) -> list[_Read]:
    """Return all objects of *kind* in the API group; none if it is not served. Raises the errors of requests."""
    for resource in served(client, group, kind):
        try:
            listed = read_all(client, resource, JsonCodec(resource.kind, Interner()), lambda _: False)
        except NotFound:
            continue
        if (group, kind) == BUFFERS:
            return [*_with_templates(client, cast("list[CapacityBuffer]", listed))]
        objects = cast("list[_Read]", listed)
        # The API server leaves out the version of the items of its own lists.
        return [
            structs.replace(obj, api_version=resource.api_version) if isinstance(obj, PodGroup | GangWorkload) else obj
            for obj in objects
        ]
    return []


def _with_templates(client: Client, buffers: Iterable[CapacityBuffer]) -> Iterator[CapacityBuffer]:
    """Yield those of *buffers* that keep room, with the pod templates that they refer to.

    A buffer whose template does not exist is left out. Raises the errors of requests, except NotFound.
    """
    read: Counter[str] = Counter()
    for buffer in sorted(buffers, key=key_of):
        namespace = buffer.metadata.namespace
        if keeps_room(buffer) and (path := _template_path(buffer)) and read[namespace] < _MOST_BUFFERS:
            read[namespace] += 1
            with contextlib.suppress(NotFound):
                act = f"get the pod template of CapacityBuffer {key_of(buffer)}"
                response = client.request(act, "GET", path)
                if "/podtemplates/" in path:
                    template = decoded(act, response.body, PodTemplateObject).template
                else:
                    template = decoded(act, response.body, Workload).spec.template
                yield structs.replace(buffer, template=template)


#: The workloads that a CapacityBuffer may refer to, by kind.
_SCALABLE: Final[Mapping[str, str]] = {
    "Deployment": "deployments",
    "ReplicaSet": "replicasets",
    "StatefulSet": "statefulsets",
}


def _template_path(buffer: CapacityBuffer) -> str:
    """Return the path of the object with the pod template of *buffer*, or "" if there can be none."""
    namespace = quote(buffer.metadata.namespace, safe="")
    ref, scaled = buffer.status.pod_template_ref or buffer.spec.pod_template_ref, buffer.spec.scalable_ref
    if ref is not None:
        return f"/api/v1/namespaces/{namespace}/podtemplates/{ref.name}" if is_name(ref.name) else ""
    if scaled is None or scaled.kind not in _SCALABLE or not is_name(scaled.name):
        return ""
    return f"/apis/apps/v1/namespaces/{namespace}/{_SCALABLE[scaled.kind]}/{scaled.name}"


# The node groups of Cluster Autoscaler, from the ConfigMap in which it writes its status.

#: The kind under which plans and snapshot files know them.
AUTOSCALER_GROUPS: Final = "AutoscalerGroups"
_STATUS: Final = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
#: Cluster Autoscaler writes its status in each of its rounds. One that is older is of a process that ended.
_STATUS_AGE: Final = timedelta(minutes=10)
_NO_MINIMUM: Final = "planning assumes that no group of Cluster Autoscaler is at its minimum"


class _StatusMap(Wire, frozen=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


class _GroupHealth(Wire, frozen=True):
    cloud_provider_target: int = 0
    min_size: int = 0
    max_size: int | None = None


class _GroupStatus(Wire, frozen=True):
    name: str = ""
    health: _GroupHealth = _GroupHealth()


class _AutoscalerStatus(Wire, frozen=True):
    time: str = ""
    node_groups: tuple[_GroupStatus, ...] = ()


def read_autoscaler_groups(client: Client, now: datetime) -> list[AutoscalerGroups]:
    """Return the groups in Cluster Autoscaler's status, as one object; none if there is no status, or an old one.

    Versions before 1.30 write a text for people, which is not read. Raises the errors of requests, except NotFound.
    """
    act = "get the status of Cluster Autoscaler"
    try:
        text = decoded(act, client.request(act, "GET", _STATUS).body, _StatusMap).data.get("status", "")
    except NotFound:
        return []
    try:
        status = msgspec.convert(yaml.safe_load(text), _AutoscalerStatus)
        written = datetime.fromisoformat(status.time[:19]).replace(tzinfo=UTC)  # 2026-01-02 03:04:05.6 +0000 UTC
    except (yaml.YAMLError, msgspec.ValidationError, ValueError):
        return []
    if now - written > _STATUS_AGE:
        return []
    groups = (
        AutoscalerGroup(
            name=each.name,
            target=each.health.cloud_provider_target,
            minimum=each.health.min_size,
            maximum=each.health.max_size,
        )
        for each in status.node_groups
    )
    return [AutoscalerGroups(groups=tuple(groups))]


class GroupsOfAutoscaler:
    """The groups of Cluster Autoscaler. Not thread-safe."""

    def __init__(self, client: Client, clock: Clock, warn: Callable[[str], None]) -> None:
        """Create a reader. *warn* receives a message once if the groups cannot be read."""
        self._client, self._clock, self._warn = client, clock, warn
        self._last: list[AutoscalerGroups] = []
        self._failed = False

    def read(self) -> list[AutoscalerGroups]:
        """Return the groups, or the last known ones if the read fails."""
        try:
            self._last, self._failed = read_autoscaler_groups(self._client, self._clock.now()), False
        except ReschedulerError as error:
            if not self._failed:
                self._warn(f"{error}; {_NO_MINIMUM}")
            self._failed = True
        return self._last


class PodGroups:
    """The groups that pods belong to, the NodePools that nodes belong to, and CapacityBuffers. Not thread-safe."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        warn: Callable[[str], None] = log.warning,
        *,
        buffers: bool = True,
        creators: bool = False,
    ) -> None:
        """Create a reader, which reads CapacityBuffers and the groups of Cluster Autoscaler if *buffers* is set.

        With *creators*, it reads all that creates nodes, whether or not nodes belong to it.
        *warn* receives a message if groups cannot be read: their minimum is not known then.
        """
        self._always = frozenset([*([BUFFERS] if buffers else ()), *(CREATORS if creators else ())])
        self._autoscaler = GroupsOfAutoscaler(client, clock, warn) if buffers else None
        self._client = client
        self._clock = clock
        self._warn = warn
        self._next = 0.0
        self._read: dict[tuple[str, str], list[_Read]] = {}  #: the last known objects, by API group and kind
        self._failed: set[tuple[str, str]] = set()

    def refresh(self, snapshot: Snapshot) -> None:
        """Update the groups in *snapshot*, at most once a minute. If a read fails, the last known objects stay."""
        if (now := self._clock.monotonic()) < self._next:
            return
        self._next = now + REREAD_SECONDS
        if self._autoscaler is not None:
            snapshot.replace(AUTOSCALER_GROUPS, self._autoscaler.read())
        pools = {_NODE_POOLS} if is_pooled(snapshot) else frozenset[tuple[str, str]]()
        self._read_all(self._always | objects_of(snapshot) | pools)
        for kind in dict.fromkeys(kind for _, kind in KINDS):
            objects = [obj for (_, of), read in self._read.items() for obj in read if of == kind]
            if objects or snapshot.of(kind):
                snapshot.replace_by_key(kind, {key_of(obj): obj for obj in objects})

    def _read_all(self, kinds: Collection[tuple[str, str]]) -> None:
        self._read = {each: read for each, read in self._read.items() if each in kinds}
        for each in sorted(kinds):
            self._read_kind(each)
        groups, above = self._read.get((KUBERNETES, "PodGroup"), ()), (KUBERNETES, COMPOSITE)
        if above not in kinds and any(isinstance(each, PodGroup) and has_parent(each) for each in groups):
            self._read_kind(above)

    def _read_kind(self, each: tuple[str, str]) -> None:
        try:
            self._read[each] = read_kind(self._client, *each)
            self._failed.discard(each)
        except ReschedulerError as error:
            if each not in self._failed:
                self._failed.add(each)
                self._warn(f"{error}; {_assumption(*each)}")


def _assumption(group: str, kind: str) -> str:
    """Return what is assumed if the objects of *kind* cannot be read."""
    if (group, kind) == _NODE_POOLS:
        return _NOT_STATIC
    if (group, kind) == BUFFERS:
        return _NO_BUFFERS
    if (group, kind) in _MACHINES:
        return _NO_MACHINES
    return _STAY if group == KUBERNETES else _ASSUMED
