"""The ``--cloud-config`` file, ``--nodes`` and the environment, in the format of Cluster Autoscaler's provider."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rescheduler.errors import ConfigError
from rescheduler.net import files
from rescheduler.net.config_files import Endpoint, check_endpoint
from rescheduler.net.credentials import is_token
from rescheduler.providers.base import GroupFlags, NodeGroup
from rescheduler.providers.cherryservers import ini, templates

API = "https://api.cherryservers.com/v1"
TOKEN = "CHERRY_AUTH_TOKEN"  # noqa: S105 -- its name
_POOL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NUMBER = re.compile(r"[0-9]{1,18}|0[xX][0-9a-fA-F]{1,15}")
_SIZE = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Definition:
    """The properties of a pool's servers: a section of the file."""

    cluster_name: str = ""
    project_id: int = 0
    api_server_endpoint: str = ""
    region: str = ""
    plan: str = ""
    os: str = ""
    ssh_key_ids: tuple[int, ...] = ()
    cloudinit: str = ""  #: decoded
    hostname_pattern: str = templates.DEFAULT_HOSTNAME
    os_partition_size: int = 0  #: GB; 0: the image's default
    spot_market: bool = False  #: order spot servers; not in the original


@dataclass(frozen=True, slots=True)
class CherryPool:
    group: NodeGroup
    definition: Definition


@dataclass(frozen=True, slots=True)
class CherrySettings:
    pools: tuple[CherryPool, ...]
    endpoint: Endpoint
    control_label: str  #: an additional label of control-plane nodes; may be empty


def settings(path: Path | None, flags: GroupFlags, environ: Mapping[str, str]) -> CherrySettings:
    """Return the validated settings. Raises ConfigError that names the file and line, flag or variable."""
    token = environ.get(TOKEN, "")
    if not is_token(token):
        raise ConfigError(
            f"{TOKEN}: expected a token of Cherry Servers' API in the environment, without surrounding whitespace"
        )
    manager = environ.get("CHERRY_MANAGER") or "rest"
    if manager != "rest":
        raise ConfigError(f"CHERRY_MANAGER {manager!r}: expected rest")
    endpoint = Endpoint(url=environ.get("CHERRY_API_URL") or API)
    check_endpoint(endpoint, "environment", "CHERRY_API_URL")
    if path is None:
        raise ConfigError("--cloud-provider cherryservers: --cloud-config FILE is missing")
    groups = node_groups(flags.nodes)
    pools = tuple(_pools(path, groups, flags.cluster_name))
    return CherrySettings(pools, endpoint, environ.get("CHERRY_CONTROLLER_NODE_IDENTIFIER_LABEL", ""))


def node_groups(specs: Sequence[str]) -> Sequence[NodeGroup]:
    """Return the groups of ``--nodes=min:max:pool``."""
    if not specs:
        raise ConfigError("--cloud-provider cherryservers: --nodes=min:max:pool is missing")
    groups: list[NodeGroup] = []
    for spec in specs:
        group = _node_group(spec)
        if group.id in {other.id for other in groups}:
            raise ConfigError(f"--nodes={spec}: the pool {group.id!r} occurs twice")
        groups.append(group)
    return groups


def _node_group(spec: str) -> NodeGroup:
    parts = spec.split(":", 2)
    if len(parts) < 3:  # noqa: PLR2004
        raise ConfigError(f"--nodes={spec}: expected min:max:pool")
    low, high, name = parts
    if not _SIZE.fullmatch(low):
        raise ConfigError(f"--nodes={spec}: min: expected a number, 0 or more, got {low!r}")
    if not _SIZE.fullmatch(high) or int(high) < int(low):
        raise ConfigError(f"--nodes={spec}: max: expected a number, {low} or more, got {high!r}")
    if not _POOL_NAME.fullmatch(name):
        raise ConfigError(f"--nodes={spec}: pool: expected at most 63 of A-Z a-z 0-9 - _ . with a letter or "
                          "a digit at both ends")  # fmt: skip
    return NodeGroup(name, int(low), int(high), f"Cherry Servers pool {name}")


