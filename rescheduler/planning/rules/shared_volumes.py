"""Claims that several pods use, although their volume attaches to one node at a time.

The scheduler does not know this limit. If it places the pods on two nodes, the attach-detach controller refuses to
attach the volume to the second one (Multi-Attach, ``pkg/controller/volume/attachdetach/reconciler``), and that pod
never starts. A drain moves the pods one after the other and cannot choose their nodes.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from predicates.filters import Filters
from predicates.indexes.volumes import PodDisks
from predicates.objects import CSIDriver, PersistentVolume, Pod, PodClass
from predicates.snapshot import Snapshot
from predicates.storage import claim_key, find_claim, find_volume
from rescheduler.planning.outcome import Blocker, Reason

#: Access modes with which pods on several nodes can use a volume.
_MANY_NODES: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})


class SharedVolumes:
    """The claims of *snapshot* that several placed pods use and that attach to one node only."""

    def __init__(self, snapshot: Snapshot, filters: Filters) -> None:
        self._snapshot = snapshot
        self._filters = filters

    def blockers(self, node: str, pods: Iterable[Pod]) -> Iterator[Blocker]:
        """Yield a blocker for each of *pods* on *node* that shares such a claim, unless only one node can run them."""
        for pod in pods:
            for claim in pod.cls.claims:
                if claim.ephemeral or not self._attaches_once(pod.namespace, claim.name):
                    continue
                users = self._users(pod.namespace, claim.name)
                if sum(count for _, rows in users for count in rows.values()) > 1 and not self._one_node(node, users):
                    yield Blocker(Reason.SHARED_VOLUME, self._text(pod, claim.name), pod.key)
                    break

    def _text(self, pod: Pod, claim: str) -> str:
        others = sorted(
            other.key
            for other in self._snapshot.pods.values()
            if other.namespace == pod.namespace
            and other.key != pod.key
            and any(used.name == claim for used in other.cls.claims)
        )
        return (
            f"it shares the PersistentVolumeClaim {claim} with pod {others[0]}{', …' if len(others) > 1 else ''}: its "
            "volume attaches to one node at a time, and the scheduler may place the pods on two nodes"
        )

    def _attaches_once(self, namespace: str, name: str) -> bool:
        snapshot = self._snapshot
        if snapshot.index(PodDisks).claims.get(claim_key(namespace, name), 0) <= 1:
            return False
        claim = find_claim(snapshot, namespace, name)
        if claim is None or not claim.spec.volume_name:
            return False
        volume = find_volume(snapshot, claim.spec.volume_name)
        modes = (volume.spec.access_modes if volume is not None else ()) or claim.spec.access_modes
        return bool(modes) and _MANY_NODES.isdisjoint(modes) and (volume is None or self._is_attached(volume))

    def _is_attached(self, volume: PersistentVolume) -> bool:
        """Return whether the volume must be attached to a node before it is mounted."""
        if volume.spec.csi is None:
            return True
        driver = self._snapshot.of("CSIDriver").get(volume.spec.csi.driver)
        return not isinstance(driver, CSIDriver) or driver.spec.attach_required

    def _users(self, namespace: str, name: str) -> list[tuple[PodClass, dict[int, int]]]:
        """Return the classes whose pods use the claim, with the number of their pods on each row."""
        classes = (cls for cls in self._snapshot.classes() if cls.namespace == namespace and cls.claims)
        using = (cls for cls in classes if any(claim.name == name and not claim.ephemeral for claim in cls.claims))
        return [(cls, dict(rows)) for cls in using if (rows := self._snapshot.rows_of(cls))]

    def _one_node(self, node: str, users: list[tuple[PodClass, dict[int, int]]]) -> bool:
        """Return whether there is exactly one node where the pods of *users* on *node* can run, besides *node*.

        Users on other nodes must already run there.
        """
        drained = self._snapshot.nodes.row[node]
        possible = {
            row for cls, rows in users if drained in rows for row in self._filters.possible(cls) if row != drained
        }
        elsewhere = {row for _, rows in users for row in rows if row != drained}
        return len(possible) == 1 and elsewhere <= possible
