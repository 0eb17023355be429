"""The original's configuration is supported; errors are reported in one line."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from rescheduler.cloudpool.proxy.config import (
    ApiServerAuth,
    ApiServerSection,
    BackendSection,
    DrainSection,
    GoDuration,
    ProxyFile,
    ServerSection,
    check_files,
    read,
)
from rescheduler.errors import ConfigError
from rescheduler.net.config_files import Credentials

API: dict[str, Any] = {"url": "https://master:6443", "auth": {"kubeConfigPath": "/home/me/.kube/config"}}
CERTS = {"clientCertPath": "/admin.pem", "clientKeyPath": "/admin-key.pem", "caCertPath": "/ca.pem"}
BACKEND = {"url": "http://pool:9010"}
MINIMAL = ProxyFile(
    api_server=ApiServerSection(
        url="https://master:6443", auth=ApiServerAuth(kube_config_path="/home/me/.kube/config")
    ),
    backend=BackendSection(url="http://pool:9010"),
)


def written(tmp_path: Path, document: Any) -> Path:
    file = tmp_path / "config.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return file


def test_a_minimal_file_gets_the_defaults(tmp_path: Path) -> None:
    settings = read(written(tmp_path, {"apiServer": API, "backend": BACKEND}))
    assert settings == MINIMAL
    assert (settings.server.timeout, settings.api_server.timeout, settings.backend.timeout) == tuple(
        map(GoDuration, (60, 60, 300))
    )


def test_certificates_and_durations_are_parsed(tmp_path: Path) -> None:
    document = {
        "server": {"timeout": "1m35s"},
        "apiServer": {"url": "https://m", "auth": CERTS, "timeout": "300ms"},
        "backend": {"cloudPoolUrl": "http://pool/base/", "timeout": "10s"},
        "drain": {"landingTimeout": "2m"},
    }
    settings = read(written(tmp_path, document))
    assert settings.server == ServerSection(timeout=GoDuration(95))
    assert settings.api_server.auth == ApiServerAuth(
        client_cert_path="/admin.pem", client_key_path="/admin-key.pem", ca_cert_path="/ca.pem"
    )
    assert (settings.api_server.timeout, settings.backend.timeout) == (GoDuration(0.3), GoDuration(10))
    assert settings.backend_url == "http://pool/base"
    assert (settings.drain, MINIMAL.drain.landing_timeout) == (
        DrainSection(landing_timeout=GoDuration(120)),
        GoDuration(0),
    )


def test_keys_are_case_insensitive(tmp_path: Path) -> None:
    document = {
        "APISERVER": {"URL": API["url"], "Auth": {"KUBECONFIGPATH": "/home/me/.kube/config"}},
        "Backend": BACKEND,
    }
    assert read(written(tmp_path, document)) == MINIMAL


@pytest.mark.parametrize("duration", ["0", "0s", "-5s"])
def test_an_empty_duration_is_the_default(duration: str, tmp_path: Path) -> None:
    document = {"server": {"timeout": duration}, "apiServer": API, "backend": {**BACKEND, "timeout": duration}}
    assert read(written(tmp_path, document)) == MINIMAL


#: fact: (document, message after the file's name)
INVALID: dict[str, tuple[Any, str]] = {
    "not JSON": ("{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    "a trailing comma, as in the old manual": ('{"backend": {},}', "not JSON: Expecting property name"),
    "not an object": ([], "Expected `object`, got `array`"),
    "an unknown key": ({"backends": {}}, "Object contains unknown field `backends`"),
    "an unknown nested key": (
        {"apiServer": {**API, "timeOut": "1s", "tiemout": "1s"}, "backend": BACKEND},
        "Object contains unknown field `tiemout` - at `$.apiServer`",
    ),
    "nothing": ({}, "apiServer.url: missing"),
    "no API server": ({"backend": BACKEND}, "apiServer.url: missing"),
    "an odd API server": (
        {"apiServer": {**API, "url": "master:6443"}, "backend": BACKEND},
        "apiServer.url: expected http(s)://host[:port]",
    ),
    "no certificate": ({"apiServer": {"url": "https://m"}}, "apiServer.auth.clientCertPath: missing"),
    "no key": (
        {"apiServer": {"url": "https://m", "auth": {"clientCertPath": "c"}}},
        "apiServer.auth.clientKeyPath: missing",
    ),
    "no CA": (
        {"apiServer": {"url": "https://m", "auth": {"clientCertPath": "c", "clientKeyPath": "k"}}},
        "apiServer.auth.caCertPath: missing",
    ),
    "no backend": ({"apiServer": API}, "backend.url: missing"),
    "two backends": (
        {"apiServer": API, "backend": {"url": "http://a", "cloudPoolUrl": "http://b"}},
        "backend.url and backend.cloudPoolUrl: expected one of them",
    ),
    "an odd backend": (
        {"apiServer": API, "backend": {"url": "ftp://pool"}},
        "backend.url: expected http(s)://host[:port][/path]",
    ),
    "an invalid host of the backend": (
        {"apiServer": API, "backend": {"url": "http://pool..example"}},
        "backend.url: expected http(s)://host[:port][/path]",
    ),
    "a user in the backend's URL and in auth": (
        {"apiServer": API, "backend": {"url": "http://me:secret@pool", "auth": {"tokenPath": "t"}}},
        "backend.url: expected a URL without a user, because backend.auth is set",
    ),
    "a colon in the name of the URL's user": (
        {"apiServer": API, "backend": {"url": "http://m%3Ae:secret@pool"}},
        "backend.url: expected a user name without a colon",
    ),
    "a number for a duration": (
        {"server": {"timeout": 5}, "apiServer": API, "backend": BACKEND},
        'expected a duration such as "90s" or "1m35s", got 5 - at `$.server.timeout`',
    ),
    "null for a duration": (
        {"server": {"timeout": None}, "apiServer": API, "backend": BACKEND},
        'expected a duration such as "90s" or "1m35s", got null - at `$.server.timeout`',
    ),
    "a duration without a unit": (
        {"server": {"timeout": "60"}, "apiServer": API, "backend": BACKEND},
        'expected a duration such as 10s, 2m30s, 1h or 500ms, got "60" - at `$.server.timeout`',
    ),
    "a name without a password": (
        {"apiServer": API, "backend": {**BACKEND, "auth": {"username": "me"}}},
        "backend.auth.passwordPath: expected together with username",
    ),
    "a minimum below zero": (
        {"apiServer": API, "backend": BACKEND, "minSize": -1},
        "minSize: expected 0 to 2147483647",
    ),
}


@pytest.mark.parametrize("fact", INVALID)
def test_an_invalid_file_is_rejected_with_its_key(fact: str, tmp_path: Path) -> None:
    document, message = INVALID[fact]
    file = written(tmp_path, document)
    with pytest.raises(ConfigError) as caught:
        read(file)
    assert str(caught.value).startswith(f"configuration {file}: {message}")
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


#: sections of the file: the key that names a missing file
MISSING_FILES: dict[str, tuple[dict[str, Any], str]] = {
    "listener": ({"server": {"bearerTokenPath": "/nope"}}, "server.bearerTokenPath"),
    "API server": (
        {"apiServer": {"url": "https://m", "auth": {"tokenPath": "/nope", "caCertPath": __file__}}},
        "apiServer.auth.tokenPath",
    ),
    "backend": (
        {"backend": {"url": "http://b", "auth": {"username": "me", "passwordPath": "/nope"}}},
        "backend.auth.passwordPath",
    ),
}


@pytest.mark.parametrize("case", MISSING_FILES)
def test_a_missing_file_is_reported_with_its_key(case: str, tmp_path: Path) -> None:
    sections, key = MISSING_FILES[case]
    path = written(tmp_path, {"apiServer": API, "backend": BACKEND, **sections})
    with pytest.raises(ConfigError) as caught:
        check_files(read(path), path)
    assert str(caught.value) == f"configuration {path}: {key}: /nope: No such file or directory"


def test_with_a_kubeconfig_other_files_are_not_read(tmp_path: Path) -> None:
    path = written(tmp_path, {"apiServer": {**API, "auth": {**API["auth"], **CERTS}}, "backend": BACKEND})
    check_files(read(path), path)


def test_null_is_absent(tmp_path: Path) -> None:
    document = {
        "server": None,
        "apiServer": {**API, "auth": {**API["auth"], "tokenPath": None}},
        "backend": {**BACKEND, "auth": None, "cloudPoolUrl": None},
        "minSize": None,
    }
    assert read(written(tmp_path, document)) == MINIMAL


@pytest.mark.parametrize("second", ["backend", "BACKEND"])
def test_the_last_of_duplicate_keys_counts(second: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Objects are merged, as in Go."""
    first = {**BACKEND, "url": "http://first", "timeout": "7s"}
    text = f'{{"apiServer": {json.dumps(API)}, "backend": {json.dumps(first)}, "{second}": {json.dumps(BACKEND)}}}'
    file = read(written(tmp_path, text))
    assert (file.backend_url, float(file.backend.timeout)) == ("http://pool:9010", 7.0)
    (line,) = caplog.messages
    assert line.endswith("config.json: the key 'backend' occurs more than once; the last value counts")


