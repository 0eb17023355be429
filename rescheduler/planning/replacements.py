"""The pod that a controller will create in place of an evicted one.

A plan is made for this pod. It follows from the controller's template with its revision rules, from the recommendation
of a VerticalPodAutoscaler and from LimitRanges, and from what admission added to the running pod: containers, volumes
and tolerations that the template does not have. An in-place resize changes only the running pod. If no template is
known, the replacement pod is assumed to be like the running one.
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from predicates.objects import (
    Container,
    Job,
    ObjectMeta,
    Pod,
    PodClass,
    PodObject,
    PodSpec,
    PodTemplate,
    QuantityText,
    ResourceRequirements,
    StatefulSet,
    VerticalPodAutoscaler,
    Workload,
)
from predicates.pod_classes import pod_amounts, pod_class
from predicates.quantity import QuantityError, parse
from predicates.snapshot import Snapshot
from rescheduler.planning.admission import Bounds, LimitRanges, recommended, stronger
from rescheduler.planning.outcome import Blocker, Reason

#: Kinds of controllers whose pod templates are read.
TEMPLATED: Final = ("ReplicaSet", "StatefulSet", "ReplicationController", "Job")

#: Other kinds that change the pods that are created.
ADMISSION: Final = ("LimitRange", "VerticalPodAutoscaler")

#: The annotation that the VPA's admission controller sets on pods whose requests it has changed.
_VPA_UPDATES: Final = "vpaUpdates"

#: The PriorityClasses of all clusters (``pkg/apis/scheduling/types.go``).
_SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

#: Labels that controllers add to the labels of their template.
_REVISION_HASH: Final = "controller-revision-hash"
_ADDED_LABELS: Final = frozenset(
    {
        _REVISION_HASH,
        "pod-template-hash",
        "rollouts-pod-template-hash",
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
    }
)

_Amounts = Mapping[str, QuantityText]

_NOTHING: Final = ResourceRequirements()


class _Template(NamedTuple):
    """The template that the replacement pod is created from."""

    template: PodTemplate
    revised: bool  #: whether the running pod was created from another version of it
    revision: str = ""  #: the revision of a StatefulSet's pods
    admitted: bool = False  #: whether the template is what a dry run returned, with everything that admission adds


@dataclass(frozen=True, slots=True)
class _Admission:
    """What decides about the resources of a new pod, besides its template."""

    vpa: VerticalPodAutoscaler | None
    defaults: ResourceRequirements  #: what LimitRanges set
    bounds: Bounds
    #: Whether amounts of the running pod that differ from the template come from admission, and will again.
    running_counts: bool
    unknown: bool  #: whether the running pod may be resized, or of another template: the larger amount counts

    def container(self, template: Container, running: Container | None) -> ResourceRequirements:
        """Return the resources that the container will have; those of *running* if they are equal."""
        own, current = template.resources, running.resources if running is not None else _NOTHING
        given = ResourceRequirements(
            requests=self._amounts({**own.limits, **own.requests}, current.requests, self.defaults.requests),
            limits=self._amounts(own.limits, current.limits, self.defaults.limits),
        )
        if self.vpa is not None:
            given = recommended(self.vpa, template.name, given, self.bounds)
        return current if given == current else given

    def of_pod(
        self, template: ResourceRequirements | None, running: ResourceRequirements | None
    ) -> ResourceRequirements | None:
        """Return the resources of the new pod as a whole. The API server derives some that the template lacks."""
        if template is None or running is None:
            return running if self.running_counts or self.unknown else template
        given = ResourceRequirements(
            requests=self._amounts(template.requests, running.requests, running.requests),
            limits=self._amounts(template.limits, running.limits, running.limits),
        )
        return running if given == running else given

    def _amounts(self, declared: _Amounts, current: _Amounts, defaults: _Amounts) -> dict[str, QuantityText]:
        kept = current if self.running_counts or self.unknown else {}
        amounts: dict[str, QuantityText] = {}
        for name in sorted({*declared, *kept, *defaults}):
            if name in declared:
                amounts[name] = self._amount(declared[name], kept.get(name))
            else:
                amounts[name] = defaults[name] if name in defaults else kept[name]
        return amounts

    def _amount(self, declared: QuantityText, current: QuantityText | None) -> QuantityText:
        if current is None:
            return declared
        if self.unknown:
            return current if parse(declared) < parse(current) else declared
        return current if self.running_counts else declared


class Replacements:
    """The replacement pods of the running pods in *snapshot*. Results are kept while templates do not change."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._version: tuple[int, ...] = ()
        self._classes: dict[tuple[object, ...], PodClass] = {}
        self._limits = LimitRanges(snapshot)

    def of(self, pod: Pod) -> Pod:
        """Return the replacement of *pod*: a pod with the same name, owner and node, and the class of the new pod.

        Returns *pod* itself if the new pod will be like it, or if its controller's template is not known.
        """
        if (found := self._template(pod)) is None:
            return pod
        self._forget_old()
        vpa = _VPA_UPDATES in pod.annotations
        key = pod.cls, pod.owner and pod.owner.uid, min(pod.generation, 2), vpa, found.revision
        if (cls := self._classes.get(key)) is None:
            cls = self._classes[key] = self._class_or_running(pod, found, vpa=vpa)
        return pod if cls is pod.cls else replace(pod, cls=cls, loads=())

    def blockers(self, pods: Iterable[Pod]) -> Iterator[Blocker]:
        """Yield a blocker for each of *pods* whose replacement is rejected, or bound by its template."""
        self._forget_old()
        for pod in pods:
            if why := self._rejected(pod) or self._out_of_range(pod):
                yield Blocker(Reason.ADMISSION_REJECTS, why, pod.key)
            found = self._template(pod)
            if found is None or not (node := found.template.spec.node_name) or pod.owner is None:
                continue
            detail = (
                f"the pod template of {pod.owner.kind} {pod.owner.name} sets spec.nodeName to {node}: its pods are "
                "created there, without the scheduler"
            )
            yield Blocker(Reason.NODE_NAME_IN_TEMPLATE, detail, pod.key)

    def unknown(self, pods: Iterable[Pod]) -> Iterator[Pod]:
        """Yield those of *pods* whose controller's template is not known."""
        return (pod for pod in pods if pod.owner is not None and self._template(pod) is None)

    def _forget_old(self) -> None:
        versions = self._snapshot.versions
        version = self._snapshot.generation, *(versions[kind] for kind in (*TEMPLATED, *ADMISSION))
        if version != self._version:
            self._version, self._classes, self._limits = version, {}, LimitRanges(self._snapshot)

    def _workload(self, pod: Pod) -> Workload | StatefulSet | None:
        """Return the controller of *pod*, if it is known and has a pod template."""
        owner = pod.owner
        if owner is None or owner.kind not in TEMPLATED:
            return None
        workloads = self._snapshot.of(owner.kind)
        workload = workloads.get(f"{pod.namespace}/{owner.name}") if workloads else None
        if not isinstance(workload, Workload | StatefulSet) or not _is(workload.metadata, owner.uid):
            return None
        return workload

    def _template(self, pod: Pod) -> _Template | None:
        workload = self._workload(pod)
        if workload is None or not workload.spec.template.spec.containers:  # only in files: the API requires one
            return None
        if isinstance(workload, StatefulSet):
            found = _of_stateful_set(workload, pod)
        else:
            # The template of a Deployment's ReplicaSet never changes, and that of a running Job cannot.
            above = any(each.controller for each in workload.metadata.owner_references)
            found = _Template(workload.spec.template, revised=not (above or isinstance(workload, Job)))
        if found is None or workload.admitted is None:
            return found
        return found._replace(template=workload.admitted, admitted=True)

    def _rejected(self, pod: Pod) -> str:
        """Return why the API server rejects new pods of the controller of *pod*, or ""."""
        workload = self._workload(pod)
        return workload.rejected if workload is not None and self._template(pod) is not None else ""

    def _out_of_range(self, pod: Pod) -> str:
        """Return which LimitRange rejects the replacement of *pod*, or ""."""
        with contextlib.suppress(QuantityError):
            return self._limits.rejection(pod.namespace, self.of(pod).cls.spec)
        return ""

    def _class_or_running(self, pod: Pod, found: _Template, *, vpa: bool) -> PodClass:
        """Return the class of the new pod; that of the running pod if an amount in another object is not a quantity."""
        with contextlib.suppress(QuantityError):
            return self._class(pod, found, vpa=vpa)
        return pod.cls

    def _class(self, pod: Pod, found: _Template, *, vpa: bool) -> PodClass:
        running = pod.cls
        if found.admitted:
            spec = _as_admitted(found, running.spec)
        else:
            spec = _merged(found, running.spec, self._admission(pod, found, vpa=vpa))
            if found.revised:
                spec = replace(spec, priority=self._priority(found.template.spec, running.spec))
            if found.revised and not _is_of_old_template(pod, found):
                spec = replace(spec, node_selector={**running.spec.node_selector, **spec.node_selector})
        labels = _labels(found, running.labels) if found.revised or found.admitted else running.labels
        if spec == running.spec and labels == running.labels:
            return running
        meta = ObjectMeta(name=pod.name, namespace=pod.namespace, labels=dict(labels))
        created = PodObject(metadata=meta, spec=spec)
        return pod_class(created, pod_amounts(created))

    def _priority(self, template: PodSpec, running: PodSpec) -> int | None:
        """Return the priority that admission gives to the new pod: that of other pods of its PriorityClass."""
        name = template.priority_class_name
        if template.priority is not None or name == running.priority_class_name:
            return running.priority if template.priority is None else template.priority
        specs = (cls.spec for cls in self._snapshot.classes())
        known = (spec.priority for spec in specs if spec.priority_class_name == name and spec.priority is not None)
        return next(known, _SYSTEM_PRIORITIES.get(name, running.priority))

    def _admission(self, pod: Pod, found: _Template, *, vpa: bool) -> _Admission:
        vpas = list(self._vpas_of(pod))
        unresized = pod.generation <= 1 and not (vpa or vpas)
        running_counts = unresized and pod.generation == 1 and not found.revised
        return _Admission(
            vpa=min(vpas, key=stronger, default=None),
            defaults=self._limits.defaults(pod.namespace),
            bounds=self._limits.bounds(pod.namespace),
            running_counts=running_counts,
            unknown=unresized and not running_counts and not _is_of_old_template(pod, found),
        )

    def _vpas_of(self, pod: Pod) -> Iterator[VerticalPodAutoscaler]:
        """Yield the VerticalPodAutoscalers of the workload of *pod* that change the requests of new pods."""
        targets = self._workloads_of(pod)
        for key, vpa in self._snapshot.of("VerticalPodAutoscaler").items():
            if key.partition("/")[0] != pod.namespace or not isinstance(vpa, VerticalPodAutoscaler):
                continue
            policy, target = vpa.spec.update_policy, vpa.spec.target_ref
            if (target.kind, target.name) in targets and (policy is None or policy.update_mode != "Off"):
                yield vpa

    def _workloads_of(self, pod: Pod) -> set[tuple[str, str]]:
        """Return the kinds and names of the controllers of *pod*: its own, and the one above it."""
        assert pod.owner is not None
        workload = self._snapshot.of(pod.owner.kind).get(f"{pod.namespace}/{pod.owner.name}")
        above = workload.metadata.owner_references if isinstance(workload, Workload | StatefulSet) else ()
        return {(pod.owner.kind, pod.owner.name), *((each.kind, each.name) for each in above if each.controller)}


