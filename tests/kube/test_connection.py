"""Credentials: all forms that the official client supports, and one-line errors without secrets."""

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import urllib3

from rescheduler.errors import Forbidden, ReschedulerError, Retryable, Unauthorized, UsageError
from rescheduler.kube import connection
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig, ServiceAccount
from tests.kube.conftest import HastyClock, kubeconfig
from tests.kube.edge import ReceivedRequest, Reply, ScriptedApiServer, status
from tests.providers import pki

SECRET = "dont-tell-anyone"

VALID = """
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}, {name: there, context: {cluster: far, user: u}}]
clusters: [{name: c, cluster: {server: "https://example.test"}}, {name: bare, cluster: {}}]
users: [{name: u, user: {token: dont-tell-anyone}}]
"""

INVALID = {
    "not yaml": ("a: [1, {token: dont-tell-anyone", None, "not YAML at line 1, column 32"),
    "a list": ("[]", None, "expected lists of named clusters, contexts and users"),
    "empty": ("", None, "expected lists of named clusters, contexts and users"),
    "nameless user": (
        "users: [{user: {token: dont-tell-anyone}}]",
        None,
        "expected lists of named clusters, contexts and users",
    ),
    "no such context": (VALID, "nowhere", "no context 'nowhere'; expected one of: here, there"),
    "no such cluster": (VALID, "there", "no cluster 'far'; expected one of: bare, c"),
    "no current context": (
        VALID.replace("current-context: here", ""),
        None,
        "no current-context; expected one, or --context",
    ),
    "no such user": (
        VALID.replace("users: [{name: u", "users: [{name: other"),
        None,
        "no user 'u'; expected one of: other",
    ),
    "cluster without server": (
        VALID.replace("{cluster: c, user: u}", "{cluster: bare, user: u}"),
        None,
        "the cluster of context here has no server; expected an https URL",
    ),
    "exec plugin missing": (
        VALID.replace(
            "token: dont-tell-anyone",
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-plugin, installHint: get it}",
        ),
        None,
        "exec plugin no-such-plugin not found on the PATH (get it)",
    ),
    "exec plugin without command": (
        VALID.replace("token: dont-tell-anyone", "exec: {apiVersion: client.authentication.k8s.io/v1}"),
        None,
        "the user's exec plugin needs a command and an apiVersion",
    ),
    "unknown auth provider": (
        VALID.replace(
            "token: dont-tell-anyone", "auth-provider: {name: azure, config: {access-token: dont-tell-anyone}}"
        ),
        None,
        "auth provider 'azure' is not supported; expected an exec plugin, or gcp or oidc",
    ),
    "certificate file missing": (
        VALID.replace("token: dont-tell-anyone", "client-certificate: gone.pem, token: dont-tell-anyone"),
        None,
        "gone.pem",
    ),
    "token file missing": (
        VALID.replace("token: dont-tell-anyone", "tokenFile: gone"),
        None,
        "No such file or directory",
    ),
    "invalid base64 data": (
        VALID.replace("token: dont-tell-anyone", "client-certificate-data: dont-tell-anyone!, client-key-data: x"),
        None,
        "client-certificate-data: expected base64",
    ),
}


@pytest.mark.parametrize(("content", "context", "expected"), INVALID.values(), ids=INVALID)
def test_an_invalid_kubeconfig_gives_a_one_line_error_without_secrets(
    tmp_path: Path, content: str, context: str | None, expected: str
) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(UsageError) as caught:
        Kubeconfig(str(path), context).login()
    text = str(caught.value)
    assert text.startswith(f"kubeconfig {path}")
    assert expected in text
    assert "\n" not in text
    assert SECRET not in text


def test_a_missing_kubeconfig_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        Kubeconfig(str(tmp_path / "absent")).login()


def test_an_unreadable_kubeconfig_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        Kubeconfig(str(tmp_path)).login()


def test_a_list_of_files_is_merged_and_absent_ones_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("users: [{name: u, user: {token: t}}]\n")
    (tmp_path / "rest").write_text(VALID.replace("users:", "ignored:"))
    paths = os.pathsep.join(str(tmp_path / name) for name in ("rest", "absent", "users"))
    assert Kubeconfig(paths).login().headers == {"authorization": "Bearer t"}


