"""Kubeconfigs give the same connection as the official client's loader, and most are read without that client."""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

from rescheduler.errors import UsageError
from rescheduler.kube import connection
from rescheduler.kube.connection import Kubeconfig, ServiceAccount
from rescheduler.kube.endpoint import POOL_SIZE
from tests.providers import pki

URL: Final = "https://example.test:6443/"
_FILES: Final = ("ca_certs", "cert_file", "key_file")


def _kubeconfig(folder: Path, cluster: dict[str, Any], user: dict[str, Any] | None) -> Path:
    """Write a kubeconfig next to the certificates of :mod:`tests.providers.pki`. ``@file`` is the content of a file."""

    def filled(entry: dict[str, Any]) -> dict[str, Any]:
        return {key: _inline(folder, value) if str(value).startswith("@") else value for key, value in entry.items()}

    context = {"cluster": "c"} | ({"user": "u"} if user is not None else {})
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": context}],
        "clusters": [{"name": "c", "cluster": filled({"server": URL} | cluster)}],
        "users": [{"name": "u", "user": filled(user or {})}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


def _inline(folder: Path, value: str) -> str:
    return base64.b64encode((folder / value[1:]).read_bytes()).decode()


KUBECONFIGS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "no user": ({}, None),
    "an empty user": ({}, {}),
    "a token": ({}, {"token": "sesame"}),
    "a token file": ({}, {"tokenFile": "token"}),
    "a token and a token file": ({}, {"token": "sesame", "tokenFile": "token"}),
    "a password": ({}, {"username": "ali", "password": "baba"}),
    "a token and a password": ({}, {"token": "sesame", "username": "ali", "password": "baba"}),
    "an authority": ({"certificate-authority": "ca.pem"}, {"token": "sesame"}),
    "an inline authority": ({"certificate-authority-data": "@ca.pem"}, {"token": "sesame"}),
    "a client certificate": (
        {"certificate-authority": "ca.pem"},
        {"client-certificate": "client.pem", "client-key": "client.key"},
    ),
    "an inline client certificate": (
        {"certificate-authority-data": "@ca.pem"},
        {"client-certificate-data": "@client.pem", "client-key-data": "@client.key"},
    ),
    "inline data and files": (
        {"certificate-authority-data": "@ca.pem", "certificate-authority": "absent.pem"},
        {"token": "sesame"},
    ),
    "no verification": ({"insecure-skip-tls-verify": True}, {"token": "sesame"}),
    "a server name": ({"tls-server-name": "kubernetes"}, {"token": "sesame"}),
    "a proxy": ({"proxy-url": "http://proxy.test:3128"}, {"token": "sesame"}),
    "HTTP": ({"server": "http://example.test/"}, {"token": "sesame", "client-certificate": "client.pem"}),
}

