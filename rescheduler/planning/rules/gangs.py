"""Groups of pods that are scheduled, and lost, together: gangs. Pure.

A scheduler binds the pods of a gang only if a minimum of them can run at the same time, and their application usually
stops if it has fewer. So they are judged as a unit: a drain may leave a gang above its minimum, or move all of its
pods, but not break it up.

| group | a pod names it in | its minimum |
|---|---|---|
| PodGroup of Kubernetes 1.36 on (KEP-4671) | ``spec.schedulingGroup`` | ``schedulingPolicy.gang.minCount`` |
| CompositePodGroup of 1.37 on (KEP-6012) | ``parentCompositePodGroupName`` of its PodGroup | basic: none; gang: all |
| group of a Workload of Kubernetes 1.35 | ``spec.workloadRef`` | ``podGroups[].policy.gang.minCount`` |
| PodGroup of the coscheduling plugin | a label, in two forms | ``minMember`` |
| its older form without an object | two labels | one of the labels |
| PodGroup of Volcano | an annotation | ``minMember`` |
| gang of Koordinator | an annotation | an annotation |
| pod group of Kueue | a label | an annotation: all of its pods |
| replica of a LeaderWorkerSet | two labels | an annotation: all of its pods |
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final, NamedTuple

from predicates.objects import (
    CompositePodGroup,
    GangWorkload,
    LeaderWorkerSet,
    Pod,
    PodClass,
    PodGroup,
    PodGroupPolicy,
)
from predicates.snapshot import Snapshot
from predicates.texts import shown
from rescheduler.planning.forms import count
from rescheduler.planning.outcome import Blocker, Reason

#: The API groups of PodGroups, and the one of LeaderWorkerSets.
KUBERNETES: Final = "scheduling.k8s.io"
COSCHEDULING: Final = "scheduling.x-k8s.io"
OLD_COSCHEDULING: Final = "scheduling.sigs.k8s.io"
VOLCANO: Final = "scheduling.volcano.sh"
LEADER_WORKER_SETS: Final = "leaderworkerset.x-k8s.io"

#: What :attr:`GangRef.kind` is for a group in a Workload.
_OF_WORKLOAD: Final = "group of Workload"
#: The same for a group of groups, and how many of them are above a PodGroup at most (``validatePodGroupSubtree``).
COMPOSITE: Final = "CompositePodGroup"
_MOST_ABOVE: Final = 3

_COSCHEDULING_LABEL: Final = "scheduling.x-k8s.io/pod-group"
_OLD_COSCHEDULING_LABEL: Final = "pod-group.scheduling.sigs.k8s.io"
_OLDEST_NAME: Final = "pod-group.scheduling.sigs.k8s.io/name"
_OLDEST_MINIMUM: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
_KUEUE_LABEL: Final = "kueue.x-k8s.io/pod-group-name"
_KUEUE_TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"
#: A group whose pods serve independently after admission (Kueue sets it for StatefulSets).
_KUEUE_SERVING: Final = "kueue.x-k8s.io/pod-group-serving"
_LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
_LWS_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
_LWS_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
_KOORDINATOR_NAME: Final = "gang.scheduling.koordinator.sh/name"
_KOORDINATOR_MINIMUM: Final = "gang.scheduling.koordinator.sh/min-available"
_VOLCANO_NAMES: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")

#: Annotations in which pods name their group.
GANG_ANNOTATIONS: Final = (*_VOLCANO_NAMES, _KOORDINATOR_NAME)

_GANG_LABELS: Final = frozenset((_COSCHEDULING_LABEL, _OLD_COSCHEDULING_LABEL, _OLDEST_NAME, _KUEUE_LABEL, _LWS_NAME))

#: The restartPolicy of a LeaderWorkerSet whose pods are restarted one by one. All others end the whole replica.
_INDEPENDENT: Final = ("None", "NoneRestartPolicy")

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_NUMBER: Final = re.compile(r"[0-9]{1,6}")


class GangRef(NamedTuple):
    """A group as its pods name it."""

    kind: str  #: for people
    api_group: str  #: of the object that says more about it; "" if there is none
    namespace: str
    name: str

    @property
    def objects(self) -> tuple[str, str]:
        """The API group and the kind of the object that says more about it."""
        if self.api_group == LEADER_WORKER_SETS:
            return self.api_group, "LeaderWorkerSet"
        if self.kind == COMPOSITE:
            return self.api_group, COMPOSITE
        return self.api_group, "Workload" if self.kind == _OF_WORKLOAD else "PodGroup"

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{shown(self.name)}"


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for the pods of a group."""

    minimum: int | None = None  #: None: not known, so all of its pods
    together: bool = False  #: its pods may only be disrupted together
    one_domain: bool = False  #: its pods must be in one topology domain
    missing: bool = False  #: its object does not exist, and the scheduler waits for it

    def needed(self, total: int) -> int:
        """Return how many of its *total* pods a group needs."""
        return total if self.minimum is None else self.minimum

    def text(self) -> str:
        """Return the minimum, for people."""
        minimum = "minimum not known" if self.minimum is None else f"minimum {self.minimum}"
        return f"{minimum}, disrupted only as a whole" if self.together else minimum


