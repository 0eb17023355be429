"""The pod that a controller will create in place of an evicted one.

A plan is made for this pod. It follows from the controller's template with its revision rules, from the recommendation
of a VerticalPodAutoscaler, from LimitRanges and the classes of priorities and runtimes, and from what admission added
to the running pod: containers, volumes and tolerations that the template does not have. What the older template of the
running pod has, admission did not add: it is gone if the new template dropped it. An in-place resize changes only the
running pod. If no template is known, the replacement pod is assumed to be like the running one, with the requests that
a VerticalPodAutoscaler of its owner recommends.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from predicates.objects import (
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
    RevisionData,
    StatefulSet,
    VerticalPodAutoscaler,
    Workload,
)
from predicates.pod_classes import pod_amounts, pod_class
from predicates.quantity import QuantityError
from predicates.snapshot import Snapshot
from predicates.storage import find_claim
from predicates.wire import without_nulls
from rescheduler.planning.admission import (
    CLASSES,
    LimitRanges,
    PodClasses,
    changes_new_pods,
    priorities_of_others,
    recommended,
    stronger,
    with_label_keys,
)
from rescheduler.planning.kept import ClusterPart, version
from rescheduler.planning.new_specs import (
    REVISION_HASH,
    Admission,
    Template,
    added_selectors,
    as_admitted,
    is_of_old_template,
    merged,
    new_labels,
    old_containers,
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

#: All kinds that decide about replacement pods: also those whose labels and state decide whether they are admitted.
DECIDING: Final = (*DERIVED_FROM, "Namespace")

#: The annotation that the VPA's admission controller sets on pods whose requests it has changed.
_VPA_UPDATES: Final = "vpaUpdates"

_ENDING: Final = "its namespace is being deleted: the API server rejects new objects in it"
_UNKNOWN: Final = ObjectMeta()


#: Stands for a template that was not looked for yet.
_UNREAD: Final = Template(PodTemplate(), revised=False)


#: The API group, kind and name of a target, and the autoscalers by target.
_Target: TypeAlias = tuple[str, str, str]
_ByTarget: TypeAlias = Mapping[_Target, VerticalPodAutoscaler]

#: Stand for the group of a target without a version, and for any group.
_NO_VERSION: Final = "?"
_ANY_GROUP: Final = "*"


class Replacements:
    """The replacement pods of the running pods in *snapshot*. Results are kept while templates do not change."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._version: Hashable = None
        self._classes: dict[tuple[object, ...], PodClass] = {}
        #: By namespace and owner; without StatefulSets, whose pods differ by ordinal.
        self._templates: dict[tuple[str, OwnerReference | None], Template | None] = {}
        self._limits = LimitRanges(snapshot)
        self._pod_classes = PodClasses(snapshot, {})
        self._insecure: dict[tuple[str, PodClass], str] = {}  #: what :meth:`_security` returned
        self._beyond: dict[tuple[str, PodClass], str] = {}  #: by namespace and new class: which LimitRange rejects it
        self._changes = -1  #: of the snapshot, when all of this was last valid
        self._vpas: Mapping[str, _ByTarget] = {}  #: by namespace

    def of(self, pod: Pod) -> Pod:
        """Return the replacement of *pod*: a pod with the same name, owner and node, and the class of the new pod.

        Returns *pod* itself if the new pod will be like it, or if its controller's template is not known.
        """
        found = self._template(pod)
        if found is None and not self._may_change(pod):
            return pod
        vpa = _VPA_UPDATES in pod.annotations
        owner = pod.owner and (pod.owner.uid or pod.owner)
        key = pod.cls, owner, min(pod.generation, 2), vpa, found and found.revision
        if (cls := self._classes.get(key)) is None:
            cls = self._classes[key] = _with_new_claims(self._class_or_running(pod, found, vpa=vpa))
        return pod if cls is pod.cls else replace(pod, cls=cls, loads=())

    @property
    def basis(self) -> object:
        """A value that changes with anything that replacement pods are derived from, other than the pods themselves."""
        if self._changes != self._snapshot.changes:
            self._forget_old()
        return self._version

    def like_running(self, pod: Pod) -> bool:
        """Return whether pods without annotations of this class, controller and generation are replaced by equal ones.

        This is never said of the pods of a StatefulSet, whose templates depend on the ordinal.
        """
        stateful = pod.owner is not None and pod.owner.kind == "StatefulSet"
        return not stateful and self.of(pod) is pod and not any(self.blockers([pod]))

    @property
    def given_up(self) -> AbstractSet[str]:
        """The namespaces with too many LimitRanges to judge new classes of pods before the next round."""
        return self._limits.given_up

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
        templates = any(map(self._snapshot.of, TEMPLATED))
        priorities = priorities_of_others(self._snapshot) if templates else {}
        current = version(self._snapshot, ClusterPart.CLASSES, *DECIDING), priorities
        if current != self._version:
            self._version, self._classes, self._limits = current, {}, LimitRanges(self._snapshot)
            self._pod_classes, self._templates = PodClasses(self._snapshot, priorities), {}
            self._insecure, self._beyond = {}, {}
            self._vpas = _vpas(self._snapshot)
        self._limits.start_round()

    def _workload(self, pod: Pod) -> Workload | StatefulSet | None:
        """Return the controller of *pod*, if it is known and has a pod template."""
        owner = pod.owner
        if owner is None or owner.kind not in TEMPLATED:
            return None
        found = self._snapshot.of(owner.kind).get(f"{pod.namespace}/{owner.name}")
        return found if isinstance(found, Workload | StatefulSet) and _is(found.metadata, owner.uid) else None

    def _template(self, pod: Pod) -> Template | None:
        if self._changes != self._snapshot.changes:  # inline, because this is called for all pods
            self._forget_old()
        key = pod.namespace, pod.owner
        if (known := self._templates.get(key, _UNREAD)) is not _UNREAD:
            return known
        workload = self._workload(pod)
        found = None if workload is None else self._template_of(workload, pod)
        if not isinstance(workload, StatefulSet):
            self._templates[key] = found
        return found

    def _template_of(self, workload: Workload | StatefulSet, pod: Pod) -> Template | None:
        if not workload.spec.template.spec.containers:  # only in files: the API requires one
            return None
        if isinstance(workload, StatefulSet):
            found = _of_stateful_set(workload, pod, partial(self._revision, pod.namespace))
        else:
            # The template of a Deployment's ReplicaSet never changes, and that of a running Job cannot.
            above = any(each.controller for each in workload.metadata.owner_references)
            found = Template(workload.spec.template, revised=not (above or isinstance(workload, Job)))
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

    def _rejected(self, found: Template | None) -> str:
        """Return why the API server rejects new pods that are created from the template *found*, or ""."""
        return "" if found is None else found.rejected or self._pod_classes.missing(found.template.spec)

    def _out_of_range(self, pod: Pod) -> str:
        """Return which LimitRange rejects the replacement of *pod*, or ""."""
        if not self._limits.concern(pod.namespace):
            return ""
        with contextlib.suppress(QuantityError):
            key = pod.namespace, self.of(pod).cls
            if (why := self._beyond.get(key)) is None:
                why = self._limits.rejection(pod.namespace, key[1].spec)
                if pod.namespace not in self.given_up:
                    self._beyond[key] = why
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

    def _security(self, pod: Pod, found: Template | None, labels: Mapping[str, str]) -> str:
        """Return why Pod Security admission rejects the replacement of *pod*, or "". A dry run has tried it."""
        if not enforces(labels) or (found is not None and found.admitted):
            return ""
        new = self.of(pod).cls
        if (why := self._insecure.get((pod.namespace, new))) is None:
            why = self._insecure[pod.namespace, new] = security_rejection(labels, new.spec)
        return why

    def _class_or_running(self, pod: Pod, found: Template | None, *, vpa: bool) -> PodClass:
        """Return the class of the new pod; that of the running pod if an amount in another object is not a quantity."""
        with contextlib.suppress(QuantityError):
            return self._class(pod, found, vpa=vpa)
        return pod.cls

    def _class(self, pod: Pod, found: Template | None, *, vpa: bool) -> PodClass:
        running = pod.cls
        labels = running.labels
        if found is None:
            spec = self._pod_classes.applied(self._recommended(pod), running.spec)
        elif found.admitted:
            spec = as_admitted(found, running.spec)
        else:
            spec = merged(found, running.spec, self._admission(pod, found, vpa=vpa))
            if found.old is not None or (found.revised and not is_of_old_template(pod, found)):
                spec = replace(spec, node_selector={**added_selectors(found, running.spec), **spec.node_selector})
            spec = self._pod_classes.applied(spec, running.spec, found.template.spec, revised=found.revised)
        if found is not None and (found.revised or found.admitted):
            labels = new_labels(found, running.labels)
        if found is not None and found.revised and not found.admitted and spec.affinity is not None:
            spec = replace(spec, affinity=with_label_keys(spec.affinity, labels))
        if spec == running.spec and labels == running.labels:
            return running
        meta = ObjectMeta(name=pod.name, namespace=pod.namespace, labels=dict(labels))
        created = PodObject(metadata=meta, spec=spec)
        return pod_class(created, pod_amounts(created))

    def _recommended(self, pod: Pod) -> PodSpec:
        """Return the spec of *pod*, whose template is not known, with the requests that new pods get today."""
        vpa = self._vpa_of(pod)
        if vpa is None:
            return pod.cls.spec
        bounds = self._limits.bounds(pod.namespace)
        amounts = [recommended(vpa, each.name, each.resources, bounds) for each in pod.cls.spec.containers]
        containers = zip(pod.cls.spec.containers, amounts, strict=True)
        return replace(pod.cls.spec, containers=tuple(replace(each, resources=new) for each, new in containers))

    def _admission(self, pod: Pod, found: Template, *, vpa: bool) -> Admission:
        stronger_vpa = self._vpa_of(pod)
        unresized = pod.generation <= 1 and not vpa and stronger_vpa is None
        running_counts = unresized and pod.generation == 1 and not found.revised
        return Admission(
            vpa=stronger_vpa,
            defaults=self._limits.defaults(pod.namespace),
            bounds=self._limits.bounds(pod.namespace),
            running_counts=running_counts,
            unknown=unresized and not running_counts and not is_of_old_template(pod, found),
            old=old_containers(found),
        )

    def _vpa_of(self, pod: Pod) -> VerticalPodAutoscaler | None:
        """Return the VerticalPodAutoscaler of the workload of *pod* that changes new pods, if there is one."""
        vpas = self._vpas.get(pod.namespace)
        if not vpas:
            return None
        keys = (key for each in self._controllers(pod) for key in _targeting(each))
        return min(filter(None, map(vpas.get, keys)), key=stronger, default=None)

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


