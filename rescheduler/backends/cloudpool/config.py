"""The file of ``--cloud-config`` for cloudpools."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from predicates import quantity
from rescheduler.backends.base import ConfigError
from rescheduler.backends.config import INT32, Duration, Endpoint, Section, check_endpoint, read


class TaintSection(Section, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class TemplateSection(Section, frozen=True, kw_only=True):
    """The next machine as a Node; the API does not tell. Amounts are Kubernetes quantities."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    taints: list[TaintSection] = msgspec.field(default_factory=list)
    capacity: dict[str, str]
    allocatable: dict[str, str] | None = None  #: none: the capacity


class PoolSection(Section, frozen=True, kw_only=True):
    """One cloudpool, which is one group."""

    id: str
    backend: Endpoint
    api: Literal["v5", "multipool"] = "v5"  #: a multipool serves machines beside `pool`, not below it
    min_size: int = 0  #: no machine is given away below it
    max_size: int = 1000
    refresh_interval: Duration = Duration(10)  #: for how long one look at the pool serves
    cache_age: Duration = Duration(30)  #: how old the pool's answers may be where it does not date them
    poll_interval: Duration = Duration(2)  #: between two looks while a machine is ending
    order_timeout: Duration = Duration(300)  #: for the answer to a termination; some clouds take minutes
    settle_time: Duration = Duration(300)  #: how long a termination that got no answer may still be at work
    template: TemplateSection | None = None


class CloudpoolFile(Section, frozen=True, kw_only=True):
    pools: list[PoolSection]


def read_pools(path: Path | None) -> list[PoolSection]:
    """The pools of the file, checked; ConfigError names the file, the pool and the key."""
    if path is None:
        raise ConfigError("--cloud-provider cloudpool: --cloud-config FILE is missing")
    pools = read(path, CloudpoolFile).pools
    where = f"cloud configuration {path}"
    if not pools:
        raise ConfigError(f"{where}: pools: expected at least one")
    for index, pool in enumerate(pools):
        check_pool(pool, where, f"pools[{index}]")
        if pool.id in {other.id for other in pools[:index]}:
            raise ConfigError(f"{where}: pools[{index}].id: {pool.id!r} is there twice")
    return pools


def check_pool(pool: PoolSection, where: str, key: str) -> None:
    """What the types cannot say about one pool."""
    rules = {
        "id": (bool(pool.id.strip()), "a name"),
        "minSize": (pool.min_size >= 0, "0 or more"),
        "maxSize": (pool.min_size <= pool.max_size <= INT32, f"minSize to {INT32}"),
        "refreshInterval": (pool.refresh_interval >= 0, "0 or more"),
        "pollInterval": (pool.poll_interval > 0, "more than 0s"),
        "settleTime": (pool.settle_time >= 0, "0 or more"),
        "orderTimeout": (pool.order_timeout > 0, "more than 0s"),
    }
    for name, (holds, expected) in rules.items():
        if not holds:
            raise ConfigError(f"{where}: {key}.{name}: expected {expected}")
    check_endpoint(pool.backend, where, f"{key}.backend")
    if pool.template is not None:
        for name in ("capacity", "allocatable"):
            _check_amounts(getattr(pool.template, name) or {}, f"{where}: {key}.template.{name}")


def _check_amounts(amounts: Mapping[str, str], where: str) -> None:
    for resource, amount in amounts.items():
        try:
            quantity.parse(amount)
        except ValueError as error:
            raise ConfigError(
                f"{where}.{resource}: expected a quantity such as 4, 500m or 16Gi, got {amount!r}"
            ) from error