def _is(meta: ObjectMeta, uid: str) -> bool:
    """Return whether the object is the one with this *uid*, as far as both are known."""
    return not meta.uid or not uid or meta.uid == uid


def _of_stateful_set(workload: StatefulSet, pod: Pod) -> _Template | None:
    """Return the template of the pod with the ordinal of *pod* (``newVersionedStatefulSetPod``).

    Below the partition of a rolling update, the current revision is kept. Its template is not part of the StatefulSet,
    so the result is None: the running pod tells it.
    """
    strategy = workload.spec.update_strategy
    partition = strategy.rolling_update.partition if strategy.rolling_update is not None else 0
    if strategy.type != "OnDelete" and _ordinal(pod.name) < workload.spec.ordinals.start + partition:
        return None
    revision, running = workload.status.update_revision, pod.cls.labels.get(_REVISION_HASH, "")
    return _Template(workload.spec.template, revised=not revision or revision != running, revision=revision)


def _is_of_old_template(pod: Pod, found: _Template) -> bool:
    """Return whether *pod* was certainly created from another version of the template.

    A StatefulSet records the revision. A bare ReplicaSet does not: labels, and names and images of containers tell,
    because admission only adds to them.
    """
    if not found.revised or (pod.owner is not None and pod.owner.kind == "StatefulSet"):
        return found.revised
    template, running = found.template, pod.cls
    images = {container.name: container.image for container in running.spec.containers}
    return not template.metadata.labels.items() <= running.labels.items() or any(
        images.get(container.name) != container.image for container in template.spec.containers
    )


