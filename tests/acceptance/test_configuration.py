"""The configuration file of the original in the proxy process: valid files, and error messages for invalid ones."""

import contextlib
import json
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from devcluster.api import Json
from devcluster.plane import ControlPlane
from rescheduler import VERSION
from rescheduler.cloudpool.proxy import messages
from rescheduler.cloudpool.proxy.forward import FAILED
from tests import forking
from tests.acceptance.program import LoggedProgram
from tests.acceptance.scenes import scene
from tests.cluster.waiting import eventually
from tests.providers import pki
from tests.proxy.world import ProxyWorld

pytestmark = pytest.mark.cluster

API = {"url": "https://127.0.0.1:1", "auth": {"kubeConfigPath": "{folder}/none"}}
POOL = {"url": "http://127.0.0.1:1"}
EXISTING_FILE = "{folder}/here"  #: an existing file
CERTIFICATES = {"clientCertPath": EXISTING_FILE, "clientKeyPath": EXISTING_FILE, "caCertPath": EXISTING_FILE}


def certificates(**changes: str) -> Json:
    return {"apiServer": {"url": API["url"], "auth": {**CERTIFICATES, **changes}}, "backend": POOL}


def kubeconfig(url: str, kind: str) -> Json:
    """Return a configuration with the file of KUBECONFIGS of that *kind*."""
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

#: By mistake: the file, `None` for a missing file, and the error message. More mistakes: tests/proxy/test_config.py.
INVALID: dict[str, tuple[Any, str]] = {
    "a missing file": (None, "cannot be read: No such file or directory"),
    "not JSON": ("{", "not JSON: Expecting property name"),
    "a missing kubeconfig": ({"apiServer": API, "backend": POOL}, "no such file"),
    "another cluster's kubeconfig": (kubeconfig("https://elsewhere", "without-users"), "0 contexts of"),
    "a kubeconfig without a context": (kubeconfig("https://127.0.0.1:1", "without-contexts"), "0 contexts of"),
    "a kubeconfig without its user": (kubeconfig("https://127.0.0.1:1/", "without-users"), "no user 'u'"),
    "a missing certificate file": (certificates(clientCertPath="/nope"), "apiServer.auth.clientCertPath: /nope"),
    "a missing key file": (certificates(clientKeyPath="/nope"), "apiServer.auth.clientKeyPath: /nope"),
    "a missing CA file": (certificates(caCertPath="/nope"), "apiServer.auth.caCertPath: /nope"),
}


