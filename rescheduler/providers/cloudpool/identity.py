"""Identify the cloud instance behind a machine's id and behind a Node's provider ID."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rescheduler.providers.cloudpool.messages import Machine

_AWS_INSTANCE = re.compile(r"i-[0-9a-f]{8,}")
_AWS_SPOT_REQUEST = re.compile(r"sir-[0-9a-z]+")
_GCE_PATH = re.compile(r"projects/([^/]+)/zones/([^/]+)/instances/([^/]+)")
#: Clouds whose provider IDs are globally unique; other schemes may be set on the node itself.
CLOUDS = frozenset({"aws", "azure", "gce", "openstack"})

_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Identity:
    """An instance: its cloud and its normalized ID there."""

    cloud: str
    instance: str


def of_provider_id(provider_id: str) -> Identity | None:
    """Return the instance of a Node's ``spec.providerID``; `None` if there is none.

    The formats are those of the cloud controllers: ``aws:///<zone>/i-…``, ``gce://<project>/<zone>/<name>``,
    ``azure:///subscriptions/…`` in any case, ``openstack:///<uuid>`` with or without a region.
    """
    scheme, _, rest = provider_id.partition("://")
    last = rest.rsplit("/", 1)[-1]
    if not last:
        return None
    match scheme:
        case "aws":
            return Identity("aws", last)
        case "azure":
            return Identity("azure", "/" + rest.strip("/").lower())
        case "openstack":
            return Identity("openstack", last.lower().replace("-", ""))
    return Identity(scheme, rest)


def of_machine(machine: Machine) -> Identity | None:
    """Return the instance of a machine; `None` for placeholders and for ids without one."""
    number = machine.id.lower()
    if _AWS_SPOT_REQUEST.fullmatch(machine.id):
        instance = _spot_instance(machine.metadata)
        return Identity("aws", instance) if instance else None
    if _AWS_INSTANCE.fullmatch(machine.id):
        return Identity("aws", machine.id)
    if gce := _GCE_PATH.search(machine.id):
        return Identity("gce", "/".join(gce.groups()))
    if number.startswith("/subscriptions/"):
        return Identity("azure", number.rstrip("/"))
    if _UUID.fullmatch(number):
        return Identity("openstack", number.replace("-", ""))
    return of_provider_id(machine.id)


def provider_id(machine: Machine) -> str:
    """Return the ``spec.providerID`` of the machine's Node; the machine's own id if it is unknown."""
    identity = of_machine(machine)
    match identity:
        case Identity("aws", instance):
            return f"aws:///{zone(machine)}/{instance}"
        case Identity("azure", _):
            return f"azure://{machine.id.removeprefix('azure://')}"
        case Identity("openstack", _):
            return machine.id if "://" in machine.id else f"openstack:///{machine.id}"
        case Identity(cloud, instance):
            return f"{cloud}://{instance}"
    return machine.id


def zone(machine: Machine) -> str:
    """Return the availability zone from the EC2 metadata, otherwise the machine's region."""
    for holder in _holders(machine.metadata):
        placement = _lookup(holder, "placement")
        name = _lookup(placement, "availabilityzone") if isinstance(placement, Mapping) else None
        if isinstance(name, str) and name:
            return name
    return machine.region if isinstance(machine.region, str) else ""


def names(machine: Machine) -> frozenset[str]:
    """Return the possible names of the machine's Node, in lower case as Node names are."""
    names: set[object] = {machine.id, machine.id.rstrip("/").rsplit("/", 1)[-1]}
    for holder in _holders(machine.metadata):
        names |= {_lookup(holder, key) for key in ("name", "hostname", "privatednsname")}
    return frozenset(name.lower() for name in names if isinstance(name, str) and name)


def addresses(machine: Machine) -> frozenset[str]:
    """Return the machine's private addresses."""
    if not isinstance(machine.private_ips, list):
        return frozenset()
    return frozenset(address for address in machine.private_ips if isinstance(address, str) and address)


def _spot_instance(metadata: object) -> str | None:
    """Return a spot request's instance from ``{"request": …, "instance": {"instanceId": "i-…"}}``."""
    for holder in _holders(metadata):
        instance = _lookup(holder, "instanceid")
        if isinstance(instance, str) and _AWS_INSTANCE.fullmatch(instance):
            return instance
    return None


def _holders(metadata: object) -> list[Mapping[str, object]]:
    """Return the parts of a cloud's metadata to search: a spot request's instance, the request, then all metadata."""
    if not isinstance(metadata, Mapping):
        return []
    inner = [_lookup(metadata, key) for key in ("instance", "request")]
    return [holder for holder in (*inner, metadata) if isinstance(holder, Mapping)]


def _lookup(holder: Mapping[str, object], key: str) -> object:
    """Look up *key*, ignoring case and underscores: SDKs write `instanceId` or `InstanceId`."""
    for name, value in holder.items():
        if isinstance(name, str) and name.lower().replace("_", "") == key:
            return value
    return None