@pytest.mark.parametrize(
    ("url", "user", "password"),
    [
        ("http://me:hidden1@pool:9010", "me", "hidden1"),
        ("http://m%40e:p%3A%20w@pool:9010", "m@e", "p: w"),
        ("http://me@pool:9010", "me", ""),
        ("http://pool:9010", None, None),
    ],
)
def test_a_user_in_the_backends_url_becomes_basic_credentials(
    url: str, user: str | None, password: str | None, tmp_path: Path
) -> None:
    file = read(written(tmp_path, {"apiServer": API, "backend": {"url": url}}))
    endpoint = file.pool().backend
    assert (file.backend_url, endpoint.url) == ("http://pool:9010", "http://pool:9010")
    assert (endpoint.username, file.url_password) == (user, password)
    shown = Credentials(endpoint, tmp_path, password=file.url_password).headers()
    basic = base64.b64encode(f"{user}:{password}".encode()).decode()
    assert shown == ({} if user is None else {"authorization": f"Basic {basic}"})
    if password:
        assert password not in repr(Credentials(endpoint, tmp_path, password=password))


def test_a_missing_configuration_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        read(tmp_path / "config.json")


@pytest.mark.parametrize("auth", [{"inCluster": True}, {"kubeConfigPath": "k"}])
def test_credentials_with_a_server_need_no_url(auth: dict[str, Any], tmp_path: Path) -> None:
    assert read(written(tmp_path, {"apiServer": {"auth": auth}, "backend": BACKEND})).api_server.url == ""


def test_the_backend_section_becomes_a_pool_of_the_provider(tmp_path: Path) -> None:
    auth = {"caCertPath": "/ca", "clientCertPath": "/c", "clientKeyPath": "/k", "username": "me", "passwordPath": "/p"}
    backend = {**BACKEND, "timeout": "10s", "auth": auth, "api": "multipool", "settleTime": "5s"}
    pool = read(written(tmp_path, {"apiServer": API, "backend": backend, "minSize": 2})).pool()
    end = pool.backend
    assert (end.url, end.ca_file, end.client_cert_file, end.client_key_file, end.username, end.password_file) == (
        "http://pool:9010",
        "/ca",
        "/c",
        "/k",
        "me",
        "/p",
    )
    assert (float(end.timeout), float(pool.order_timeout), float(pool.settle_time)) == (10.0, 10.0, 5.0)
    assert (pool.api, pool.min_size) == ("multipool", 2)
