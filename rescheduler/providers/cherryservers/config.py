"""The ``--cloud-config`` file, ``--nodes`` and the environment, in the format of Cluster Autoscaler's provider.
Separate from the provider, because it parses a dialect of its own.
"""

import base64
import binascii
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from predicates.texts import did_you_mean
from rescheduler.errors import ConfigError
from rescheduler.net import files
from rescheduler.net.config_files import Endpoint, check_endpoint, is_token
from rescheduler.providers.base import GroupFlags, NodeGroup

# The INI dialect of Cluster Autoscaler's cloud configurations (git's, as read by the library gcfg).
#
# ``[section]`` and ``[section "subsection"]``, ``key = value``, comments with ``#`` and ``;``, double quotes around
# literal text, a backslash before ``"``, ``\``, ``n`` and ``t``, and at the end of a line to continue it. Names of
# sections and keys are case-insensitive; subsections are not.

_SECTION = re.compile(r'\[\s*([A-Za-z0-9-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]\s*(?:[#;].*)?')
_ENTRY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(=?)(.*)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


@dataclass(frozen=True, slots=True)
class IniEntry:
    """A key with its value, or a section header, whose `key` is empty."""

    line: int
    section: str
    subsection: str | None
    key: str = ""
    value: str = ""


def ini_entries(text: str) -> Iterator[IniEntry]:
    """Yield all headers and entries in order. Raises ValueError; its message begins with the line number."""
    header: IniEntry | None = None
    for line, raw in _joined(text):
        stripped = raw.strip()
        if not stripped or stripped[0] in "#;":
            continue
        if stripped.startswith("["):
            match = _SECTION.fullmatch(stripped)
            if match is None:
                raise ValueError(f'line {line}: expected a section such as [global] or [nodegroupdef "pool1"]')
            name = None if match[2] is None else re.sub(r"\\(.)", r"\1", match[2])
            header = IniEntry(line, match[1].lower(), name)
            yield header
            continue
        entry = _ENTRY.fullmatch(stripped)
        if entry is None or not entry[2]:
            raise ValueError(f"line {line}: expected a section, key = value or a comment")
        if header is None:
            raise ValueError(f"line {line}: {entry[1]}: expected a section before the first key")
        yield IniEntry(line, header.section, header.subsection, entry[1].lower(), _value(entry[3], line, entry[1]))


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Join lines that a backslash continues; yield each with the number of its first line."""
    begun, first = "", 0
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        first = first or number
        if (len(line) - len(line.rstrip("\\"))) % 2 and not line.lstrip().startswith(("#", ";")):
            begun += line[:-1]
            continue
        yield first, begun + line
        begun, first = "", 0
    if begun:
        yield first, begun


def _value(raw: str, line: int, key: str) -> str:
    """Return the value without surrounding whitespace outside quotes, and without a comment."""
    characters: list[str] = []
    protected_length = 0  #: the number of characters that must not be stripped
    quoted = False
    rest = iter(raw.strip())
    for character in rest:
        if character == "\\":
            escaped = next(rest, "")
            if escaped not in _ESCAPES:
                raise ValueError(f'line {line}: {key}: expected one of \\" \\\\ \\n \\t, got \\{escaped}')
            characters.append(_ESCAPES[escaped])
            protected_length = len(characters)
        elif character == '"':
            quoted = not quoted
            protected_length = len(characters)
        elif character in "#;" and not quoted:
            break
        else:
            characters.append(character)
            protected_length = len(characters) if quoted else protected_length
    if quoted:
        raise ValueError(f"line {line}: {key}: the quote is not closed")
    return "".join(characters[:protected_length]) + "".join(characters[protected_length:]).rstrip()


# The subset of Go's text/template used by cloud-init and host names: ``{{.Name}}``, with ``{{-`` and ``-}}``.

CLOUD_INIT = ("BootstrapTokenID", "BootstrapTokenSecret", "APIServerEndpoint", "NodeGroup")
HOSTNAME = ("ClusterName", "NodeGroup", "RandString8")
DEFAULT_HOSTNAME = "k8s-{{.ClusterName}}-{{.NodeGroup}}-{{.RandString8}}"

_TRIM_LEFT = re.compile(r"-\s")
_TRIM_RIGHT = re.compile(r"\s-")
_LETTERS = "acdefghijklmnopqrstuvwxyz"  #: the original's alphabet, without b


def check(text: str, names: tuple[str, ...]) -> None:
    """Raise ValueError for a template that `render` cannot fill."""
    render(text, dict.fromkeys(names, ""))


def render(text: str, values: Mapping[str, str]) -> str:
    """Return *text* with its actions replaced by *values*. Raises ValueError."""
    filled: list[str] = []
    position, trim = 0, False
    while (opening := text.find("{{", position)) >= 0:
        if (closing := text.find("}}", opening)) < 0:
            raise ValueError("a {{ is not closed")
        before, content = text[position:opening], text[opening + 2 : closing]
        before = before.lstrip() if trim else before
        trimmed, trim = _TRIM_LEFT.match(content) is not None, _TRIM_RIGHT.fullmatch(content[-2:]) is not None
        filled += (
            before.rstrip() if trimmed else before,
            _templates_value(content[trimmed : -1 if trim else None], values),
        )
        position = closing + 2
    rest = text[position:]
    return "".join((*filled, rest.lstrip() if trim else rest))


def _templates_value(content: str, values: Mapping[str, str]) -> str:
    """Return the value for the *content* of an action; nothing for a comment. Raises ValueError."""
    content = content.strip()
    if len(content) >= len("/**/") and content.startswith("/*") and content.endswith("*/"):
        return ""
    name = content.removeprefix(".")
    if content.startswith(".") and name in values:
        return values[name]
    known = ", ".join("{{." + value + "}}" for value in values)
    raise ValueError(f"{{{{{content}}}}}: expected one of {known}")


def random_letters(count: int = 8, choice: Callable[[str], str] = secrets.choice) -> str:
    return "".join(choice(_LETTERS) for _ in range(count))


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
    hostname_pattern: str = DEFAULT_HOSTNAME
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


def settings(path: Path, flags: GroupFlags, environ: Mapping[str, str]) -> CherrySettings:
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
        entries = list(ini_entries(files.read_text(path)))
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


def _definition_name(entry: IniEntry, where: str) -> str | None:
    if entry.section == "global" and entry.subsection is None:
        return None
    if entry.section == "nodegroupdef" and entry.subsection:
        return entry.subsection
    raise ConfigError(f'{where}: line {entry.line}: expected [global] or [nodegroupdef "NAME"]')


def _add(keys: dict[str, object], entry: IniEntry, where: str) -> None:
    """Add the value of *entry* under its field's name. Only a key whose value is a list may be repeated."""
    line = f"{where}: line {entry.line}: {entry.key}"
    key = _ALIASES.get(entry.key, entry.key)
    if key not in READERS:
        raise ConfigError(f"{line}: unknown key; expected one of {', '.join(READERS)}{did_you_mean(key, READERS)}")
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
    check(text, HOSTNAME)
    return text or DEFAULT_HOSTNAME


def _cloud_init(text: str) -> str:
    try:
        decoded = base64.b64decode("".join(text.split()), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError("expected text in base64") from error
    check(decoded, CLOUD_INIT)
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
