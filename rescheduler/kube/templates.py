"""Read what replacement pods are created from, for the plan of a node that is about to be drained.

The pod templates of its controllers are read with GET requests; LimitRanges, VerticalPodAutoscalers and ResourceQuotas
are listed in the namespaces of its pods.
"""

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from predicates.objects import Object, OwnerReference, ResourceQuota
from predicates.wire import Decoder, Interner, WireError
from rescheduler.errors import NotFound, UsageError
from rescheduler.kube.client import Client
from rescheduler.kube.json_codec import JsonCodec
from rescheduler.kube.lister import read_all
from rescheduler.kube.resources import TEMPLATES, Resource
from rescheduler.planning.replacements import ADMISSION, TEMPLATED
from rescheduler.settings import object_name

#: The path of each kind's API group and version, and its resource name.
_PATHS: Final[Mapping[str, tuple[str, str]]] = {
    resource.kind: (resource.path.rpartition("/")[0], resource.plural)
    for resource in TEMPLATES
    if resource.kind in TEMPLATED
}

#: What changes the pods that are created, and what limits them, by namespace.
_ADMISSION: Final = tuple(each for each in TEMPLATES if each.kind in ADMISSION)
_QUOTAS: Final = next(each for each in TEMPLATES if each.kind == "ResourceQuota")


def read_templates(client: Client, owners: Collection[tuple[str, OwnerReference]]) -> list[tuple[str, Object]]:
    """Return the controllers among *owners* that have a pod template, each with its kind.

    The LimitRanges and VerticalPodAutoscalers of their namespaces follow. Those that are gone, or that cannot be
    decoded, are left out. Raises the other errors of requests.
    """
    decoder = Decoder(Interner())
    found = []
    for namespace, owner in sorted(owners, key=lambda pair: (pair[0], pair[1].kind, pair[1].name)):
        if owner.kind not in _PATHS:
            continue
        base, plural = _PATHS[owner.kind]
        try:
            name = quote(object_name(owner.name), safe="")
            path = f"{base}/namespaces/{quote(namespace, safe='')}/{plural}/{name}"
            response = client.request(f"get {plural} {namespace}/{owner.name}", "GET", path)
            found.append((owner.kind, decoder.decode(owner.kind, response.body)))
        except (NotFound, UsageError, WireError):
            continue
    for resource in _ADMISSION:
        with contextlib.suppress(NotFound):  # the API server does not serve the kind
            for namespace in sorted({namespace for namespace, _ in owners}):
                found += [(resource.kind, each) for each in _in_namespace(client, resource, namespace)]
    return found


def read_quotas(client: Client, namespaces: Collection[str]) -> list[ResourceQuota]:
    """Return the ResourceQuotas of *namespaces* that can be decoded. Raises the errors of requests but NotFound."""
    found: list[Object] = []
    with contextlib.suppress(NotFound):  # the API server does not serve the kind
        for namespace in sorted(namespaces):
            found += _in_namespace(client, _QUOTAS, namespace)
    return [each for each in found if isinstance(each, ResourceQuota)]


def _in_namespace(client: Client, resource: Resource, namespace: str) -> list[Object]:
    base, _, plural = resource.path.rpartition("/")
    of_namespace = replace(resource, path=f"{base}/namespaces/{quote(namespace, safe='')}/{plural}")
    return read_all(client, of_namespace, JsonCodec(resource.kind, Interner()), lambda _: False)
