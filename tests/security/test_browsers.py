"""A web page in an administrator's browser cannot change anything: the requests that browsers send are refused."""

import asyncio
import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from rescheduler.net.server import SecuredPages, host_names, misdirected, page_hosts, refusal
from rescheduler.providers.externalgrpc import wire
from rescheduler.providers.externalgrpc.channel import SERVICE
from rescheduler.settings import ListenAddress, PageHosts
from tests.cluster.waiting import eventually
from tests.fuzz import targets
from tests.fuzz.calls import frame, literal
from tests.fuzz.providers import MACHINES, cloudpool
from tests.fuzz.targets import AttackTarget, Liqo, Proxy
from tests.fuzz.wire import End, Exchange, exchange

SIZE = b'{"desiredSize": 1}'
JSON = {"Content-Type": "application/json"}
REFUSED = {
    "a form of another site": ({"Content-Type": "text/plain", "Origin": "https://evil.example"}, 403),
    "a script of another site": ({**JSON, "Origin": "https://evil.example"}, 403),
    "a page in a sandbox": ({**JSON, "Origin": "null"}, 403),
    "an old browser": ({"Content-Type": "text/plain"}, 415),
    "a form": ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    "an upload": ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
    "a type that only begins like JSON": ({"Content-Type": "application/json5"}, 415),
    "a type that is empty": ({"Content-Type": ""}, 415),
    "two types": ({"Content-Type": "application/json, text/plain"}, 415),
    "a Blob without a type": ({"User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:60.0)"}, 415),
    "a Blob of a browser that was sent here by its user": ({"Sec-Fetch-Site": "none"}, 415),
    "a program that names no type": ({"User-Agent": "curl/8.5.0", "Accept": "*/*"}, 415),
    "no type": ({}, 415),
    "a page of another site": ({**JSON, "Sec-Fetch-Site": "cross-site"}, 403),
    "a page of a neighbor": ({**JSON, "Sec-Fetch-Site": "same-site"}, 403),
}
ACCEPTED: dict[str, Mapping[str, str]] = {
    "JSON": JSON,
    "JSON with a charset": {"Content-Type": "Application/JSON; charset=utf-8"},
    "an address in the browser": {**JSON, "Sec-Fetch-Site": "none"},
}


def sent(target: AttackTarget, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=120)
    shown = dict(line.decode().split(": ", 1) for line in target.headers)
    try:
        connection.request(method, path, body, {**shown, **headers})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with targets.proxy(tmp_path_factory.mktemp("proxy")) as started:
        yield started


def state(proxy: Proxy) -> tuple[int, int, bytes]:
    """Return the pool's desired size, and the response to a read of its configuration."""
    return json.loads(targets.ask(proxy, "GET", "/pool/size")[1])["desiredSize"], *targets.ask(proxy, "GET", "/config")


@pytest.mark.parametrize("path", ["/pool/size", "/pool/attach", "/config"])
@pytest.mark.parametrize("name", REFUSED)
def test_the_proxy_neither_executes_nor_forwards_requests_of_pages(name: str, path: str, proxy: Proxy) -> None:
    headers, status = REFUSED[name]
    before = state(proxy)
    assert sent(proxy, "POST", path, headers, SIZE) == status
    assert state(proxy) == before


@pytest.mark.parametrize("name", ACCEPTED)
def test_programs_are_served(name: str, proxy: Proxy) -> None:
    assert sent(proxy, "POST", "/pool/size", ACCEPTED[name], b'{"desiredSize": 3}') == 200
    assert sent(proxy, "GET", "/pool", {}) == 200


@contextmanager
def service(folder: Path, part: str) -> Iterator[Liqo]:
    with targets.liqo(folder, part) as started:
        yield started


@pytest.mark.parametrize(
    ("part", "path"), [("discovery", "/update"), ("node-manager", "/nodegroup/scaleup?id=STANDARD")]
)
def test_the_liqo_services_refuse_requests_of_pages(part: str, path: str, tmp_path: Path) -> None:
    """Also those that change something by GET, as a link or an image can."""
    with service(tmp_path, part) as target:
        for headers, status in REFUSED.values():
            assert sent(target, "POST", path, headers, b"{}") == status
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
            assert sent(target, "GET", path, headers) == 403
        assert sent(target, "POST", path, JSON, b"{}") != 415


def test_pages_cannot_be_framed_and_their_policies_are_headers(tmp_path: Path) -> None:
    with targets.pages(tmp_path) as target:
        for path in ("/", "/statusz", "/healthz", "/metrics", "/nothing"):
            url = f"http://127.0.0.1:{target.port}{path}"
            headers = httpx2.get(url, headers={"accept": "text/html"}, timeout=60, trust_env=False).headers
            policy = headers["content-security-policy"].split("; ")
            assert {"default-src 'none'", "frame-ancestors 'none'"} <= set(policy), path
            assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff"), path


