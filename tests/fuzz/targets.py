"""HTTP servers of the product as targets, each a process in its own world, and their invariants."""

import contextlib
import http.client
import json
import secrets
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from hypothesis import strategies as st

from devcluster.cloudpool.cluster import node_of
from devcluster.cloudpool.server import CloudpoolServer
from devcluster.cloudpool.settings import CloudpoolSettings
from devcluster.standin.faults import App, Message, Receive, Scope, Send
from rescheduler.clock import SystemClock
from tests.fuzz.apiserver import ApiServer, pod
from tests.fuzz.process import Watched, watched
from tests.providers import pki
from tests.providers.cloudpools import document

_MACHINES: Final = 3
_TIMEOUT: Final = 150.0  #: seconds for the response to a valid request
_MOST: Final = 20  #: limit of the pool size


class AttackTarget(Protocol):
    """A process that listens on a port, and its world."""

    name: str
    process: Watched
    port: int
    tls: ssl.SSLContext | None
    paths: Sequence[str]
    documents: st.SearchStrategy[Any]
    headers: Sequence[bytes]  #: credentials of a client

    def restore(self) -> list[str]:
        """Restore the world after all updates in progress; return the problems."""
        ...


@dataclass
class Pages:
    """The daemon's pages, on a cluster with a node of each kind."""

    process: Watched
    port: int
    name: str = "run"
    tls: ssl.SSLContext | None = None
    paths: Sequence[str] = ("/", "/metrics", "/healthz", "/readyz", "/statusz", "/statusz?format=json", "/metrics/")
    documents: st.SearchStrategy[Any] = field(default_factory=st.nothing)
    headers: Sequence[bytes] = ()

    def restore(self) -> list[str]:
        status, body = ask(self, "GET", "/healthz")
        return [] if (status, body) == (200, b"ok\n") else [f"GET /healthz: {status} {body!r}"]


@contextlib.contextmanager
def pages(folder: Path, *more: str) -> Iterator[Pages]:
    token = f"secret-{secrets.token_hex(8)}"
    with ApiServer().running() as api:
        flags = (
            "run",
            "--dry-run",
            f"--kubeconfig={kubeconfig(folder, api, token)}",
            "--listen-address=127.0.0.1:0",
            "--housekeeping-interval=1s",
            *more,
        )
        with watched(flags, {}, [token]) as process:
            port = int(process.wait_for(r"127\.0\.0\.1:([1-9]\d*)")[1])
            yield Pages(process, port)


@dataclass
class Liqo:
    """Discovery, or the node manager without a cluster to share, with plain text or mutual TLS."""

    process: Watched
    port: int
    paths: Sequence[str]
    proof: str  #: path that always returns a response
    name: str = "liqo"
    tls: ssl.SSLContext | None = None
    documents: st.SearchStrategy[Any] = field(default_factory=st.nothing)
    headers: Sequence[bytes] = ()

    def restore(self) -> list[str]:
        status, body = ask(self, "GET", self.proof)
        return [] if status == http.client.OK else [f"GET {self.proof}: {status} {body!r}"]


_AMOUNTS: Final = st.dictionaries(
    st.sampled_from(("cpu", "memory", "pods", "")), st.sampled_from(("1", "-1", "1Gi", "x", 1, 1e300, None)), max_size=3
)
_NAMES: Final = st.sampled_from(("STANDARD", "GPU", "a", "", "ä/../b", "x" * 300))


def _updates() -> st.SearchStrategy[Any]:
    cluster = {
        "kubeconfig": _NAMES,
        "resources": _AMOUNTS,
        "labels": st.dictionaries(_NAMES, _NAMES, max_size=2),
        "hasNat": st.booleans() | st.none(),
        "price": st.floats() | st.none(),
        "free": _AMOUNTS,
        "ttl": st.sampled_from(("5m", "-1s", "x", 3, None)),
    }
    clusters = st.lists(st.fixed_dictionaries({"name": _NAMES}, optional=cluster), max_size=3)
    return st.fixed_dictionaries({}, optional={"clusters": clusters, "deleted": st.lists(_NAMES, max_size=2)})


def _groups() -> st.SearchStrategy[Any]:
    sizes = st.integers(-2, 3) | st.integers(-(2**65), 2**65) | st.none()
    fields = {"id": _NAMES, "minSize": sizes, "maxSize": sizes, "count": sizes, "resources": _AMOUNTS}
    return st.fixed_dictionaries({}, optional=fields)


