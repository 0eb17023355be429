"""Owners whose pods did not run again in time after a drain. Their pods are not moved for a while; others are.

The wait of an owner doubles each time its pods are not running in time. After a second owner of one namespace, the
whole namespace waits in the same way.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime

import msgspec

from predicates.objects import Pod
from rescheduler.backoff import Backoff
from rescheduler.planning.controller_names import controller_of
from rescheduler.planning.controllers import Controller
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.rules.pod_traits import belongs_to_node
from rescheduler.planning.timestamps import utc
from rescheduler.planning.waits import Count, Moment


class OwnerWait(msgspec.Struct, frozen=True):
    """The wait of one owner, or of a namespace."""

    failures: Count  #: how often its pods did not run in time
    until: Moment


class NotRecovered(msgspec.Struct, frozen=True, omit_defaults=True):
    """The owners that wait, by ``namespace/Kind/name``, and the namespaces that wait, by their name.

    The name identifies an owner, so that one that is deleted and created again waits as well.
    """

    by_name: dict[str, OwnerWait] = {}

    def failed(self, owner: Controller, now: datetime, wait: Backoff) -> "NotRecovered":
        """Return the waits after the pods of *owner* did not run in time. No effect if the owner waits already."""
        name, namespace = str(owner), owner.namespace
        if self._waits(name, now):
            return self
        failed = {name: self._next(name, now, wait)}
        second = any(other != name and other.startswith(f"{namespace}/") for other in self.by_name)
        if second and not self._waits(namespace, now):
            failed[namespace] = self._next(namespace, now, wait)
        return NotRecovered(self.by_name | failed)

    def recovered(self, owners: Iterable[Controller]) -> "NotRecovered":
        """Return the waits after a drain that moved pods of *owners*: they run again."""
        return self.released({str(owner) for owner in owners})

    def released(self, names: Collection[str]) -> "NotRecovered":
        """Return the waits without the owners and namespaces *names*.

        A namespace includes its owners, and does not wait any more without the last of them.
        """
        gone = {name for name in self.by_name if name in names or name.partition("/")[0] in names}
        left = {name.partition("/")[0] for name in self.by_name.keys() - gone if "/" in name}
        gone |= {name.partition("/")[0] for name in gone} - left
        return NotRecovered({name: wait for name, wait in self.by_name.items() if name not in gone}) if gone else self

    def active(self, now: datetime) -> dict[str, OwnerWait]:
        """Return the waits that have not ended at *now*."""
        return {name: wait for name, wait in self.by_name.items() if wait.until > now}

    def current(self, now: datetime, wait: Backoff) -> "NotRecovered":
        """Return the waits without those that ended longer ago than the longest wait."""
        remaining = {name: known for name, known in self.by_name.items() if known.until > now - wait.longest}
        return self if len(remaining) == len(self.by_name) else NotRecovered(remaining)

    def bounded(self, now: datetime, wait: Backoff) -> "NotRecovered":
        """Return the same waits, limited to the longest allowed wait."""
        latest = now + wait.longest
        shortened = {
            name: OwnerWait(known.failures, latest) for name, known in self.by_name.items() if known.until > latest
        }
        return NotRecovered(self.by_name | shortened) if shortened else self

    def _waits(self, name: str, now: datetime) -> bool:
        return name in self.by_name and self.by_name[name].until > now

    def _next(self, name: str, now: datetime, wait: Backoff) -> OwnerWait:
        failures = self.by_name[name].failures + 1 if name in self.by_name else 1
        return OwnerWait(failures, now + wait.after(failures))


def blocker(owner: Controller, pod: str, waits: Mapping[str, OwnerWait]) -> Blocker | None:
    """Return a blocker of moving *pod* (``namespace/name``) of *owner* if it or its namespace is one of *waits*."""
    name = str(owner)
    for waiting in (name, owner.namespace):
        if (wait := waits.get(waiting)) is not None:
            return Blocker(Reason.NOT_RECOVERED, _detail(waiting, wait), pod)
    return None


def blockers_by_node(
    pods: Iterable[Pod], waits: Mapping[str, OwnerWait], is_candidate: Callable[[str], bool]
) -> dict[str, tuple[Blocker, ...]]:
    """Return one blocker for each candidate node with *pods* that must not be moved because of *waits*."""
    if not waits:
        return {}
    namespaces = {name.partition("/")[0] for name in waits}
    blockers: dict[str, tuple[Blocker, ...]] = {}
    for pod in pods:
        if pod.namespace not in namespaces or not pod.node_name or pod.node_name in blockers:
            continue
        found = _of_pod(pod, waits)
        if found is not None and not belongs_to_node(pod) and is_candidate(pod.node_name):
            blockers[pod.node_name] = (found,)
    return blockers


def _of_pod(pod: Pod, waits: Mapping[str, OwnerWait]) -> Blocker | None:
    name = controller_of(pod)
    return blocker(Controller(pod.namespace, name.kind, name.name, ""), pod.key, waits)


def _detail(name: str, wait: OwnerWait) -> str:
    whose = name if "/" in name else f"several owners in namespace {name}"
    times = "" if wait.failures == 1 else f" ({wait.failures} times)"
    return f"pods of {whose} did not run in time after a drain{times}; no new attempt before {utc(wait.until)}"
