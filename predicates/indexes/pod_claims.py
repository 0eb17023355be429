"""What the claims of a pod have come to: volumes that are bound, claims that still wait for one, or a rejection.

Source: ``PreFilter`` of ``volumebinding/volume_binding.go``, ``GetPodVolumeClaims`` of ``binder.go``.
"""

from typing import Final, NamedTuple

from predicates.csi_translation import TranslationError, csi_affinity, persistent_volume, plugin_of
from predicates.objects import Claim, NodeSelector, PersistentVolume, PersistentVolumeClaim, PodClass
from predicates.snapshot import Snapshot
from predicates.storage import (
    EVERY_NODE,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    affinity,
    by_labels,
    class_name,
    find_claim,
    find_class,
    find_volume,
    fully_bound,
    no_such_claim,
    not_owned,
    requested,
)

UNBOUND_IMMEDIATE: Final = "pod has unbound immediate PersistentVolumeClaims"


class BoundVolume(NamedTuple):
    """A volume that is bound. Where the node says that ``plugin`` is migrated, the last two fields hold."""

    nodes: NodeSelector | None
    plugin: str | None = None
    csi_nodes: NodeSelector | None = EVERY_NODE
    csi_error: str | None = None


class PodClaims(NamedTuple):
    rejection: str | None = None  #: why the pod is refused before any node is looked at
    bound: tuple[BoundVolume | None, ...] = ()  #: None stands for a volume that does not exist
    selected: tuple[PersistentVolumeClaim, ...] = ()  #: waiting, and a node has been chosen for them
    waiting: tuple[PersistentVolumeClaim, ...] = ()  #: for their first consumer; the smallest first


class ClaimsOfPods:
    """The claims of each class of pods, as long as no object but nodes and pods changes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._epoch = -1
        self._known: dict[PodClass, PodClaims] = {}

    def watch(self, _: PodClass) -> None:
        """Pods do not matter here."""

    def of(self, pod: PodClass) -> PodClaims:
        if self._epoch != self._snapshot.epoch:
            self._epoch, self._known = self._snapshot.epoch, {}
        if (found := self._known.get(pod)) is None:
            found = self._known[pod] = _look_up(pod, self._snapshot)
        return found


def _look_up(pod: PodClass, snapshot: Snapshot) -> PodClaims:
    claims = []
    for one in pod.claims:
        found = find_claim(snapshot, pod.namespace, one.name)
        if (trouble := _trouble(pod.namespace, one, found)) is not None:
            return PodClaims(trouble)
        assert found is not None  # _trouble has seen to it.
        claims.append(found)
    modes = [None if fully_bound(one) else _binding_mode(one, snapshot) for one in claims]
    if error := next((mode for mode in modes if mode is not None and mode.error), None):
        return PodClaims(error.error)
    if any(mode is not None and not mode.waits for mode in modes):
        return PodClaims(UNBOUND_IMMEDIATE)
    bound = [one for one, mode in zip(claims, modes, strict=True) if mode is None]
    waiting = [one for one, mode in zip(claims, modes, strict=True) if mode is not None]
    return PodClaims(
        None,
        tuple(_bound(find_volume(snapshot, one.spec.volume_name)) for one in bound),
        tuple(one for one in waiting if selected_node(one) is not None),
        tuple(sorted((one for one in waiting if selected_node(one) is None), key=requested)),
    )


def selected_node(claim: PersistentVolumeClaim) -> str | None:
    """The node that was chosen for the claim's volume, None where none was."""
    return claim.metadata.annotations.get(SELECTED_NODE)


def _trouble(namespace: str, claim: Claim, found: PersistentVolumeClaim | None) -> str | None:
    if found is None:
        if claim.ephemeral:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{claim.name}"'
        return no_such_claim(claim.name)
    if found.status.phase == "Lost":
        return f'persistentvolumeclaim "{claim.name}" bound to non-existent persistentvolume "{found.spec.volume_name}"'
    if found.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{claim.name}" is being deleted'
    # A pod that is made anew never owns a claim that is there already.
    return not_owned(namespace, claim) if claim.ephemeral else None


class _BindingMode(NamedTuple):
    waits: bool  #: for its first consumer
    error: str = ""


def _binding_mode(claim: PersistentVolumeClaim, snapshot: Snapshot) -> _BindingMode:
    """Of a claim that is not bound; one that names its volume is for the volume controller to bind."""
    name = class_name(claim)
    of = find_class(snapshot, name) if name else None
    if of is None:
        return _BindingMode(waits=False)
    if of.volume_binding_mode is None:
        error = f'running PreFilter plugin "VolumeBinding": VolumeBindingMode not set for StorageClass "{name}"'
        return _BindingMode(waits=False, error=error)
    return _BindingMode(waits=of.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER and not claim.spec.volume_name)


def _bound(volume: PersistentVolume | None) -> BoundVolume | None:
    if volume is None:
        return None
    plugin = plugin_of(volume.spec)
    if plugin is None:
        return BoundVolume(affinity(volume))
    try:
        persistent_volume(volume)
    except TranslationError as error:
        return BoundVolume(affinity(volume), plugin, csi_error=f"could not translate pv: {error}")
    return BoundVolume(affinity(volume), plugin, by_labels(csi_affinity(volume)))