JSON_TYPE, TEXT = (b"content-type", b"application/json"), (b"content-type", b"text/plain")
BODY, CHUNKS = (b"content-length", b"1"), (b"transfer-encoding", b"chunked")
#: Header fields of a POST in their order, and the status of the refusal.
FIELDS: Final[dict[str, tuple[list[tuple[bytes, bytes]], int | None]]] = {
    "JSON": ([BODY, JSON_TYPE], None),
    "JSON before the length": ([JSON_TYPE, BODY], None),
    "JSON in chunks": ([CHUNKS, JSON_TYPE], None),
    "JSON with a charset and no space": ([BODY, (b"content-type", b"application/json;charset=utf-8")], None),
    "two types, JSON first": ([BODY, JSON_TYPE, TEXT], 415),
    "two types, JSON last": ([TEXT, JSON_TYPE, BODY], 415),
    "JSON as a parameter": ([BODY, (b"content-type", b"text/plain; application/json")], 415),
    "JSON as a charset": ([BODY, (b"content-type", b"text/plain;charset=application/json")], 415),
    "text in chunks": ([CHUNKS, TEXT], 415),
    "chunks without a type": ([CHUNKS], 415),
    "a length with zeros": ([(b"content-length", b"00"), TEXT], 415),
    "an Origin last": ([BODY, JSON_TYPE, (b"origin", b"https://evil.example")], 403),
    "an empty Origin": ([(b"origin", b""), BODY, JSON_TYPE], 403),
    "an Origin without a body": ([(b"origin", b"null")], 403),
    "a site in capitals": ([(b"sec-fetch-site", b" Cross-Site "), BODY, JSON_TYPE], 403),
    "two sites": ([(b"sec-fetch-site", b"none"), (b"sec-fetch-site", b"cross-site"), BODY, JSON_TYPE], 403),
}