def has_class_gang(cls: PodClass) -> bool:
    """Return whether the pods of a class name their group in their spec or in their labels."""
    spec = cls.spec
    if spec.scheduling_group is not None or spec.workload_ref is not None:
        return True
    return not _GANG_LABELS.isdisjoint(cls.labels)


def gangs_of(pod: Pod) -> list[GangRef]:
    """Return the groups of *pod*. It may have several, such as a replica of a LeaderWorkerSet that Volcano schedules.

    Names that no object can have are ignored.
    """
    refs = (*_in_spec(pod), *(_in_annotations(pod) if pod.annotations else ()), *_in_labels(pod))
    return [ref for ref in refs if not ref.api_group or all(map(_NAME.fullmatch, ref.name.split("/")))]


def _in_spec(pod: Pod) -> Iterator[GangRef]:
    spec = pod.cls.spec
    if spec.scheduling_group is not None:
        yield GangRef("PodGroup", KUBERNETES, pod.namespace, spec.scheduling_group.pod_group_name)
    if spec.workload_ref is not None:
        ref = spec.workload_ref
        name = "/".join(filter(None, (ref.name, ref.pod_group, ref.pod_group_replica_key)))
        yield GangRef(_OF_WORKLOAD, KUBERNETES, pod.namespace, name)


def _in_annotations(pod: Pod) -> Iterator[GangRef]:
    names = dict.fromkeys(filter(None, map(pod.annotations.get, _VOLCANO_NAMES)))
    yield from (GangRef("Volcano PodGroup", VOLCANO, pod.namespace, name) for name in names)
    if name := pod.annotations.get(_KOORDINATOR_NAME):
        yield GangRef("Koordinator gang", COSCHEDULING, pod.namespace, name)


def _in_labels(pod: Pod) -> Iterator[GangRef]:
    labels, namespace = pod.cls.labels, pod.namespace
    if name := labels.get(_COSCHEDULING_LABEL):
        yield GangRef("coscheduling PodGroup", COSCHEDULING, namespace, name)
    if name := labels.get(_OLD_COSCHEDULING_LABEL):
        yield GangRef("coscheduling PodGroup", OLD_COSCHEDULING, namespace, name)
    if name := labels.get(_OLDEST_NAME):
        yield GangRef("coscheduling group", "", namespace, name)
    if (name := labels.get(_KUEUE_LABEL)) and pod.annotations.get(_KUEUE_SERVING) != "true":
        yield GangRef("Kueue pod group", "", namespace, name)
    if (name := labels.get(_LWS_NAME)) and (index := labels.get(_LWS_INDEX)):
        yield GangRef("replica of LeaderWorkerSet", LEADER_WORKER_SETS, namespace, f"{name}/{index}")


def objects_of(snapshot: Snapshot) -> frozenset[tuple[str, str]]:
    """Return the API groups and kinds of the objects that the pods of *snapshot* name as their groups."""
    return frozenset(ref.objects for ref in Gangs(snapshot).refs if ref.api_group)


def has_parent(group: PodGroup) -> bool:
    """Return whether *group* belongs to a CompositePodGroup."""
    return bool(group.spec.parent_composite_pod_group_name)


