"""The environment variables and ``--nodes`` of the original, and an optional file for values that it hard-codes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rescheduler.errors import ConfigError
from rescheduler.net import files
from rescheduler.net.config_files import Duration, Endpoint, Section, check_endpoint, is_token, read
from rescheduler.providers.base import GroupFlags, NodeGroup

PREFIX = "autoscaling-"  #: prefix of all group IDs
TOKEN = "CLUSTER_API_TOKEN"  # noqa: S105 -- its name
_URLS = ("SPC_API_BASE_URL", "SPC_BASE_API_URL")  #: the second is the spelling of the original's documentation
_NUMBER = re.compile(r"[0-9]{1,18}")
_SIZE = re.compile(r"[0-9]{1,9}")


class StackpointFile(Section, frozen=True, kw_only=True):
    """The keys of the ``--cloud-config`` file. Paths are relative to the file."""

    node_pools_file: str | None = None  #: the mounted key `nodepools` of the ConfigMap stackpoint-node-pools
    refresh_interval: Duration = Duration(60)  #: how long a view is cached
    poll_interval: Duration = Duration(15)  #: between two polls while nodes are being deleted
    settle_time: Duration = Duration(120)  #: how long an order may take to show an effect
    build_timeout: Duration = Duration(1200)  #: after this time, a build counts as failed
    timeout: Duration = Duration(60)  #: of one request
    cordon_until_running: bool = True  #: cordon nodes that join while they are being built


@dataclass(frozen=True, slots=True)
class Spec:
    """A group of the first generation: ``--nodes=min:max:type[:id]``."""

    group: NodeGroup
    size: str  #: the cloud's instance type


@dataclass(frozen=True, slots=True)
class StackpointSettings:
    endpoint: Endpoint
    token: str = field(repr=False)
    organization: int
    cluster: int
    specs: tuple[Spec, ...]  #: empty in the second generation, whose pools have their own limits
    file: StackpointFile
    node_pools: Path | None = None


def settings(path: Path | None, flags: GroupFlags, environ: Mapping[str, str]) -> StackpointSettings:
    """Return the validated settings. Raises ConfigError that names the file and key, flag or variable."""
    token = environ.get(TOKEN, "")
    if not is_token(token):
        raise ConfigError(
            f"{TOKEN}: expected a token of StackPointCloud's API in the environment, without surrounding whitespace"
        )
    name = next((variable for variable in _URLS if environ.get(variable)), _URLS[0])
    if not environ.get(name):
        raise ConfigError(f"{name}: expected the URL of StackPointCloud's API in the environment")
    file = StackpointFile() if path is None else read(path, StackpointFile)
    _check(file, path)
    endpoint = Endpoint(url=environ[name], timeout=file.timeout)
    check_endpoint(endpoint, "environment", name)
    pools = path.parent / file.node_pools_file if path and file.node_pools_file else None
    _check_pools(pools, path)
    specs = group_specs(flags.nodes)
    if specs and pools:
        raise ConfigError(f"--nodes={flags.nodes[0]}: either group specs or nodePoolsFile of {path}, not both")
    return StackpointSettings(
        endpoint=endpoint,
        token=token,
        organization=_id("ORGANIZATION_ID", environ),
        cluster=_id("CLUSTER_ID", environ),
        specs=tuple(specs),
        file=file,
        node_pools=pools,
    )


def group_specs(texts: Sequence[str]) -> Sequence[Spec]:
    specs: list[Spec] = []
    for text in texts:
        spec = _spec(text)
        if spec.group.id in {other.group.id for other in specs}:
            raise ConfigError(f"--nodes={text}: the group {spec.group.id!r} occurs twice")
        specs.append(spec)
    return specs


def _spec(text: str) -> Spec:
    parts = text.split(":", 3)
    if len(parts) < 3 or not all(parts):  # noqa: PLR2004
        raise ConfigError(f"--nodes={text}: expected min:max:type or min:max:type:id")
    low, high, size = parts[:3]
    if not _SIZE.fullmatch(low):
        raise ConfigError(f"--nodes={text}: min: expected a number, 0 or more, got {low!r}")
    if not _SIZE.fullmatch(high) or int(high) < int(low):
        raise ConfigError(f"--nodes={text}: max: expected a number, {low} or more, got {high!r}")
    name = PREFIX + (parts[3] if len(parts) > 3 else "default")  # noqa: PLR2004
    return Spec(NodeGroup(name, int(low), int(high), f"StackPointCloud nodes of the size {size}"), size)


def _id(name: str, environ: Mapping[str, str]) -> int:
    text = environ.get(name, "")
    if not _NUMBER.fullmatch(text):
        raise ConfigError(f"{name}: expected a number in the environment, got {text!r}")
    return int(text)


def _check_pools(pools: Path | None, path: Path | None) -> None:
    """Check that the pools file is readable if it exists. It may be mounted later."""
    if pools is None:
        return
    try:
        files.check(pools)
    except FileNotFoundError:
        pass
    except OSError as error:
        where = f"cloud configuration {path}: nodePoolsFile {files.printable(pools)}"
        raise ConfigError(f"{where}: cannot be read: {error.strerror}") from error


def _check(file: StackpointFile, path: Path | None) -> None:
    positive = {
        "pollInterval": file.poll_interval,
        "buildTimeout": file.build_timeout,
        "timeout": file.timeout,
    }
    for key, value in positive.items():
        if value <= 0:
            raise ConfigError(f"cloud configuration {path}: {key}: expected more than 0s")
