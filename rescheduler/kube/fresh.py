"""Consistent reads: lists and objects as they are at this moment, not as a cache or a watch has them.

A list or a GET without ``resourceVersion`` is consistent. Nothing is repeated here; the caller may try again.
"""

import itertools
from collections.abc import Collection, Iterable
from typing import Final, cast
from urllib.parse import quote

from predicates.objects import Node, PodDisruptionBudget, Wire
from predicates.wire import Decoder, Interner, WireError
from rescheduler.errors import InputError, NotFound
from rescheduler.kube.client import Client
from rescheduler.kube.json_codec import JsonCodec
from rescheduler.kube.lister import read_all
from rescheduler.kube.resources import Resource
from rescheduler.kube.structs import read_structs
from rescheduler.planning.freshness import Fresh, FreshPod

#: More nodes or namespaces than these are read with one list of all: for some API servers a list that is restricted
#: to a node costs as much as one of all pods.
MANY: Final = 10

_LIVE: Final = "status.phase!=Succeeded,status.phase!=Failed"
_PENDING: Final = "spec.nodeName=,status.phase=Pending"


class PodMeta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: str | None = None


class PodPlace(Wire, frozen=True):
    node_name: str = ""


class PodPhase(Wire, frozen=True):
    phase: str = ""


class PodHead(Wire, frozen=True):
    """Of a pod, where it is and whether it stays."""

    metadata: PodMeta
    spec: PodPlace = PodPlace()
    status: PodPhase = PodPhase()


def read_fresh(client: Client, node: str, targets: Collection[str], namespaces: Collection[str]) -> Fresh:
    """*node*, the nodes *targets*, their pods, all pods that have no node, and the budgets of *namespaces*.

    Raises what requests raise (Retryable, Unauthorized), Retryable where a long list expired before its end, and
    InputError for an object that cannot be decoded.
    """
    asked = frozenset({node, *targets})
    if len(asked - {node}) > MANY:
        nodes = _nodes(client, asked)
        pods = _pods(client, [_LIVE])
    else:
        nodes = [one for one in (_node_or_none(client, name) for name in sorted(asked)) if one is not None]
        pods = _pods(client, [_PENDING, *(f"spec.nodeName={name}" for name in sorted(asked))])
    budgets = _budgets(client, frozenset(namespaces))
    return Fresh(
        node,
        asked,
        nodes={one.name: one for one in nodes if one.name in asked},
        pods={uid: pod for uid, pod in pods.items() if not pod.node or pod.node in asked},
        budgets={f"{one.metadata.namespace}/{one.metadata.name}": one for one in budgets},
    )


def read_node(client: Client, name: str) -> Node:
    """The Node *name*. Raises NotFound, Unauthorized, Retryable, InputError."""
    act = f"get node {name}"
    answer = client.request(act, "GET", f"/api/v1/nodes/{quote(name, safe='')}")
    try:
        node = Decoder(Interner()).decode("Node", answer.body)
    except WireError as error:
        raise InputError(f"{act}: {error}") from error
    assert isinstance(node, Node)
    return node


def _node_or_none(client: Client, name: str) -> Node | None:
    try:
        return read_node(client, name)
    except NotFound:
        return None


def _nodes(client: Client, asked: frozenset[str]) -> list[Node]:
    everyone = Resource("Node", "/api/v1/nodes")
    return cast("list[Node]", read_all(client, everyone, JsonCodec("Node", Interner()), asked.__contains__))


def _pods(client: Client, selectors: Iterable[str]) -> dict[str, FreshPod]:
    """By UID, the pods of any of the field *selectors*; a pod of several lists is as in the last one.

    Pods without a node are asked for first: one that is bound in between is then in a later list.
    """
    lists = (read_structs(client, Resource("Pod", "/api/v1/pods", fields=fields), PodHead) for fields in selectors)
    return {head.metadata.uid: _fresh(head) for heads in lists for head in heads}


def _fresh(pod: PodHead) -> FreshPod:
    return FreshPod(
        pod.metadata.namespace,
        pod.metadata.name,
        pod.spec.node_name,
        terminating=pod.metadata.deletion_timestamp is not None,
        finished=pod.status.phase in ("Succeeded", "Failed"),
    )


def _budgets(client: Client, namespaces: frozenset[str]) -> list[PodDisruptionBudget]:
    """The budgets of *namespaces*; of many, by one list of all."""
    kind, plural = "PodDisruptionBudget", "poddisruptionbudgets"
    paths = [f"/apis/policy/v1/namespaces/{quote(one, safe='')}/{plural}" for one in sorted(namespaces)]
    if len(namespaces) > MANY:
        paths = [f"/apis/policy/v1/{plural}"]

    def matters(key: str) -> bool:
        return key.partition("/")[0] in namespaces

    lists = (read_all(client, Resource(kind, path), JsonCodec(kind, Interner()), matters) for path in paths)
    budgets = cast("Iterable[PodDisruptionBudget]", itertools.chain.from_iterable(lists))
    return [one for one in budgets if one.metadata.namespace in namespaces]