def proxy(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command until it exits."""
    return forking.run("proxy", *arguments)


def test_invalid_configurations_are_rejected(tmp_path: Path) -> None:
    """The error is one line, and the exit code is 2; it was 1 in the original."""
    (tmp_path / "here").touch()
    for kind, document in KUBECONFIGS.items():
        (tmp_path / kind).write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **document}))
    for number, (fact, (document, expected)) in enumerate(INVALID.items()):
        file, log = tmp_path / f"{number}.json", tmp_path / f"{number}.log"
        if document is not None:
            text = document if isinstance(document, str) else json.dumps(document)
            file.write_text(text.replace("{folder}", str(tmp_path)))
        with LoggedProgram(
            log, "proxy", f"--config-file={file}", "--port=0", "--listen-address=127.0.0.1:0"
        ) as program:
            assert program.end() == 2, fact
        output = log.read_text()
        assert (output.count("\n"), expected in output) == (1, True), (fact, output)


def test_arguments_are_parsed_as_by_the_original(tmp_path: Path) -> None:
    """Single dashes, glog's flags, the version, and an unknown flag."""
    version = proxy("--version")
    assert (version.returncode, version.stdout) == (0, f"Version: {VERSION}\n")
    unknown = proxy("--what")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "--what" in unknown.stderr
    glog = proxy(f"-config-file={tmp_path}/none", "-logtostderr", "-v=4", "-alsologtostderr", "-port", "0")
    assert (glog.returncode, "cannot be read" in glog.stderr) == (2, True)


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    """The exit code is 1, and the error is one line without a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        kind, port = "without-users", occupied.getsockname()[1]
        users = [{"name": "u", "user": {}}]
        (tmp_path / kind).write_text(json.dumps({**KUBECONFIGS[kind], "users": users}))
        file, log = tmp_path / "config.json", tmp_path / "log"
        file.write_text(json.dumps(kubeconfig("", kind)).replace("{folder}", str(tmp_path)))
        options = (f"--config-file={file}", f"--port={port}", "--host=127.0.0.1", "--listen-address=127.0.0.1:0")
        with LoggedProgram(log, "proxy", *options) as program:
            assert program.end() == 1
        assert [line for line in log.read_text().splitlines() if "cannot listen there" in line]
        assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("explicit", [True, False])
def test_an_occupied_status_port_is_an_error_only_if_it_is_explicit(explicit: bool, tmp_path: Path) -> None:
    """A second proxy on the same host starts, because the original had no such port. An explicit port must be free."""
    kind = "without-users"
    users = [{"name": "u", "user": {}}]
    (tmp_path / kind).write_text(json.dumps({**KUBECONFIGS[kind], "users": users}))
    file, log = tmp_path / "config.json", tmp_path / "log"
    file.write_text(json.dumps(kubeconfig("", kind)).replace("{folder}", str(tmp_path)))
    options = [f"--config-file={file}", "--port=0", "--host=127.0.0.1"]
    options += ["--listen-address=localhost:9235"] if explicit else []
    with contextlib.ExitStack() as until:
        with contextlib.suppress(OSError):  # the port is already in use
            until.enter_context(socket.create_server(("127.0.0.1", 9235)))
        program = until.enter_context(LoggedProgram(log, "proxy", *options))
        if explicit:
            assert program.end() == 1
            return
        eventually(lambda: program.logged("forwarding port "))
        (line,) = program.logged("/metrics, /healthz and /readyz are served on localhost:")
        assert line["message"].startswith("--listen-address localhost:9235: cannot listen there: ")
        assert line["level"] == "INFO"


def test_valid_configurations_are_accepted(cluster: ControlPlane, tmp_path: Path) -> None:
    """The cases use all three authentication methods, and both names of the pool's URL."""
    pki.make(tmp_path)
    token = tmp_path / "token"
    token.write_text(cluster.token)
    certificates = {"clientCertPath": f"{tmp_path}/client.crt", "clientKeyPath": f"{tmp_path}/client.key"}
    strange = {"url": cluster.server, "auth": {**certificates, "caCertPath": str(cluster.ca)}, "timeout": "10s"}
    config: dict[str, Json] = {"apiServer": strange, "SERVER": {"Timeout": "1m30s"}}
    with scene(cluster, tmp_path, 2, config=config) as env:
        a_cluster_that_cannot_be_read(env)
        restarted(
            env, apiServer={"url": cluster.server, "auth": {"tokenPath": str(token), "caCertPath": str(cluster.ca)}}
        )
        assert env.post("/pool/size", {"desiredSize": 1}).status_code == 200
        assert (env.running(), env.desired) == (["od-2"], 1)
        contexts = several_contexts(cluster, tmp_path)
        pool = {"cloudPoolUrl": f"{env.server.url}/", "url": "", "timeout": "0"}
        restarted(env, apiServer={"url": f"{cluster.server}/", "auth": {"kubeConfigPath": str(contexts)}}, backend=pool)
        assert env.post("/pool/terminate", {"machineId": env.id("od-2")}).status_code == 500
        restarted(env, backend={"url": "http://no-such-pool.invalid"})
        a_pool_that_cannot_be_found(env)


def restarted(env: ProxyWorld, **config: Any) -> None:
    assert env.stop(signal.SIGTERM) == 0
    assert not [line for line in env.lines if "Traceback" in line]
    env.config = config
    env.start()


def a_cluster_that_cannot_be_read(env: ProxyWorld) -> None:
    """Check that scale-up works although the API server rejects the certificate, and other requests report it."""
    assert httpx2.post(f"{env.url}/pool/size", json={"desiredSize": 2}, timeout=60).status_code == 200
    env.plane.wait_for(lambda: "(403)" in post_json(env, "/pool/size", desiredSize=1).text, "the error")
    for path, message, body in (
        ("/pool/size", messages.SET_SIZE, {"desiredSize": 1}),
        ("/pool/terminate", messages.TERMINATE, {"machineId": env.id("od-1")}),
    ):
        response = post_json(env, path, **body)
        assert (response.status_code, response.json()["message"]) == (503, message)
        assert response.json()["detail"].startswith("not read yet: ")
    assert (env.running(), env.desired) == (["od-1", "od-2"], 2)


def a_pool_that_cannot_be_found(env: ProxyWorld) -> None:
    for response, message in (
        (httpx2.get(f"{env.url}/pool", timeout=90), FAILED),
        (post_json(env, "/pool/terminate", machineId="i-1"), messages.TERMINATE),
    ):
        assert (response.status_code, response.json()["message"]) == (502, message)
        assert "[Errno -" in response.json()["detail"]  # an error of the resolver, whose text depends on the system


def post_json(env: ProxyWorld, path: str, **body: Any) -> httpx2.Response:
    return httpx2.post(f"{env.url}{path}", json=body, timeout=90)


def several_contexts(cluster: ControlPlane, folder: Path) -> Path:
    """Return a kubeconfig whose current context belongs to another cluster."""
    document = json.loads(cluster.kubeconfig.read_text())
    document["clusters"].append({"name": "other", "cluster": {"server": "https://127.0.0.1:1"}})
    document["contexts"].append(
        {"name": "other", "context": {"cluster": "other", "user": document["users"][0]["name"]}}
    )
    document["current-context"] = "other"
    path = folder / "several"
    path.write_text(json.dumps(document))
    return path
