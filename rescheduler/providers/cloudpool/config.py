"""The ``--cloud-config`` file for cloudpools."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from predicates import quantity
from rescheduler.errors import ConfigError
from rescheduler.net.config_files import INT32, Duration, Endpoint, Section, check_endpoint, read


class TaintSection(Section, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class TemplateSection(Section, frozen=True, kw_only=True):
    """The expected Node of a new machine, which the API does not provide. Amounts are Kubernetes quantities."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    taints: list[TaintSection] = msgspec.field(default_factory=list)
    capacity: dict[str, str]
    allocatable: dict[str, str] | None = None  #: default: the capacity


class PoolSection(Section, frozen=True, kw_only=True):
    """A cloudpool, which is a group."""

    id: str
    backend: Endpoint
    api: Literal["v5", "multipool"] = "v5"  #: a multipool serves machines next to `pool`, not below it
    min_size: int = 0  #: machines are not removed below it
    max_size: int = 1000
    refresh_interval: Duration = Duration(10)  #: how long an observation is cached
    cache_age: Duration = Duration(30)  #: the maximum age of responses without a timestamp
    poll_interval: Duration = Duration(2)  #: between two polls while a machine is being terminated
    order_timeout: Duration = Duration(300)  #: for the response to a termination; some clouds take minutes
    settle_time: Duration = Duration(300)  #: how long a termination without a response may still take effect
    template: TemplateSection | None = None


class CloudpoolFile(Section, frozen=True, kw_only=True):
    pools: list[PoolSection]


def read_pools(path: Path | None) -> list[PoolSection]:
    """Return the validated pools of the file. Raises ConfigError that names the file, the pool and the key."""
    if path is None:
        raise ConfigError("--cloud-provider cloudpool: --cloud-config FILE is missing")
    pools = read(path, CloudpoolFile).pools
    where = f"cloud configuration {path}"
    if not pools:
        raise ConfigError(f"{where}: pools: expected at least one")
    for index, pool in enumerate(pools):
        check_pool(pool, where, f"pools[{index}]")
        if pool.id in {other.id for other in pools[:index]}:
            raise ConfigError(f"{where}: pools[{index}].id: {pool.id!r} occurs twice")
    return pools


def check_pool(pool: PoolSection, where: str, key: str) -> None:
    """Check the rules about a pool that types cannot express."""
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
