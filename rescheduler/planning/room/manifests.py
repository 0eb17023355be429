"""The manifest of a placeholder: an idle pod with the same shape as the pod for which it reserves room.

It has the requests, nodeSelector, node affinity, tolerations and volume zones of that pod, and must run on a spot
node. Inter-pod affinity and topology spread apply to the placeholders among themselves. Affinity also applies to real
pods, and so does anti-affinity within a node.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Any, Final, TypeAlias

import msgspec

from predicates.csi import BETA_REGION, BETA_ZONE, REGION, ZONE, ZONES_DELIMITER
from predicates.indexes.domains import HOSTNAME
from predicates.objects import (
    Affinity,
    LabelSelector,
    NodeSelectorTerm,
    PersistentVolume,
    Pod,
    PodAffinityTerm,
    PodClass,
    Requirement,
    TopologySpreadConstraint,
)
from predicates.snapshot import PLACEHOLDER, ROOM_NAMESPACE, Snapshot
from predicates.storage import find_claim, find_volume
from rescheduler.planning.node_labels import NodeLabel, NodeLabels
from rescheduler.planning.room.placeholders import annotations_for, name_for
from rescheduler.planning.rules.pod_traits import SAFE_TO_EVICT

#: The PriorityClass of placeholders, and its value. Workloads with a lower priority are not served.
PRIORITY_CLASS: Final = "spot-rescheduler-room"
PRIORITY: Final = -5

Manifest: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PlaceholderTerms:
    """The properties that all placeholders of an order share."""

    installation: str
    spot_label: NodeLabels
    until: datetime  #: when the order times out
    node_uid: str  #: of the node that is to be drained
    namespace_uid: str  #: of the placeholders' namespace, which owns them
    image: str
    life: int  #: seconds after which the kubelet ends a placeholder that was not deleted


def why_not_served(pod: PodClass) -> str:
    """Return why no placeholder can reserve room for pods of this class, or "" if one can."""
    spec = pod.spec
    if spec.priority is not None and spec.priority < PRIORITY:
        return f"its priority {spec.priority} is below that of placeholders ({PRIORITY})"
    if pod.ports:
        return "it uses host ports, which placeholders do not"
    if spec.os is not None and spec.os.name not in ("", "linux"):
        return f"its operating system is {spec.os.name}"
    return ""


def manifest(
    pod: Pod, terms: PlaceholderTerms, volumes: Iterable[tuple[NodeSelectorTerm, ...]], label_keys: Collection[str]
) -> Manifest:
    """Return the placeholder for *pod*.

    *volumes* are the node selector terms of its volumes. *label_keys* are the keys of the labels to
    copy from *pod*.
    """
    labels = {key: value for key, value in pod.cls.labels.items() if key in label_keys}
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": ROOM_NAMESPACE, "uid": terms.namespace_uid}
    notes = annotations_for(pod, terms.node_uid, terms.until, terms.installation)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name_for(pod),
            "namespace": ROOM_NAMESPACE,
            "labels": {**labels, PLACEHOLDER: "true"},
            "annotations": {**notes, SAFE_TO_EVICT: "true"},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": _spec(pod.cls, terms, volumes),
    }


def label_keys_of(pods: Iterable[PodClass]) -> frozenset[str]:
    """Return the label keys that the affinity and spread selectors of *pods* use."""
    keys: set[str] = set()
    for pod in pods:
        terms = (*_affinity_terms(pod), *_anti_affinity_terms(pod))
        selectors = [term.label_selector for term in terms]
        constraints = pod.spec.topology_spread_constraints
        selectors += [constraint.label_selector for constraint in constraints]
        for selector in filter(None, selectors):
            keys |= {*selector.match_labels, *(rule.key for rule in selector.match_expressions)}
        keys.update(key for constraint in constraints for key in constraint.match_label_keys)
    return frozenset(keys)


def _spec(pod: PodClass, terms: PlaceholderTerms, volumes: Iterable[tuple[NodeSelectorTerm, ...]]) -> Manifest:
    spec = pod.spec
    scheduler = {"schedulerName": spec.scheduler_name} if spec.scheduler_name else {}
    return {
        "containers": [_container(pod, terms.image)],
        "nodeSelector": spec.node_selector,
        "affinity": _affinity(pod, terms.spot_label, volumes),
        "tolerations": [_filled(toleration) for toleration in spec.tolerations],
        "topologySpreadConstraints": [_spread(constraint, pod.labels) for constraint in _hard_spread(pod)],
        "priorityClassName": PRIORITY_CLASS,
        "preemptionPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "activeDeadlineSeconds": terms.life,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        **scheduler,
    }


def _container(pod: PodClass, image: str) -> Manifest:
    requests = {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in pod.requests}
    limits = {name: amount for name, amount in requests.items() if "/" in name or name.startswith("hugepages-")}
    return {
        "name": "pause",
        "image": image,
        "resources": {"requests": requests, "limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }


def _affinity(pod: PodClass, spot: NodeLabels, volumes: Iterable[tuple[NodeSelectorTerm, ...]]) -> Manifest:
    spec_affinity = pod.spec.affinity or Affinity()
    required = spec_affinity.node_affinity.required if spec_affinity.node_affinity is not None else None
    choices = required.node_selector_terms if required is not None else (NodeSelectorTerm(),)
    terms = [
        _spot_term(term, *volume_terms, spot=group)
        for group in spot.alternatives
        for term, *volume_terms in product(choices, *volumes)
    ]
    affinity: Manifest = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    }
    if affinity_terms := _affinity_terms(pod):
        affinity["podAffinity"] = _required(
            _term(term, pod.namespace, include_real_pods=True) for term in affinity_terms
        )
    if anti_affinity_terms := _anti_affinity_terms(pod):
        affinity["podAntiAffinity"] = _required(
            _term(term, pod.namespace, include_real_pods=term.topology_key == HOSTNAME) for term in anti_affinity_terms
        )
    return affinity


def _spot_term(*terms: NodeSelectorTerm, spot: Iterable[NodeLabel]) -> Manifest:
    """Return one term that requires all *terms* and a spot node."""
    rules = [_filled(rule) for term in terms for rule in term.match_expressions]
    fields = [_filled(rule) for term in terms for rule in term.match_fields]
    return {"matchExpressions": [*rules, *_spot_rules(spot)], "matchFields": fields}


def _spot_rules(spot: Iterable[NodeLabel]) -> list[Manifest]:
    rules: list[Manifest] = []
    for label in spot:
        if not label.values:
            rules.append({"key": label.key, "operator": "DoesNotExist" if label.negated else "Exists"})
        else:
            operator = "NotIn" if label.negated else "In"
            rules.append({"key": label.key, "operator": operator, "values": [*label.values]})
    return rules


def _affinity_terms(pod: PodClass) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity
    return affinity.pod_affinity.required if affinity is not None and affinity.pod_affinity is not None else ()


def _anti_affinity_terms(pod: PodClass) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity
    return (
        affinity.pod_anti_affinity.required if affinity is not None and affinity.pod_anti_affinity is not None else ()
    )


def _required(terms: Iterable[Manifest]) -> Manifest:
    return {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}


def _term(term: PodAffinityTerm, pod_namespace: str, *, include_real_pods: bool) -> Manifest:
    """Return the term for placeholders. With *include_real_pods*, it also applies to the pods of the original term.

    The API server has already merged the term's ``matchLabelKeys`` into its selector.
    """
    selected = term.namespaces or (() if term.namespace_selector is not None else (pod_namespace,))
    namespaces = [ROOM_NAMESPACE, *(name for name in selected if include_real_pods and name != ROOM_NAMESPACE)]
    translated = {
        "topologyKey": term.topology_key,
        "labelSelector": _selector(term.label_selector),
        "namespaces": namespaces,
    }
    if include_real_pods and term.namespace_selector is not None:
        translated["namespaceSelector"] = _selector(term.namespace_selector)
    return translated


def _hard_spread(pod: PodClass) -> list[TopologySpreadConstraint]:
    return [
        constraint
        for constraint in pod.spec.topology_spread_constraints
        if constraint.when_unsatisfiable == "DoNotSchedule"
    ]


def _spread(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> Manifest:
    selector = constraint.label_selector or LabelSelector()
    merged = tuple(
        Requirement(key=key, operator="In", values=(labels[key],))
        for key in constraint.match_label_keys
        if key in labels
    )
    selector = msgspec.structs.replace(selector, match_expressions=(*selector.match_expressions, *merged))
    translated: Manifest = {
        "maxSkew": constraint.max_skew,
        "topologyKey": constraint.topology_key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": _selector(selector),
    }
    if constraint.node_taints_policy is not None:
        translated["nodeTaintsPolicy"] = constraint.node_taints_policy
    return translated


def _selector(selector: LabelSelector | None) -> Manifest | None:
    if selector is None:
        return None
    rules = [_filled(rule) for rule in selector.match_expressions]
    return {"matchLabels": selector.match_labels, "matchExpressions": rules}


def _filled(struct: msgspec.Struct) -> Manifest:
    """Return the fields of *struct* that are not empty, by their names in the API."""
    fields: Manifest = msgspec.json.decode(msgspec.json.encode(struct))
    return {name: value for name, value in fields.items() if value not in ("", [], {}, None)}


# The nodes that the bound volumes of a pod can be attached to, as node selector terms.

#: Labels of volumes, each with the label of nodes that must have the same value.
_ZONES: Final = {ZONE: ZONE, REGION: REGION, BETA_ZONE: ZONE, BETA_REGION: REGION}


def volume_terms(snapshot: Snapshot, pod: Pod) -> list[tuple[NodeSelectorTerm, ...]]:
    """Return the alternative terms of each restriction on nodes. A node must match one alternative of each."""
    return [terms for volume in _volumes(snapshot, pod) for terms in _terms_of(volume)]


def _volumes(snapshot: Snapshot, pod: Pod) -> Iterator[PersistentVolume]:
    for reference in pod.cls.claims:
        claim = None if reference.ephemeral else find_claim(snapshot, pod.namespace, reference.name)
        if claim is not None and claim.spec.volume_name:
            volume = find_volume(snapshot, claim.spec.volume_name)
            if volume is not None:
                yield volume


def _terms_of(volume: PersistentVolume) -> Iterator[tuple[NodeSelectorTerm, ...]]:
    affinity = volume.spec.node_affinity
    if affinity is not None and affinity.required is not None:
        yield affinity.required.node_selector_terms
    rules = [
        Requirement(key=node_label, operator="In", values=tuple(text.split(ZONES_DELIMITER)))
        for label, node_label in _ZONES.items()
        if (text := volume.metadata.labels.get(label))
    ]
    if rules:
        yield (NodeSelectorTerm(match_expressions=tuple(rules)),)
