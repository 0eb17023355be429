"""The duration of a drain under a PodDisruptionBudget that allows only some of a node's pods to be evicted at a time.

Under such a budget pods are evicted in steps: as many pods as the budget allows are evicted, their replacement pods
become Ready, and the budget allows the next evictions.
"""

import math
from collections.abc import Sequence
from typing import Final

from predicates.objects import Pod
from predicates.snapshot import Snapshot
from rescheduler.planning.budgets import Budgets
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import Policy
from rescheduler.planning.timestamps import instant

#: The assumed time in seconds from the creation of a pod until it is Ready, if there is no data.
READY_SECONDS: Final = 30.0

#: Pods that became Ready later than this after their creation were probably restarted, and are ignored. In seconds.
_LONGEST: Final = 3600.0

#: The API's default of ``terminationGracePeriodSeconds``.
_GRACE: Final = 30


class Steps:
    """Estimates of the steps for the budgets and pods of *snapshot*. Valid until the snapshot changes.

    The first call takes one pass over all pods.
    """

    def __init__(self, snapshot: Snapshot, budgets: Budgets, policy: Policy) -> None:
        self._snapshot = snapshot
        self._budgets = budgets
        self._policy = policy
        self._guarded: dict[str, list[Pod]] | None = None  #: Ready pods by the budget that guards them
        self._ready_seconds: dict[str, float] = {}
        self._estimated: set[str] = set()

    def too_slow(self, key: str, pods: Sequence[Pod], allowed: int) -> Blocker | None:
        """Return a blocker if *pods* of one node cannot be evicted in steps under budget *key*, or None.

        The budget allows *allowed* evictions at a time.
        """
        if len(pods) <= allowed:
            return None
        policy = self._policy
        self._estimated.add(key)
        grace = max(min(_grace(pod), policy.max_graceful_termination) for pod in pods)
        ready = self.ready_seconds(key)
        if grace + ready <= policy.pod_eviction_timeout:
            return None
        detail = (
            f"PodDisruptionBudget {key} allows {allowed} evictions at a time, {len(pods)} of its pods are on this "
            f"node, and a step takes {grace + ready:.0f} s ({grace:.0f} s to terminate, {ready:.0f} s until the "
            f"replacement pod is Ready); --pod-eviction-timeout is {policy.pod_eviction_timeout:.0f} s"
        )
        return Blocker(Reason.BUDGET_TOO_SLOW, detail, pods[0].key)

    def take_estimated(self) -> frozenset[str]:
        """Return the budgets for which :meth:`too_slow` has used the times of other pods since the last call."""
        estimated, self._estimated = frozenset(self._estimated), set()
        return estimated

    def ready_seconds(self, key: str) -> float:
        """Return the 90th percentile of the seconds that pods of budget *key* took from creation to Ready."""
        if (seconds := self._ready_seconds.get(key)) is None:
            if self._guarded is None:
                self._guarded = self._by_budget()
            seconds = self._ready_seconds[key] = _ninetieth_percentile(self._guarded.get(key, ()))
        return seconds

    def _by_budget(self) -> dict[str, list[Pod]]:
        guarded: dict[str, list[Pod]] = {}
        keys_of = self._budgets.of
        for pod in self._snapshot.pods.values():
            for key in keys_of(pod):
                guarded.setdefault(key, []).append(pod)
        return guarded


def _ninetieth_percentile(pods: Sequence[Pod]) -> float:
    durations = sorted(seconds for pod in pods if (seconds := _seconds_until_ready(pod)) is not None)
    return durations[math.ceil(0.9 * len(durations)) - 1] if durations else READY_SECONDS


def _seconds_until_ready(pod: Pod) -> float | None:
    created, ready = instant(pod.creation_timestamp), instant(pod.ready_since)
    if created is None or ready is None:
        return None
    seconds = (ready - created).total_seconds()
    return seconds if 0 <= seconds <= _LONGEST else None


def _grace(pod: Pod) -> int:
    seconds = pod.cls.spec.termination_grace_period_seconds
    return _GRACE if seconds is None else seconds
