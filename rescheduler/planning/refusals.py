"""Pods that a kubelet refused during a drain, although the scheduler had chosen its node.

Nothing in the API tells some of the reasons beforehand, such as the sysctls that a kubelet allows. So what a drain has
seen is remembered for a day: nodes of the same kind accept no pods of the same class. The kind of a node are its labels
that name the pool, and those by which it is a spot node. The class are the pods of one template
(:func:`predicates.kubelet.digest`): after a change of the template, the nodes may be tried again.

A kubelet that had no room (``OutOfcpu``) knew of pods that the scheduler did not, such as one that was still ending.
That concerns this node, and only for a short time.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import msgspec

from predicates.indexes.domains import HOSTNAME
from predicates.nodes import LearnedRefusals, RefusingNodes
from rescheduler.planning.controllers import Controller
from rescheduler.planning.forms import merged_entries, utc
from rescheduler.planning.policy import Policy
from rescheduler.planning.pools import label_name
from rescheduler.planning.waits import Moment

#: How long a refusal is remembered.
REMEMBERED: Final = timedelta(days=1)

#: How long it is if the node was full: longer than almost all pods take to end.
REMEMBERED_FULL: Final = timedelta(minutes=10)

#: The reason of a pod for which its node had no room begins with this, followed by the resource
#: (``InsufficientResourceError`` in ``pkg/kubelet/lifecycle/predicate.go``).
_FULL: Final = "OutOf"

#: Labels and their values; None: the label is absent.
KindLabels: TypeAlias = tuple[tuple[str, str | None], ...]


def refusing_nodes(labels: Mapping[str, str], policy: Policy, reason: str) -> KindLabels:
    """Return what the nodes have in common that are expected to refuse for this *reason*, as one with *labels* did.

    A full node is known by its hostname. Without this label it counts as any other of its kind.
    """
    pool = (label_name(labels, key) for key in policy.spot_pool_labels)
    spot = (label.key for group in policy.spot_label.alternatives for label in group)
    itself = (HOSTNAME,) if reason.startswith(_FULL) and HOSTNAME in labels else ()
    return tuple((key, labels.get(key)) for key in dict.fromkeys((*pool, *spot, *itself)))


class KubeletRefusal(msgspec.Struct, frozen=True):
    """What the kubelet of one node refused."""

    owner: Controller  #: of the pod
    pods: str  #: the digest of its class
    nodes: KindLabels
    node: str
    reason: str
    at: Moment

    @property
    def key(self) -> str:
        """The pair of class and kind of node."""
        kind = ",".join(f"!{key}" if value is None else f"{key}={value}" for key, value in self.nodes)
        return f"{self.owner.namespace}/{self.pods}/{kind}"

    @property
    def of_full_node(self) -> bool:
        """Whether the node had no room, and no other is meant."""
        return self.reason.startswith(_FULL) and any(key == HOSTNAME for key, _ in self.nodes)

    @property
    def until(self) -> datetime:
        """When it is forgotten."""
        return self.at + (REMEMBERED_FULL if self.of_full_node else REMEMBERED)

    def or_later(self, other: "KubeletRefusal", _: object = None) -> "KubeletRefusal":
        """Return the later one of both."""
        return max(self, other, key=lambda each: each.at)


class KubeletRefusals(msgspec.Struct, frozen=True, omit_defaults=True):
    """The latest refusal of each pair of class and kind of node, by its key."""

    by_key: dict[str, KubeletRefusal] = {}

    def noted(self, refusal: KubeletRefusal) -> "KubeletRefusals":
        return KubeletRefusals(self.by_key | {refusal.key: refusal})

    def merged(self, remote: "KubeletRefusals", base: "KubeletRefusals") -> "KubeletRefusals":
        """Return the refusals with what *remote* changed since *base*; of two with the same key, the later one."""
        return KubeletRefusals(merged_entries(self.by_key, remote.by_key, base.by_key, KubeletRefusal.or_later))

    def current(self, now: datetime) -> "KubeletRefusals":
        """Return the refusals that are still remembered at *now*."""
        kept = {key: refusal for key, refusal in self.by_key.items() if now < refusal.until}
        return self if len(kept) == len(self.by_key) else KubeletRefusals(kept)

    def bounded(self, now: datetime) -> "KubeletRefusals":
        """Return the same refusals, none of them in the future."""
        ahead = {key: each for key, each in self.by_key.items() if each.at > now}
        return KubeletRefusals(
            self.by_key | {key: msgspec.structs.replace(each, at=now) for key, each in ahead.items()}
        )

    def released(self, names: Collection[str]) -> "KubeletRefusals":
        """Return the refusals without those of owners and namespaces in *names*."""
        return KubeletRefusals({key: each for key, each in self.by_key.items() if not each.owner.is_named(names)})

    def learned(self, now: datetime) -> LearnedRefusals:
        """Return which nodes are expected to refuse which pods at *now*."""
        learned: defaultdict[str, defaultdict[str, list[RefusingNodes]]] = defaultdict(lambda: defaultdict(list))
        for _, each in sorted(self.current(now).by_key.items()):
            why = f"{each.node} at {utc(each.at)}: {each.reason}{_only_here(each)}"
            learned[each.owner.namespace][each.pods].append(RefusingNodes(each.nodes, why))
        return {name: {pods: tuple(kinds) for pods, kinds in of.items()} for name, of in learned.items()}


def _only_here(refusal: KubeletRefusal) -> str:
    return f"; only this node, until {utc(refusal.until)}" if refusal.of_full_node else ""