@contextlib.contextmanager
def liqo(folder: Path, part: str, *, tls: bool = False) -> Iterator[Liqo]:
    token = f"secret-{secrets.token_hex(8)}"
    context, listening = None, ["--insecure-plaintext"]
    if tls:
        context = _certified(folder)
        files = {"cert": "server.crt", "key": "server.key", "client-ca": "ca.pem"}
        listening = [f"--tls-{flag}={folder / name}" for flag, name in files.items()]
    with ApiServer().running() as api:
        flags = (
            "liqo",
            part,
            f"--kubeconfig={kubeconfig(folder, api, token)}",
            *listening,
            "--listen=127.0.0.1:0",
            "--health-address=127.0.0.1:0",
            f"--database={folder / 'liqo.db'}",
        )
        discovery = part == "discovery"
        more = () if discovery else ("--discovery-url=https://127.0.0.1:1",)
        with watched((*flags, *more, "-v=4"), {}, [token]) as process:
            port = int(process.wait_for(r"serving .* on 127\.0\.0\.1:([1-9]\d*), ")[1])
            paths = _DISCOVERY if discovery else _NODE_MANAGER
            documents = _updates() if discovery else _groups()
            yield Liqo(process, port, paths, paths[0], part, context, documents=documents)


_DISCOVERY: Final = ("/list", "/update", "/healthz")
_NODE_MANAGER: Final = (
    "/nodegroup",
    "/nodegroup/ownership?id=a",
    "/nodegroup/current-size?id=STANDARD",
    "/nodegroup/nodes?id=STANDARD",
    "/nodegroup/template?id=GPU",
    "/nodegroup/nodeprice?id=a&start=x",
    "/nodegroup/podprice",
    "/nodegroup/scaleup?id=STANDARD",
    "/nodegroup/scaledown?id=a&nodegroupid=STANDARD",
    "/nodegroup/create",
    "/nodegroup/destroy?id=made",
    "/version",
    "/v1/fleet",
    "/v1/groups/STANDARD/machines",
    "/v1/machines/a/price",
    "/healthz",
)

#: Bodies of the cloudpool's API, most of them valid.
_IDS: Final = st.sampled_from(("i-0", "", "i-1/../x", "../../pool/size", "\x00", "ä"))
_FLAGS: Final = st.sampled_from((True, False, None, "true", 1))
_SIZES: Final = st.integers(0, 5) | st.integers(-(2**65), 2**65) | st.sampled_from((2.0, "2", None, True))


