"""The certificate of a plan on the page of ``plan``, and in its JSON output: which pools may be lost."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from rescheduler.cli.console import HEADING, Line, styled
from rescheduler.planning.forms import count, cpu, memory
from rescheduler.planning.survival import Certificate, Homeless, PoolLoss

#: Maximum number of pools, and of controllers of a pool, that are listed without ``-o wide``.
_POOLS: Final = 3
_CONTROLLERS: Final = 2


def survival_lines(certificate: Certificate, *, wide: bool = False) -> Iterator[Line]:
    """Yield one line if the certificate holds, otherwise the pools with the most homeless pods."""
    if not certificate.pools:
        return
    what, number = str(certificate.survive), len(certificate.pools)
    if certificate.holds:
        yield Line(f"Survives the loss of any one {what} of spot nodes ({count(number, what)}).")
        return
    worst = certificate.worst
    yield styled(f"Would not survive the loss of {len(worst)} of {count(number, what)} of spot nodes", HEADING)
    listed = worst if wide else worst[:_POOLS]
    for pool in listed:
        yield from _pool(pool, wide=wide)
    if len(listed) < len(worst):
        yield Line(f"{len(worst) - len(listed)} more with -o wide.", 1)


def _pool(pool: PoolLoss, *, wide: bool) -> Iterator[Line]:
    name = f"{pool.pool} ({count(pool.nodes, 'node')})"
    if not pool.homeless:
        yield Line(f"{name}: not judged within the limit of simulated pods", 1)
        return
    text = f"{name}: {pool.homeless_pods} of {count(pool.pods, 'pod')} without a place"
    if (needed := pool.needed) is not None:
        amounts = f"{cpu(needed.cpu)} vCPU, {memory(needed.memory)}"
        text += f"; they need {amounts}: at least {count(needed.nodes, 'node')} like {needed.like}"
    yield Line(text, 1)
    listed = pool.homeless if wide else pool.homeless[:_CONTROLLERS]
    yield from (Line(_controller(each), 2) for each in listed)
    if len(listed) < len(pool.homeless):
        yield Line(f"and pods of {count(len(pool.homeless) - len(listed), 'more controller')}", 2)


def _controller(homeless: Homeless) -> str:
    priority = f", priority {homeless.priority}" if homeless.priority else ""
    return f"{homeless.controller}{priority}: {count(len(homeless.pods), 'pod')}: {homeless.why}"


def survival_json(certificate: Certificate) -> dict[str, Any]:
    """Return the object of a certificate."""
    return {
        "survive": str(certificate.survive),
        "holds": certificate.holds,
        "pools": [_pool_json(pool) for pool in certificate.pools],
    }


def _pool_json(pool: PoolLoss) -> dict[str, Any]:
    needed = pool.needed
    return {
        "pool": pool.pool,
        "nodes": pool.nodes,
        "pods": pool.pods,
        "survived": pool.survived,
        "judged": pool.judged,
        "not_recreated": pool.not_recreated,
        "homeless": _homeless_json(pool.homeless),
        "needed": needed
        and {"cpu": needed.cpu / 1000, "memory": needed.memory, "nodes": needed.nodes, "like": needed.like},
    }


def _homeless_json(homeless: Iterable[Homeless]) -> list[dict[str, Any]]:
    return [
        {"controller": str(each.controller), "priority": each.priority, "pods": list(each.pods), "why": each.why}
        for each in homeless
    ]