def _pools(path: Path, groups: Sequence[NodeGroup], cluster_name: str) -> Sequence[CherryPool]:
    default, named = read(path)
    where = f"cloud configuration {path}"
    if default == Definition():
        raise ConfigError(f"{where}: [global]: expected the definition of the default pool")
    pools = []
    for group in groups:
        own = named.get(group.id, default)
        definition = replace(
            own,
            cluster_name=own.cluster_name or cluster_name,
            project_id=own.project_id or default.project_id,
            api_server_endpoint=own.api_server_endpoint or default.api_server_endpoint,
        )
        if not definition.cluster_name:
            raise ConfigError(f"{where}: pool {group.id}: expected cluster-name here or --cluster-name")
        if not definition.project_id:
            raise ConfigError(f"{where}: pool {group.id}: expected project-id here or in [global]")
        pools.append(CherryPool(group, definition))
    return pools


def read(path: Path) -> tuple[Definition, Mapping[str, Definition]]:
    """Return the default definition and the definitions in ``[nodegroupdef "name"]`` sections."""
    where = f"cloud configuration {files.printable(path)}"
    try:
        entries = list(ini.entries(files.read_text(path)))
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: cannot be read: it is not UTF-8") from error
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error
    values: dict[str | None, dict[str, object]] = {None: {}}
    for entry in entries:
        name = _definition_name(entry, where)
        keys = values.setdefault(name, {})
        if entry.key:
            _add(keys, entry, where)
    definitions = {name: Definition(**keys) for name, keys in values.items()}  # type: ignore[arg-type]
    default = definitions.pop(None)
    default = definitions.pop("default", default)
    return default, {name: definition for name, definition in definitions.items() if name is not None}


def _definition_name(entry: ini.IniEntry, where: str) -> str | None:
    if entry.section == "global" and entry.subsection is None:
        return None
    if entry.section == "nodegroupdef" and entry.subsection:
        return entry.subsection
    raise ConfigError(f'{where}: line {entry.line}: expected [global] or [nodegroupdef "NAME"]')


def _add(keys: dict[str, object], entry: ini.IniEntry, where: str) -> None:
    """Add the value of *entry* under its field's name. Only a key whose value is a list may be repeated."""
    line = f"{where}: line {entry.line}: {entry.key}"
    key = _ALIASES.get(entry.key, entry.key)
    if key not in READERS:
        raise ConfigError(f"{line}: unknown key; expected one of {', '.join(READERS)}")
    field = key.replace("-", "_")
    listed = keys.get(field, ()) if key in _LISTS else None
    if isinstance(listed, tuple):
        line += f": number {len(listed) + 1}"
    elif field in keys:
        raise ConfigError(f"{line}: occurs twice")
    try:
        value = READERS[key](entry.value)
    except ValueError as error:
        raise ConfigError(f"{line}: {error}") from error
    keys[field] = (*listed, value) if isinstance(listed, tuple) else value


#: Keys that the README of the original documents but its code rejects.
_ALIASES: Final = {"api-server": "api-server-endpoint"}


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"expected a number, got {text!r}")
    return int(text, 16) if text[:2].lower() == "0x" else int(text)


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError(f"expected true or false, got {text!r}")
    return text.lower() == "true"


def _hostname(text: str) -> str:
    templates.check(text, templates.HOSTNAME)
    return text or templates.DEFAULT_HOSTNAME


def _cloud_init(text: str) -> str:
    try:
        decoded = base64.b64decode("".join(text.split()), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError("expected text in base64") from error
    templates.check(decoded, templates.CLOUD_INIT)
    return decoded


#: All keys of the file, each with the parser of its value.
READERS: dict[str, Callable[[str], object]] = {
    "cluster-name": str,
    "project-id": _number,
    "api-server-endpoint": str,
    "region": str,
    "plan": str,
    "os": str,
    "ssh-key-ids": _number,
    "cloudinit": _cloud_init,
    "hostname-pattern": _hostname,
    "os-partition-size": _number,
    "spot-market": _boolean,
}
_LISTS = frozenset({"ssh-key-ids"})
