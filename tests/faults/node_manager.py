"""The Liqo node manager as a process before the fault proxy: a virtual node comes and goes, whatever happens to it."""

import contextlib
import itertools
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import click

from deploy.local.errors import PlaneError
from deploy.local.faults.exchange import ProxiedRequest
from deploy.local.faults.injected import Hook
from deploy.local.faults.proxy import FaultProxy, before_api_server, redirected
from deploy.local.faults.rules import FaultRule
from deploy.local.plane import ControlPlane
from rescheduler.backends.base import InstanceState, NodeRef
from rescheduler.backends.liqo.provider import LiqoProvider
from rescheduler.clock import SystemClock
from rescheduler.errors import ReschedulerError
from tests.cluster.virtual import Site, site

GROUP: Final = "STANDARD"
_PATIENCE_SECONDS: Final = 90.0
_CALL_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.2

Moment = Literal["before", "after"]
MOMENTS: Final[tuple[Moment, ...]] = ("before", "after")

#: The node manager reads all the time: so many occurrences of each read are enough.
_READS: Final = 2


@dataclass(frozen=True, slots=True)
class ManagerCall:
    """The *occurrence*-th call of that *name*, counted from the start of a visit."""

    name: str
    occurrence: int
    writes: bool

    def __str__(self) -> str:
        return f"{self.name} #{self.occurrence}"


class Visit:
    """One virtual node comes and goes; a node manager that was killed is started again."""

    def __init__(self, here: Site, proxy: FaultProxy) -> None:
        self._here, self._proxy = here, proxy
        self._clock = SystemClock()
        self._lock = threading.Lock()

    def calls(self) -> list[ManagerCall]:
        """Those of a visit in which nothing goes wrong."""
        self.play()
        counts: Counter[str] = Counter()
        found = []
        for seen in self._proxy.seen:
            name = str(seen.call)
            counts[name] += 1
            if seen.call.writes or counts[name] <= _READS:
                found.append(ManagerCall(name, counts[name], seen.call.writes))
        return found

    def killed(self, call: ManagerCall, moment: Moment) -> bool:
        """Play a visit in which the node manager is killed at *call*; whether it was."""
        return self.play(FaultRule(call.name, Hook(moment, self._kill), call.occurrence))

    def play(self, *rules: FaultRule) -> bool:
        """Whether one of *rules* concerned a request.

        Raises PlaneError where the node does not come, or does not go without leaving anything behind.
        """
        self._here.manager.kill()
        self._proxy.forget()
        self._proxy.rules.add(*rules)
        self._until(self._come, "a virtual node")
        self._until(self._gone, "no virtual node, and nothing left of it")
        return any(seen.fault for seen in self._proxy.seen)

    def _come(self, provider: LiqoProvider) -> bool:
        deadline = self._clock.monotonic() + _CALL_SECONDS
        if provider.target_size(GROUP, deadline=deadline) == 0:
            provider.increase_size(GROUP, 1, deadline=deadline)
        states = [one.state for one in provider.instances(GROUP, deadline=deadline)]
        return states == [InstanceState.RUNNING] and len(self._here.nodes()) == 1

    def _gone(self, provider: LiqoProvider) -> bool:
        deadline = self._clock.monotonic() + _CALL_SECONDS
        for node in self._here.nodes().values():
            metadata = node["metadata"]
            ref = NodeRef(metadata["name"], node["spec"].get("providerID", ""), metadata["labels"])
            provider.delete_nodes(GROUP, [ref], deadline=deadline)
        left = [*self._here.nodes(), *self._here.slices()]
        return not left and provider.target_size(GROUP, deadline=deadline) == 0

    def _until(self, reached: Callable[[LiqoProvider], bool], what: str) -> None:
        until = self._clock.monotonic() + _PATIENCE_SECONDS
        while self._clock.monotonic() < until:
            self._keep_running()
            with self._here.provider() as provider, contextlib.suppress(ReschedulerError):
                while self._here.manager.running:
                    if reached(provider):
                        return
                    self._clock.wait(_POLL_SECONDS, threading.Event())
            self._clock.wait(_POLL_SECONDS, threading.Event())
        raise PlaneError(f"waited {_PATIENCE_SECONDS:g} s for {what}; nodes {[*self._here.nodes()]}")

    def _keep_running(self) -> None:
        while not self._here.manager.running:
            with contextlib.suppress(AssertionError):  # it was killed while it started
                self._here.start()

    def _kill(self, _: ProxiedRequest) -> bool:
        self._here.manager.kill()
        return False


def main() -> None:
    """Kill the node manager before and after each of its calls, reads as well."""
    with tempfile.TemporaryDirectory() as folder, ControlPlane() as plane, before_api_server(plane) as proxy:
        own = redirected(plane.kubeconfig, proxy, Path(folder) / "kubeconfig")
        with site(plane, Path(folder), {"rome": 1}, own=own) as here:
            visit = Visit(here, proxy)
            calls = visit.calls()
            for number, (call, moment) in enumerate(itertools.product(calls, MOMENTS), start=1):
                hit = visit.killed(call, moment)
                click.echo(f"{number}/{2 * len(calls)} killed {moment} {call}{'' if hit else ': not reached'}")


if __name__ == "__main__":
    main()