class Gangs:
    """The groups of the pods in *snapshot*, counted on first use."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def broken_up(self, pod: Pod) -> Blocker | None:
        """Return a blocker if the drain of its node would break up a group of *pod*, or None."""
        for ref in self._gangs_of(pod):
            terms, nodes = self._terms(ref, pod), self._nodes_of(ref, pod)
            total, here = nodes.total(), nodes[pod.node_name]
            if why := _obstacle(terms, total, here, sorted(nodes - Counter({pod.node_name: here}))):
                return Blocker(Reason.GANG_MEMBER, f"it belongs to {ref} ({terms.text()}): {why}")
        return None

    def without_room(self, pod: Pod) -> Blocker | None:
        """Return a blocker if *pod*, for which there is no room, belongs to a group that moves as a whole, or None."""
        for ref in self._gangs_of(pod):
            terms, nodes = self._terms(ref, pod), self._nodes_of(ref, pod)
            total, here = nodes.total(), nodes[pod.node_name]
            if terms.together or total - here < terms.needed(total):
                whole = f"which moves as a whole: not all of its {count(here, 'pod')} fit"
                detail = f"it belongs to {ref} ({terms.text()}), {whole}"
                return Blocker(Reason.GANG_MEMBER, detail, pod.key)
        return None

    def unbindable(self, pods: Iterable[Pod]) -> Iterator[Blocker]:
        """Yield a blocker for each of *pods* of which it is not known that the scheduler binds it again if it fits."""
        for pod in pods:
            for ref in self._quick_gangs_of(pod):
                terms = self._terms(ref, pod)
                if terms.missing or terms.one_domain:
                    why = "its object does not exist or was not read" if terms.missing else "it must run in one domain"
                    yield Blocker(Reason.GANG_MEMBER, f"it belongs to {ref}: {why}", pod.key)
                    break

    def stuck_with(self, stuck: Iterable[Pod], lost: Iterable[Pod]) -> Iterator[tuple[Pod, str]]:
        """Yield those of the *lost* pods that fit, but that wait for pods of their group that are *stuck*."""
        without = {pod.key for pod in stuck}
        if not without:
            return
        by_gang: dict[GangRef, list[Pod]] = {}
        for pod in lost:
            for ref in self._quick_gangs_of(pod):
                by_gang.setdefault(ref, []).append(pod)
        found = True
        while found:  # a pod that waits for one of its groups is missing in the others
            found = False
            for ref, pods in by_gang.items():
                fitting = [pod for pod in pods if pod.key not in without]
                if not fitting or len(fitting) == len(pods):
                    continue
                terms, total = self._terms(ref, pods[0]), self._nodes_of(ref, pods[0]).total()
                if terms.together or total - len(pods) + len(fitting) < terms.needed(total):
                    found = True
                    without.update(pod.key for pod in fitting)
                    yield from ((pod, f"it waits for the other pods of {ref} ({terms.text()})") for pod in fitting)

    def _gangs_of(self, pod: Pod) -> list[GangRef]:
        """Return the groups of *pod*, and the groups of these groups."""
        refs = gangs_of(pod)
        return [*refs, *chain.from_iterable(map(self._above, refs))]

    def _quick_gangs_of(self, pod: Pod) -> list[GangRef]:
        return self._gangs_of(pod) if pod.annotations or has_class_gang(pod.cls) else []

    def _above(self, ref: GangRef) -> Iterator[GangRef]:
        """Yield the CompositePodGroups above a PodGroup (``TraverseHierarchyUp`` of ``helper/podgroup.go``)."""
        for _ in range(_MOST_ABOVE):
            group = self._object(ref)
            if group is None or not has_parent(group):
                return
            ref = GangRef(COMPOSITE, ref.api_group, ref.namespace, group.spec.parent_composite_pod_group_name)
            yield ref

    def _object(self, ref: GangRef) -> PodGroup | None:
        group = self._snapshot.of(ref.objects[1]).get(f"{ref.api_group}/{ref.namespace}/{ref.name}")
        return group if isinstance(group, PodGroup) else None

    @property
    def refs(self) -> Collection[GangRef]:
        """The groups of placed pods."""
        return self._nodes.keys()

    @cached_property
    def _nodes(self) -> Mapping[GangRef, Counter[str]]:
        """The number of placed pods on each node, by group. Pods that are being deleted do not count."""
        found: dict[GangRef, Counter[str]] = {}
        named = {cls: has_class_gang(cls) for cls in {pod.cls for pod in self._snapshot.pods.values()}}
        for pod in self._snapshot.pods.values():
            if not (pod.annotations or named[pod.cls]) or not pod.node_name or pod.cls.terminating:
                continue
            for ref in self._gangs_of(pod):
                found.setdefault(ref, Counter())[pod.node_name] += 1
        return found

    def _nodes_of(self, ref: GangRef, pod: Pod) -> Counter[str]:
        """Return the number of pods of *ref* on each node. A group of which no pod counts has *pod*."""
        return self._nodes.get(ref) or Counter({pod.node_name: 1})

    def _terms(self, ref: GangRef, pod: Pod) -> Terms:
        """Return the terms of a group: those of its object, or else those that its pods have."""
        if ref.api_group == LEADER_WORKER_SETS:
            return self._of_replica(ref, pod)
        if ref.kind == _OF_WORKLOAD:
            return self._of_workload(ref)
        if (group := self._object(ref)) is not None:
            return _of_object(group)
        annotations = pod.annotations
        minimums = pod.cls.labels.get(_OLDEST_MINIMUM), *map(annotations.get, (_KOORDINATOR_MINIMUM, _KUEUE_TOTAL))
        minimum = next((int(text) for text in minimums if text and _NUMBER.fullmatch(text)), None)
        return Terms(minimum, missing=ref.api_group == KUBERNETES)

    def _of_workload(self, ref: GangRef) -> Terms:
        """Return the terms of a replica of a group in a Workload. The scheduler binds no pod without the group."""
        name, _, rest = ref.name.partition("/")
        workload = self._snapshot.of("Workload").get(f"{ref.api_group}/{ref.namespace}/{name}")
        groups = workload.spec.pod_groups if isinstance(workload, GangWorkload) else ()
        policy = next((group.policy for group in groups if group.name == rest.partition("/")[0]), None)
        return Terms(missing=True) if policy is None else Terms(_minimum(policy) or 0)

    def _of_replica(self, ref: GangRef, pod: Pod) -> Terms:
        owner = self._snapshot.of("LeaderWorkerSet").get(f"{ref.namespace}/{ref.name.partition('/')[0]}")
        if isinstance(owner, LeaderWorkerSet) and owner.spec.leader_worker_template.restart_policy in _INDEPENDENT:
            return Terms(0)
        size = pod.annotations.get(_LWS_SIZE, "")
        return Terms(int(size) if _NUMBER.fullmatch(size) else None, together=True)


def _minimum(policy: PodGroupPolicy) -> int | None:
    """Return the minimum of a gang; None if the pods are scheduled one by one."""
    return policy.gang.min_count if policy.gang is not None else None


def _minimum_of(group: PodGroup) -> int | None:
    """Return the minimum in pods. That of a CompositePodGroup is one of groups: None, all of its pods."""
    policy = group.spec.scheduling_policy
    if isinstance(group, CompositePodGroup):
        return 0 if policy.gang is None else None
    minimum = _minimum(policy)
    return group.spec.min_member if minimum is None else minimum


def _of_object(group: PodGroup) -> Terms:
    mode, constraints = group.spec.disruption_mode, group.spec.scheduling_constraints
    return Terms(
        minimum=_minimum_of(group),
        together=mode in ("PodGroup", "All") or (isinstance(mode, dict) and "all" in mode),
        one_domain=constraints is not None and bool(constraints.topology),
    )


def _obstacle(terms: Terms, total: int, here: int, elsewhere: list[str]) -> str:
    """Return why *here* of *total* pods of a group cannot move, or "". *elsewhere* are the nodes of the others."""
    if terms.missing:
        return "this object does not exist or was not read, and the scheduler binds no pod without it"
    if terms.one_domain:
        return "its pods must run in one topology domain, and a drain moves them one after the other"
    minimum = terms.needed(total)
    if total < minimum:
        return f"only {count(total, 'pod')} of it run, and the scheduler would wait for the others"
    if not elsewhere or (total - here >= minimum and not terms.together):
        return ""
    others = f"the others run on {elsewhere[0]}" + (
        f" and {count(len(elsewhere) - 1, 'more node')}" * (len(elsewhere) > 1)
    )
    return f"{here} of its {total} pods would move, {others}"
