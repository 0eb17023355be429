"""Pod classes: the properties that equally scheduled pods share, derived from the first pod of the class."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from predicates.bound_labels import own_labels
from predicates.objects import Amounts, Claim, Container, HostPort, PodClass, PodObject, PodSpec, Volume
from predicates.requests import RESIZE_PENDING, loads, nonzero, requests


class PodAmounts(NamedTuple):
    """The amounts computed from the resources in spec and status. Many classes share them."""

    requests: Amounts
    nonzero: tuple[int, int]
    loads: tuple[Amounts, ...]  #: by rule, see :func:`predicates.requests.loads`


def pod_amounts(pod: PodObject) -> PodAmounts:
    """Return the amounts of *pod*. They depend only on :func:`resource_fields`."""
    return PodAmounts(requests(pod.spec), nonzero(pod.spec), loads(pod))


def resource_fields(pod: PodObject) -> bytes:
    """Return all fields of the pod that :mod:`predicates.requests` reads, as a cache key."""
    spec, status = pod.spec, pod.status
    requested = _requested(spec.containers), _requested(spec.init_containers), spec.resources, spec.overhead
    reported = status.container_statuses, status.init_container_statuses, status.resources, status.allocated_resources
    resizes = [condition.reason for condition in status.conditions if condition.type == RESIZE_PENDING]
    return msgspec.json.encode((requested, reported, resizes))


def _requested(containers: Iterable[Container]) -> list[tuple[object, ...]]:
    return [(container.name, container.resources, container.restart_policy) for container in containers]


def pod_class(pod: PodObject, amounts: PodAmounts) -> PodClass:
    """Return the class of *pod*, with the *amounts* from :func:`pod_amounts`."""
    spec = msgspec.structs.replace(pod.spec, node_name="")
    return PodClass(
        namespace=pod.metadata.namespace,
        labels=own_labels(pod.metadata.labels) if pod.spec.node_name else pod.metadata.labels,
        requests=amounts.requests,
        nonzero=amounts.nonzero,
        spec=spec,
        ports=_host_ports(spec),
        claims=_claims(pod.metadata.name, spec),
        disks=tuple(filter(_names_disk, spec.volumes)),
        terminating=pod.metadata.deletion_timestamp is not None,
        name=pod.metadata.name if spec.resource_claims else "",
    )


def _host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Return the host ports of containers and sidecars (``schedutil.GetHostPorts``)."""
    sidecars = (container for container in spec.init_containers if container.restart_policy == "Always")
    containers = (*spec.containers, *sidecars)
    ports = (port for container in containers for port in container.ports if port.host_port > 0)
    host_ports = (HostPort(port.protocol or "TCP", port.host_ip or "0.0.0.0", port.host_port) for port in ports)  # noqa: S104
    return tuple(dict.fromkeys(host_ports))


def _claims(pod_name: str, spec: PodSpec) -> tuple[Claim, ...]:
    """Return the claims that the pod's volumes refer to, in volume order."""
    claims = []
    for volume in spec.volumes:
        if volume.persistent_volume_claim is not None:
            claims.append(Claim(volume.persistent_volume_claim.claim_name, ephemeral=False))
        elif volume.ephemeral is not None:
            claims.append(Claim(f"{pod_name}-{volume.name}", ephemeral=True, pod=pod_name))
    return tuple(claims)


def _names_disk(volume: Volume) -> bool:
    sources = (
        volume.gce_persistent_disk,
        volume.aws_elastic_block_store,
        volume.azure_disk,
        volume.cinder,
        volume.portworx_volume,
        volume.rbd,
        volume.iscsi,
    )
    is_claim = volume.persistent_volume_claim is not None or volume.ephemeral is not None
    return not is_claim and any(source is not None for source in sources)