ENVIRONMENTS: dict[str, dict[str, str]] = {
    "no proxy": {},
    "a proxy": {"HTTPS_PROXY": "http://environment.test:8080"},
    "a proxy for everything": {"ALL_PROXY": "http://environment.test:8080"},
    "a proxy for others": {"HTTPS_PROXY": "http://environment.test:8080", "NO_PROXY": "example.test"},
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("certificates")
    pki.make(path)
    return path


@pytest.fixture
def folder(tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    shutil.copytree(certificates, tmp_path, dirs_exist_ok=True)
    (tmp_path / "token").write_text("from-a-file\n")
    return tmp_path


def _official(path: Path) -> tuple[str, str | None, dict[str, Any]]:
    """Return the URL, the header and the options of the pool of the official client."""
    settings = Configuration()
    loader = KubeConfigLoader(KubeConfigMerger(str(path)).config, active_context="here", config_base_path=None)
    loader.load_and_set(settings)
    settings.retries, settings.connection_pool_maxsize = False, POOL_SIZE
    pool = RESTClientObject(settings).pool_manager
    header = settings.api_key.get("BearerToken")
    return settings.host, header and header.strip(), _options(pool)


def _options(pool: Any) -> dict[str, Any]:
    """Return the options of a pool. Files are represented by their content: copies of inline data differ."""
    options = {name: value for name, value in pool.connection_pool_kw.items() if value is not None}
    options["retries"] = repr(options["retries"])
    for name in _FILES:
        if name in options:
            options[name] = Path(options[name]).read_text()
    for name in ("_proxy", "_proxy_config"):  # the pool's proxy is compared below, as a URL
        options.pop(name, None)
    return options | {"proxy": str(pool.proxy) if pool.proxy else None}


@pytest.mark.parametrize("environment", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
@pytest.mark.parametrize(("cluster", "user"), KUBECONFIGS.values(), ids=KUBECONFIGS)
def test_the_connection_is_that_of_the_official_client(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    cluster: dict[str, Any],
    user: dict[str, Any] | None,
    environment: dict[str, str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    path = _kubeconfig(folder, cluster, user)
    login = Kubeconfig(str(path)).login()
    assert (login.host, login.headers.get("authorization"), _options(login.pool)) == _official(path)


def test_the_first_file_that_has_an_entry_or_the_current_context_counts(folder: Path) -> None:
    """The order of kubectl; the loader of the official client uses the current context of the last file."""
    first, second = _kubeconfig(folder, {}, {"token": "first"}), folder / "second"
    second.write_text(
        first.read_text().replace("first", "second").replace("current-context: here", "current-context: there")
    )
    assert Kubeconfig(f"{first}{os.pathsep}{second}").login().headers == {"authorization": "Bearer first"}
    assert Kubeconfig(f"{second}{os.pathsep}{first}", "here").login().headers == {"authorization": "Bearer second"}
    with pytest.raises(UsageError, match="no context 'there'; expected one of: here"):
        Kubeconfig(f"{second}{os.pathsep}{first}").login()


def test_paths_are_relative_to_the_file_of_their_entry(folder: Path) -> None:
    users = folder / "users"
    users.mkdir()
    for name in ("client.pem", "client.key"):
        (folder / name).rename(users / name)
    written = _kubeconfig(folder, {}, {"client-certificate": "client.pem", "client-key": "client.key"})
    content = yaml.safe_load(written.read_text())
    (users / "kubeconfig").write_text(yaml.safe_dump({"users": content.pop("users")}))
    written.write_text(yaml.safe_dump(content))
    endpoint = Kubeconfig(f"{written}{os.pathsep}{users / 'kubeconfig'}").login().endpoint
    assert (endpoint.certificate, endpoint.key) == (str(users / "client.pem"), str(users / "client.key"))


SERVICE_ACCOUNTS: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "no port": ({"KUBERNETES_SERVICE_PORT": ""}, {}, "the address of the API server is not set"),
    "an empty token": ({}, {"token": "\n"}, "token is empty"),
    "an empty authority": ({}, {"ca.crt": ""}, "ca.crt is empty"),
}


@pytest.mark.parametrize(("environment", "files", "why"), SERVICE_ACCOUNTS.values(), ids=SERVICE_ACCOUNTS)
def test_an_incomplete_service_account_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], files: dict[str, str], why: str
) -> None:
    for name, value in (
        {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"} | environment
    ).items():
        monkeypatch.setenv(name, value)
    (folder / "ca.pem").rename(folder / "ca.crt")
    for name, content in files.items():
        (folder / name).write_text(content)
    with pytest.raises(UsageError, match=f"not in a cluster: .*{why} \\(expected "):
        ServiceAccount(folder).login()


#: Imports the daemon once. Then a child for each case logs in, and tells whether that imported the official client.
_IMPORTED: Final = """
import json, os, sys
from pathlib import Path
import rescheduler.housekeeping.composition
from rescheduler.kube.connection import Kubeconfig, ServiceAccount
for name, path, environment in json.load(sys.stdin):
    if (child := os.fork()) == 0:
        os.environ.update(environment)
        (ServiceAccount(Path(path)) if Path(path).is_dir() else Kubeconfig(path)).login()
        os._exit(10 + ("kubernetes" in sys.modules))
    print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) - 10)
"""

_TOKEN = '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}'
#: case: (user of the kubeconfig, environment, whether the official client is imported)
IMPORTS: dict[str, tuple[dict[str, Any], dict[str, str], bool]] = {
    "certificate": (KUBECONFIGS["an inline client certificate"][1] or {}, {}, False),
    "token-file": ({"tokenFile": "token"}, {}, False),
    "proxy": ({"token": "t"}, {"HTTPS_PROXY": "http://environment.test:8080"}, True),
    "plugin": (
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "echo", "args": [_TOKEN]}},
        {},
        True,
    ),
}


def test_the_official_client_is_imported_for_plugins_and_proxies_only(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    address = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    cases: list[tuple[str, str, dict[str, str]]] = []
    for name, (user, environment, _) in IMPORTS.items():
        written = _kubeconfig(folder, {}, user)
        cases.append((name, str(written.rename(folder / name)), environment))
    pod = tmp_path_factory.mktemp("pod")
    shutil.copytree(folder, pod, dirs_exist_ok=True)
    (pod / "ca.pem").rename(pod / "ca.crt")
    cases.append(("pod", str(pod), address))
    command = [sys.executable, "-c", _IMPORTED]
    done = subprocess.run(command, input=json.dumps(cases), check=False, capture_output=True, text=True, timeout=300)
    expected = {**{name: imported for name, (*_, imported) in IMPORTS.items()}, "pod": False}
    assert (dict(line.split() for line in done.stdout.splitlines()), done.stderr) == (
        {name: str(int(imported)) for name, imported in expected.items()},
        "",
    )


@pytest.mark.parametrize("in_memory", [True, False])
def test_copies_of_inline_certificates_are_read_by_nobody_else_and_do_not_stay(
    folder: Path, tmp_path: Path, *, in_memory: bool
) -> None:
    """A kill leaves no time to delete anything, so on Linux nothing is written to a disk."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    path = _kubeconfig(folder, *KUBECONFIGS["inline data and files"])
    program = f"""
import os, pathlib, signal, stat, tempfile
if not {in_memory}:
    del os.memfd_create
from rescheduler.kube.connection import Kubeconfig
login = Kubeconfig({str(path)!r}).login()
login.pool.connection_from_url({URL!r})
for file in pathlib.Path(tempfile.gettempdir()).iterdir():
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
if {in_memory}:
    os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "TMPDIR": str(temporary)}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert (ended.returncode, list(temporary.iterdir())) == (-signal.SIGKILL if in_memory else 0, [])


def test_a_copy_that_was_deleted_with_other_temporary_files_is_written_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    connection._copied.cache_clear()
    source = Kubeconfig(str(_kubeconfig(folder, *KUBECONFIGS["inline data and files"])))
    copied = _options(source.login().pool)
    for file in tmp_path.glob("rescheduler-*"):
        file.unlink()
    assert _options(source.login().pool) == copied
    connection._copied.cache_clear()
