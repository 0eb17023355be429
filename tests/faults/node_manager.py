"""The Liqo node manager as a process behind the fault proxy: a virtual node is created and removed under faults."""

import contextlib
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from devcluster.errors import PlaneError
from devcluster.faults.injected import InjectedFault
from devcluster.faults.proxy import FaultProxy, before_api_server, redirected
from devcluster.faults.rules import FaultRule
from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock
from rescheduler.errors import ReschedulerError
from rescheduler.liqo.provider import LiqoProvider
from rescheduler.providers.base import InstanceState, NodeRef
from tests.cluster.virtual import VirtualSite, site
from tests.faults.choice import applicable
from tests.faults.recording import CallOfDrain, numbered
from tests.faults.trials import KILLS, kill_by

GROUP: Final = "STANDARD"
_PATIENCE_SECONDS: Final = 90.0
_CALL_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.2

#: Number of occurrences of each read to test; the node manager repeats its reads all the time.
_READS: Final = 2


def faults_of(call: CallOfDrain) -> list[str]:
    """Return the faults that apply to *call*. Expired tokens do not: the kubelet replaces them."""
    return [name for name in applicable(call) if name != "expired-token"]


class Visit:
    """Creation and removal of one virtual node, with restarts of a killed node manager."""

    def __init__(self, here: VirtualSite, proxy: FaultProxy) -> None:
        self._here, self._proxy = here, proxy
        self._clock = SystemClock()
        self._lock = threading.Lock()

    def calls(self) -> list[CallOfDrain]:
        """Return the calls of a visit without faults."""
        self.play()
        return [call for call in numbered(self._proxy.seen, {}) if call.writes or call.occurrence <= _READS]

    def hit(self, call: CallOfDrain, trouble: str) -> bool:
        """Play a visit in which *call* fails or the node manager is killed at it; return whether the call occurred.

        *trouble* is one of KILLS, or the name of a fault.
        """
        kills: dict[str, InjectedFault] = {kind: kill_by(kind, self._kill) for kind in KILLS}
        fault = (self._proxy.all_faults() | kills)[trouble]
        return self.play(FaultRule(call.name, fault, call.occurrence))

    def play(self, *rules: FaultRule) -> bool:
        """Play a visit; return whether one of *rules* matched a request.

        Raise PlaneError if the node does not appear, or is not removed completely.
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
        states = [instance.state for instance in provider.instances(GROUP, deadline=deadline)]
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
            with contextlib.suppress(AssertionError):  # killed during its start
                self._here.start()

    def _kill(self) -> None:
        self._here.manager.kill()


@click.command()
@click.option(
    "--kills", is_flag=True, help="Kill the node manager before and after each call instead of injecting faults."
)
@click.option("--writes", is_flag=True, help="Test only calls that write.")
def main(*, kills: bool, writes: bool) -> None:
    """Inject each fault into each call of the node manager, or kill it. Exit code 1: objects were left behind."""
    runs = wrong = 0
    with tempfile.TemporaryDirectory() as folder, ControlPlane() as plane, before_api_server(plane) as proxy:
        own = redirected(plane.kubeconfig, proxy, Path(folder) / "kubeconfig")
        with site(plane, Path(folder), {"rome": 1}, own=own) as here:
            visit = Visit(here, proxy)
            calls = [each for each in visit.calls() if each.writes or not writes]
            pairs = [(call, trouble) for call in calls for trouble in (KILLS if kills else faults_of(call))]
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
