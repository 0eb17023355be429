"""Labels that the API server adds to a pod when it binds the pod to a node.

The admission plugin PodTopologyLabels copies them from the node and overwrites labels of the same name. A
recreated pod therefore does not have them until it is bound, and then gets those of its new node.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from predicates.objects import PodClass

#: The labels that the plugin copies (``defaultConfig`` of ``plugin/pkg/admission/podtopologylabels``), sorted.
BOUND_LABELS: Final = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")

#: Names and values, in the order of :data:`BOUND_LABELS`.
LabelPairs: TypeAlias = tuple[tuple[str, str], ...]


def bound_labels(labels: Mapping[str, str]) -> LabelPairs:
    """Return the *labels* of a node or of a bound pod that the API server copies from nodes to pods."""
    return tuple([(key, labels[key]) for key in BOUND_LABELS if key in labels])


def own_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return the *labels* of a bound pod without the labels that the API server added."""
    return {key: value for key, value in labels.items() if key not in BOUND_LABELS}


def as_bound(pod: PodClass, labels: LabelPairs) -> PodClass:
    """Return the class of pods that also have *labels* and are otherwise equal to those of *pod*."""
    return msgspec.structs.replace(pod, labels={**pod.labels, **dict(labels)})
