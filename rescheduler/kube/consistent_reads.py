"""Reads that do not come from a watch: consistent lists and objects, and the dump that ``plan --snapshot`` reads."""

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, cast
from urllib.parse import quote

import msgspec
from msgspec import Raw

from predicates.objects import Node, Object, Pod, PodDisruptionBudget, Wire
from predicates.pod_classes import RAW_PODS, pod_annotations
from predicates.wire import FILE_KINDS, Decoder, Interner, WireError, unreadable, without_nulls
from rescheduler import decoding
from rescheduler.clock import Clock
from rescheduler.errors import Forbidden, InputError, NotFound
from rescheduler.kube import unwatched
from rescheduler.kube.client import Client
from rescheduler.kube.codec import JsonCodec, ListPage, RawPage
from rescheduler.kube.lister import ALL_RESOURCES, Lister, Resource, StructCodec, list_patiently, read_all, read_structs
from rescheduler.kube.state import read_optional
from rescheduler.planning.forms import instant
from rescheduler.planning.last_look import Fresh, FreshPod, NodeLease, PreemptedPod

# Consistent reads of lists and objects, not from a cache or a watch.
#
# A list or a GET without ``resourceVersion`` is consistent. Requests are not retried; the caller may retry.

#: More nodes or namespaces than this are read with one list of all objects: on some API servers a list of the pods of
#: one node costs as much as a list of all pods.
MANY: Final = 10

#: Selects the pods that have not finished.
LIVE: Final = "status.phase!=Succeeded,status.phase!=Failed"
_PENDING: Final = "spec.nodeName=,status.phase=Pending"


class PodMeta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None


class PodPlace(Wire, frozen=True):
    node_name: str = ""


class PodPhase(Wire, frozen=True):
    phase: str = ""


class PodHead(Wire, frozen=True):
    """The node of a pod, and whether the pod is terminating or finished."""

    metadata: PodMeta
    spec: PodPlace = PodPlace()
    status: PodPhase = PodPhase()


def read_fresh(
    client: Client, node: str, targets: Collection[str], namespaces: Collection[str], *, target_pods: bool = True
) -> Fresh:
    """Read *node* and *targets* with their pods, all unscheduled pods, and the budgets of *namespaces*.

    Without *target_pods*, the pods of *targets* are not read, so that the read costs little in a large cluster.
    Raises the errors of requests (Retryable, Unauthorized), Retryable if the continue token of a long list expired,
    and InputError for an object that cannot be decoded.
    """
    asked = frozenset({node, *targets})
    many = len(asked - {node}) > MANY
    nodes = _nodes(client, asked) if many else [*filter(None, (_node_or_none(client, name) for name in sorted(asked)))]
    if many and target_pods:
        pods = _pods(client, [LIVE])
    else:
        pods = _pods(
            client, [_PENDING, *(f"spec.nodeName={name}" for name in sorted(asked if target_pods else {node}))]
        )
    budgets = _budgets(client, frozenset(namespaces))
    return Fresh(
        node,
        asked,
        nodes={fresh_node.name: fresh_node for fresh_node in nodes if fresh_node.name in asked},
        pods={uid: pod for uid, pod in pods.items() if not pod.node or pod.node in asked},
        budgets={f"{budget.metadata.namespace}/{budget.metadata.name}": budget for budget in budgets},
    )


def read_node(client: Client, name: str) -> Node:
    """Read the Node *name*. Raises NotFound, Unauthorized, Retryable, InputError."""
    act = f"get node {name}"
    return decoded_node(act, client.request(act, "GET", f"/api/v1/nodes/{quote(name, safe='')}").body)


def decoded_node(act: str, body: bytes) -> Node:
    """Decode a Node. Raises InputError, which names *act*."""
    try:
        node = Decoder(Interner()).decode("Node", body)
    except WireError as error:
        raise InputError(f"{act}: {error}") from error
    assert isinstance(node, Node)
    return node


def read_nodes(client: Client) -> list[Node]:
    """Read all Nodes. Raises the errors of requests, and InputError for a Node that cannot be decoded."""
    resource = Resource("Node", "/api/v1/nodes")
    return cast("list[Node]", read_all(client, resource, JsonCodec("Node", Interner())))


class _Reference(Wire, frozen=True):
    uid: str = ""


class _OwnedMeta(Wire, frozen=True):
    owner_references: tuple[_Reference, ...] = ()


class _Owned(Wire, frozen=True):
    metadata: _OwnedMeta


class _CodecOfOwned(JsonCodec):
    """Decodes only the pods that name one of these owners (UIDs): most pods of a namespace belong to others."""

    def __init__(self, owners: Collection[str]) -> None:
        super().__init__("Pod", Interner())
        self._owners = frozenset(owners)

    def decoded(self, page: RawPage) -> ListPage:
        return super().decoded(replace(page, items=[raw for raw in page.items if self._is_owned(raw)]))

    def _is_owned(self, raw: Raw) -> bool:
        try:
            references = decoding.decode(raw, _Owned).metadata.owner_references
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return True  # a pod that cannot be decoded is named with its error
        return not self._owners.isdisjoint(each.uid for each in references)