USERS = {
    "token": ("{token: sesame}", "Bearer sesame"),
    "basic": ("{username: ali, password: baba}", "Basic YWxpOmJhYmE="),
    "no credentials": ("{}", None),
}


@pytest.mark.parametrize(("user", "expected"), USERS.values(), ids=USERS)
def test_each_kind_of_user_has_its_authorization_header(tmp_path: Path, user: str, expected: str | None) -> None:
    login = Kubeconfig(str(kubeconfig(tmp_path, "https://example.test", user))).login()
    assert login.headers.get("authorization") == expected
    assert "sesame" not in repr(login)


def test_tls_is_verified_unless_the_kubeconfig_disables_it(tmp_path: Path) -> None:
    strict = Kubeconfig(str(kubeconfig(tmp_path, "https://example.test"))).login()
    assert strict.pool.connection_pool_kw["cert_reqs"].name == "CERT_REQUIRED"
    lax = kubeconfig(tmp_path, 'https://example.test", insecure-skip-tls-verify: true, x: "')
    assert Kubeconfig(str(lax)).login().pool.connection_pool_kw["cert_reqs"].name == "CERT_NONE"


def test_a_kubeconfig_that_disables_the_check_is_warned_about_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lax = Kubeconfig(str(kubeconfig(tmp_path, 'https://example.test", insecure-skip-tls-verify: true, x: "')))
    for _ in range(3):
        lax.login()
        warnings.warn("Unverified HTTPS request", urllib3.exceptions.InsecureRequestWarning, stacklevel=1)
    assert [record.getMessage() for record in caplog.records] == [
        f"{lax.name}: insecure-skip-tls-verify: the certificate of the API server is not checked"
    ]


def _plugin(folder: Path, prints: str, *, code: int = 0) -> str:
    script = folder / "plugin.py"
    script.write_text(f"import sys\nprint({prints!r})\nprint('it is raining', file=sys.stderr)\nsys.exit({code})\n")
    return f"{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {sys.executable}, args: [{script}]}}}}"


CREDENTIAL = (
    '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", '
    '"status": {"token": "%s", "expirationTimestamp": "2033-05-18T03:33:20Z"}}'
)


def test_an_exec_plugin_returns_the_token_and_its_expiry(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "https://example.test", _plugin(tmp_path, CREDENTIAL % "sesame"))
    login = Kubeconfig(str(path)).login()
    assert login.headers == {"authorization": "Bearer sesame"}
    assert login.expires is not None
    assert login.expires.year == 2033


def test_the_error_of_a_failing_exec_plugin_is_reported_and_not_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = kubeconfig(tmp_path, "https://example.test", _plugin(tmp_path, "no credential", code=3))
    with pytest.raises(Unauthorized, match=r"returned no credentials: exec: process returned 3\. it is raining"):
        Kubeconfig(str(path)).login()
    assert capfd.readouterr() == ("", "")


def _service_account(folder: Path, token: str) -> ServiceAccount:
    (folder / "token").write_text(token + "\n")
    pki.make(folder)
    (folder / "ca.pem").rename(folder / "ca.crt")
    return ServiceAccount(folder)


def test_outside_of_a_cluster_the_service_account_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(UsageError, match="not in a cluster: the address of the API server is not set"):
        _service_account(tmp_path, "t").login()


def test_the_service_account_has_a_token_and_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    login = _service_account(tmp_path, "sesame").login()
    assert (login.host, login.headers["authorization"]) == ("https://[fd00::1]:443", "Bearer sesame")


CHOICES = {
    "a named file": ({"kubeconfig": "f"}, {}, Kubeconfig("f", None)),
    "an explicit file takes precedence over the pod": (
        {"kubeconfig": "f", "in_cluster": True},
        {},
        Kubeconfig("f", None),
    ),
    "an explicit context takes precedence over the pod": (
        {"context": "c", "in_cluster": True},
        {},
        Kubeconfig("~/.kube/config", "c"),
    ),
    "the pod's account": ({"in_cluster": True}, {"KUBECONFIG": "g"}, ServiceAccount()),
    "the environment": ({"in_cluster": False}, {"KUBECONFIG": "g"}, Kubeconfig("g", None)),
    "by default": ({}, {}, Kubeconfig("~/.kube/config", None)),
}


