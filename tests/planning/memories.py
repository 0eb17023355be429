"""Stored memories of large clusters."""

import datetime as dt
import random
import uuid
from datetime import timedelta

from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt, OpenDebt
from rescheduler.planning.memory import Memory
from rescheduler.planning.movements import ControllerMoves, Move, Movements
from rescheduler.planning.waits import Cooldown, Cooldowns
from tests.planning.builders import NOW


def large(nodes: int, controllers: int, seed: int = 1) -> Memory:
    """Return the memory of a cluster of *nodes* where every possible entry exists."""
    source = random.Random(seed)

    def uid() -> str:
        return str(uuid.UUID(int=source.getrandbits(128), version=4))

    def ago(hours: float) -> dt.datetime:
        return NOW - timedelta(seconds=round(source.uniform(0, hours * 3600)))

    cooldowns = {
        f"ip-10-{n // 250}-{n % 250}-{source.randrange(250)}.eu-west-1.compute.internal": Cooldown(
            uid(),
            source.randrange(1, 6),
            NOW + timedelta(seconds=source.randrange(7200)),
            "eviction-refused",
            uid() * 4,
        )
        for n in range(nodes)
    }
    moves = {
        uid(): ControllerMoves(
            tuple(sorted((Move(ago(24), source.randrange(1, 9)) for _ in range(3)), key=lambda m: m.at))
        )
        for _ in range(controllers)
    }
    debts = tuple(
        OpenDebt("od", ago(1), Debt(Controller("team", "Deployment", f"web-{n}", uid()), 1, 2, uid(), 0, (uid(),)))
        for n in range(30)
    )
    return Memory(drained_at=NOW, cooldowns=Cooldowns(cooldowns), debts=debts, movements=Movements(moves))
