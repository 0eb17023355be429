"""The volumes that claims may still be bound to, by storage class, and which nodes reach them.

Source: ``FindMatchingVolume`` of ``component-helpers/storage/volume/pv_helpers.go``, and ``findMatchingVolumes`` of
``volumebinding/binder.go``: a claim takes the volume that was set aside for it, or else the smallest that will do.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.nodes import ALL, Flags, Numbers
from predicates.objects import NodeSelector, PersistentVolume, PersistentVolumeClaim, PodClass
from predicates.quantity import Quantity
from predicates.selectors import EVERYTHING, Selector, compile_selector
from predicates.snapshot import Snapshot
from predicates.storage import affinity, all_volumes, capacity, claim_key, class_name, reached, requested

#: Volumes that the same nodes reach; the number of such a group on its shelf.
Group: TypeAlias = int


class Demand(NamedTuple):
    """What a claim asks of a volume, beside its class."""

    size: Quantity
    modes: frozenset[str]
    selector: Selector
    volume_mode: str
    attributes_class: str


class Offer(NamedTuple):
    """A volume that will do. Volumes of one size have one rank; the smallest rank is taken first."""

    rank: int
    name: str
    group: Group


class Wish(NamedTuple):
    """A claim's own volumes, which rule out all others, and what will do where it has none. Equal ones end same_content."""

    demand: Demand
    own: tuple[Offer, ...]


class Shelves:
    """The volumes on offer, by storage class."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._epoch = -1
        self._volumes: dict[str, list[PersistentVolume]] = {}
        self._shelves: dict[str, Shelf] = {}

    def watch(self, _: PodClass) -> None:
        """Pods do not matter here."""

    def of(self, class_of_claim: str) -> "Shelf":
        """The shelf of a storage class, up to date."""
        if self._epoch != self._snapshot.epoch:
            self._epoch = self._snapshot.epoch
            self._shelves, self._volumes = {}, defaultdict(list)
            for one in all_volumes(self._snapshot):
                if one.metadata.deletion_timestamp is None:
                    self._volumes[class_name(one)].append(one)
        if (shelf := self._shelves.get(class_of_claim)) is None:
            shelf = self._shelves[class_of_claim] = Shelf(self._snapshot, self._volumes.get(class_of_claim, ()))
        shelf.sync()
        return shelf

    def wishes(self, claims: Sequence[PersistentVolumeClaim]) -> Iterator[tuple["Shelf", dict[int, Wish]]]:
        """The claims' wishes, by their place among *claims*, for each shelf: only those of one shelf compete."""
        names = list(map(class_name, claims))
        for name in dict.fromkeys(names):
            shelf = self.of(name)
            yield shelf, {place: shelf.wish(claims[place]) for place, other in enumerate(names) if other == name}


