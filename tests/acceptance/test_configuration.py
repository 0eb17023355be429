"""The file of the original, as the process reads it: what it takes, and how it says what it does not take."""

import contextlib
import json
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.local.api import Json
from deploy.local.plane import ControlPlane
from rescheduler.proxy import answers
from rescheduler.proxy.forward import FAILED
from rescheduler.version import VERSION
from tests.acceptance.program import Program
from tests.acceptance.scenes import scene
from tests.backends import pki
from tests.cluster.daemon import ROOT, command, environment
from tests.cluster.waiting import eventually
from tests.proxy.world import World

pytestmark = pytest.mark.cluster

API = {"url": "https://127.0.0.1:1", "auth": {"kubeConfigPath": "{folder}/none"}}
POOL = {"url": "http://127.0.0.1:1"}
HERE = "{folder}/here"  #: a file that is there
CERTIFICATES = {"clientCertPath": HERE, "clientKeyPath": HERE, "caCertPath": HERE}


def certificates(**changes: str) -> Json:
    return {"apiServer": {"url": API["url"], "auth": {**CERTIFICATES, **changes}}, "backend": POOL}


def kubeconfig(url: str, kind: str) -> Json:
    """With the file of KUBECONFIGS of that *kind*."""
    return {"apiServer": {"url": url, "auth": {"kubeConfigPath": f"{{folder}}/{kind}"}}, "backend": POOL}


CLUSTERS = [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]
KUBECONFIGS: dict[str, Json] = {
    "without-contexts": {"clusters": CLUSTERS},
    "without-users": {
        "clusters": CLUSTERS,
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    },
}

#: what is wrong: (the file, or `None` for none; what is said)
BAD: dict[str, tuple[Any, str]] = {
    "no file": (None, "cannot be read: No such file or directory"),
    "no JSON": ("{", "no JSON: Expecting property name"),
    "a trailing comma": ('{"backend": {},}', "no JSON: Expecting property name"),
    "no API server": ({"backend": POOL}, "apiServer.url: missing"),
    "no certificate": ({"apiServer": {"url": API["url"]}, "backend": POOL}, "apiServer.auth.clientCertPath: missing"),
    "no pool": ({"apiServer": API}, "backend.url: missing"),
    "an odd pool": ({"apiServer": API, "backend": {"url": "ftp://pool"}}, "backend.url: expected http(s)://"),
    "two pools": (
        {"apiServer": API, "backend": {**POOL, "cloudPoolUrl": "http://b"}},
        "backend.url and backend.cloudPoolUrl: expected one of them",
    ),
    "a number for a duration": (
        {"apiServer": API, "backend": {**POOL, "timeout": 5}},
        'expected a duration such as "90s" or "1m35s", got 5 - at `$.backend.timeout`',
    ),
    "a duration without a unit": (
        {"server": {"timeout": "60"}, "apiServer": API, "backend": POOL},
        'expected a duration such as 10s, 2m30s, 1h or 500ms, got "60" - at `$.server.timeout`',
    ),
    "a kubeconfig that is not there": ({"apiServer": API, "backend": POOL}, "no such file"),
    "another cluster's kubeconfig": (kubeconfig("https://elsewhere", "without-users"), "0 contexts of"),
    "a kubeconfig without a context": (kubeconfig("https://127.0.0.1:1", "without-contexts"), "0 contexts of"),
    "a kubeconfig without its user": (kubeconfig("https://127.0.0.1:1/", "without-users"), "no user 'u'"),
    "a certificate that is not there": (certificates(clientCertPath="/nope"), "apiServer.auth.clientCertPath: /nope"),
    "a key that is not there": (certificates(clientKeyPath="/nope"), "apiServer.auth.clientKeyPath: /nope"),
    "a CA that is not there": (certificates(caCertPath="/nope"), "apiServer.auth.caCertPath: /nope"),
}


def proxy(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    return subprocess.run(
        command("proxy", *arguments),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_what_it_does_not_take(tmp_path: Path) -> None:
    """One line, and the exit code of wrong use; the original ended with 1."""
    (tmp_path / "here").touch()
    for kind, document in KUBECONFIGS.items():
        (tmp_path / kind).write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **document}))
    for number, (fact, (document, said)) in enumerate(BAD.items()):
        file, log = tmp_path / f"{number}.json", tmp_path / f"{number}.log"
        if document is not None:
            text = document if isinstance(document, str) else json.dumps(document)
            file.write_text(text.replace("{folder}", str(tmp_path)))
        with Program(log, "proxy", f"--config-file={file}", "--port=0", "--listen-address=127.0.0.1:0") as one:
            assert one.end() == 2, fact
        told = log.read_text()
        assert (told.count("\n"), said in told) == (1, True), (fact, told)