@pytest.mark.parametrize(("arguments", "environment", "expected"), CHOICES.values(), ids=CHOICES)
def test_credentials_are_selected_by_flags_and_environment(
    arguments: dict[str, Any], environment: dict[str, str], expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert connection.source(**arguments) == expected


class TurningClock(HastyClock):
    """A clock whose monotonic time is set by the test."""

    time = 0.0

    def monotonic(self) -> float:
        return self.time


def _only(token: str, reply: Reply) -> Callable[[ReceivedRequest], Reply]:
    """Return a response function that accepts *token* only."""
    return lambda request: reply if request.headers.get("authorization") == f"Bearer {token}" else status(401)


def test_a_rotated_token_file_is_read_again_after_a_minute(tmp_path: Path, edge: ScriptedApiServer) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    clock = TurningClock()
    client = Client(Kubeconfig(str(kubeconfig(tmp_path, edge.url, f"{{tokenFile: {token}}}"))), clock)
    edge.on("GET", "/x", Reply())
    client.request("get x", "GET", "/x")
    token.write_text("new")
    clock.time = 59.0
    client.request("get x", "GET", "/x")
    clock.time = 60.0
    client.request("get x", "GET", "/x")
    assert [request.headers["authorization"] for request in edge.requests] == ["Bearer old", "Bearer old", "Bearer new"]


def test_a_rejected_token_is_read_again_and_the_request_is_retried(tmp_path: Path, edge: ScriptedApiServer) -> None:
    clock = TurningClock()
    path = kubeconfig(tmp_path, edge.url, "{token: old}")
    client = Client(Kubeconfig(str(path)), clock)
    edge.on("POST", "/x", _only("new", Reply({"made": 1}, 201)))
    kubeconfig(tmp_path, edge.url, "{token: new}")
    clock.time = 11.0
    assert client.request("create x", "POST", "/x", body={"a": 1}).code == 201
    assert [(request.headers["authorization"], request.body) for request in edge.requests] == [
        ("Bearer old", {"a": 1}),
        ("Bearer new", {"a": 1}),
    ]


def test_an_expired_token_is_an_error_that_names_the_request(tmp_path: Path, edge: ScriptedApiServer) -> None:
    clock = TurningClock()
    client = Client(Kubeconfig(str(kubeconfig(tmp_path, edge.url, "{token: old}"))), clock)
    edge.on("GET", "/x", status(401, "Unauthorized"))
    clock.time = 11.0
    with pytest.raises(Unauthorized) as caught:
        client.request("list pods", "GET", "/x")
    assert str(caught.value) == "list pods: the credentials were rejected; the token may have expired (401)"
    assert not isinstance(caught.value, Forbidden)
    assert len(edge.requests) == 2
    with pytest.raises(Unauthorized):
        client.request("list pods", "GET", "/x")
    assert len(edge.requests) == 3, "credentials are not read after every refusal"


def test_credentials_that_cannot_be_renewed_are_kept(
    tmp_path: Path, edge: ScriptedApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    clock = TurningClock()
    path = kubeconfig(tmp_path, edge.url, "{token: old}")
    client = Client(Kubeconfig(str(path)), clock)
    edge.on("GET", "/x", status(401))
    path.unlink()
    clock.time = 11.0
    with pytest.raises(Unauthorized):
        client.request("list pods", "GET", "/x")
    assert [record.getMessage() for record in caplog.records] == [
        f"credentials cannot be renewed; keeping the old ones: kubeconfig {path}: no such file"
    ]


def test_an_unreachable_server_is_a_retryable_error(tmp_path: Path) -> None:
    client = Client(Kubeconfig(str(kubeconfig(tmp_path, "http://127.0.0.1:9"))), HastyClock())
    with pytest.raises(Retryable) as caught:
        client.request("list pods", "GET", "/x")
    assert str(caught.value) == "list pods: no connection to http://127.0.0.1:9: Connection refused"
    assert isinstance(caught.value, ReschedulerError)
