"""Read the pod templates of controllers with GET requests, for the plan of a node that is about to be drained."""

from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import quote

from predicates.objects import Object, OwnerReference
from predicates.wire import Decoder, Interner, WireError
from rescheduler.errors import NotFound, UsageError
from rescheduler.kube.client import Client
from rescheduler.kube.resources import TEMPLATES
from rescheduler.planning.replacements import TEMPLATED
from rescheduler.settings import object_name

#: The path of each kind's API group and version, and its resource name.
_PATHS: Final[Mapping[str, tuple[str, str]]] = {
    resource.kind: (resource.path.rpartition("/")[0], resource.plural)
    for resource in TEMPLATES
    if resource.kind in TEMPLATED
}


def read_templates(client: Client, owners: Collection[tuple[str, OwnerReference]]) -> list[tuple[str, Object]]:
    """Return the controllers among *owners* that have a pod template, each with its kind.

    Those that are gone, or that cannot be decoded, are left out. Raises the other errors of requests.
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
    return found
