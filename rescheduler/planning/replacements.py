"""The pod that a controller will create in place of an evicted one.

A plan is made for this pod. It follows from the controller's template with its revision rules, from the recommendation
of a VerticalPodAutoscaler, from LimitRanges and the classes of priorities and runtimes, and from what admission added
to the running pod: containers, volumes and tolerations that the template does not have. What the older template of the
running pod has, admission did not add: it is gone if the new template dropped it. An in-place resize changes only the
running pod. If no template is known, the replacement pod is assumed to be like the running one, with the requests that
a VerticalPodAutoscaler of its owner recommends.
"""

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from predicates.objects import (
    Container,
    ControllerRevision,
    Job,
    Namespace,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodClass,
    PodObject,
    PodSpec,
    PodTemplate,
    QuantityText,
    ResourceRequirements,
    RevisionData,
    ScaleTarget,
    StatefulSet,
    VerticalPodAutoscaler,
    Workload,
)
from predicates.pod_classes import pod_amounts, pod_class
from predicates.quantity import QuantityError, parse
from predicates.snapshot import Snapshot
from predicates.storage import find_claim
from predicates.wire import without_nulls
from rescheduler.planning.admission import (
    CLASSES,
    Amounts,
    Bounds,
    LimitRanges,
    PodClasses,
    changes_new_pods,
    recommended,
    stronger,
    with_label_keys,
)
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.pod_security import enforces, security_rejection

#: Kinds of controllers whose pod templates are read.
TEMPLATED: Final = ("ReplicaSet", "StatefulSet", "ReplicationController", "Job")

#: Other kinds of a namespace that change the pods that are created; CLASSES are those of the cluster.
ADMISSION: Final = ("LimitRange", "VerticalPodAutoscaler")

#: The kind of the older templates of a StatefulSet.
_REVISIONS: Final = "ControllerRevision"

#: All kinds from which replacement pods are derived.
DERIVED_FROM: Final = (*TEMPLATED, *ADMISSION, *CLASSES, _REVISIONS)

#: The annotation that the VPA's admission controller sets on pods whose requests it has changed.
_VPA_UPDATES: Final = "vpaUpdates"

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

_NOTHING: Final = ResourceRequirements()

#: The resources of a container that a resize can change.
_RESIZABLE: Final = ("cpu", "memory")

_ENDING: Final = "its namespace is being deleted: the API server rejects new objects in it"
_UNKNOWN: Final = ObjectMeta()


class _Template(NamedTuple):
    """The template that the replacement pod is created from."""

    template: PodTemplate
    revised: bool  #: whether the running pod was created from another version of it
    revision: str = ""  #: the revision of a StatefulSet's pods
    old: PodTemplate | None = None  #: the version that the running pod was created from, if it is known and another
    rejected: str = ""  #: why admission rejected a pod of it in a dry run
    admitted: bool = False  #: whether the template is what a dry run returned, with everything that admission adds


#: Stands for a template that was not looked for yet.
_UNREAD: Final = _Template(PodTemplate(), revised=False)


