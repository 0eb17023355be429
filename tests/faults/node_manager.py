"""The Liqo node manager as a process before the fault proxy: a virtual node comes and goes, whatever happens to it."""

import contextlib
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import click

from deploy.local.errors import PlaneError
from deploy.local.faults.calls import ApiCall
from deploy.local.faults.catalog import UNBOUND_FAULTS
from deploy.local.faults.exchange import ProxiedRequest
from deploy.local.faults.injected import Hook, InjectedFault
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

    call: ApiCall
    occurrence: int

    @property
    def name(self) -> str:
        return str(self.call)

    @property
    def writes(self) -> bool:
        return self.call.writes

    def __str__(self) -> str:
        return f"{self.name} #{self.occurrence}"


def faults_of(call: ManagerCall) -> list[str]:
    """The faults that mean anything for *call*. A token that has expired is replaced by the kubelet, not here."""
    return [name for name, fault in UNBOUND_FAULTS.items() if fault.applies(call.call) and name != "expired-token"]


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
                found.append(ManagerCall(seen.call, counts[name]))
        return found

    def hit(self, call: ManagerCall, trouble: str) -> bool:
        """Play a visit in which *call* fails, or the node manager is killed at it; whether that happened.

        *trouble*: one of MOMENTS for a kill, or the name of a fault.
        """
        kills: dict[str, InjectedFault] = {moment: Hook(moment, self._kill) for moment in MOMENTS}
        fault = (self._proxy.all_faults() | kills)[trouble]
        return self.play(FaultRule(call.name, fault, call.occurrence))

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


@click.command()
@click.option("--kills", is_flag=True, help="Kill the node manager before and after each call, in place of faults.")
@click.option("--writes", is_flag=True, help="Only at calls that write.")
def main(*, kills: bool, writes: bool) -> None:
    """Each of its calls fails with each fault, or it is killed. Exit code 1 where something was left behind."""
    runs = wrong = 0
    with tempfile.TemporaryDirectory() as folder, ControlPlane() as plane, before_api_server(plane) as proxy:
        own = redirected(plane.kubeconfig, proxy, Path(folder) / "kubeconfig")
        with site(plane, Path(folder), {"rome": 1}, own=own) as here:
            visit = Visit(here, proxy)
            calls = [made for made in visit.calls() if made.writes or not writes]
            pairs = [(call, trouble) for call in calls for trouble in (MOMENTS if kills else faults_of(call))]
            for call, trouble in pairs:
                runs += 1
                try:
                    ended = "finished" if visit.hit(call, trouble) else "finished, not reached"
                except PlaneError as error:
                    wrong += 1
                    ended = f"FAILED: {error}"
                click.echo(f"{runs}/{len(pairs)} {call} × {trouble}: {ended}")
    click.echo(f"{runs} runs, {wrong} failed")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
