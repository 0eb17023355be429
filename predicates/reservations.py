"""What the placements of a trial may have taken of the volumes that claims wait for.

The scheduler takes the smallest volume that will do, and any of several that are equally small. So it is not known
which volume a placement has taken, only from which group of volumes, and a claim is called sure of one only if there
are more volumes in reach than may have been taken.
"""

from collections.abc import Sequence

import numpy as np

from predicates.indexes.pod_claims import ClaimsOfPods
from predicates.indexes.shelves import Shelf, Shelves, Wish
from predicates.nodes import ALL, Flags, Numbers
from predicates.objects import PersistentVolumeClaim
from predicates.provisioning import provisioning_codes
from predicates.snapshot import Snapshot
from predicates.storage import claim_key, class_name


def taken(claims: Sequence[PersistentVolumeClaim], snapshot: Snapshot) -> Flags:
    """The rows, of all, where the *claims* of one pod, in their order, cannot be sure of their volumes."""
    refused: Flags = np.zeros(len(snapshot.nodes), np.bool_)
    takers = _takers(snapshot)
    mine = {_key(one) for one in claims}
    for other, row in takers:
        if any(_key(one) in mine for one in other):
            # A claim of both: where it is taken, its volume is in reach; elsewhere it may not be.
            elsewhere = np.ones(len(refused), np.bool_)
            elsewhere[row] = False
            refused |= elsewhere
    others = [(one, row) for other, row in takers for one in other if _key(one) not in mine]
    for shelf, wishes in snapshot.index(Shelves).wishes(claims):
        for before, (place, wish) in enumerate(wishes.items()):
            rivals = [(one, row) for one, row in others if class_name(one) == class_name(claims[place])]
            lost = _lost(shelf, wish, rivals)
            unsure = (lost > 0) & (shelf.numbers(wish) <= lost + before)
            if unsure.any():
                refused |= unsure & (provisioning_codes(claims[place], snapshot, ALL) != 0)
    return refused


def _takers(snapshot: Snapshot) -> list[tuple[tuple[PersistentVolumeClaim, ...], int]]:
    """The waiting claims of the pods that the trial has placed, and where."""
    known = snapshot.index(ClaimsOfPods)
    waiting = ((known.of(pod), row) for (pod, row), count in snapshot.claimants.items() if count > 0)
    return [(claims.waiting, row) for claims, row in waiting if claims.waiting]


def _lost(shelf: Shelf, wish: Wish, rivals: Sequence[tuple[PersistentVolumeClaim, int]]) -> Numbers:
    """By row, how many of the volumes in reach that would do for *wish* the *rivals* may have taken."""
    groups = shelf.groups(wish)
    lost: Numbers = np.zeros(len(shelf.numbers(wish)), np.int64)
    for claim, row in rivals:
        offered = shelf.groups(shelf.wish(claim)).keys() & groups.keys()
        lost += shelf.reach(offered & shelf.groups_in_reach(row))
    return lost


def _key(claim: PersistentVolumeClaim) -> str:
    return claim_key(claim.metadata.namespace, claim.metadata.name)
