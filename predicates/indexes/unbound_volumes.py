"""The volumes that unbound claims can be bound to, which of them match, and those that a trial has claimed."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.indexes.claims import PodClaimsIndex
from predicates.nodes import ALL, Flags, Numbers
from predicates.objects import NodeSelector, PersistentVolume, PersistentVolumeClaim, PodClass
from predicates.quantity import Quantity
from predicates.selectors import EVERYTHING, Selector, compile_selector
from predicates.snapshot import Snapshot
from predicates.storage import (
    all_volumes,
    capacity,
    claim_key,
    provisioning_codes,
    requested_size,
    selected_rows,
    storage_class_name,
    volume_affinity,
)

# Rules that decide which volumes match an unbound claim, and which of them the claim gets.
#
# Source: ``FindMatchingVolume`` of ``component-helpers/storage/volume/pv_helpers.go``.

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


# The volumes that unbound claims can be bound to, by storage class, and the nodes that can access them.
#
# Source: ``FindMatchingVolume`` of ``component-helpers/storage/volume/pv_helpers.go``, and ``findMatchingVolumes`` of
# ``volumebinding/binder.go``: a claim gets the volume that is pre-bound to it, or else the smallest that matches.


class UnboundVolumes:
    """The volumes that claims can be bound to, by storage class."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._epoch = -1
        self._volumes: dict[str, list[PersistentVolume]] = {}
        self._classes: dict[str, ClassVolumes] = {}

    def watch(self, _: PodClass) -> None:
        """Ignore placed pods: they do not affect this index."""

    def of(self, storage_class: str) -> "ClassVolumes":
        """Return the current volumes of a storage class."""
        if self._epoch != self._snapshot.epoch:
            self._epoch = self._snapshot.epoch
            self._classes, self._volumes = {}, defaultdict(list)
            for volume in all_volumes(self._snapshot):
                if volume.metadata.deletion_timestamp is None:
                    self._volumes[storage_class_name(volume)].append(volume)
        if (volumes := self._classes.get(storage_class)) is None:
            volumes = ClassVolumes(self._snapshot, self._volumes.get(storage_class, ()))
            self._classes[storage_class] = volumes
        volumes.sync()
        return volumes

    def requests(
        self, claims: Sequence[PersistentVolumeClaim]
    ) -> Iterator[tuple["ClassVolumes", dict[int, ClaimRequest]]]:
        """Yield, for each storage class of *claims*, its volumes and its requests by position in *claims*.

        Only claims of the same storage class compete for volumes.
        """
        names = list(map(storage_class_name, claims))
        for name in dict.fromkeys(names):
            volumes = self.of(name)
            positions = (position for position, class_name in enumerate(names) if class_name == name)
            yield volumes, {position: volumes.request(claims[position]) for position in positions}


