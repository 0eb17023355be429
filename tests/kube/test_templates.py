"""Reading what replacement pods are created from: templates, older revisions, and what admission adds."""

from typing import Any

import pytest

from predicates.objects import OwnerReference
from rescheduler.kube.client import Client
from rescheduler.kube.unwatched import read_templates
from tests.kube.edge import Reply, ScriptedApiServer, status

STATEFUL_SET = "/apis/apps/v1/namespaces/default/statefulsets/db"
REVISIONS = "/apis/apps/v1/namespaces/default/controllerrevisions"
PRIORITIES, RUNTIMES = "/apis/scheduling.k8s.io/v1/priorityclasses", "/apis/node.k8s.io/v1/runtimeclasses"
LIMITS = "/api/v1/namespaces/default/limitranges"
VPAS = "/apis/autoscaling.k8s.io/v1/namespaces/default/verticalpodautoscalers"
OWNERS = [("default", OwnerReference(kind="StatefulSet", name="db", uid="u", api_version="apps/v1", controller=True))]


def listed(*items: dict[str, Any]) -> Reply:
    return Reply({"metadata": {"resourceVersion": "1"}, "items": list(items)})


def stateful_set(current: str, update: str, strategy: str = "RollingUpdate", observed: int = 3) -> Reply:
    selector = {"matchLabels": {"app": "db", "tier": "data"}}
    return Reply(
        {
            "metadata": {"name": "db", "namespace": "default", "uid": "u", "generation": 3},
            "spec": {"selector": selector, "template": {}, "updateStrategy": {"type": strategy}},
            "status": {"currentRevision": current, "updateRevision": update, "observedGeneration": observed},
        }
    )


@pytest.fixture
def served(edge: ScriptedApiServer) -> ScriptedApiServer:
    edge.on("GET", PRIORITIES, listed({"metadata": {"name": "high"}, "value": 7}))
    edge.on("GET", RUNTIMES, listed({"metadata": {"name": "kata"}}))
    edge.on("GET", LIMITS, listed())
    edge.on("GET", VPAS, status(404, "the server could not find the requested resource"))
    edge.on("GET", REVISIONS, listed({"metadata": {"name": "db-1", "namespace": "default"}, "data": {"spec": {}}}))
    return edge


#: Also after a template was rolled back, a pod may be of the revision in between.
OLDER = {
    "rolls out": stateful_set("db-1", "db-2"),
    "OnDelete, rolled back": stateful_set("db-1", "db-1", "OnDelete"),
    "not observed yet": stateful_set("db-1", "db-1", observed=2),
}


@pytest.mark.parametrize("found", OLDER.values(), ids=OLDER)
def test_older_revisions_of_a_stateful_set_are_read_by_the_labels_of_its_pods(
    found: Reply, client: Client, served: ScriptedApiServer
) -> None:
    served.on("GET", STATEFUL_SET, found)
    kinds = [kind for kind, _ in read_templates(client, OWNERS)]
    assert kinds == ["ControllerRevision", "StatefulSet", "PriorityClass", "RuntimeClass"]
    [request] = served.seen(path=REVISIONS)
    assert request.query["labelSelector"] == "app=db,tier=data"


def test_a_stateful_set_without_older_pods_needs_no_revisions(client: Client, served: ScriptedApiServer) -> None:
    served.on("GET", STATEFUL_SET, stateful_set("db-2", "db-2"))
    kinds = [kind for kind, _ in read_templates(client, OWNERS)]
    assert kinds == ["StatefulSet", "PriorityClass", "RuntimeClass"]
    assert served.seen(path=REVISIONS) == []