@dataclass(frozen=True, slots=True)
class _Admission:
    """What decides about the resources of a new pod, besides its template."""

    vpa: VerticalPodAutoscaler | None
    defaults: ResourceRequirements  #: what LimitRanges set
    bounds: Bounds
    #: Whether amounts of the running pod that differ from the template come from admission, and will again.
    running_counts: bool
    unknown: bool  #: whether the running pod may be resized, or of another template: the larger amount counts
    #: The containers of the template that the running pod was created from, by name; None if it is not known.
    old: Mapping[str, Container] | None

    def container(self, template: Container, running: Container | None) -> ResourceRequirements:
        """Return the resources that the container will have; those of *running* if they are equal."""
        own, current = template.resources, running.resources if running is not None else _NOTHING
        kept = self._kept(template.name, current)
        given = ResourceRequirements(
            requests=self._amounts({**own.limits, **own.requests}, kept.requests, self.defaults.requests),
            limits=self._amounts(own.limits, kept.limits, self.defaults.limits),
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
        kept = running if self.running_counts or self.unknown else _NOTHING
        given = ResourceRequirements(
            requests=self._amounts(template.requests, kept.requests, running.requests),
            limits=self._amounts(template.limits, kept.limits, running.limits),
        )
        return running if given == running else given

    def _kept(self, container: str, running: ResourceRequirements) -> ResourceRequirements:
        """Return what counts of the amounts of a *running* container.

        A resize, or a VerticalPodAutoscaler, changed only cpu and memory. Other resources that its template does not
        have were added by admission, and will be again: such as network interfaces and devices.
        """
        if self.running_counts or self.unknown:
            return running
        if self.old is None or container not in self.old:
            return _NOTHING
        own = self.old[container].resources
        named = {*own.requests, *own.limits, *_RESIZABLE}
        return ResourceRequirements(
            requests={name: amount for name, amount in running.requests.items() if name not in named},
            limits={name: amount for name, amount in running.limits.items() if name not in named},
        )

    def _amounts(self, declared: Amounts, kept: Amounts, defaults: Amounts) -> dict[str, QuantityText]:
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
        #: By namespace and owner; without StatefulSets, whose pods differ by ordinal.
        self._templates: dict[tuple[str, OwnerReference | None], _Template | None] = {}
        self._limits = LimitRanges(snapshot)
        self._pod_classes = PodClasses(snapshot)
        self._insecure: dict[tuple[str, PodClass], str] = {}  #: what :meth:`_security` returned
        self._changes = -1  #: of the snapshot, when all of this was last valid
        self._vpas: Mapping[str, Sequence[VerticalPodAutoscaler]] = {}  #: by namespace

    def of(self, pod: Pod) -> Pod:
        """Return the replacement of *pod*: a pod with the same name, owner and node, and the class of the new pod.

        Returns *pod* itself if the new pod will be like it, or if its controller's template is not known.
        """
        found = self._template(pod)
        if found is None and not self._may_change(pod):
            return pod
        vpa = _VPA_UPDATES in pod.annotations
        key = pod.cls, pod.owner and pod.owner.uid, min(pod.generation, 2), vpa, found and found.revision
        if (cls := self._classes.get(key)) is None:
            cls = self._classes[key] = _with_new_claims(self._class_or_running(pod, found, vpa=vpa))
        return pod if cls is pod.cls else replace(pod, cls=cls, loads=())

    def like_running(self, pod: Pod) -> bool:
        """Return whether all replacements of pods of the class, controller and generation of *pod* are like these.

        Only pods without annotations count. The pods of a StatefulSet differ by ordinal, so they never are.
        """
        stateful = pod.owner is not None and pod.owner.kind == "StatefulSet"
        return not stateful and self.of(pod) is pod and not any(self.blockers([pod]))

    def _may_change(self, pod: Pod) -> bool:
        """Return whether the replacement of *pod* may differ from it although no template is known."""
        changed = self._pod_classes.known or pod.namespace in self._vpas
        return changed or any(claim.ephemeral for claim in pod.cls.claims)

    def blockers(self, pods: Iterable[Pod]) -> Iterator[Blocker]:
        """Yield a blocker for each of *pods* whose replacement is rejected, or bound by its template."""
        for pod in pods:
            found = self._template(pod)
            namespace = self._namespace(pod.namespace)
            labels, ending = namespace.labels, namespace.deletion_timestamp is not None
            if found is None and not self._limits.concern(pod.namespace) and not enforces(labels) and not ending:
                continue
            why = _ENDING if ending else self._rejected(found) or self._out_of_range(pod)
            if why := why or self._security(pod, found, labels):
                yield Blocker(Reason.ADMISSION_REJECTS, why, pod.key)
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
        self._changes = self._snapshot.changes
        versions = self._snapshot.versions
        version = (
            self._snapshot.generation,
            *(versions[kind] for kind in (*DERIVED_FROM, "Namespace")),
        )
        if version != self._version:
            self._version, self._classes, self._limits = version, {}, LimitRanges(self._snapshot)
            self._pod_classes, self._templates, self._insecure = PodClasses(self._snapshot), {}, {}
            self._vpas = _vpas(self._snapshot)

    def _workload(self, pod: Pod) -> Workload | StatefulSet | None:
        """Return the controller of *pod*, if it is known and has a pod template."""
        owner = pod.owner
        if owner is None or owner.kind not in TEMPLATED:
            return None
        found = self._snapshot.of(owner.kind).get(f"{pod.namespace}/{owner.name}")
        return found if isinstance(found, Workload | StatefulSet) and _is(found.metadata, owner.uid) else None

    def _template(self, pod: Pod) -> _Template | None:
        if self._changes != self._snapshot.changes:
            self._forget_old()
        key = pod.namespace, pod.owner
        if (known := self._templates.get(key, _UNREAD)) is not _UNREAD:
            return known
        workload = self._workload(pod)
        found = None if workload is None else self._template_of(workload, pod)
        if not isinstance(workload, StatefulSet):
            self._templates[key] = found
        return found

    def _template_of(self, workload: Workload | StatefulSet, pod: Pod) -> _Template | None:
        if not workload.spec.template.spec.containers:  # only in files: the API requires one
            return None
        if isinstance(workload, StatefulSet):
            found = _of_stateful_set(workload, pod, partial(self._revision, pod.namespace))
        else:
            # The template of a Deployment's ReplicaSet never changes, and that of a running Job cannot.
            above = any(each.controller for each in workload.metadata.owner_references)
            found = _Template(workload.spec.template, revised=not (above or isinstance(workload, Job)))
        tried = workload.admitted is not None or workload.rejected
        if not tried or found is None or found.template is not workload.spec.template:
            return found
        if workload.admitted is None:
            return found._replace(rejected=workload.rejected)
        return found._replace(template=workload.admitted, admitted=True, rejected=workload.rejected)

    def _revision(self, namespace: str, name: str) -> PodTemplate | None:
        """Return the template of the revision *name* of a StatefulSet, or None if it is not known."""
        revision = self._snapshot.of(_REVISIONS).get(f"{namespace}/{name}")
        if not isinstance(revision, ControllerRevision):
            return None
        try:
            template = msgspec.convert(without_nulls(revision.data, RevisionData), RevisionData).spec.template
        except msgspec.ValidationError:  # the data of another controller
            return None
        return template if template.spec.containers else None

    def _rejected(self, found: _Template | None) -> str:
        """Return why the API server rejects new pods that are created from the template *found*, or ""."""
        return "" if found is None else found.rejected or self._pod_classes.missing(found.template.spec)

    def _out_of_range(self, pod: Pod) -> str:
        """Return which LimitRange rejects the replacement of *pod*, or ""."""
        if not self._limits.concern(pod.namespace):
            return ""
        with contextlib.suppress(QuantityError):
            why = self._limits.rejection(pod.namespace, self.of(pod).cls.spec)
            new_claims = (claim.name for claim in pod.cls.claims if claim.ephemeral)
            of_claims = (self._claim_out_of_range(pod.namespace, name) for name in new_claims)
            return why or next(filter(None, of_claims), "")
        return ""

    def _claim_out_of_range(self, namespace: str, name: str) -> str:
        claim = find_claim(self._snapshot, namespace, name)
        return "" if claim is None else self._limits.claim_rejection(namespace, claim)

    def _namespace(self, name: str) -> ObjectMeta:
        namespace = self._snapshot.of("Namespace").get(name)
        return namespace.metadata if isinstance(namespace, Namespace) else _UNKNOWN

    def _security(self, pod: Pod, found: _Template | None, labels: Mapping[str, str]) -> str:
        """Return why Pod Security admission rejects the replacement of *pod*, or "". A dry run has tried it."""
        if not enforces(labels) or (found is not None and found.admitted):
            return ""
        new = self.of(pod).cls
        if (why := self._insecure.get((pod.namespace, new))) is None:
            why = self._insecure[pod.namespace, new] = security_rejection(labels, new.spec)
        return why

    def _class_or_running(self, pod: Pod, found: _Template | None, *, vpa: bool) -> PodClass:
        """Return the class of the new pod; that of the running pod if an amount in another object is not a quantity."""
        with contextlib.suppress(QuantityError):
            return self._class(pod, found, vpa=vpa)
        return pod.cls

    def _class(self, pod: Pod, found: _Template | None, *, vpa: bool) -> PodClass:
        running = pod.cls
        labels = running.labels
        if found is None:
            spec = self._pod_classes.applied(self._recommended(pod), running.spec)
        elif found.admitted:
            spec = _as_admitted(found, running.spec)
        else:
            spec = _merged(found, running.spec, self._admission(pod, found, vpa=vpa))
            if found.old is not None or (found.revised and not _is_of_old_template(pod, found)):
                spec = replace(spec, node_selector={**_added_selectors(found, running.spec), **spec.node_selector})
            spec = self._pod_classes.applied(spec, running.spec, found.template.spec, revised=found.revised)
        if found is not None and (found.revised or found.admitted):
            labels = _labels(found, running.labels)
        if found is not None and found.revised and not found.admitted and spec.affinity is not None:
            spec = replace(spec, affinity=with_label_keys(spec.affinity, labels))
        if spec == running.spec and labels == running.labels:
            return running
        meta = ObjectMeta(name=pod.name, namespace=pod.namespace, labels=dict(labels))
        created = PodObject(metadata=meta, spec=spec)
        return pod_class(created, pod_amounts(created))

    def _recommended(self, pod: Pod) -> PodSpec:
        """Return the spec of *pod*, whose template is not known, with the requests that new pods get today."""
        vpa = min(self._vpas_of(pod), key=stronger, default=None)
        if vpa is None:
            return pod.cls.spec
        bounds = self._limits.bounds(pod.namespace)
        amounts = [recommended(vpa, each.name, each.resources, bounds) for each in pod.cls.spec.containers]
        containers = zip(pod.cls.spec.containers, amounts, strict=True)
        return replace(pod.cls.spec, containers=tuple(replace(each, resources=new) for each, new in containers))

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
            old=_old_containers(found),
        )

    def _vpas_of(self, pod: Pod) -> Iterator[VerticalPodAutoscaler]:
        """Yield the VerticalPodAutoscalers of the workload of *pod* that change new pods."""
        vpas = self._vpas.get(pod.namespace, ())
        controllers = self._controllers(pod) if vpas else ()
        for vpa in vpas:
            if changes_new_pods(vpa) and any(_names(vpa.spec.target_ref, each) for each in controllers):
                yield vpa

    def _controllers(self, pod: Pod) -> Sequence[OwnerReference]:
        """Return the references to the controllers of *pod*: its own, and the one above it."""
        if pod.owner is None:
            return ()
        workload = self._workload(pod)
        above = () if workload is None else workload.metadata.owner_references
        return [pod.owner, *(each for each in above if each.controller)]