@pytest.mark.parametrize("method", ["POST", "post", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("name", FIELDS)
def test_order_and_number_of_headers_make_no_difference(name: str, method: str) -> None:
    fields, status = FIELDS[name]
    refused = refusal(method, fields, ())
    assert (refused and refused[0]) == status


HOSTS = {
    "pool.example.com": True,
    "POOL.example.com.:8443": True,
    "10.0.0.1:8080": True,
    "[2001:db8::1]:8080": True,
    "[::1]": True,
    "evil.example": False,
    "pool.example.com.evil.example": False,
    "localhost": False,
    "": False,
}


@pytest.mark.parametrize("host", HOSTS)
def test_the_host_is_checked_where_a_name_is_configured(host: str) -> None:
    names = host_names("0.0.0.0", ["Pool.example.com"])
    assert misdirected([(b"host", host.encode())], names) != HOSTS[host]
    assert not misdirected([(b"host", host.encode())], host_names("0.0.0.0"))


def test_the_name_to_listen_on_is_configured() -> None:
    assert host_names("localhost") == {"localhost"}
    assert host_names("") == host_names("::") == host_names("127.0.0.1") == frozenset()


ON_LOOPBACK = ("localhost:9235", "LOCALHOST.", "127.0.0.1:9235", "127.9.9.9", "[::1]:9235")
ELSEWHERE = ("10.1.2.3:9235", "[2001:db8::1]:9235", "169.254.169.254", "[::ffff:127.0.0.1]")
SERVICES = ("any.spot-room:9235", "any.spot-room.svc", "any.spot-room.svc.cluster.local:9235")
FOREIGN = (
    *("evil.example", "evil.example:9235", "localhost.evil.example", "127.0.0.1.evil.example", "any.other.svc", "any"),
    *("a.any.spot-room.svc", ".spot-room.svc", "spot-room.svc", "any.spot-room.svc.evil.example", "2130706433", "x@y"),
    *("", ":9235", "[evil]", "xn--e1afmkfd.example", "localhost\tx", "pages.example.com.evil.example"),
)
ALLOWED = ("pages.example.com", "PAGES.example.com.:443", "fd00::7", "[fd00::7]:9235")

#: The address that pages listen on → the hosts that they answer, apart from those of --allowed-host.
ANSWERED = {
    "localhost": ON_LOOPBACK,
    "127.0.0.1": ON_LOOPBACK,
    "::1": ON_LOOPBACK,
    "0.0.0.0": (*ON_LOOPBACK, *ELSEWHERE, *SERVICES),
    "": (*ON_LOOPBACK, *ELSEWHERE, *SERVICES),
    "::": (*ON_LOOPBACK, *ELSEWHERE, *SERVICES),
    "10.1.2.3": (*ELSEWHERE, *SERVICES, *ON_LOOPBACK[2:]),
    "node-1.example.com": ("node-1.example.com:9235", *ELSEWHERE, *SERVICES, *ON_LOOPBACK[2:]),
}
EVERY_HOST = {*ON_LOOPBACK, *ELSEWHERE, *SERVICES, *FOREIGN, *ALLOWED, "node-1.example.com:9235"}


class Sent(Exception):
    """The request was answered."""


def answered(host: str, address: str, hosts: PageHosts) -> bool:
    async def application(*_: Any) -> None:
        raise Sent

    async def nothing(*_: Any) -> Any:
        pass

    pages = SecuredPages(application, page_hosts(ListenAddress(address, 9235), hosts))
    scope = {"type": "http", "method": "GET", "path": "/statusz", "headers": [(b"host", host.encode())]}
    try:
        asyncio.run(pages(scope, nothing, nothing))
    except Sent:
        return True
    return False


@pytest.mark.parametrize("address", ANSWERED)
def test_pages_answer_their_own_hosts_only(address: str) -> None:
    hosts = PageHosts(namespace="spot-room")
    assert {host for host in EVERY_HOST if answered(host, address, hosts)} == set(ANSWERED[address]) | (
        set() if address in {"localhost", "127.0.0.1", "::1"} else {"[fd00::7]:9235"}
    )


def test_pages_answer_the_hosts_of_the_flag() -> None:
    hosts = PageHosts(("pages.example.com", "fd00::7"))
    assert {host for host in EVERY_HOST if answered(host, "127.0.0.1", hosts)} == {*ON_LOOPBACK, *ALLOWED} - {"fd00::7"}


@pytest.mark.parametrize(
    ("namespace", "short"), [("spot-room", True), ("dev", False), ("xn--p1ai", False), ("", False)]
)
def test_a_namespace_may_have_the_name_of_a_public_domain(namespace: str, short: bool) -> None:
    assert answered(f"any.{namespace}", "0.0.0.0", PageHosts(namespace=namespace)) == short
    assert answered(f"any.{namespace}.svc", "0.0.0.0", PageHosts(namespace=namespace)) == bool(namespace)


def test_a_name_that_points_to_the_status_page_is_refused(tmp_path: Path) -> None:
    with targets.pages(tmp_path, "--allowed-host=Pages.example.com", "--allowed-host=b.example") as target:
        for path in ("/", "/statusz", "/statusz?format=json", "/metrics", "/healthz", "/readyz", "/nothing"):
            for host in ("evil.example", f"evil.example:{target.port}", "localhost.evil.example"):
                assert sent(target, "GET", path, {"Host": host}) == 421
        for host in ("localhost", f"127.0.0.1:{target.port}", "pages.example.com", "b.example:80"):
            assert sent(target, "GET", "/statusz", {"Host": host}) == 200


def test_two_hosts_are_not_answered(tmp_path: Path) -> None:
    with targets.pages(tmp_path) as target:
        request = b"GET /statusz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
        assert exchange(target.port, Exchange([request], end=End.READ)).split()[1] in {b"400", b"421"}
        request = b"GET http://evil.example/statusz HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
        assert exchange(target.port, Exchange([request], end=End.READ)).split()[1] == b"421"


def test_a_name_that_points_to_the_proxy_is_refused(proxy_with_name: Proxy) -> None:
    for host, status in (("127.0.0.1", 200), ("pool.example.com:1", 200), ("evil.example", 421)):
        assert sent(proxy_with_name, "GET", "/pool", {"Host": host}) == status


@pytest.fixture
def proxy_with_name(tmp_path: Path) -> Iterator[Proxy]:
    with targets.proxy(tmp_path, names=["pool.example.com"]) as started:
        yield started


#: What a browser can send to an HTTP/2 service without asking first. It sets ``te`` itself, and never to ``trailers``.
PAGES: Final[dict[str, Mapping[str, str]]] = {
    "a script of another site": {"content-type": "text/plain", "origin": "https://evil.example"},
    "a script without a type": {"origin": "null"},
    "a type that a page may only send after asking": {
        "content-type": "application/grpc",
        "origin": "https://evil.example",
    },
    "grpc-web": {"content-type": "application/grpc-web", "x-grpc-web": "1", "origin": "https://evil.example"},
}


def grpc_status(port: int, call: str, message: bytes, fields: Mapping[str, str]) -> bytes:
    """Send one call as HTTP/2 frames, and return the bytes of the response."""
    path = f"/{SERVICE}/{call}"
    pseudo = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x"}
    head = b"".join(literal(name.encode(), value.encode()) for name, value in {**pseudo, **fields}.items())
    body = b"\x00" + len(message).to_bytes(4, "big") + message
    opened = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4, 1, head)
    return exchange(port, Exchange([opened + frame(0, 1, 1, body)], end=End.READ))


def test_the_provider_service_executes_no_request_of_a_page(tmp_path: Path) -> None:
    with cloudpool(tmp_path) as cloud:
        deleted = wire.ExternalGrpcNode(name="n", providerID=cloud.ids()[0])
        order = wire.NodeGroupDeleteNodesRequest(id=cloud.group, nodes=[deleted]).SerializeToString()
        for name, fields in PAGES.items():
            grpc_status(cloud.port, "NodeGroupDeleteNodes", order, fields)
            assert cloud.alive() == MACHINES, name
        program = {"content-type": "application/grpc", "te": "trailers"}
        grpc_status(cloud.port, "NodeGroupDeleteNodes", order, program)
        eventually(lambda: cloud.alive() == MACHINES - 1)  # the response is read only for a short time
