"""Secrets as a source: each one describes the cluster with the same name for as long as it exists.

The Secret has the keys of Liqo's cluster autoscaler: ``info``, in JSON, and ``kubeconfig``.
"""

import logging
import re
from typing import Final, cast

import msgspec

from predicates.objects import ObjectMeta
from rescheduler import decoding
from rescheduler.clock import Clock
from rescheduler.errors import ReschedulerError, Retryable, UsageError
from rescheduler.kube.client import Client
from rescheduler.kube.codec import Change
from rescheduler.kube.lister import Listing
from rescheduler.kube.reflector import Reflector
from rescheduler.kube.resources import Resource
from rescheduler.kube.structs import StructCodec
from rescheduler.liqo_services.discovery import checks
from rescheduler.liqo_services.discovery.messages import Description, Info
from rescheduler.liqo_services.discovery.store import SECRET, ClusterStore, DatedDescription

KIND: Final = "Secret"

_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

#: The syntax of label selectors (k8s.io/apimachinery/pkg/labels): requirements separated by commas.
_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PART: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_KEY: Final = rf"({_PART}(\.{_PART})*/)?{_NAME}"
_VALUE: Final = rf"\s*+({_NAME})?\s*+"
_SOME: Final = rf"\s*(=|==|!=){_VALUE}|\s*[<>]\s*[0-9]{{1,18}}|\s+(in|notin)\s*\({_VALUE}(,{_VALUE})*\)"
_REQUIREMENT: Final = rf"\s*+(!\s*+{_KEY}|{_KEY}({_SOME})?)\s*+"
_SELECTOR: Final = re.compile(rf"\s*|{_REQUIREMENT}(,{_REQUIREMENT})*")

log = logging.getLogger(__name__)


class Secret(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, bytes] | None = None

    def __repr__(self) -> str:
        return f"Secret({self.metadata.name})"


class Secrets:
    """A reflector's sink that keeps the store up to date with the Secrets."""

    def __init__(self, store: ClusterStore, clock: Clock, namespace: str) -> None:
        self._store, self._clock, self._namespace = store, clock, namespace
        self._failing = False
        self.unreadable: dict[str, str] = {}  #: names of invalid Secrets, and why they are invalid
        self.read = False  #: whether all Secrets have been listed

    def listed(self, kind: str, listing: Listing) -> None:
        self.unreadable = {}
        descriptions: dict[str, DatedDescription] = {}
        for secret in cast("list[Secret]", listing.objects):
            if description := self._dated_description(secret):
                descriptions[secret.metadata.name] = description
        for key, unreadable in listing.unreadable.items():
            self._refuse(key.rpartition("/")[2], unreadable.why)
        self._store.replace(SECRET, descriptions, self._clock.now())
        self.read = True
        log.info("%d clusters, each a %s of namespace %s", len(descriptions), kind, self._namespace)

    def changed(self, kind: str, change: Change) -> None:
        name = change.key.rpartition("/")[2]
        self.unreadable.pop(name, None)
        if change.unreadable is not None:
            self._refuse(name, change.unreadable.why)
        description = self._dated_description(cast("Secret", change.object)) if change.object is not None else None
        descriptions, gone = ({name: description}, ()) if description else ({}, (name,))
        if self._store.change(SECRET, descriptions, gone, self._clock.now()) and change.type == "DELETED":
            log.info("cluster %s: its %s is gone", name, kind)

    def failing(self, kind: str, error: ReschedulerError | None) -> None:
        if error is not None:
            log.warning("%ss of namespace %s: %s", kind, self._namespace, error)
        elif self._failing:
            log.warning("%ss of namespace %s are read again", kind, self._namespace)
        self._failing = error is not None

    def _dated_description(self, secret: Secret) -> DatedDescription | None:
        """Return the Secret's description; log a warning and return `None` if it is invalid."""
        try:
            return DatedDescription(description_of(secret))
        except UsageError as error:
            self._refuse(secret.metadata.name, str(error))
        return None

    def _refuse(self, name: str, why: str) -> None:
        self.unreadable[name] = why
        log.warning("Secret %s/%s is ignored: %s", self._namespace, name, why)


def description_of(secret: Secret) -> Description:
    """Decode a Secret. Raises UsageError that names the key and the expected value."""
    checks.cluster_id(secret.metadata.name)
    data = secret.data or {}
    if "info" not in data:
        raise UsageError("info: expected JSON with resources, labels and hasNat under this key")
    try:
        info = decoding.decode(data["info"], Info)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"info: {error}") from error
    try:
        kubeconfig = data.get("kubeconfig", b"").decode()
    except UnicodeDecodeError:
        raise UsageError("kubeconfig: expected UTF-8") from None
    return Description(
        kubeconfig=checks.kubeconfig(kubeconfig) if kubeconfig else None,
        resources=checks.quantities(info.resources, "info.resources"),
        labels=checks.labels(info.labels),
        has_nat=info.has_nat,
        price=None if info.price is None else checks.price(info.price),
        free=None if info.free is None else checks.quantities(info.free, "info.free"),
    )


def resource(namespace: str, selector: str) -> Resource:
    """Return the API resource of the Secrets in *namespace* that match *selector*. Raises UsageError."""
    if not _NAMESPACE.fullmatch(namespace):
        raise UsageError(f"--namespace {namespace!r}: expected the name of a namespace")
    if not _SELECTOR.fullmatch(selector):
        expected = "expected a label selector as for kubectl, such as autoscaling=true or country in (it, fr)"
        raise UsageError(f"--secret-selector {selector!r}: {expected}")
    return Resource(KIND, f"/api/v1/namespaces/{namespace}/secrets", selector=selector)


def first_read(client: Client, resource: Resource) -> None:
    """List the resource once. Raise permanent errors, such as missing permissions; log temporary ones."""
    try:
        client.request(f"list {resource.plural}", "GET", resource.path, query={"limit": "1"} | resource.query)
    except Retryable as error:
        log.warning("%s", error)


def reflector(client: Client, clock: Clock, resource: Resource, sink: Secrets) -> Reflector:
    """Return a reflector that keeps *sink* up to date with *resource*."""
    return Reflector(resource, client, StructCodec(KIND, Secret), sink, clock)
