"""What the placements of a trial may have taken of the volumes that claims wait for.

The scheduler takes the smallest volume that will do, and any of several that are equally small. So it is not known
which volume a placement has taken, only from which group of volumes, and a claim is called sure of one only if there
are more volumes in reach than may have been taken.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from predicates.indexes.pod_claims import ClaimsOfPods
from predicates.indexes.shelves import Shelf, Shelves, Wish
from predicates.nodes import ALL, Flags, Numbers
from predicates.objects import PersistentVolumeClaim
from predicates.provisioning import provisioning_codes
from predicates.snapshot import Snapshot
from predicates.storage import claim_key, class_name

#: The claims of a placed pod that wait for their volumes, and its row.
Taker: TypeAlias = tuple[tuple[PersistentVolumeClaim, ...], int]


def taken(claims: Sequence[PersistentVolumeClaim], snapshot: Snapshot) -> Flags:
    """The rows, of all, where the *claims* of one pod, in their order, cannot be sure of their volumes."""
    takers = _takers(snapshot)
    refused = _away_from_shared(claims, takers, len(snapshot.nodes))
    rivals = [(one, row) for other, row in takers for one in other]
    for shelf, wishes in snapshot.index(Shelves).wishes(claims):
        lost = {place: _lost(shelf, claims[place], wish, rivals) for place, wish in wishes.items()}
        # What one claim cannot have, another may get that would have been left to a third.
        contested = np.logical_or.reduce([numbers > 0 for numbers in lost.values()])
        for before, (place, wish) in enumerate(wishes.items()):
            unsure = contested & (shelf.numbers(wish) <= lost[place] + before)
            if unsure.any() and not wish.own:
                refused |= unsure & (provisioning_codes(claims[place], snapshot, ALL) != 0)
    return refused


def _away_from_shared(claims: Sequence[PersistentVolumeClaim], takers: Sequence[Taker], rows: int) -> Flags:
    """All rows but those where the volume of a claim that a placed pod shares is known to be in reach: its own."""
    away: Flags = np.zeros(rows, np.bool_)
    mine = {_key(one) for one in claims}
    for other, row in takers:
        if any(_key(one) in mine for one in other):
            elsewhere = np.ones(rows, np.bool_)
            elsewhere[row] = False
            away |= elsewhere
    return away


def _takers(snapshot: Snapshot) -> list[Taker]:
    """The waiting claims of the pods that the trial has placed, and where."""
    known = snapshot.index(ClaimsOfPods)
    waiting = ((known.of(pod), row) for (pod, row), count in snapshot.assumed_claims.items() if count > 0)
    return [(claims.waiting, row) for claims, row in waiting if claims.waiting]


def _lost(
    shelf: Shelf, claim: PersistentVolumeClaim, wish: Wish, rivals: Sequence[tuple[PersistentVolumeClaim, int]]
) -> Numbers:
    """By row, how many of the volumes in reach that would do for *claim* the *rivals* may have taken."""
    groups = shelf.groups(wish)
    lost: Numbers = np.zeros(len(shelf.numbers(wish)), np.int64)
    for rival, row in rivals:
        if class_name(rival) == class_name(claim) and _key(rival) != _key(claim):
            offered = shelf.groups(shelf.wish(rival)).keys() & groups.keys()
            lost += shelf.reach(offered & shelf.groups_in_reach(row))
    return lost


def _key(claim: PersistentVolumeClaim) -> str:
    return claim_key(claim.metadata.namespace, claim.metadata.name)