def _vpas(snapshot: Snapshot) -> Mapping[str, _ByTarget]:
    """Return the VerticalPodAutoscalers that change new pods by namespace: the strongest of each target."""
    by_namespace = defaultdict[str, dict[_Target, VerticalPodAutoscaler]](dict)
    for key, vpa in snapshot.of("VerticalPodAutoscaler").items():
        if isinstance(vpa, VerticalPodAutoscaler) and changes_new_pods(vpa):
            of_namespace, target = by_namespace[key.partition("/")[0]], vpa.spec.target_ref
            for group in (_group(target.api_version), _ANY_GROUP):
                known = of_namespace.setdefault((group, target.kind, target.name), vpa)
                of_namespace[group, target.kind, target.name] = min(known, vpa, key=stronger)
    return by_namespace


def _targeting(controller: OwnerReference) -> Sequence[_Target]:
    """Return the targets that are *controller*. A kind of another API group can have the same name."""
    groups = (_group(controller.api_version), _NO_VERSION) if controller.api_version else (_ANY_GROUP,)
    return [(group, controller.kind, controller.name) for group in groups]


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0] if api_version else _NO_VERSION


def _is(meta: ObjectMeta, uid: str) -> bool:
    """Return whether the object is the one with this *uid*, as far as both are known."""
    return not meta.uid or not uid or meta.uid == uid


