"""The node manager's configuration file: its groups and timeouts."""

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from rescheduler.errors import ConfigError, UsageError
from rescheduler.liqo.discovery import messages
from rescheduler.liqo.discovery.messages import QuantityTexts
from rescheduler.liqo.messages import ADDED_RESOURCES, VIRTUAL_NODE_LABELS
from rescheduler.liqo.node_manager.due_actions import MachineTimeouts
from rescheduler.liqo.node_manager.groups import DEFAULT_GROUPS, ExactAmounts, VirtualNodeGroup, amounts
from rescheduler.liqo.node_manager.resources import DEFAULT_CLASS
from rescheduler.net.config_files import Duration, Section, read
from rescheduler.planning.node_labels import LABEL_KEY
from rescheduler.providers.base import NodeTaint

#: The format of label values: a group's ID is one.
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

Size = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Cost = Annotated[float, msgspec.Meta(ge=0, le=messages.DEAREST)]


class GroupTaintSection(Section, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class ResourcesSection(Section, frozen=True, kw_only=True):
    """Quantities by resource name."""

    min: dict[str, str | int | float]  #: requested for every node
    max: dict[str, str | int | float] = msgspec.field(default_factory=dict)  #: requested if the cluster has enough
    #: granted by clusters without a request
    added: dict[str, str | int | float] = msgspec.field(default_factory=lambda: {**ADDED_RESOURCES})


class GroupSection(Section, frozen=True, kw_only=True):
    id: str
    min_size: Size = 0
    max_size: Size
    resources: ResourcesSection
    selector: dict[str, str] = msgspec.field(default_factory=dict)  #: required labels of a cluster
    labels: dict[str, str] = msgspec.field(default_factory=dict)  #: set on the Nodes
    taints: list[GroupTaintSection] = msgspec.field(default_factory=list)
    cost: Cost = 1.0  #: per node and hour
    slice_class: str = msgspec.field(default=DEFAULT_CLASS, name="class")


class NodeManagerFile(Section, frozen=True, kw_only=True):
    groups: list[GroupSection] | msgspec.UnsetType = msgspec.UNSET  #: unset: DEFAULT_GROUPS
    provision_timeout: Duration = Duration(900)  #: maximum time until a machine runs
    show_failures_for: Duration = Duration(60)  #: how long failed machines are listed before they are given back
    unpeer_after: Duration | None = None  #: how long peerings without slices are kept; none: forever


@dataclass(frozen=True, slots=True)
class Configuration:
    groups: tuple[VirtualNodeGroup, ...] = DEFAULT_GROUPS
    patience: MachineTimeouts = field(default_factory=MachineTimeouts)
    unpeer_after: dt.timedelta | None = None


def configuration(path: Path | None) -> Configuration:
    """Return the validated file, or the defaults. Raises ConfigError that names the file and the key."""
    if path is None:
        return Configuration()
    file = read(path, NodeManagerFile, "configuration", may_be_empty=False)
    where = f"configuration {path}"
    groups = DEFAULT_GROUPS if file.groups is msgspec.UNSET else _groups(file.groups, where)
    patience = MachineTimeouts(
        provision=dt.timedelta(seconds=file.provision_timeout), shown=dt.timedelta(seconds=file.show_failures_for)
    )
    if file.provision_timeout <= 0:
        raise ConfigError(f"{where}: provisionTimeout: expected more than 0s")
    return Configuration(
        groups, patience, None if file.unpeer_after is None else dt.timedelta(seconds=file.unpeer_after)
    )


def _groups(sections: Sequence[GroupSection], where: str) -> tuple[VirtualNodeGroup, ...]:
    if not sections:
        raise ConfigError(f"{where}: groups: expected at least one")
    for index, section in enumerate(sections):
        check_group(section, f"{where}: groups[{index}]")
        if section.id in {other.id for other in sections[:index]}:
            raise ConfigError(f"{where}: groups[{index}].id: {section.id!r} occurs twice")
    return tuple(group(section) for section in sections)


def group(section: GroupSection) -> VirtualNodeGroup:
    return VirtualNodeGroup(
        section.id,
        section.min_size,
        section.max_size,
        _as_texts(section.resources.min),
        _as_texts(section.resources.max),
        section.selector,
        section.labels,
        tuple(NodeTaint(taint.key, taint.value, taint.effect) for taint in section.taints),
        section.cost,
        _as_texts(section.resources.added),
        section.slice_class,
    )


def check_group(section: GroupSection, where: str) -> None:
    """Check the rules about a group that types cannot express."""
    for key, name in (("id", section.id), ("class", section.slice_class)):
        if not _LABEL_VALUE.fullmatch(name):
            raise ConfigError(
                f"{where}.{key}: expected at most 63 of A-Z a-z 0-9 - _ . with a letter or digit at both ends"
            )
    if section.max_size < section.min_size:
        raise ConfigError(f"{where}.maxSize: expected minSize or more")
    _check_amounts(section.resources, f"{where}.resources")
    taints = [(taint.key, taint.value) for taint in section.taints]
    for name, pairs in (("labels", section.labels.items()), ("taints", taints)):
        for key, value in pairs:
            if not LABEL_KEY.fullmatch(key) or (value and not _LABEL_VALUE.fullmatch(value)):
                raise ConfigError(f"{where}.{name}: expected Kubernetes {name}, got {key!r}: {value!r}")
    for key in section.labels:
        if key.startswith(("liqo.io/", "spot-rescheduler/")) or key in VIRTUAL_NODE_LABELS:
            raise ConfigError(f"{where}.labels: {key}: expected labels that are not Liqo's or ours")


def _as_texts(quantities: Mapping[str, str | float]) -> dict[str, str]:
    return {name: str(amount) for name, amount in quantities.items()}


def _check_amounts(resources: ResourcesSection, where: str) -> None:
    least = _amounts(resources.min, f"{where}.min")
    for name in ("cpu", "memory", "pods"):
        if not least.get(name):
            raise ConfigError(f"{where}.min.{name}: expected more than 0")
    _amounts(resources.added, f"{where}.added")
    for name, amount in _amounts(resources.max, f"{where}.max").items():
        if name not in least or amount < least[name]:
            raise ConfigError(f"{where}.max.{name}: expected min.{name} or more")


def _amounts(quantities: QuantityTexts, where: str) -> ExactAmounts:
    try:
        return amounts(messages.quantities(quantities, where))
    except UsageError as error:
        raise ConfigError(str(error)) from error
