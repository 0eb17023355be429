"""The single permissions that the shipped manifests grant to a ServiceAccount."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Self

import yaml

from devcluster.api import Api, Json
from devcluster.plane import ControlPlane
from tests.cluster.rendering import DEPLOY

ROLES = frozenset({"Role", "ClusterRole"})

#: What an account needs: its rights, and the objects whose state it stores.
ACCESS = ROLES | {"ServiceAccount", "RoleBinding", "ClusterRoleBinding", "Lease", "ConfigMap"}

#: With what limits it.
LIMITED_ACCESS = ACCESS | {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}


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
        return (
            self.words in text or re.search(rf"missing permission: {re.escape(str(self))}(?![\w./-])", text) is not None
        )

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


def without(role: Json, removed: Iterable[Right]) -> list[Json]:
    """Return the rules of *role* without the rights *removed*, one rule per right."""
    gone = set(removed)
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
    """Installed roles, bindings, ServiceAccounts, limits and stored state of *objects*. Rights can be removed."""

    def __init__(self, plane: ControlPlane, objects: Sequence[Json]) -> None:
        self._plane = plane
        self._objects = [item for item in objects if item["kind"] in LIMITED_ACCESS]

    def __enter__(self) -> Self:
        self._plane.apply(self._objects)
        return self

    def __exit__(self, *_: object) -> None:
        for item in self._objects:
            self._plane.api.delete(self._plane.api.path(item))

    def take(self, *removed: Right) -> None:
        """Set the rules of all roles to their original rules without *removed*, and wait until this takes effect.

        The API server may not have seen the new roles yet, so the other rights must be allowed first.
        """
        for item in self._objects:
            if item["kind"] in ROLES:
                self._plane.api.patch(self._plane.api.path(item), {"rules": without(item, removed)})
        grants = sorted(set(self._grants()), key=lambda grant: grant.right in removed)
        for grant in grants:
            expected = grant.right not in removed
            description = f"{grant} to be {'allowed' if expected else 'forbidden'}"
            self._plane.wait_for(partial(self._is, expected, grant), description)

    def _grants(self) -> Iterator["_Grant"]:
        roles = {(item["kind"], item["metadata"]["name"]): item for item in self._objects if item["kind"] in ROLES}
        for binding in self._objects:
            role = roles.get((binding["roleRef"]["kind"], binding["roleRef"]["name"])) if "roleRef" in binding else None
            for rule in role["rules"] if role is not None else ():
                for subject, right in product(binding["subjects"], _of(rule)):
                    account = user(subject["namespace"], subject["name"])
                    namespace = binding["metadata"].get("namespace", subject["namespace"])
                    for name in rule.get("resourceNames", [""]):
                        yield _Grant(right, account, namespace, name)

    def _is(self, expected: bool, grant: "_Grant") -> bool:
        """Return whether *grant* is allowed, or forbidden, as *expected*."""
        resource, _, subresource = grant.right.resource.partition("/")
        attributes = {"verb": grant.right.verb, "group": grant.right.group, "resource": resource}
        where = {"subresource": subresource, "namespace": grant.namespace, "name": grant.name}
        return is_allowed(self._plane.api, grant.account, attributes | where) is expected


@dataclass(frozen=True)
class _Grant:
    """A right of an account in a namespace, on all objects or, unless it is "", on the object *name*."""

    right: Right
    account: str
    namespace: str
    name: str


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
    response = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(response["status"]["allowed"])