def _with_new_claims(cls: PodClass) -> PodClass:
    """Return the class of a pod whose generic ephemeral volumes are created with it."""
    if not any(claim.ephemeral for claim in cls.claims):
        return cls
    return replace(cls, claims=tuple(replace(claim, renewed=claim.ephemeral) for claim in cls.claims))


def _vpas(snapshot: Snapshot) -> Mapping[str, Sequence[VerticalPodAutoscaler]]:
    """Return the VerticalPodAutoscalers by namespace, so that those of one do not make plans of others slow."""
    by_namespace = defaultdict[str, list[VerticalPodAutoscaler]](list)
    for key, vpa in snapshot.of("VerticalPodAutoscaler").items():
        if isinstance(vpa, VerticalPodAutoscaler):
            by_namespace[key.partition("/")[0]].append(vpa)
    return by_namespace


def _names(target: ScaleTarget, controller: OwnerReference) -> bool:
    """Return whether *target* is the *controller*. A kind of another API group can have the same name."""
    groups = target.api_version.rpartition("/")[0], controller.api_version.rpartition("/")[0]
    same_group = groups[0] == groups[1] or not (target.api_version and controller.api_version)
    return same_group and (target.kind, target.name) == (controller.kind, controller.name)


def _is(meta: ObjectMeta, uid: str) -> bool:
    """Return whether the object is the one with this *uid*, as far as both are known."""
    return not meta.uid or not uid or meta.uid == uid