class Shelf:
    """The volumes of one storage class. Current until an object other than nodes and pods changes.

    Costs: making it and the first question with a new demand O(volumes); what nodes reach O(groups x nodes) after
    a node has changed.
    """

    def __init__(self, snapshot: Snapshot, volumes: Iterable[PersistentVolume]) -> None:
        self._snapshot = snapshot
        self._facts = -1
        self._groups: dict[NodeSelector | None, Group] = {}
        self._free: list[tuple[PersistentVolume, Offer]] = []
        self._aside: defaultdict[str, list[tuple[PersistentVolume, Offer]]] = defaultdict(list)
        for volume, offer in self._offers(volumes):
            if (claim := volume.spec.claim_ref) is not None:
                self._aside[claim_key(claim.namespace, claim.name)].append((volume, offer))
            elif volume.status.phase == "Available":
                self._free.append((volume, offer))
        self._matches: dict[Demand, Mapping[Group, tuple[Offer, ...]]] = {}
        self._bindable: dict[tuple[Wish, ...], list[Flags]] = {}
        self._rows: list[npt.NDArray[np.intp]] = []
        self._flat_rows: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._flat_groups: npt.NDArray[np.intp] = np.zeros(0, np.intp)

    def sync(self) -> None:
        """Find out anew who reaches what, if a node has changed."""
        if self._facts == len(self._snapshot.node_changes):
            return
        self._facts = len(self._snapshot.node_changes)
        self._bindable = {}
        self._rows = [np.flatnonzero(reached(one, self._snapshot, ALL)) for one in self._groups]
        none = np.zeros(0, np.intp)
        self._flat_rows = np.concatenate([none, *self._rows])
        self._flat_groups = np.repeat(np.arange(len(self._rows)), [len(rows) for rows in self._rows])

    def wish(self, claim: PersistentVolumeClaim) -> Wish:
        """What the claim may take."""
        demand = _demand(claim)
        key = claim_key(claim.metadata.namespace, claim.metadata.name)
        own = (
            offer
            for volume, offer in self._aside.get(key, ())
            if _fits(volume, demand) and volume.spec.claim_ref and volume.spec.claim_ref.uid in ("", claim.metadata.uid)
        )
        return Wish(demand, tuple(own))

    def bindable(self, wishes: tuple[Wish, ...]) -> list[Flags]:
        """By wish, the rows where it comes true; the first ones choose first. Arrays for reading only."""
        if (found := self._bindable.get(wishes)) is None:
            found = self._bindable[wishes] = self._bind_one(wishes[0]) if len(wishes) == 1 else self._bind(wishes)
        return found

    def groups(self, wish: Wish) -> Mapping[Group, tuple[Offer, ...]]:
        """What would do for the wish, by group, the smallest first; nothing where it has volumes of its own."""
        return {} if wish.own else self._match(wish.demand)

    def groups_in_reach(self, row: int) -> set[Group]:
        """The groups of volumes that *row* reaches."""
        return set(self._flat_groups[self._flat_rows == row].tolist())

    def numbers(self, wish: Wish) -> Numbers:
        """By row, how many volumes in reach would do for the wish."""
        of_group = np.zeros(len(self._rows), np.int64)
        for group, offers in self.groups(wish).items():
            of_group[group] = len(offers)
        numbers = np.zeros(len(self._snapshot.nodes), np.int64)
        np.add.at(numbers, self._flat_rows, of_group[self._flat_groups])
        return numbers

    def reach(self, groups: Iterable[Group]) -> Flags:
        """The rows that reach a volume of any of *groups*."""
        wanted: Flags = np.zeros(len(self._rows), np.bool_)
        wanted[list(groups)] = True
        rows: Flags = np.zeros(len(self._snapshot.nodes), np.bool_)
        rows[self._flat_rows[wanted[self._flat_groups]]] = True
        return rows

    def _offers(self, volumes: Iterable[PersistentVolume]) -> Iterable[tuple[PersistentVolume, Offer]]:
        """Every volume and its offer, the smallest first."""
        sized = [(volume, capacity(volume)) for volume in volumes]
        ranks = _ranks({size for _, size in sized})
        for volume, size in sorted(sized, key=lambda one: (ranks[one[1]], one[0].metadata.name)):
            group = self._groups.setdefault(affinity(volume), len(self._groups))
            yield volume, Offer(ranks[size], volume.metadata.name, group)

    def _match(self, demand: Demand) -> Mapping[Group, tuple[Offer, ...]]:
        if (found := self._matches.get(demand)) is None:
            by_group: defaultdict[Group, list[Offer]] = defaultdict(list)
            for volume, offer in self._free:
                if _fits(volume, demand) and _suits(volume, demand):
                    by_group[offer.group].append(offer)
            found = self._matches[demand] = {group: tuple(offers) for group, offers in by_group.items()}
        return found

    def _bind_one(self, wish: Wish) -> list[Flags]:
        if wish.own:
            # Whichever of them the scheduler comes upon first decides, so all have to be in reach.
            return [np.logical_and.reduce([self.reach({one.group}) for one in wish.own])]
        return [self.reach(self._match(wish.demand).keys())]

    def _bind(self, wishes: Sequence[Wish]) -> list[Flags]:
        """Several claims that may want the same volumes: each distinct set of groups in reach is played through."""
        matches = [self._match(one.demand) for one in wishes]
        groups = {group for one in matches for group in one} | {offer.group for one in wishes for offer in one.own}
        in_reach: defaultdict[int, list[Group]] = defaultdict(list)
        for group in sorted(groups):
            for row in self._rows[group].tolist():
                in_reach[row].append(group)
        same_content: defaultdict[tuple[Group, ...], list[int]] = defaultdict(list)
        for row, some in in_reach.items():
            same_content[tuple(some)].append(row)
        bound: list[Flags] = [np.zeros(len(self._snapshot.nodes), np.bool_) for _ in wishes]
        for reach, rows in same_content.items():
            for flags, true in zip(bound, _choose(wishes, matches, reach), strict=True):
                flags[rows] = true
        return bound


def _choose(
    wishes: Sequence[Wish], matches: Sequence[Mapping[Group, tuple[Offer, ...]]], reach: tuple[Group, ...]
) -> list[bool]:
    """Which wishes come true on a node that reaches the groups of *reach*."""
    taken: set[str] = set()
    came_true = []
    for wish, by_group in zip(wishes, matches, strict=True):
        own = [one for one in wish.own if one.name not in taken]
        if own:
            best = own[0] if all(one.group in reach for one in own) else None
        else:
            firsts = (next((o for o in by_group.get(group, ()) if o.name not in taken), None) for group in reach)
            best = min((one for one in firsts if one is not None), default=None)
        if best is not None:
            taken.add(best.name)
        came_true.append(best is not None)
    return came_true


def _ranks(sizes: Iterable[Quantity]) -> dict[Quantity, int]:
    """Their order; sizes that are equal however they are written have one rank."""
    ranks: dict[Quantity, int] = {}
    last = None
    for size in sorted(sizes):
        ranks[size] = ranks[last] + (last < size) if last is not None else 0
        last = size
    return ranks


def _demand(claim: PersistentVolumeClaim) -> Demand:
    spec = claim.spec
    return Demand(
        requested(claim),
        frozenset(spec.access_modes),
        EVERYTHING if spec.selector is None else compile_selector(spec.selector),
        spec.volume_mode or "Filesystem",
        spec.volume_attributes_class_name or "",
    )


def _fits(volume: PersistentVolume, demand: Demand) -> bool:
    """What even a volume that was set aside for the claim must be."""
    spec = volume.spec
    return (
        not capacity(volume) < demand.size
        and (spec.volume_mode or "Filesystem") == demand.volume_mode
        and (spec.volume_attributes_class_name or "") == demand.attributes_class
    )


def _suits(volume: PersistentVolume, demand: Demand) -> bool:
    return demand.modes.issubset(volume.spec.access_modes) and demand.selector.matches(volume.metadata.labels)