class ClassVolumes:
    """The volumes of one storage class. Valid until an object other than nodes and pods changes.

    Costs: creation and the first request with new requirements O(volumes); ``sync`` after a change of nodes
    O(groups x nodes).
    """

    def __init__(self, snapshot: Snapshot, volumes: Iterable[PersistentVolume]) -> None:
        self._snapshot = snapshot
        self._node_changes = -1
        self._groups: dict[NodeSelector | None, AccessGroup] = {}
        self._available: list[tuple[PersistentVolume, VolumeCandidate]] = []
        self._pre_bound: defaultdict[str, list[tuple[PersistentVolume, VolumeCandidate]]] = defaultdict(list)
        for volume, candidate in self._candidates(volumes):
            if (claim := volume.spec.claim_ref) is not None:
                self._pre_bound[claim_key(claim.namespace, claim.name)].append((volume, candidate))
            elif volume.status.phase == "Available":
                self._available.append((volume, candidate))
        self._matches: dict[VolumeRequirements, Mapping[AccessGroup, tuple[VolumeCandidate, ...]]] = {}
        self._bindable: dict[tuple[ClaimRequest, ...], list[Flags]] = {}
        self._rows: list[npt.NDArray[np.intp]] = []  #: by group: the rows that can access it
        self._flat_rows: npt.NDArray[np.intp] = np.zeros(0, np.intp)  #: ``_rows``, concatenated
        self._flat_groups: npt.NDArray[np.intp] = np.zeros(0, np.intp)  #: the group of each entry

    def sync(self) -> None:
        """Update the nodes that can access each volume, if a node has changed."""
        if self._node_changes == len(self._snapshot.node_changes):
            return
        self._node_changes = len(self._snapshot.node_changes)
        self._bindable = {}
        self._rows = [np.flatnonzero(selected_rows(selector, self._snapshot, ALL)) for selector in self._groups]
        none = np.zeros(0, np.intp)
        self._flat_rows = np.concatenate([none, *self._rows])
        self._flat_groups = np.repeat(np.arange(len(self._rows)), [len(rows) for rows in self._rows])

    def request(self, claim: PersistentVolumeClaim) -> ClaimRequest:
        """Return the request for *claim*, with the volumes that are pre-bound to it."""
        requirements = requirements_of(claim)
        key = claim_key(claim.metadata.namespace, claim.metadata.name)
        pre_bound = (
            candidate
            for volume, candidate in self._pre_bound.get(key, ())
            if fits(volume, requirements)
            and volume.spec.claim_ref
            and volume.spec.claim_ref.uid in ("", claim.metadata.uid)
        )
        return ClaimRequest(requirements, tuple(pre_bound))

    def bindable(self, requests: tuple[ClaimRequest, ...]) -> list[Flags]:
        """Return, for each request, the rows where it can be bound. Earlier requests take precedence.

        Callers must not modify the arrays.
        """
        if (rows := self._bindable.get(requests)) is None:
            rows = self._bind_one(requests[0]) if len(requests) == 1 else self._bind(requests)
            self._bindable[requests] = rows
        return rows

    def chosen(self, requests: Sequence[ClaimRequest], row: int) -> list[str | None]:
        """Return the name of the volume to which each request is bound on *row*. Earlier requests take precedence."""
        matches = [self._match(request.requirements) for request in requests]
        volumes = choose(requests, matches, tuple(sorted(self.groups_accessible_from(row))))
        return [volume.name if volume is not None else None for volume in volumes]

    def groups(self, request: ClaimRequest) -> Mapping[AccessGroup, tuple[VolumeCandidate, ...]]:
        """Return the matching volumes by group, smallest first; none if the claim has pre-bound volumes."""
        return {} if request.pre_bound else self._match(request.requirements)

    def groups_accessible_from(self, row: int) -> set[AccessGroup]:
        """Return the groups of volumes that *row* can access."""
        return set(self._flat_groups[self._flat_rows == row].tolist())

    def candidate_counts(self, request: ClaimRequest) -> Numbers:
        """Return, by row, how many accessible volumes match the request."""
        by_group = np.zeros(len(self._rows), np.int64)
        for group, candidates in self.groups(request).items():
            by_group[group] = len(candidates)
        counts = np.zeros(len(self._snapshot.nodes), np.int64)
        np.add.at(counts, self._flat_rows, by_group[self._flat_groups])
        return counts

    def rows_with_access(self, groups: Iterable[AccessGroup]) -> Flags:
        """Return the rows that can access the volumes of any of *groups*."""
        selected: Flags = np.zeros(len(self._rows), np.bool_)
        selected[list(groups)] = True
        rows: Flags = np.zeros(len(self._snapshot.nodes), np.bool_)
        rows[self._flat_rows[selected[self._flat_groups]]] = True
        return rows

    def _candidates(self, volumes: Iterable[PersistentVolume]) -> Iterable[tuple[PersistentVolume, VolumeCandidate]]:
        """Yield every volume and its candidate, smallest first."""
        sized = [(volume, capacity(volume)) for volume in volumes]
        rank_of = ranks({size for _, size in sized})
        for volume, size in sorted(sized, key=lambda pair: (rank_of[pair[1]], pair[0].metadata.name)):
            group = self._groups.setdefault(volume_affinity(volume), len(self._groups))
            yield volume, VolumeCandidate(rank_of[size], volume.metadata.name, group)

    def _match(self, requirements: VolumeRequirements) -> Mapping[AccessGroup, tuple[VolumeCandidate, ...]]:
        if (matches := self._matches.get(requirements)) is None:
            by_group: defaultdict[AccessGroup, list[VolumeCandidate]] = defaultdict(list)
            for volume, candidate in self._available:
                if fits(volume, requirements) and suits(volume, requirements):
                    by_group[candidate.group].append(candidate)
            matches = {group: tuple(candidates) for group, candidates in by_group.items()}
            self._matches[requirements] = matches
        return matches

    def _bind_one(self, request: ClaimRequest) -> list[Flags]:
        if request.pre_bound:
            # The scheduler uses whichever of them it lists first, so all of them must be accessible.
            return [np.logical_and.reduce([self.rows_with_access({volume.group}) for volume in request.pre_bound])]
        return [self.rows_with_access(self._match(request.requirements).keys())]

    def _bind(self, requests: Sequence[ClaimRequest]) -> list[Flags]:
        """Bind claims that can compete for volumes; evaluated once for each distinct set of accessible groups."""
        matches = [self._match(request.requirements) for request in requests]
        groups = {group for by_group in matches for group in by_group}
        groups |= {volume.group for request in requests for volume in request.pre_bound}
        groups_of_row: defaultdict[int, list[AccessGroup]] = defaultdict(list)
        for group in sorted(groups):
            for row in self._rows[group].tolist():
                groups_of_row[row].append(group)
        rows_by_groups: defaultdict[tuple[AccessGroup, ...], list[int]] = defaultdict(list)
        for row, accessible in groups_of_row.items():
            rows_by_groups[tuple(accessible)].append(row)
        bound: list[Flags] = [np.zeros(len(self._snapshot.nodes), np.bool_) for _ in requests]
        for accessible_groups, rows in rows_by_groups.items():
            for flags, volume in zip(bound, choose(requests, matches, accessible_groups), strict=True):
                flags[rows] = volume is not None
        return bound


