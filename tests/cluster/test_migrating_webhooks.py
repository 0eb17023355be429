"""A webhook that denies evictions with 429 and moves the pod by itself, as KubeVirt does with virtual machines."""

import base64
import json
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from devcluster.api import Json
from devcluster.plane import ControlPlane
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer
from tests.cluster.operators import PODS, Operators, PlayedOwner
from tests.cluster.test_memory import memory
from tests.cluster.test_owners import ANY_SCHEDULER, SAFE
from tests.providers import pki

NODE = "on-demand-1"
WORDS = 'Eviction triggered evacuation of VMI "default/machine"'
MACHINE = PlayedOwner(
    "kubevirt.io/v1/VirtualMachineInstance", "machine", NODE, restart="Never", annotations={SAFE: "true"}
)


class Evacuation:
    """The webhook. *moves* is called once, with the name of the pod, for the first eviction that is not a dry run."""

    def __init__(self, moves: Any) -> None:
        self.asked: Counter[bool] = Counter()  #: requests by whether they were dry runs
        self._moves = moves

    def answer(self, review: Json) -> Json:
        request = review["request"]
        dry_run = bool(request.get("dryRun"))
        self.asked[dry_run] += 1
        if not dry_run and self.asked[False] == 1:
            threading.Thread(target=self._moves, args=(request["name"],)).start()
        status = {"status": "Failure", "code": 429, "reason": "TooManyRequests", "message": WORDS}
        response = {"uid": request["uid"], "allowed": False, "status": status}
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


@contextmanager
def serving(evacuation: Evacuation, folder: Path) -> Iterator[Json]:
    """Serve the webhook. Yield its configuration."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            content = json.dumps(evacuation.answer(body)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    pki.make(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    authority = base64.b64encode((folder / "ca.pem").read_bytes()).decode()
    try:
        yield configuration(server.server_address[1], authority)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def configuration(port: int, authority: str) -> Json:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
    hook = {
        "name": "evacuation.kubevirt.io",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": authority},
        "rules": [rule],
        "failurePolicy": "Fail",
        "sideEffects": "NoneOnDryRun",
        "admissionReviewVersions": ["v1"],
    }
    kind = "ValidatingWebhookConfiguration"
    meta = {"name": "evacuation"}
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": meta, "webhooks": [hook]}


@pytest.fixture
def machine(cluster: ControlPlane, observer: Observer) -> Iterator[Operators]:
    """Start a virtual machine on the only on-demand node."""
    observer.nodes(1, 2)
    with Operators(cluster, [MACHINE]) as operators:
        observer.running(1)
        yield operators


def test_the_dry_run_is_asked_and_the_node_is_tainted_once(
    cluster: ControlPlane, observer: Observer, machine: Operators, tmp_path: Path
) -> None:
    """After each cooldown only the eviction is tried again."""
    evacuation = Evacuation(lambda _: None)
    with serving(evacuation, tmp_path) as hook:
        cluster.apply([hook])
        observer.open_spot()
        with Daemon(cluster, *FLAGS, ANY_SCHEDULER):
            observer.eventually(lambda: evacuation.asked[True] >= 3, "the eviction is tried again")
            observer.eventually(lambda: observer.messages(NODE, "DrainBlocked"), "the reason")
        cluster.api.delete(cluster.api.path(hook))
    assert (len(observer.markings()), evacuation.asked[False]) == (1, 0)
    assert any(WORDS in message for message in observer.messages(NODE, "DrainFailed"))


def test_a_pod_that_the_webhook_moves_has_time_to_leave(
    cluster: ControlPlane, observer: Observer, machine: Operators, tmp_path: Path
) -> None:
    def moves(name: str) -> None:
        """Migrate: the machine's new pod runs before the old one has completed."""
        machine.opened = True
        old = cluster.api.get(f"{PODS}/{name}")
        copied = {key: old["metadata"][key] for key in ("labels", "annotations", "ownerReferences")}
        spec = {"containers": [{"name": "main", "image": "pause:3.10"}], "restartPolicy": "Never"}
        new = {"apiVersion": "v1", "kind": "Pod", "metadata": copied | {"name": "machine-target"}, "spec": spec}
        cluster.api.post(PODS, new)
        observer.eventually(lambda: observer.places("machine").get(NODE, 0) < len(observer.pods("machine")), "moved")
        observer.running(2, "machine")
        cluster.api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Succeeded"}})

    evacuation = Evacuation(moves)
    with serving(evacuation, tmp_path) as hook:
        cluster.apply([hook])
        observer.open_spot()
        with Daemon(cluster, *FLAGS, ANY_SCHEDULER, "--migrating-webhooks=wait", "--landing-timeout=120s"):
            observer.eventually(lambda: "NodeDrained" in observer.events(NODE), "the node drained", seconds=300)
        cluster.api.delete(cluster.api.path(hook))
    assert evacuation.asked == {True: 1, False: 1}
    assert observer.kinds("machine") == {"spot": 1}
    assert memory(cluster).debts == ()
