"""The default provider, which owns no machines: the cluster's own autoscaler removes empty nodes. It is imported
by name when it is selected.
"""

# ruff: noqa: ARG001, ARG002 -- the protocol sets the signatures

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from rescheduler.clock import Clock
from rescheduler.providers.base import (
    CloudProvider,
    DeleteOutcome,
    GroupOptions,
    Instance,
    MayEnd,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    UnknownGroup,
    any_may_end,
)


def load(config: Path | None, clock: Clock) -> CloudProvider:
    return NoProvider()


class NoProvider(CloudProvider):
    """A provider without groups: verbs with a group argument raise UnknownGroup."""

    name = "none"

    def refresh(self, *, deadline: float) -> None:
        pass

    def groups(self, *, deadline: float) -> Sequence[NodeGroup]:
        return ()

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:
        return None

    def target_size(self, group: str, *, deadline: float) -> int:
        _unknown(group)

    def instances(self, group: str, *, deadline: float) -> Sequence[Instance]:
        _unknown(group)

    def delete_nodes(
        self, group: str, nodes: Sequence[NodeRef], *, deadline: float, may_end: MayEnd = any_may_end
    ) -> Mapping[str, DeleteOutcome]:
        _unknown(group)

    def increase_size(self, group: str, delta: int, *, deadline: float) -> None:
        _unknown(group)

    def decrease_target_size(self, group: str, delta: int, *, deadline: float) -> None:
        _unknown(group)

    def template(self, group: str, *, deadline: float) -> NodeTemplate:
        _unknown(group)

    def options(self, group: str, *, deadline: float) -> GroupOptions | None:
        _unknown(group)

    def close(self) -> None:
        pass


def _unknown(group: str) -> NoReturn:
    raise UnknownGroup(f"the cloud provider 'none' has no group {group!r}")
