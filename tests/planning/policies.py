"""Random policies and circumstances that vary each of their fields. A new field is varied, or fails here by name."""

import dataclasses
import enum
import typing
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from hypothesis import strategies as st

from predicates.kubelet import digest
from predicates.nodes import RefusingNodes
from predicates.scheduler import DEFAULT_NAME, UnknownPlugin
from rescheduler.planning.money.commitments import Commitment
from rescheduler.planning.money.move_costs import MoveHistory
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.node_labels import NodeLabels
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.pauses import parse_window
from rescheduler.planning.policy import Circumstances, FallbackHeadroom, NamespaceScope, Policy
from rescheduler.planning.waits import Cooldown
from tests.planning.builders import HOST, NOW, pod, snapshot
from tests.planning.changing import ON_DEMAND_NODES, SPOT_NODES

#: By field of Policy, other than truth values and words of an enum: values besides the default.
POLICY_VALUES: Final[Mapping[str, tuple[Any, ...]]] = {
    "on_demand_label": (NodeLabels.parse(HOST), NodeLabels.parse("no/such-label")),
    "spot_label": (NodeLabels.parse(f"{HOST}=spot-1"),),
    "ignore_local_volumes": (("scratch",),),
    "min_on_demand_nodes": (1, 2),
    "planning_timeout": (),  # a forecast that is left out is made in a later round
    "scheduler_names": ((), ("other",)),
    "profiles": (("other",),),
    "unknown_plugins": ((UnknownPlugin("", "x"),), (UnknownPlugin(DEFAULT_NAME, "x", frozenset({"gpu"})),)),
    "pod_eviction_timeout": (1.0, 60.0),
    "max_graceful_termination": (5.0,),
    "namespaces": (NamespaceScope(excluded=frozenset({"default"})), NamespaceScope(included=frozenset({"shop"}))),
    "expendable_pods_priority_cutoff": (1, 10),
    "startup_taints": (("starting",),),
    "max_share_per_spot_pool": (40, 60),
    "spot_pool_labels": ((HOST,),),
    "surge_max_replicas": (1,),
    "leftover_rest": (10.0,),
    "drain_windows": ((parse_window("11:00-13:00"),),),
    "max_node_age": (10.0, 100.0),
    "min_worth": (5.0, 40.0),
    "fallback_headroom": (FallbackHeadroom(50), FallbackHeadroom(largest_pool=True)),
    "fallback_nodes_per_minute": (1, 5),
}

#: By field of Circumstances, other than the time: values besides the default.
VETO: Final = (Blocker(Reason.JOB_WOULD_FAIL, "its Job would fail", "default/job-1"),)
_UNTIL: Final = tuple(NOW + timedelta(seconds=seconds) for seconds in (1, 30, 90))
_PRICES: Final = PriceList(per_vcpu=Decimal("0.05"), per_gib=Decimal(0), spot_per_vcpu=Decimal("0.01"))
_POOLS: Final = ("a/unknown", "a", "spot-1")
_KINDS: Final = (((HOST, "spot-1"),), (("no/such-label", None),))
WEB: Final = snapshot([pod("web-1", "od-1")]).pods["default/web-1"].cls
CIRCUMSTANCE_VALUES: Final[Mapping[str, tuple[Any, ...]]] = {
    "cooling": tuple({name: Cooldown("uid", 1, until)} for name in ON_DEMAND_NODES for until in _UNTIL),
    "holder": ("me",),
    "own": ON_DEMAND_NODES,
    "ordered": tuple(frozenset({name}) for name in ON_DEMAND_NODES),
    "ending": tuple(frozenset({name}) for name in SPOT_NODES),
    "vetoes": tuple({name: VETO} for name in ON_DEMAND_NODES),
    "emptied": tuple(frozenset({name}) for name in ON_DEMAND_NODES),
    "prices": (
        _PRICES,
        *(dataclasses.replace(_PRICES, commitments=(Commitment(nodes=1, until=end),)) for end in (None, NOW.date())),
    ),
    "history": (
        MoveHistory({"default/ReplicaSet/web": 5}, {}, {}),
        MoveHistory({}, {"default/ReplicaSet/web": 90.0}, {"a": 0.5, "a/no-instance-type": 0.5}),
    ),
    "last": ({"default": 1}, {"shop": 2}),
    "settling": tuple({pool: until} for pool in _POOLS for until in _UNTIL),
    "growth": ({"od-1": ("g", 0), "od-2": ("g", 0)}, {"od-1": ("g", 2)}),
    "left_pending": (frozenset({"default"}),),
    "rested": ({"default/uid-of-web": NOW},),
    "refused": tuple({"default": {digest(WEB): (RefusingNodes(kind, "OutOfcpu"),)}} for kind in _KINDS),
}
_NOT_VARIED: Final = {"now", "deadlines"}  # an argument, and what the rules note


def _values(kind: type[Any], given: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each field of *kind* besides its default. Raises KeyError for one that is not known."""
    hints, found = typing.get_type_hints(kind), dict[str, tuple[Any, ...]]()
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if hint is bool:
            found[field.name] = (not field.default,)
        elif isinstance(hint, type) and issubclass(hint, enum.Enum):
            found[field.name] = tuple(value for value in hint if value is not field.default)
        elif field.name not in _NOT_VARIED:
            found[field.name] = given[field.name]
    if unused := given.keys() - found.keys():
        raise KeyError(f"{kind.__name__} has no field {unused}")
    return found


POLICY_FIELDS: Final = _values(Policy, POLICY_VALUES)
CIRCUMSTANCE_FIELDS: Final = _values(Circumstances, CIRCUMSTANCE_VALUES)


@st.composite
def _some(draw: st.DrawFn, fields: Mapping[str, tuple[Any, ...]], most: int) -> dict[str, Any]:
    varied = draw(st.lists(st.sampled_from([name for name in fields if fields[name]]), max_size=most, unique=True))
    return {name: draw(st.sampled_from(fields[name])) for name in varied}


#: Policies with at most five fields that are not the default.
policies: Final = _some(POLICY_FIELDS, 5).map(lambda fields: Policy(**{"planning_timeout": 1000.0, **fields}))

#: The fields of Circumstances, without the time. Most of them are empty.
circumstances: Final = _some(CIRCUMSTANCE_FIELDS, 3)