def read_pods(client: Client, node: str, owners: Collection[tuple[str, str]]) -> list[Pod]:
    """Read the unfinished pods on *node*, and those of *owners*, which are controllers by namespace and UID.

    Raises the errors of requests, and InputError for a pod on *node* that cannot be decoded.
    """
    namespaces = {namespace for namespace, _ in owners}
    resources = [Resource("Pod", "/api/v1/pods", fields=f"spec.nodeName={node},{LIVE}")]
    if len(namespaces) > MANY:
        resources.append(Resource("Pod", "/api/v1/pods", fields=LIVE))
    else:
        paths = (f"/api/v1/namespaces/{quote(namespace, safe='')}/pods" for namespace in sorted(namespaces))
        resources += [Resource("Pod", path, fields=LIVE) for path in paths]
    pods: dict[str, Pod] = {}
    on_node, owned = JsonCodec("Pod", Interner()), _CodecOfOwned({uid for _, uid in owners})
    for resource in resources:
        codec, matters = (on_node, _everything) if resource is resources[0] else (owned, _nothing)
        pods |= {pod.uid: pod for pod in cast("list[Pod]", read_all(client, resource, codec, matters))}
    return list(pods.values())


#: The namespace of the Leases that kubelets renew, one for each Node, of the same name.
_NODE_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class _LeaseSpec(Wire, frozen=True):
    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class _Lease(Wire, frozen=True):
    metadata: PodMeta
    spec: _LeaseSpec = _LeaseSpec()


def read_node_leases(client: Client, names: Collection[str]) -> dict[str, NodeLease]:
    """Read the Leases of the Nodes *names*. A Node without a kubelet that renews one has none.

    Raises the errors of requests, and Forbidden if the Leases may not be read.
    """
    if len(names) > MANY:
        leases = read_structs(client, Resource("Lease", _NODE_LEASES), _Lease)
    else:
        leases = [*filter(None, (_lease_or_none(client, name) for name in sorted(names)))]
    found = {}
    for lease in leases:
        renewed, seconds = instant(lease.spec.renew_time), lease.spec.lease_duration_seconds
        if lease.metadata.name in names and renewed is not None and seconds:
            found[lease.metadata.name] = NodeLease(renewed, timedelta(seconds=seconds))
    return found


def _lease_or_none(client: Client, name: str) -> _Lease | None:
    act = f"get the Lease of node {name}"
    try:
        body = client.request(act, "GET", f"{_NODE_LEASES}/{quote(name, safe='')}").body
        return decoding.decode(body, _Lease)
    except NotFound:
        return None