def _ordinal(name: str) -> int:
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS else 0


#: The most digits of an ordinal that are read: it is a 32-bit number.
_DIGITS: Final = 10


def _labels(found: _Template, running: Mapping[str, str]) -> Mapping[str, str]:
    added = {key: value for key, value in running.items() if key in _ADDED_LABELS}
    revision = {_REVISION_HASH: found.revision} if found.revision else {}
    return {**found.template.metadata.labels, **added, **revision}


def _merged(found: _Template, running: PodSpec, admission: _Admission) -> PodSpec:
    """Return the spec of the new pod: the template, and what admission added to the running pod."""
    template = found.template.spec
    containers = _containers(template.containers, running.containers, admission, revised=found.revised)
    without_vpa = dataclasses.replace(admission, vpa=None)  # it ignores init containers
    init_containers = _containers(template.init_containers, running.init_containers, without_vpa, revised=found.revised)
    if not found.revised:
        resources = admission.of_pod(template.resources, running.resources)
        return replace(running, containers=containers, init_containers=init_containers, resources=resources)
    volumes = {volume.name for volume in template.volumes}
    return replace(
        template,
        node_name="",
        containers=containers,
        init_containers=init_containers,
        volumes=(*template.volumes, *(volume for volume in running.volumes if volume.name not in volumes)),
        tolerations=tuple(dict.fromkeys((*template.tolerations, *running.tolerations))),
        overhead=template.overhead or running.overhead,
        scheduler_name=template.scheduler_name or running.scheduler_name,
    )