def _of_stateful_set(
    workload: StatefulSet, pod: Pod, revision_of: Callable[[str], PodTemplate | None]
) -> _Template | None:
    """Return the template of the pod with the ordinal of *pod* (``newVersionedStatefulSetPod``).

    Below the partition of a rolling update, the current revision is kept. If its template is not known, the result is
    None: the running pod tells it. *revision_of* returns the template of a revision. As long as the controller has not
    observed the template, the name of its revision is not known: whether it is another one than that of the running pod
    is compared.
    """
    strategy, status = workload.spec.update_strategy, workload.status
    partition = strategy.rolling_update.partition if strategy.rolling_update is not None else 0
    running, template, revision = pod.cls.labels.get(_REVISION_HASH, ""), workload.spec.template, status.update_revision
    if strategy.type != "OnDelete" and _ordinal(pod.name) < workload.spec.ordinals.start + partition:
        current = revision_of(status.current_revision)
        if current is None:
            return None
        template, revision = current, status.current_revision
    elif not status.has_observed(workload.metadata):
        old = revision_of(running) if running else None
        return _Template(template, revised=template != old, old=old)
    revised = not revision or revision != running
    return _Template(template, revised, revision, old=revision_of(running) if revised and running else None)


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
    template, old = found.template.spec, found.old.spec if found.old is not None else None
    without_vpa = dataclasses.replace(admission, vpa=None)  # it ignores init containers
    kept = _not_dropped(template.containers, running.containers, old.containers if old is not None else ())
    containers = _containers(template.containers, kept, admission, revised=found.revised)
    kept = _not_dropped(template.init_containers, running.init_containers, old.init_containers if old else ())
    init_containers = _containers(template.init_containers, kept, without_vpa, revised=found.revised)
    if not found.revised:
        resources = admission.of_pod(template.resources, running.resources)
        gates = template.scheduling_gates  # the running pod has none any more
        spec = replace(running, containers=containers, init_containers=init_containers, resources=resources)
        return spec if spec.scheduling_gates == gates else replace(spec, scheduling_gates=gates)
    if template.host_network:
        containers, init_containers = _with_host_ports(containers), _with_host_ports(init_containers)
    volumes = {volume.name for volume in (*template.volumes, *(old.volumes if old is not None else ()))}
    dropped = old.tolerations if old is not None else ()
    tolerations = (*template.tolerations, *(each for each in running.tolerations if each not in dropped))
    return replace(
        template,
        node_name="",
        containers=containers,
        init_containers=init_containers,
        volumes=(*template.volumes, *(volume for volume in running.volumes if volume.name not in volumes)),
        tolerations=tuple(dict.fromkeys(tolerations)),
        overhead=template.overhead or (running.overhead if _same_runtime(template, running) else {}),
        scheduler_name=template.scheduler_name or running.scheduler_name,
    )


