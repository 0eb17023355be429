"""Pod Security admission: what is predicted of new pods is what the API server says to their dry runs."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import httpx2
import pytest

from devcluster.api import Json
from devcluster.errors import ApiError
from devcluster.plane import ControlPlane
from predicates.objects import Pod
from rescheduler.planning.pod_security import security_rejection
from tests.planning.builders import snapshot

ENFORCE: Final = "pod-security.kubernetes.io/enforce"
LEVELS: Final = ("privileged", "baseline", "restricted")
VERSIONS: Final = ("latest", "v1.19", "v1.22", "v1.25", "v1.30", "v1.34")
CASES: Final = 60  #: of each level and version

#: Field → values of security contexts, the first of which the level restricted requires or accepts.
OF_BOTH: Final[dict[str, list[Any]]] = {
    "runAsNonRoot": [True, None, False],
    "runAsUser": [None, 1000, 0],
    "seccompProfile": [
        {"type": "RuntimeDefault"},
        None,
        {"type": "Localhost", "localhostProfile": "a"},
        {"type": "Unconfined"},
    ],
    "seLinuxOptions": [None, {"type": "container_t"}, {"type": "container_engine_t"}, {"type": "spc_t"}, {"user": "u"}],
    "appArmorProfile": [None, {"type": "RuntimeDefault"}, {"type": "Unconfined"}],
    "windowsOptions": [None, {"runAsUserName": "a"}],
}
OF_POD: Final[dict[str, list[Any]]] = {
    "sysctls": [
        None,
        [{"name": "net.ipv4.tcp_syncookies", "value": "1"}],
        [{"name": "net.ipv4.tcp_fin_timeout", "value": "1"}],
        [{"name": "net.ipv4.tcp_rmem", "value": "1"}],
        [{"name": "kernel.msgmax", "value": "1"}],
    ],
}
OF_CONTAINER: Final[dict[str, list[Any]]] = {
    "allowPrivilegeEscalation": [False, None, True],
    "privileged": [None, False, True],
    "procMount": [None, "Default"],
    "capabilities": [
        {"drop": ["ALL"]},
        {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
        {"drop": ["ALL"], "add": ["CHOWN"]},
        {"drop": ["KILL"]},
        {"add": ["SYS_ADMIN"]},
        None,
    ],
}
VOLUMES: Final[list[Json]] = [
    {"emptyDir": {}},
    {"configMap": {"name": "c"}},
    {"projected": {"sources": []}},
    {"csi": {"driver": "d"}},
    {"persistentVolumeClaim": {"claimName": "c"}},
    {"hostPath": {"path": "/x"}},
    {"nfs": {"server": "s", "path": "/x"}},
    {"iscsi": {"targetPortal": "1.2.3.4", "iqn": "iqn.2001-04.com.example:s", "lun": 0}},
]
OF_SPEC: Final[dict[str, list[Any]]] = {
    "hostNetwork": [None, False, True],
    "hostPID": [None, True],
    "hostIPC": [None, True],
    "hostUsers": [None, True, False],
    "os": [None, {"name": "linux"}],
}


def chosen(rng: random.Random, fields: dict[str, list[Any]], odd: float) -> Json:
    """Return a value of each field: the first one, or with the probability *odd* any."""
    values = {name: rng.choice(each) if rng.random() < odd else each[0] for name, each in fields.items()}
    return {name: value for name, value in values.items() if value is not None}


def container(rng: random.Random, name: str, odd: float) -> Json:
    port = {"ports": [{"containerPort": 80, "hostPort": 80}]} if rng.random() < odd / 6 else {}
    context = chosen(rng, OF_BOTH | OF_CONTAINER, odd)
    return {"name": name, "image": "app:1", "securityContext": context, **port}


def some_pod(rng: random.Random, namespace: str, number: int) -> Json:
    odd = rng.choice((0.03, 0.1, 0.3))
    volumes = [{"name": f"v{at}", **rng.choice(VOLUMES[: 5 if rng.random() > odd else None])} for at in range(2)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": f"p{number}"},
        "spec": {
            **chosen(rng, OF_SPEC, odd),
            "securityContext": chosen(rng, OF_BOTH | OF_POD, odd),
            "containers": [container(rng, f"c{at}", odd) for at in range(rng.choice((1, 2)))],
            "initContainers": [container(rng, "i", odd) for _ in range(rng.choice((0, 1)))],
            "volumes": volumes,
        },
    }


@pytest.fixture
def namespaces(cluster: ControlPlane) -> Iterator[dict[str, Json]]:
    """Make a namespace for each level and version. The values are their labels."""
    labels: dict[str, Json] = {
        f"{level}-{version.replace('.', '-')}": {ENFORCE: level, f"{ENFORCE}-version": version}
        for level in LEVELS
        for version in VERSIONS
    }
    labels |= {"misspelled": {ENFORCE: "baseline", f"{ENFORCE}-version": "v1.99"}}
    made = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": each}}
        for name, each in labels.items()
    ]
    cluster.apply(made)
    cluster.wait_for(lambda: all(_may_create_pods(cluster, name) for name in labels), "the ServiceAccounts")
    yield labels
    for item in made:
        cluster.api.delete(cluster.api.path(item))


def _may_create_pods(cluster: ControlPlane, namespace: str) -> bool:
    return bool(cluster.api.items(f"/api/v1/namespaces/{namespace}/serviceaccounts"))


def rejection(cluster: ControlPlane, manifest: Json) -> str | None:
    """Return why Pod Security admission rejects the pod, or "", or None if it is invalid.

    Raises ApiError if anything else rejects it.
    """
    path = f"/api/v1/namespaces/{manifest['metadata']['namespace']}/pods"
    try:
        cluster.api.post(path, manifest, dryRun="All")
    except ApiError as error:
        if error.status == httpx2.codes.UNPROCESSABLE_CONTENT:
            return None
        if "violates PodSecurity" not in str(error):
            raise
        return str(error)
    return ""


def test_the_prediction_is_what_the_api_server_says(cluster: ControlPlane, namespaces: dict[str, Json]) -> None:
    rng = random.Random(37)
    wrong, seen = [], Counter[bool]()
    for name, labels in namespaces.items():
        for number in range(CASES):
            manifest = some_pod(rng, name, number)
            if (said := rejection(cluster, manifest)) is None:
                continue
            [pod] = snapshot([manifest]).pods.values()
            assert isinstance(pod, Pod)
            predicted = security_rejection(labels, pod.cls.spec)
            seen[bool(said)] += 1
            if bool(said) != bool(predicted):
                wrong.append((labels, manifest["spec"], said, predicted))
    assert wrong == []
    assert min(seen[True], seen[False]) > CASES