class _PodReference(Wire, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _PreemptedEvent(Wire, frozen=True):
    involved_object: _PodReference
    related: _PodReference | None = None
    message: str = ""

    @property
    def by(self) -> str:
        """The UID of the pod that took the place, or ""."""
        if self.related is not None:
            return self.related.uid
        told = _PREEMPTOR.match(self.message)
        return "" if told is None else told[1]


#: Since Kubernetes 1.36, only the text names the pod: the reference to it fails (``preemption/executor.go``).
_PREEMPTOR: Final = re.compile(r"Preempted by [Pp]od (\S{1,64}) on node ")


def read_preempted(client: Client) -> list[PreemptedPod]:
    """Read the Events of the scheduler that tell which pod took the place of a preempted pod.

    API servers keep Events for an hour. Raises the errors of requests, and Forbidden if Events may not be listed.
    """
    resource = Resource("Event", "/api/v1/events", fields="involvedObject.kind=Pod,reason=Preempted")
    listed = read_all(client, resource, StructCodec("Event", _PreemptedEvent), _nothing)
    pods = ((event.involved_object, event.by) for event in cast("list[_PreemptedEvent]", listed))
    return [PreemptedPod(f"{pod.namespace}/{pod.name}", by) for pod, by in pods if by]


def _everything(_: str) -> bool:
    return True


def _nothing(_: str) -> bool:
    return False


def _node_or_none(client: Client, name: str) -> Node | None:
    try:
        return read_node(client, name)
    except NotFound:
        return None


def _nodes(client: Client, asked: frozenset[str]) -> list[Node]:
    resource = Resource("Node", "/api/v1/nodes")
    return cast("list[Node]", read_all(client, resource, JsonCodec("Node", Interner()), asked.__contains__))


def _pods(client: Client, selectors: Iterable[str]) -> dict[str, FreshPod]:
    """Return the pods that match any of the field *selectors*, by UID. For a pod in several lists, the last counts.

    Unscheduled pods are listed first, so that a pod that is bound in the meantime is in a later list.
    """
    lists = (read_structs(client, Resource("Pod", "/api/v1/pods", fields=fields), PodHead) for fields in selectors)
    return {head.metadata.uid: _fresh_pod(head) for heads in lists for head in heads}


def _fresh_pod(pod: PodHead) -> FreshPod:
    return FreshPod(
        pod.metadata.namespace,
        pod.metadata.name,
        pod.spec.node_name,
        terminating=pod.metadata.deletion_timestamp is not None,
        finished=pod.status.phase in ("Succeeded", "Failed"),
        version=pod.metadata.resource_version,
    )


def _budgets(client: Client, namespaces: frozenset[str]) -> list[PodDisruptionBudget]:
    """Return the budgets of *namespaces*. For many namespaces, one list of all budgets is read."""
    kind, plural = "PodDisruptionBudget", "poddisruptionbudgets"
    paths = [f"/apis/policy/v1/namespaces/{quote(namespace, safe='')}/{plural}" for namespace in sorted(namespaces)]
    if len(namespaces) > MANY:
        paths = [f"/apis/policy/v1/{plural}"]

    def matters(key: str) -> bool:
        return key.partition("/")[0] in namespaces

    lists = (read_all(client, Resource(kind, path), JsonCodec(kind, Interner()), matters) for path in paths)
    budgets = cast("Iterable[PodDisruptionBudget]", itertools.chain.from_iterable(lists))
    return [budget for budget in budgets if budget.metadata.namespace in namespaces]


# Write the objects that plans are made from as a ``kind: List``, as ``plan --snapshot`` reads it.

#: The annotation in which kubectl repeats the whole object, with the values of environment variables.
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class _ItemCodec(JsonCodec):
    """Reduces the objects of one kind to the fields that are read, as JSON."""

    def __init__(self, kind: str, api_version: str) -> None:
        super().__init__(kind, Interner())
        self._head = _head(kind, api_version)

    def decode(self, raw: Raw) -> Object:
        """Return the item as bytes. Raises WireError."""
        try:
            reduced = _pod(raw) if self.kind == "Pod" else _other(self.kind, raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(unreadable(self.kind, raw, str(error))) from error
        return cast("Object", self._head + reduced[1:])


def _head(kind: str, api_version: str) -> bytes:
    """Return the start of an item, up to the fields of the object."""
    return msgspec.json.encode({"apiVersion": api_version, "kind": kind})[:-1] + b","


def items(client: Client, clock: Clock, warn: Callable[[str], None]) -> Iterator[bytes]:
    """Yield the objects of the cluster as JSON, without the fields that no plan reads.

    So a dump contains no values of environment variables. *warn* receives a message for each optional kind that may not
    be read, and for each object that is left out because it cannot be decoded. Raises the errors of requests.
    """
    for resource in (*ALL_RESOURCES, *_of_groups(client, warn)):
        codec = _ItemCodec(resource.kind, resource.api_version)
        listing = read_optional(resource, partial(list_patiently, Lister(resource, client, codec, clock), clock), warn)
        if listing is None:
            continue
        for left_out in listing.unreadable.values():
            warn(f"left out, because it cannot be decoded: {left_out.why}")
        yield from cast("list[bytes]", listing.objects)
    yield from _buffers(client, warn)
    for groups in unwatched.GroupsOfAutoscaler(client, clock, warn).read():
        yield _head(unwatched.AUTOSCALER_GROUPS, "spot-rescheduler/v1") + msgspec.json.encode(groups)[1:]


def _of_groups(client: Client, warn: Callable[[str], None]) -> Iterator[Resource]:
    """Yield the resources of groups of pods that the API server serves."""
    for group, kind in [each for each in unwatched.KINDS if each != unwatched.BUFFERS]:
        try:
            yield from unwatched.served(client, group, kind)
        except Forbidden as error:
            warn(f"{error}; groups of pods and of nodes are left out")


def _buffers(client: Client, warn: Callable[[str], None]) -> Iterator[bytes]:
    """Yield the CapacityBuffers, each with its pod template."""
    try:
        buffers = unwatched.read_kind(client, *unwatched.BUFFERS)
    except Forbidden as error:
        warn(f"{error}; CapacityBuffers are left out")
        return
    group, kind = unwatched.BUFFERS
    for buffer in buffers:
        yield _head(kind, f"{group}/v1beta1") + _other(kind, Raw(msgspec.json.encode(buffer)))[1:]


def version_item(version: str) -> bytes:
    """Return the item of the list that contains the *version* of the API server."""
    item = {"apiVersion": "spot-rescheduler/v1", "kind": "ServerVersion", "metadata": {"name": "kubernetes"}}
    return msgspec.json.encode({**item, "gitVersion": version})


def _pod(raw: Raw) -> bytes:
    pod = RAW_PODS.decode(raw)
    meta = msgspec.structs.replace(pod.metadata, annotations=dict(pod_annotations(pod.metadata.annotations)))
    return msgspec.json.encode(msgspec.structs.replace(pod, metadata=meta))


def _other(kind: str, raw: Raw) -> bytes:
    struct = FILE_KINDS[kind]
    try:
        decoded: Any = msgspec.json.decode(raw, type=struct)
    except msgspec.ValidationError:
        decoded = msgspec.convert(without_nulls(msgspec.json.decode(raw), struct), struct)
    meta = decoded.metadata
    annotations = {key: value for key, value in meta.annotations.items() if key != _LAST_APPLIED}
    return msgspec.json.encode(
        msgspec.structs.replace(decoded, metadata=msgspec.structs.replace(meta, annotations=annotations))
    )