def _same_runtime(template: PodSpec, running: PodSpec) -> bool:
    return template.runtime_class_name == running.runtime_class_name


def _added_selectors(found: _Template, running: PodSpec) -> dict[str, str]:
    """Return what admission added to the node selector of the running pod, as far as is known."""
    own = found.old.spec.node_selector.items() if found.old is not None else frozenset[tuple[str, str]]()
    return dict(running.node_selector.items() - own)


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


def _old_containers(found: _Template) -> Mapping[str, Container] | None:
    """Return the containers of the template that the running pod was created from, by name; None if not known."""
    old = found.old if found.revised else found.template
    if old is None:
        return None
    return {container.name: container for container in (*old.spec.containers, *old.spec.init_containers)}


def _not_dropped(
    template: tuple[Container, ...], running: tuple[Container, ...], old: tuple[Container, ...]
) -> tuple[Container, ...]:
    """Return the *running* containers without those of the *old* template that the new one does not have."""
    dropped = {container.name for container in old} - {container.name for container in template}
    return tuple(container for container in running if container.name not in dropped) if dropped else running


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


def _with_host_ports(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    """Return the *containers* of a pod on its node's network: the API server sets their host ports, in pods only."""
    return tuple(
        replace(
            each, ports=tuple(replace(port, host_port=port.host_port or port.container_port) for port in each.ports)
        )
        if any(not port.host_port for port in each.ports)
        else each
        for each in containers
    )


def _container(template: Container, running: Container, admission: _Admission, *, revised: bool) -> Container:
    """Return the container of the new pod; *running* itself if nothing changes."""
    resources = admission.container(template, running)
    base = template if revised else running
    return base if base.resources == resources else replace(base, resources=resources)