def _documents(ids: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    membership = st.fixed_dictionaries({}, optional={"active": _FLAGS, "evictable": _FLAGS})
    fields = {
        "desiredSize": _SIZES,
        "DESIREDSIZE": _SIZES,
        "machineId": ids | _IDS,
        "decrementDesiredSize": _FLAGS,
        "membershipStatus": membership,
        "serviceState": st.sampled_from(("BOOTING", "x")),
    }
    proper = st.one_of(
        st.fixed_dictionaries({"desiredSize": st.integers(0, 5)}),
        st.fixed_dictionaries({"machineId": ids, "decrementDesiredSize": st.booleans()}),
        st.fixed_dictionaries({"machineId": ids, "membershipStatus": membership}),
    )
    return proper | st.fixed_dictionaries({}, optional=fields)


class Proxy:
    """The proxy in front of a reference cloudpool; each machine has a Node and a pod on the API server."""

    paths: Sequence[str] = (
        "/pool/size",
        "/pool/terminate",
        "/pool/detach",
        "/pool/membershipStatus",
        "/terminate",
        "/pool/i-0/terminate",
        "/pool",
        "/pool/attach",
        "/pool/serviceState",
        "/config",
        "/status",
        "/start",
        "/stop",
    )

    def __init__(
        self,
        name: str,
        api: ApiServer,
        server: CloudpoolServer,
        process: Watched,
        headers: Sequence[bytes],
        tls: ssl.SSLContext | None,
    ) -> None:
        self.name, self.process, self.headers = name, process, headers
        self.tls: ssl.SSLContext | None = tls
        self._api, self._server, self._clock = api, server, SystemClock()
        self.port = int(process.wait_for(r"forwarding port (\d+)")[1])
        self.documents = _documents(st.deferred(lambda: st.sampled_from(self._ids())))

    def _ids(self) -> list[str]:
        now = self._clock.now()
        return [
            machine.id(now) for machine in self._server.pool.machines() if machine.allocated(now) and machine.member
        ] or ["none"]

    def restore(self) -> list[str]:
        pool = self._server.pool
        with contextlib.suppress(Exception):  # undo changes of the pool by the client
            pool.start()
            pool.set_config({"name": "od"})
        # This request waits for the updates in progress.
        status, body = ask(self, "POST", "/pool/size", {"desiredSize": _MACHINES})
        problems = [] if status == http.client.OK else [f"POST /pool/size: {status} {body!r}"]
        problems += self._removed_in_use()
        self.furnish()
        return problems

    def _removed_in_use(self) -> list[str]:
        """Report machines that left the pool without a drain: pods still ran on their nodes."""
        now = self._clock.now()
        problems = []
        for machine in self._server.pool.machines():
            if (machine.allocated(now) and machine.member) or machine.name not in self._api.names("nodes"):
                continue
            if pods := self._api.pods_on(machine.name):
                problems.append(f"{machine.name} was removed without a drain, with {pods}")
            self._server.pool.save(machine, ending_at=machine.ending_at or now)
            self._api.drop("nodes", machine.name)
            for name in pods:
                self._api.drop("pods", name)
        return problems

    def furnish(self) -> None:
        """Add the missing Node and pod of every running machine."""
        now = self._clock.now()
        there = self._api.names("nodes")
        for machine in self._server.pool.machines():
            if not machine.allocated(now):
                continue
            if machine.name not in there:
                node = node_of(machine)
                node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
                self._api.put("nodes", node)
            if not self._api.pods_on(machine.name):
                self._api.put("pods", pod(f"web-{machine.name}-{len(self._api.names('pods'))}", machine.name))


class _LimitedPool:
    """Rejects pool sizes that would take minutes to create."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = await receive()
        if _asks_for_many(first.get("body", b"")):
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 400, "headers": headers})
            await send({"type": "http.response.body", "body": b'{"message": "more than the quota", "detail": ""}'})
            return
        replayed = [first]

        async def again() -> Message:
            return replayed.pop() if replayed else await receive()

        await self._app(scope, again, send)


def _asks_for_many(body: bytes) -> bool:
    with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):
        return int(json.loads(body).get("desiredSize", 0)) > _MOST
    return False


@contextlib.contextmanager
def proxy(folder: Path, *, tls: bool = False, names: Sequence[str] = (), verbosity: int = 4) -> Iterator[Proxy]:
    """Start the proxy with bearer tokens, or with client certificates and a password for the backend."""
    backend_token, ours, cluster = (f"secret-{secrets.token_hex(8)}" for _ in range(3))
    (folder / "theirs").write_text(backend_token + "\n")
    (folder / "ours").write_text(ours + "\n")
    listening: dict[str, Any] = {"timeout": "3s", "queueTimeout": "120s", "hostNames": list(names)}
    context = None
    if tls:
        context = _certified(folder)
        files = {"certPath": "server.crt", "keyPath": "server.key", "clientCaPath": "ca.pem"}
        listening["tls"] = {key: str(folder / name) for key, name in files.items()}
        login = {"username": "us", "passwordPath": str(folder / "ours")}
        settings = {"username": "us", "password_file": "ours"}
    else:
        listening["bearerTokenPath"] = str(folder / "theirs")
        login = {"tokenPath": str(folder / "ours")}
        settings = {"token_file": "ours"}
    headers = () if tls else (f"Authorization: Bearer {backend_token}".encode(),)
    name = "proxy-tls" if tls else "proxy"
    values: dict[str, Any] = {"desired_size": _MACHINES, "refresh_interval": 0, "pool_update": 1, **settings}
    of = CloudpoolSettings(pool=document(name="od"), **values)
    with contextlib.ExitStack() as parts:
        api = parts.enter_context(ApiServer().running())
        server = parts.enter_context(CloudpoolServer(of, folder, SystemClock()).running())
        server.faulty_app._app = _LimitedPool(server.faulty_app._app)
        config = {
            "server": listening,
            "apiServer": {"url": api.url, "auth": {"kubeConfigPath": str(kubeconfig(folder, api, cluster))}},
            "backend": {"url": server.url, "timeout": "5s", "settleTime": "1s", "auth": login},
            "drain": {"evictionTimeout": "5s", "maxGracefulTermination": "5s"},
        }
        (folder / "proxy.json").write_text(json.dumps(config))
        flags = ("proxy", f"--config-file={folder / 'proxy.json'}", "--port=0", "--host=127.0.0.1")
        known = [backend_token, ours, cluster]
        process = parts.enter_context(watched((*flags, f"-v={verbosity}", "--listen-address=127.0.0.1:0"), {}, known))
        target = Proxy(name, api, server, process, headers, context)
        target.furnish()
        yield target


def _certified(folder: Path) -> ssl.SSLContext:
    """Create certificates by `pki.make` in *folder*; return the TLS settings of a client."""
    pki.make(folder)
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "client.pem")
    return context


def ask(target: AttackTarget, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """Send a valid request."""
    connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=_TIMEOUT)
    if target.tls is not None:
        connection = http.client.HTTPSConnection("127.0.0.1", target.port, timeout=_TIMEOUT, context=target.tls)
    shown = dict(line.decode().split(": ", 1) for line in target.headers) | {"Content-Type": "application/json"}
    with contextlib.closing(connection):
        connection.request(method, path, None if body is None else json.dumps(body), shown)
        response = connection.getresponse()
        return response.status, response.read()


def kubeconfig(folder: Path, api: ApiServer, token: str) -> Path:
    path = folder / "kubeconfig"
    user = {"name": "u", "user": {"token": token}}
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": api.url}}],
        "users": [user],
    }
    path.write_text(json.dumps(document))
    return path
