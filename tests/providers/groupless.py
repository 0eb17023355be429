"""Facts that every backend without machines must satisfy."""

from dataclasses import replace
from decimal import Decimal

import pytest

from rescheduler.providers.base import NodeRef, NotSupported, UnknownGroup
from tests.providers.conformance import CHECKS, UNKNOWN_GROUP
from tests.providers.worlds import MINUTES, Check, MakeWorld, group_of, into

GROUPLESS: dict[str, Check] = {UNKNOWN_GROUP: CHECKS[UNKNOWN_GROUP]}
check = into(GROUPLESS)


@check("there are no groups, also after a refresh")
def _(make: MakeWorld) -> None:
    with make(0, 0) as world:
        for _ in range(2):
            deadline = MINUTES + world.clock.monotonic()
            assert list(world.provider.groups(deadline=deadline)) == []
            world.provider.refresh(deadline=deadline)


@check("it owns no node")
def _(make: MakeWorld) -> None:
    with make(0, 0) as world:
        deadline = MINUTES + world.clock.monotonic()
        for node in (
            world.foreign(),
            NodeRef("bare"),
            NodeRef("aws:///zone/i-1", "aws:///zone/i-1"),
            replace(world.foreign(), control_plane=True),
        ):
            assert group_of(world, node) is None
            assert world.provider.has_instance(node, deadline=deadline) is None
            assert world.provider.instance_for(node, deadline=deadline) is None


@check("it has no prices and no GPUs")
def _(make: MakeWorld) -> None:
    with make(0, 0) as world:
        deadline, now = MINUTES + world.clock.monotonic(), world.clock.now()
        with pytest.raises(NotSupported):
            world.provider.node_price(world.foreign(), now, now, deadline=deadline)
        with pytest.raises(NotSupported):
            world.provider.pod_price({"cpu": Decimal(1)}, now, now, deadline=deadline)
        assert (world.provider.gpu_label(), world.provider.gpu_types()) == ("", frozenset())


@check("options of an unknown group are an error")
def _(make: MakeWorld) -> None:
    with make(0, 0) as world, pytest.raises(UnknownGroup):
        world.provider.options("nowhere", deadline=MINUTES + world.clock.monotonic())


@check("it can be closed twice")
def _(make: MakeWorld) -> None:
    with make(0, 0) as world:
        world.provider.close()
        world.provider.close()