def test_arguments(tmp_path: Path) -> None:
    """Single dashes, glog's flags, the version; a flag that nobody knows."""
    version = proxy("--version")
    assert (version.returncode, version.stdout) == (0, f"Version: {VERSION}\n")
    unknown = proxy("--what")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "--what" in unknown.stderr
    glog = proxy(f"-config-file={tmp_path}/none", "-logtostderr", "-v=4", "-alsologtostderr", "-port", "0")
    assert (glog.returncode, "cannot be read" in glog.stderr) == (2, True)


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    """1, one line, no dump."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        kind, port = "without-users", taken.getsockname()[1]
        users = [{"name": "u", "user": {}}]
        (tmp_path / kind).write_text(json.dumps({**KUBECONFIGS[kind], "users": users}))
        file, log = tmp_path / "config.json", tmp_path / "log"
        file.write_text(json.dumps(kubeconfig("", kind)).replace("{folder}", str(tmp_path)))
        options = (f"--config-file={file}", f"--port={port}", "--host=127.0.0.1", "--listen-address=127.0.0.1:0")
        with Program(log, "proxy", *options) as one:
            assert one.end() == 1
        assert [line for line in log.read_text().splitlines() if "cannot listen there" in line]
        assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("given", [True, False])
def test_a_port_of_the_pages_that_is_taken(given: bool, tmp_path: Path) -> None:
    """A second proxy on one host starts: the original had no such port. One that was asked for must be free."""
    kind = "without-users"
    users = [{"name": "u", "user": {}}]
    (tmp_path / kind).write_text(json.dumps({**KUBECONFIGS[kind], "users": users}))
    file, log = tmp_path / "config.json", tmp_path / "log"
    file.write_text(json.dumps(kubeconfig("", kind)).replace("{folder}", str(tmp_path)))
    options = [f"--config-file={file}", "--port=0", "--host=127.0.0.1"]
    options += ["--listen-address=localhost:9235"] if given else []
    with contextlib.ExitStack() as until:
        with contextlib.suppress(OSError):  # somebody else has it
            until.enter_context(socket.create_server(("127.0.0.1", 9235)))
        program = until.enter_context(Program(log, "proxy", *options))
        if given:
            assert program.end() == 1
            return
        eventually(lambda: program.told("forwarding port "))
        (line,) = program.told("/metrics, /healthz and /readyz are served on localhost:")
        assert line["message"].startswith("--listen-address localhost:9235: cannot listen there: ")
        assert line["level"] == "INFO"


def test_what_it_takes(cluster: ControlPlane, tmp_path: Path) -> None:
    """Three ways to log in, one after the other, and both names of the pool's URL."""
    pki.make(tmp_path)
    token = tmp_path / "token"
    token.write_text(cluster.token)
    certificates = {"clientCertPath": f"{tmp_path}/client.crt", "clientKeyPath": f"{tmp_path}/client.key"}
    strange = {"url": cluster.server, "auth": {**certificates, "caCertPath": str(cluster.ca)}, "timeout": "10s"}
    config: dict[str, Json] = {"apiServer": strange, "SERVER": {"Timeout": "1m30s"}}
    with scene(cluster, tmp_path, 2, config=config) as made:
        a_cluster_that_cannot_be_read(made)
        restarted(
            made, apiServer={"url": cluster.server, "auth": {"tokenPath": str(token), "caCertPath": str(cluster.ca)}}
        )
        assert made.post("/pool/size", {"desiredSize": 1}).status_code == 200
        assert (made.running(), made.desired) == (["od-2"], 1)
        contexts = several_contexts(cluster, tmp_path)
        pool = {"cloudPoolUrl": f"{made.server.url}/", "url": "", "timeout": "0"}
        restarted(
            made, apiServer={"url": f"{cluster.server}/", "auth": {"kubeConfigPath": str(contexts)}}, backend=pool
        )
        assert made.post("/pool/terminate", {"machineId": made.id("od-2")}).status_code == 500
        restarted(made, backend={"url": "http://no-such-pool.invalid"})
        a_pool_that_cannot_be_found(made)


def restarted(made: World, **config: Any) -> None:
    assert made.stop(signal.SIGTERM) == 0
    made.config = config
    made.start()


def a_cluster_that_cannot_be_read(made: World) -> None:
    """The API server does not know the certificate: growing needs no cluster, and all else says what is missing."""
    assert httpx.post(f"{made.url}/pool/size", json={"desiredSize": 2}, timeout=60).status_code == 200
    made.plane.wait_for(lambda: "(403)" in asked(made, "/pool/size", desiredSize=1).text, "the refusal")
    for path, message, body in (
        ("/pool/size", answers.SET_SIZE, {"desiredSize": 1}),
        ("/pool/terminate", answers.TERMINATE, {"machineId": made.id("od-1")}),
    ):
        answer = asked(made, path, **body)
        assert (answer.status_code, answer.json()["message"]) == (503, message)
        assert answer.json()["detail"].startswith("not read yet: ")
    assert (made.running(), made.desired) == (["od-1", "od-2"], 2)


def a_pool_that_cannot_be_found(made: World) -> None:
    for answer, message in (
        (httpx.get(f"{made.url}/pool", timeout=90), FAILED),
        (asked(made, "/pool/terminate", machineId="i-1"), answers.TERMINATE),
    ):
        assert (answer.status_code, answer.json()["message"]) == (502, message)
        assert "[Errno -" in answer.json()["detail"]  # a resolver's error, whose words are the system's


def asked(made: World, path: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{made.url}{path}", json=body, timeout=90)


def several_contexts(cluster: ControlPlane, folder: Path) -> Path:
    """A kubeconfig whose current context is another cluster's."""
    document = json.loads(cluster.kubeconfig.read_text())
    document["clusters"].append({"name": "other", "cluster": {"server": "https://127.0.0.1:1"}})
    document["contexts"].append(
        {"name": "other", "context": {"cluster": "other", "user": document["users"][0]["name"]}}
    )
    document["current-context"] = "other"
    path = folder / "several"
    path.write_text(json.dumps(document))
    return path
