"""The cloud provider for Liqo's virtual nodes, through our node manager or Liqo's original one. It is
imported by name when it is selected.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path

from rescheduler.clock import Clock
from rescheduler.liqo.client import LiqoFile, NodeManager, OurNodeManager, find, open_client, read_file
from rescheduler.liqo.messages import SCHEME, VIRTUAL_NODE_LABELS
from rescheduler.net.config_files import keys_as
from rescheduler.net.http_errors import Missing
from rescheduler.providers.base import CloudProvider, NodeGroup, NodeRef, NodeTemplate, Refused
from rescheduler.providers.fleet import PollIntervals, SystemMachine, SystemView
from rescheduler.providers.fleet.provider import FleetProvider

# The cloud provider for Liqo's virtual nodes.

_TYPE = "liqo.io/type"


def load(config: Path, clock: Clock) -> CloudProvider:
    """Load the provider from the `--cloud-config` file, without sending a request. Raises ConfigError."""
    file = read_file(config)
    with keys_as("nodeManager.{}".format, f"cloud configuration {config}"):
        return LiqoProvider(file, config.parent, clock)


class LiqoSystem:
    """A node manager as a fleet. A machine's key is the name of its virtual node."""

    name = "liqo"
    deletion_is_certain = False  #: a deletion evicts the node's pods first, which may take a long time

    def __init__(self, file: LiqoFile, folder: Path, clock: Clock) -> None:
        self._clock, self._timeout = clock, float(file.node_manager.timeout)
        self._http = open_client(file.node_manager, folder, clock)
        self._manager: NodeManager | None = None
        self._names: Mapping[str, str] = {}  #: provider ID → name, as last listed

    def read(self, *, deadline: float) -> SystemView:
        try:
            view = self._client(deadline).read(deadline=deadline)
        except Missing:
            self._manager = None  # the node manager may have been replaced: detect its generation again
            raise
        self._names = {machine.id: machine.key for machine in view.machines}
        return view

    def key_of(self, node: NodeRef) -> str | None:
        """Return the name from the provider ID set by the node manager or Liqo, or else the name of a virtual node."""
        if node.provider_id in self._names:
            return self._names[node.provider_id]
        if node.provider_id.startswith(SCHEME):
            return node.provider_id.removeprefix(SCHEME)
        if node.provider_id:
            return None
        return node.name if node.labels.get(_TYPE) == VIRTUAL_NODE_LABELS[_TYPE] else ""

    def contradiction(self, node: NodeRef, machine: SystemMachine) -> str:  # noqa: ARG002 -- a name identifies a machine
        kind = node.labels.get(_TYPE, VIRTUAL_NODE_LABELS[_TYPE])
        return "" if kind == VIRTUAL_NODE_LABELS[_TYPE] else f"its label {_TYPE} is {kind!r}"

    def is_control_plane(self, node: NodeRef) -> bool:  # noqa: ARG002
        return False

    def exists(self, key: str, *, deadline: float) -> bool | None:  # noqa: ARG002
        """Return whether the machine exists. Only our node manager lists virtual nodes outside of its groups."""
        return key in self._names.values() or (False if isinstance(self._manager, OurNodeManager) else None)

    def deletion_refusal(self, machine: SystemMachine, *, deadline: float) -> Refused | None:  # noqa: ARG002
        return machine.protected

    def delete(self, machine: SystemMachine, *, deadline: float) -> None:
        self._client(deadline).delete(machine.group, machine.key, deadline=deadline)

    def create(self, group: NodeGroup, count: int, created: Callable[[str], None], *, deadline: float) -> None:
        for name in self._client(deadline).create(group.id, count, deadline=deadline):
            created(name)

    def close(self) -> None:
        self._http.close()

    def template(self, group: str, *, deadline: float) -> NodeTemplate:
        return self._client(deadline).template(group, deadline=deadline)

    def node_price(self, name: str, start: dt.datetime, end: dt.datetime, *, deadline: float) -> float:
        return self._client(deadline).node_price(name, start, end, deadline=deadline)

    def pod_price(
        self, requests: Mapping[str, Decimal], start: dt.datetime, end: dt.datetime, *, deadline: float
    ) -> float:
        return self._client(deadline).pod_price(requests, start, end, deadline=deadline)

    def gpu_label(self) -> str:
        return self._http.get("/gpu/label", str, deadline=self._default_deadline())[0]

    def gpu_types(self) -> frozenset[str]:
        return frozenset(self._http.get("/gpu/types", list[str], deadline=self._default_deadline())[0])

    def _client(self, deadline: float) -> NodeManager:
        """Return the client. An original node manager may be replaced at any time, so it is detected again."""
        if not isinstance(self._manager, OurNodeManager):
            self._manager = find(self._http, deadline=deadline)
        return self._manager

    def _default_deadline(self) -> float:
        return self._clock.monotonic() + self._timeout


class LiqoProvider(FleetProvider):
    def __init__(self, file: LiqoFile, folder: Path, clock: Clock) -> None:
        """Create the provider. Relative paths in *file* are based on *folder*. Raises ConfigError."""
        self._liqo = LiqoSystem(file, folder, clock)
        pace = PollIntervals(refresh=file.refresh_interval, poll=file.poll_interval, settle=file.settle_time)
        super().__init__(self._liqo, clock, pace)

    def template(self, group: str, *, deadline: float) -> NodeTemplate:
        return self._liqo.template(self.group(group, deadline=deadline).id, deadline=deadline)

    def node_price(self, node: NodeRef, start: dt.datetime, end: dt.datetime, *, deadline: float) -> float:
        name = self._liqo.key_of(node) or node.name
        return self._liqo.node_price(name, start, end, deadline=deadline)

    def pod_price(
        self, requests: Mapping[str, Decimal], start: dt.datetime, end: dt.datetime, *, deadline: float
    ) -> float:
        return self._liqo.pod_price(requests, start, end, deadline=deadline)

    def gpu_label(self) -> str:
        return self._liqo.gpu_label()

    def gpu_types(self) -> frozenset[str]:
        return self._liqo.gpu_types()
