"""The rights that a ServiceAccount is granted, one by one, as the shipped manifests have them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import yaml

from deploy.local.api import Json
from deploy.local.plane import ControlPlane
from tests.cluster.rendering import DEPLOY

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = frozenset({"Role", "ClusterRole"})


@dataclass(frozen=True, order=True)
class Right:
    """One verb on one resource; *resource* has the subresource behind a slash."""

    verb: str
    group: str
    resource: str

    @property
    def words(self) -> str:
        """How the API server names it where it is missing."""
        return f'cannot {self.verb} resource "{self.resource}" in API group "{self.group}"'

    def named_in(self, text: str) -> bool:
        """Whether *text* tells that it is missing: in the API server's words, or in those of the daemon's review."""
        return self.words in text or re.search(rf"missing right: {re.escape(str(self))}(?![\w./-])", text) is not None

    def __str__(self) -> str:
        resource, slash, subresource = self.resource.partition("/")
        return f"{self.verb} {resource}" + (f".{self.group}" if self.group else "") + slash + subresource


def shipped(*files: str) -> list[Right]:
    """The rights of the roles in *files* below deploy/, sorted. They are read as they are: nothing has to be built."""
    objects = [one for file in files for one in yaml.safe_load_all((DEPLOY / file).read_text())]
    return sorted(set(rights(objects)))


def rights(objects: Iterable[Json]) -> Iterator[Right]:
    for one in objects:
        for rule in one["rules"] if one["kind"] in ROLES else ():
            yield from _of(rule)


def without(role: Json, taken: Iterable[Right]) -> list[Json]:
    """The rules of *role* but for *taken*; each of them grants one thing."""
    gone = set(taken)
    return [
        {**rule, "apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]}
        for rule in role["rules"]
        for right in _of(rule)
        if right not in gone
    ]


def _of(rule: Json) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                yield Right(verb, group, resource)


class Granted:
    """Roles, bindings and accounts of *objects* on a cluster; rights can be taken away and given back."""

    def __init__(self, plane: ControlPlane, objects: Sequence[Json]) -> None:
        self._plane = plane
        kinds = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
        self._objects = [one for one in objects if one["kind"] in kinds]

    def __enter__(self) -> Self:
        self._plane.apply(self._objects)
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._objects:
            self._plane.api.delete(self._plane.api.path(one))

    def take(self, *taken: Right) -> None:
        """Every role without *taken*."""
        for one in self._objects:
            if one["kind"] in ROLES:
                self._plane.api.patch(self._plane.api.path(one), {"rules": without(one, taken)})
