"""Rules that decide which volumes match an unbound claim, and which of them the claim gets.

Source: ``FindMatchingVolume`` of ``component-helpers/storage/volume/pv_helpers.go``.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from predicates.objects import PersistentVolume, PersistentVolumeClaim
from predicates.quantity import Quantity
from predicates.selectors import EVERYTHING, Selector, compile_selector
from predicates.storage import capacity, requested_size

#: Number of a group of volumes that have the same storage class and the same node affinity.
AccessGroup: TypeAlias = int


class VolumeRequirements(NamedTuple):
    """The requirements of a claim for its volume, in addition to the storage class."""

    size: Quantity
    access_modes: frozenset[str]
    selector: Selector
    volume_mode: str
    attributes_class: str


class VolumeCandidate(NamedTuple):
    """A volume that matches a claim. Volumes of equal size have equal ranks; the lowest rank is chosen first."""

    rank: int
    name: str
    group: AccessGroup


class ClaimRequest(NamedTuple):
    """The volumes that a claim can be bound to: those pre-bound to it, or, if there are none, any that match."""

    requirements: VolumeRequirements
    pre_bound: tuple[VolumeCandidate, ...]


def choose(
    requests: Sequence[ClaimRequest],
    matches: Sequence[Mapping[AccessGroup, tuple[VolumeCandidate, ...]]],
    accessible: tuple[AccessGroup, ...],
) -> list[VolumeCandidate | None]:
    """Return the volume to which each of *requests* is bound on a node with access to the groups *accessible*."""
    chosen: set[str] = set()
    bound: list[VolumeCandidate | None] = []
    for request, by_group in zip(requests, matches, strict=True):
        pre_bound = [volume for volume in request.pre_bound if volume.name not in chosen]
        if pre_bound:
            best = pre_bound[0] if all(volume.group in accessible for volume in pre_bound) else None
        else:
            smallest = (
                next((volume for volume in by_group.get(group, ()) if volume.name not in chosen), None)
                for group in accessible
            )
            best = min((volume for volume in smallest if volume is not None), default=None)
        if best is not None:
            chosen.add(best.name)
        bound.append(best)
    return bound


def ranks(sizes: Iterable[Quantity]) -> dict[Quantity, int]:
    """Rank *sizes* in ascending order. Equal sizes have the same rank, even if they are written differently."""
    by_size: dict[Quantity, int] = {}
    last = None
    for size in sorted(sizes):
        by_size[size] = by_size[last] + (last < size) if last is not None else 0
        last = size
    return by_size


def requirements_of(claim: PersistentVolumeClaim) -> VolumeRequirements:
    """Return the requirements of *claim* for its volume."""
    spec = claim.spec
    return VolumeRequirements(
        requested_size(claim),
        frozenset(spec.access_modes),
        EVERYTHING if spec.selector is None else compile_selector(spec.selector),
        spec.volume_mode or "Filesystem",
        spec.volume_attributes_class_name or "",
    )


def fits(volume: PersistentVolume, requirements: VolumeRequirements) -> bool:
    """Return whether the volume meets the requirements that also apply to pre-bound volumes."""
    spec = volume.spec
    return (
        not capacity(volume) < requirements.size
        and (spec.volume_mode or "Filesystem") == requirements.volume_mode
        and (spec.volume_attributes_class_name or "") == requirements.attributes_class
    )


def suits(volume: PersistentVolume, requirements: VolumeRequirements) -> bool:
    """Return whether the volume meets the requirements that pre-bound volumes are exempt from."""
    modes = requirements.access_modes
    return modes.issubset(volume.spec.access_modes) and requirements.selector.matches(volume.metadata.labels)
