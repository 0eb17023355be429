"""The spec of a new pod: its template, and what admission adds to that or to its resources."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from predicates.objects import (
    Container,
    Pod,
    PodSpec,
    PodTemplate,
    QuantityText,
    ResourceRequirements,
    VerticalPodAutoscaler,
)
from predicates.quantity import parse
from rescheduler.planning.admission import Amounts, Bounds, recommended

#: Labels that controllers add to the labels of their template.
REVISION_HASH: Final = "controller-revision-hash"
_ADDED_LABELS: Final = frozenset(
    {
        REVISION_HASH,
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


class Template(NamedTuple):
    """The template that the replacement pod is created from."""

    template: PodTemplate
    revised: bool  #: whether the running pod was created from another version of it
    revision: str = ""  #: the revision of a StatefulSet's pods
    old: PodTemplate | None = None  #: the version that the running pod was created from, if it is known and another
    rejected: str = ""  #: why admission rejected a pod of it in a dry run
    admitted: bool = False  #: whether the template is what a dry run returned, with everything that admission adds


@dataclass(frozen=True, slots=True)
class Admission:
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


def is_of_old_template(pod: Pod, found: Template) -> bool:
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


def new_labels(found: Template, running: Mapping[str, str]) -> Mapping[str, str]:
    """Return the labels of the new pod: those of its template, and those that controllers add to pods."""
    added = {key: value for key, value in running.items() if key in _ADDED_LABELS}
    revision = {REVISION_HASH: found.revision} if found.revision else {}
    return {**found.template.metadata.labels, **added, **revision}


def merged(found: Template, running: PodSpec, admission: Admission) -> PodSpec:
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
        preemption_policy=template.preemption_policy or running.preemption_policy,
    )


def _same_runtime(template: PodSpec, running: PodSpec) -> bool:
    return template.runtime_class_name == running.runtime_class_name


def added_selectors(found: Template, running: PodSpec) -> dict[str, str]:
    """Return what admission added to the node selector of the running pod, as far as is known."""
    own = found.old.spec.node_selector.items() if found.old is not None else frozenset[tuple[str, str]]()
    return dict(running.node_selector.items() - own)


def as_admitted(found: Template, running: PodSpec) -> PodSpec:
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


def old_containers(found: Template) -> Mapping[str, Container] | None:
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
    template: tuple[Container, ...], running: tuple[Container, ...], admission: Admission, *, revised: bool
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


def _container(template: Container, running: Container, admission: Admission, *, revised: bool) -> Container:
    """Return the container of the new pod; *running* itself if nothing changes."""
    resources = admission.container(template, running)
    base = template if revised else running
    return base if base.resources == resources else replace(base, resources=resources)