def _as_admitted(found: _Template, running: PodSpec) -> PodSpec:
    """Return the spec that a dry run returned, with the volumes that each pod has under another name or claim.

    These are the claims of a StatefulSet's ordinal and the volume of the ServiceAccount's token. Volumes are in the
    order of the running pod, so that equal pods have equal specs.
    """
    own = (volume for volume in running.volumes if volume.persistent_volume_claim or is_token(volume.name))
    volumes = {volume.name: volume for volume in own if found.revision or is_token(volume.name)}
    volumes |= {volume.name: volume for volume in found.template.spec.volumes}
    order = {volume.name: index for index, volume in enumerate(running.volumes)}
    return replace(
        found.template.spec,
        node_name="",
        volumes=tuple(sorted(volumes.values(), key=lambda volume: order.get(volume.name, len(order)))),
    )


def is_token(volume: str) -> bool:
    """Return whether a *volume* of this name is the one that the API server adds for the ServiceAccount's token."""
    return volume.startswith("kube-api-access-")


def _containers(
    template: tuple[Container, ...], running: tuple[Container, ...], admission: _Admission, *, revised: bool
) -> tuple[Container, ...]:
    declared = {container.name: container for container in template}
    current = {container.name: container for container in running}
    containers = [
        _container(declared.get(name, container), container, admission, revised=revised)
        for name, container in current.items()
    ]
    added = (container for name, container in declared.items() if name not in current)
    containers += [replace(container, resources=admission.container(container, None)) for container in added]
    return tuple(containers)


def _container(template: Container, running: Container, admission: _Admission, *, revised: bool) -> Container:
    """Return the container of the new pod; *running* itself if nothing changes."""
    resources = admission.container(template, running)
    base = template if revised else running
    return base if base.resources == resources else replace(base, resources=resources)