def _of_stateful_set(
    workload: StatefulSet, pod: Pod, revision_of: Callable[[str], PodTemplate | None]
) -> Template | None:
    """Return the template of the pod with the ordinal of *pod* (``newVersionedStatefulSetPod``).

    Below the partition of a rolling update, the current revision is kept. If its template is not known, the result is
    None: the running pod tells it. *revision_of* returns the template of a revision. As long as the controller has not
    observed the template, the name of its revision is not known: whether it is another one than that of the running pod
    is compared.
    """
    strategy, status = workload.spec.update_strategy, workload.status
    partition = strategy.rolling_update.partition if strategy.rolling_update is not None else 0
    running, template, revision = pod.cls.labels.get(REVISION_HASH, ""), workload.spec.template, status.update_revision
    if strategy.type != "OnDelete" and _ordinal(pod.name) < workload.spec.ordinals.start + partition:
        current = revision_of(status.current_revision)
        if current is None:
            return None
        template, revision = current, status.current_revision
    elif not status.has_observed(workload.metadata):
        old = revision_of(running) if running else None
        return Template(template, revised=template != old, old=old)
    revised = not revision or revision != running
    return Template(template, revised, revision, old=revision_of(running) if revised and running else None)


def _ordinal(name: str) -> int:
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS else 0


#: The most digits of an ordinal that are read: it is a 32-bit number.
_DIGITS: Final = 10
