"""The single permissions that the shipped manifests grant to a ServiceAccount."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import yaml

from devcluster.api import Api, Json
from devcluster.plane import ControlPlane
from tests.cluster.rendering import DEPLOY

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = frozenset({"Role", "ClusterRole"})


@dataclass(frozen=True, order=True)
class Right:
    """A verb on a resource; *resource* includes the subresource after a slash."""

    verb: str
    group: str
    resource: str

    @property
    def words(self) -> str:
        """The API server's wording if the right is missing."""
        return f'cannot {self.verb} resource "{self.resource}" in API group "{self.group}"'

    def named_in(self, text: str) -> bool:
        """Return whether *text* reports the right as missing, in the wording of the API server or the daemon."""
        return self.words in text or re.search(rf"missing right: {re.escape(str(self))}(?![\w./-])", text) is not None

    def __str__(self) -> str:
        resource, slash, subresource = self.resource.partition("/")
        return f"{self.verb} {resource}" + (f".{self.group}" if self.group else "") + slash + subresource


def shipped(*files: str) -> list[Right]:
    """Return the sorted rights of the roles in *files* below deploy/, read without rendering."""
    objects = [item for file in files for item in yaml.safe_load_all((DEPLOY / file).read_text())]
    return sorted(set(rights(objects)))


def rights(objects: Iterable[Json]) -> Iterator[Right]:
    for item in objects:
        for rule in item["rules"] if item["kind"] in ROLES else ():
            yield from _of(rule)


def without(role: Json, taken: Iterable[Right]) -> list[Json]:
    """Return the rules of *role* without the rights *taken*, one rule per right."""
    gone = set(taken)
    return [
        {**rule, "apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]}
        for rule in role["rules"]
        for right in _of(rule)
        if right not in gone
    ]


def _with_names(item: Json) -> Iterator[tuple[Right, str]]:
    """Yield the rights of a role, each with the names of the objects that it is limited to, or ""."""
    for rule in item["rules"] if item["kind"] in ROLES else ():
        for right in _of(rule):
            for name in rule.get("resourceNames", [""]):
                yield right, name


def _of(rule: Json) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                yield Right(verb, group, resource)


class Granted:
    """Installed roles, bindings and ServiceAccounts of *objects*, from which rights can be removed."""

    def __init__(self, plane: ControlPlane, objects: Sequence[Json]) -> None:
        self._plane = plane
        kinds = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
        self._objects = [item for item in objects if item["kind"] in kinds]

    def __enter__(self) -> Self:
        self._plane.apply(self._objects)
        return self

    def __exit__(self, *_: object) -> None:
        for item in self._objects:
            self._plane.api.delete(self._plane.api.path(item))

    def take(self, *taken: Right) -> None:
        """Set the rules of all roles to their original rules without *taken*, and wait until this takes effect.

        The API server may not have seen the new roles yet, so the other rights must be allowed first.
        """
        for item in self._objects:
            if item["kind"] in ROLES:
                self._plane.api.patch(self._plane.api.path(item), {"rules": without(item, taken)})
        named = [(right, name) for item in self._objects for right, name in _with_names(item)]
        for right, name in sorted(named, key=lambda entry: entry[0] in taken):
            allowed = right not in taken
            what = f"{right} {name} to be {'allowed' if allowed else 'forbidden'}"
            self._plane.wait_for(partial(self._is, allowed, right, name), what)

    def _is(self, allowed: bool, right: Right, name: str) -> bool:
        """Return whether the right to the object *name*, or to all objects if it is "", is *allowed* or forbidden."""
        accounts = [item["metadata"] for item in self._objects if item["kind"] == "ServiceAccount"]
        resource, _, subresource = right.resource.partition("/")
        attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource}
        return allowed is any(
            is_allowed(
                self._plane.api,
                user(account["namespace"], account["name"]),
                {"namespace": account["namespace"], "name": name, **attributes},
            )
            for account in accounts
        )


def user(namespace: str, account: str) -> str:
    """Return the user name of a ServiceAccount."""
    return f"system:serviceaccount:{namespace}:{account}"


def is_allowed(api: Api, account: str, attributes: Json) -> bool:
    """Ask the API server whether the user *account* may make the request with these resource *attributes*."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": account, "resourceAttributes": attributes},
    }
    answer = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])