# Volumes that the placements of a trial may already have claimed.
#
# The scheduler chooses the smallest matching volume, and an arbitrary one among those of equal size. So the volume of a
# placement is not known, only the group it belongs to. A claim can rely on a volume only if more volumes are accessible
# than may be taken.

#: The unbound claims of a pod that the trial has placed, and its row.
AssumedPod: TypeAlias = tuple[tuple[PersistentVolumeClaim, ...], int]


def assumed_conflicts(claims: Sequence[PersistentVolumeClaim], snapshot: Snapshot) -> Flags:
    """Return the rows on which the *claims* of one pod (in this order) may not get their volumes."""
    assumed = _assumed_pods(snapshot)
    rejected = _excluded_by_shared_claims(claims, assumed, len(snapshot.nodes))
    rivals = [(rival, row) for rival_claims, row in assumed for rival in rival_claims]
    for volumes, requests in snapshot.index(UnboundVolumes).requests(claims):
        taken = {position: _taken(volumes, claims[position], request, rivals) for position, request in requests.items()}
        # A claim that loses its volume can take one that was left for another claim of the pod.
        contested = np.logical_or.reduce([numbers > 0 for numbers in taken.values()])
        for earlier_claims, (position, request) in enumerate(requests.items()):
            uncertain = contested & (volumes.candidate_counts(request) <= taken[position] + earlier_claims)
            if uncertain.any() and not request.pre_bound:
                rejected |= uncertain & (provisioning_codes(claims[position], snapshot, ALL) != 0)
    return rejected


def _excluded_by_shared_claims(
    claims: Sequence[PersistentVolumeClaim], assumed: Sequence[AssumedPod], rows: int
) -> Flags:
    """Return the rows that are excluded because a placed pod shares a claim: all except the row of that pod."""
    excluded: Flags = np.zeros(rows, np.bool_)
    keys = set(map(_key, claims))
    for other_claims, row in assumed:
        if any(_key(claim) in keys for claim in other_claims):
            elsewhere = np.ones(rows, np.bool_)
            elsewhere[row] = False
            excluded |= elsewhere
    return excluded


def _assumed_pods(snapshot: Snapshot) -> list[AssumedPod]:
    """Return the unbound claims and the rows of the pods that the trial has placed."""
    index = snapshot.index(PodClaimsIndex)
    placed = ((index.of(pod), row) for (pod, row), count in snapshot.assumed_claims.items() if count > 0)
    return [(claims.to_match, row) for claims, row in placed if claims.to_match]


def _taken(
    volumes: ClassVolumes,
    claim: PersistentVolumeClaim,
    request: ClaimRequest,
    rivals: Sequence[tuple[PersistentVolumeClaim, int]],
) -> Numbers:
    """Return, by row, how many of the accessible volumes that match *claim* the *rivals* may have taken."""
    groups = volumes.groups(request)
    taken: Numbers = np.zeros(len(volumes.candidate_counts(request)), np.int64)
    for rival, row in rivals:
        if storage_class_name(rival) == storage_class_name(claim) and _key(rival) != _key(claim):
            shared = volumes.groups(volumes.request(rival)).keys() & groups.keys()
            taken += volumes.rows_with_access(shared & volumes.groups_accessible_from(row))
    return taken


def _key(claim: PersistentVolumeClaim) -> str:
    return claim_key(claim.metadata.namespace, claim.metadata.name)
