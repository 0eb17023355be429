"""Arbitrary updates of discovery are rejected without an effect, or listed so that the node manager can decode them."""

import datetime as dt
import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rescheduler.errors import UsageError
from rescheduler.liqo import serving
from rescheduler.liqo.discovery import messages
from rescheduler.liqo.discovery.app import AgentUpdates, ClusterStore
from rescheduler.liqo.discovery.messages import UpdateRequest
from rescheduler.liqo.node_manager.catalog import DiscoveredCluster, remote_cluster
from tests.liqo_services.kubeconfigs import kubeconfig
from tests.providers.clocks import StepClock

UNUSUAL_VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)
)
AMOUNTS = st.sampled_from(["1", "250m", "2Gi", "1e3", 4, 0.5, 0, "", "-1", "1Zi", "9" * 30, 1e300, 10**18])
QUANTITIES = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "", "a b"]), AMOUNTS, max_size=3)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "kubeconfig": st.sampled_from([kubeconfig(), "", "a: *b", kubeconfig(user={"exec": {"command": "x"}})]),
    "resources": QUANTITIES,
    "labels": st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2),
    "hasNat": st.booleans(),
    "price": st.floats(min_value=-1, max_value=1e10),
    "free": QUANTITIES,
    "ttl": st.sampled_from(["1s", "2h", "0s", "soon"]),
}
CLUSTERS = st.fixed_dictionaries(
    {"name": st.sampled_from(["turin", "milan", "a" * 63, "A", ""])},
    optional={key: value | st.none() | UNUSUAL_VALUES for key, value in VALUES.items()},
)
UPDATES = st.fixed_dictionaries(
    {},
    optional={
        "clusters": st.lists(CLUSTERS, max_size=3) | UNUSUAL_VALUES,
        "deleted": st.lists(st.sampled_from(["turin", "rome", "?"]), max_size=2) | UNUSUAL_VALUES,
        "more": UNUSUAL_VALUES,
    },
)


@given(st.lists(UPDATES | st.lists(UNUSUAL_VALUES, max_size=2), max_size=4), st.integers(0, 400))
@settings(max_examples=300, deadline=None)
def test_updates_are_rejected_or_decoded_by_the_node_manager(batches: list[Any], seconds: int) -> None:
    store, clock = ClusterStore(":memory:"), StepClock()
    updates = AgentUpdates(store, clock, dt.timedelta(minutes=5))
    for update in batches:
        before = list(store.clusters(clock.now()))
        refused = False
        try:
            updates.apply(serving.body(json.dumps(update).encode(), UpdateRequest))
        except UsageError:
            refused = True
        assert not refused or list(store.clusters(clock.now())) == before
        clock.advance(seconds)
    listed = msgspec.json.encode(store.clusters(clock.now()))
    names = [remote_cluster(entry).name for entry in msgspec.json.decode(listed, type=list[DiscoveredCluster])]
    assert names == sorted(set(names))
    store.close()


@given(st.text(st.sampled_from("ab:&*<>-[]{}!? |'\"#%@\n\t1~,"), max_size=40))
@settings(max_examples=500, deadline=None)
def test_plain_yaml_is_maps_lists_and_strings_or_rejected(text: str) -> None:
    try:
        parsed = messages.parse(text)
    except ValueError:
        return
    pending = [parsed]
    while pending:
        part = pending.pop()
        assert part is None or isinstance(part, dict | list | str)
        pending += [*part, *part.values()] if isinstance(part, dict) else part if isinstance(part, list) else []
