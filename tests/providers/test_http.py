"""JSON over HTTP, against a real server with injected faults."""

import base64
import contextlib
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from devcluster.cloudpool.server import CloudpoolServer
from devcluster.standin.faults import Fault
from rescheduler import errors
from rescheduler.cloudpool.client import error_text as cloudpool_error_text
from rescheduler.errors import AuthError, ConfigError, DeadlineExceeded, RateLimited
from rescheduler.liqo.client import error_text as liqo_error_text
from rescheduler.net.config_files import Credentials, Duration, Endpoint
from rescheduler.net.http import JsonClient
from rescheduler.net.http_errors import (
    InvalidResponse,
    Missing,
    NoResponse,
    RequestRejected,
    ServerFault,
    Unsent,
    one_attempt,
)
from rescheduler.providers.cherryservers.client import error_text as cherry_error_text
from rescheduler.providers.stackpoint.client import error_text as stackpoint_error_text
from tests.providers.clocks import StepClock
from tests.providers.cloudpools import serving, settings
from tests.providers.pool_client import PoolStatus
from tests.proxy.backend import Backend, running

DEADLINE = 60.0  #: seconds
PASSWORD = "correct horse/battery=="
STATUS = {"started": True, "configured": True}


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@contextlib.contextmanager
def client(server: CloudpoolServer, clock: StepClock, folder: Path = Path(), **endpoint: Any) -> Iterator[JsonClient]:
    json_client = JsonClient("system", msgspec.structs.replace(Endpoint(url=server.url), **endpoint), folder, clock)
    try:
        yield json_client
    finally:
        json_client.close()


def count(server: CloudpoolServer) -> int:
    return len(server.faulty_app.requests)


#: fact: (fault, error, text after the request, requests of a GET, requests of a POST that must not be repeated)
ANSWERS: dict[str, tuple[dict[str, Any], type[errors.ReschedulerError], str, int, int]] = {
    "wrong credentials": ({"status": 401, "body": "no"}, AuthError, "401 Unauthorized: no", 1, 1),
    "no permission": ({"status": 403, "body": ""}, AuthError, "403 Forbidden", 1, 1),
    "not found": ({"status": 404, "body": "<b>no</b>\n such"}, Missing, "404 Not Found: <b>no</b> such", 1, 1),
    "bad input": ({"status": 400, "body": "no"}, RequestRejected, "400 Bad Request: no", 1, 1),
    "a conflict": ({"status": 409, "body": ""}, RequestRejected, "409 Conflict", 1, 1),
    "a redirect, which is not followed": (
        {"status": 302, "body": "", "headers": {"location": "http://127.0.0.1:1/"}},
        RequestRejected,
        "302 Found",
        1,
        1,
    ),
    "an unknown status": ({"status": 499, "body": ""}, RequestRejected, "499", 1, 1),
    "a method that is not implemented": ({"status": 501, "body": ""}, RequestRejected, "501 Not Implemented", 1, 1),
    "a status of a gateway": ({"status": 524, "body": ""}, ServerFault, "524", 3, 1),
    "too many requests": ({"status": 429, "body": ""}, RateLimited, "429 Too Many Requests", 3, 3),
    "a failure": ({"status": 500, "body": "x" * 2000}, ServerFault, f"500 Internal Server Error: {'x' * 500}", 3, 1),
    "a gateway's failure": ({"status": 502, "body": ""}, ServerFault, "502 Bad Gateway", 3, 1),
    "unavailable": ({"status": 503, "body": ""}, ServerFault, "503 Service Unavailable", 3, 1),
    "a slow gateway": ({"status": 504, "body": ""}, ServerFault, "504 Gateway Timeout", 3, 1),
    "no answer at all": ({"kind": "reset"}, NoResponse, "no answer: ", 3, 1),
    "half an answer": ({"kind": "cut"}, NoResponse, "no answer: ", 3, 1),
    "a stall": ({"kind": "hang"}, NoResponse, "no answer: timed out", 3, 1),
    "a broken encoding": (
        {"status": 200, "body": "not packed", "headers": {"content-encoding": "gzip"}},
        NoResponse,
        "no answer: Error -3 while decompressing data: incorrect header check",
        3,
        1,
    ),
}


@pytest.mark.parametrize("fact", ANSWERS)
def test_each_response_gives_its_result_or_error(fact: str, clock: StepClock) -> None:
    fault, error, message, gets, posts = ANSWERS[fact]
    patience = Duration(0.3 if fault.get("kind") == "hang" else 60)
    with serving(settings(), clock) as server, client(server, clock, attempts=3, timeout=patience) as http:
        for method, path, expected in (("GET", "/status", gets), ("POST", "/pool/terminate", posts)):
            before = count(server)
            server.faulty_app.inject(Fault(path=path, method=method, times=9, **fault))
            with pytest.raises(error) as caught:
                http.send(method, path, {}, deadline=clock.monotonic() + DEADLINE, repeatable=method == "GET")
            assert str(caught.value).startswith(f"system: {method} {path}: {message}")
            assert "\n" not in str(caught.value)
            assert count(server) - before == expected


def test_temporary_failures_are_retried(clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock) as http:
        server.faulty_app.inject(Fault(path="/status", method="GET", kind="reset"), Fault(path="/status", method="GET"))
        status, response = http.get("/status", dict[str, bool], deadline=DEADLINE)
        assert (status, response.status, count(server)) == (STATUS, 200, 3)


def test_one_attempt_disables_retries(clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock) as http:
        server.faulty_app.inject(Fault(path="/status", method="GET"))
        with one_attempt(), pytest.raises(ServerFault):
            http.get("/status", dict[str, bool], deadline=DEADLINE)
        assert (count(server), clock.monotonic()) == (1, StepClock().monotonic())
        server.faulty_app.inject(Fault(path="/status", method="GET"))
        http.get("/status", dict[str, bool], deadline=DEADLINE)
        assert count(server) == 3


def test_a_repeatable_post_is_retried(clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock) as http:
        server.faulty_app.inject(Fault(path="/stop", kind="reset", acted=True))
        http.send("POST", "/stop", deadline=DEADLINE, repeatable=True)
        assert (server.pool.status()["started"], count(server)) == (False, 2)


@pytest.mark.parametrize(
    "later", [{"kind": "reset"}, {"status": 409}, {"status": 429}, {"status": 500}, {"status": 401}]
)
def test_a_later_response_does_not_hide_a_lost_one(later: dict[str, Any], clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock, attempts=3) as http:
        server.faulty_app.inject(Fault(path="/stop", kind="reset"), Fault(path="/stop", times=9, **later))
        with pytest.raises(NoResponse, match="system: POST /stop: no answer: "):
            http.send("POST", "/stop", deadline=DEADLINE, repeatable=True)


def test_requests_that_must_not_be_repeated_use_a_new_connection(clock: StepClock) -> None:
    with running(Backend()) as backend:
        http = JsonClient("system", Endpoint(url=backend.url), Path(), clock)
        for method in ("GET", "GET", "POST", "POST", "GET"):
            http.send(method, "/x", deadline=DEADLINE, repeatable=method == "GET")
        http.close()
    first, second, *posts, last = (request.connection for request in backend.seen)
    assert (first == second == last, len({first, *posts})) == (True, 3)


#: Retry-After: seconds until the second request
RETRY_AFTER = {
    "7": 7.0,
    "Wed, 01 May 2024 12:00:09 GMT": 9.0,
    "Wed, 01 May 2024 11:00:00 GMT": 0.25,
    "0": 0.25,
}


@pytest.mark.parametrize("header", RETRY_AFTER)
@pytest.mark.parametrize("status", [429, 503])
def test_the_requested_wait_is_respected(header: str, status: int, clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock) as http:
        headers = {"retry-after": header}
        server.faulty_app.inject(Fault(path="/status", method="GET", status=status, headers=headers))
        http.get("/status", dict[str, bool], deadline=DEADLINE)
        assert clock.monotonic() == RETRY_AFTER[header]


def test_a_wait_beyond_the_deadline_is_an_error(clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock) as http:
        server.faulty_app.inject(Fault(path="/status", method="GET", status=429, headers={"retry-after": "61"}))
        with pytest.raises(RateLimited) as caught:
            http.get("/status", dict[str, bool], deadline=DEADLINE)
        assert (caught.value.retry_after, clock.monotonic(), count(server)) == (61.0, 0.0, 1)


def test_no_request_is_sent_before_the_wait_is_over(clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock) as http:
        server.faulty_app.inject(Fault(path="/status", method="GET", status=429, headers={"retry-after": "90"}))
        for asked, remaining in ((0.0, 90.0), (50.0, 40.0)):
            clock.advance(asked)
            with pytest.raises(RateLimited) as caught:
                http.send("POST", "/stop", deadline=clock.monotonic() + 10) if asked else http.get(
                    "/status", dict[str, bool], deadline=clock.monotonic() + 10
                )
            assert (caught.value.retry_after, count(server)) == (remaining, 1)
        assert http.get("/status", dict[str, bool], deadline=clock.monotonic() + DEADLINE)[0] == STATUS
        assert (clock.monotonic(), count(server)) == (90.0, 2)


@pytest.mark.parametrize("header", ["9" * 400, "Fri, 31 Dec 9999 23:59:59 -1200"])
def test_an_extreme_wait_is_limited(header: str, clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock) as http:
        server.faulty_app.inject(Fault(path="/status", method="GET", status=429, headers={"retry-after": header}))
        with pytest.raises(RateLimited) as caught:
            http.get("/status", dict[str, bool], deadline=DEADLINE)
        assert caught.value.retry_after == 24 * 3600
        clock.advance(600)
        assert http.get("/status", dict[str, bool], deadline=clock.monotonic() + DEADLINE)[0] == STATUS


@pytest.mark.parametrize("header", ["soon", "", "-1", "1.5", "Wed, 21 Oct 99999999999999 07:28:00 GMT"])
def test_an_invalid_wait_is_replaced_by_the_default(header: str, clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock, attempts=1) as http:
        body = Fault(path="/status", method="GET", status=429, headers={"retry-after": header})
        server.faulty_app.inject(body)
        with pytest.raises(RateLimited) as caught:
            http.get("/status", dict[str, bool], deadline=DEADLINE)
        assert caught.value.retry_after is None


def test_no_request_is_sent_after_the_deadline(clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock) as http:
        with pytest.raises(DeadlineExceeded) as caught:
            http.get("/status", dict[str, bool], deadline=0.0)
        assert str(caught.value) == "system: GET /status: no time left"
        assert count(server) == 0


def test_a_refused_connection_is_an_unsent_request(clock: StepClock) -> None:
    with serving(settings(), clock) as server:
        pass
    with client(server, clock) as http, pytest.raises(Unsent) as caught:
        http.send("POST", "/pool/terminate", {}, deadline=DEADLINE)
    assert str(caught.value) == "system: POST /pool/terminate: cannot connect: [Errno 111] Connection refused"


def test_a_closed_client_raises_an_error(clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock) as http:
        http.close()
        with pytest.raises(Unsent, match="closed"):
            http.get("/status", dict[str, bool], deadline=DEADLINE)


DEEP = '{"started": true, "configured": true, "more": ' + "[" * 10_000 + "]" * 10_000 + "}"


@pytest.mark.parametrize("body", ["", "null", "[]", '{"started": 1}', "<html>", '{"started"', "\udcff", DEEP])
def test_a_response_that_does_not_match_the_api_is_an_error(body: str, clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock) as http:
        server.faulty_app.inject(Fault(path="/status", method="GET", status=200, body=body))
        with pytest.raises(InvalidResponse, match="system: GET /status: the response does not match the API: "):
            http.get("/status", PoolStatus, deadline=DEADLINE)


def test_a_response_that_is_too_large_is_an_error(clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock, max_answer_bytes=10) as http:
        with pytest.raises(InvalidResponse, match="system: GET /pool: the response is larger than 10 bytes"):
            http.get("/pool", Any, deadline=DEADLINE)
        assert count(server) == 1


def test_a_response_that_decompresses_to_a_large_one_is_an_error(clock: StepClock) -> None:
    packed = gzip.compress(b"[" + b" " * 100_000 + b"]")
    with serving(settings(), clock) as server, client(server, clock, max_answer_bytes=50_000) as http:
        fault = Fault(
            path="/pool",
            method="GET",
            status=200,
            headers={"content-encoding": "gzip", "content-length": str(len(packed))},
            body=packed.decode("utf-8", "surrogateescape"),
        )
        server.faulty_app.inject(fault)
        with pytest.raises(InvalidResponse, match="the response is larger than 50000 bytes"):
            http.get("/pool", Any, deadline=DEADLINE)
        server.faulty_app.inject(fault)
    with serving(settings(), clock) as server, client(server, clock) as http:
        server.faulty_app.inject(fault)
        assert http.get("/pool", list[int], deadline=DEADLINE)[0] == []


def test_errors_do_not_contain_parameters(clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock) as http:
        with pytest.raises(Missing) as caught:
            http.get("/nowhere", Any, deadline=DEADLINE, params={"key": "secret"})
        assert str(caught.value) == "system: GET /nowhere: 404 Not Found: Not Found"


def test_a_base_path_may_end_with_a_slash(clock: StepClock) -> None:
    with serving(settings(api="multipool"), clock) as server, client(server, clock, url=f"{server.url}/") as http:
        assert http.get("/status", dict[str, bool], deadline=DEADLINE)[0] == STATUS


#: fact: (settings of the server, endpoint, whether the server accepts it)
ENTRY: dict[str, tuple[dict[str, str], dict[str, str], bool]] = {
    "no credentials required": ({}, {}, True),
    "no proof": ({"token_file": "token"}, {}, False),
    "a token": ({"token_file": "token"}, {"token_file": "token"}, True),
    "another token": ({"token_file": "token"}, {"token_file": "other"}, False),
    "a password": (
        {"username": "me", "password_file": "password"},
        {"username": "me", "password_file": "password"},
        True,
    ),
    "another name": (
        {"username": "me", "password_file": "password"},
        {"username": "you", "password_file": "password"},
        False,
    ),
}


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("token-1\n")
    (tmp_path / "other").write_text("token-2")
    (tmp_path / "password").write_text(PASSWORD + "\n")
    return tmp_path


@pytest.mark.parametrize("fact", ENTRY)
def test_only_valid_credentials_are_accepted(fact: str, secrets: Path, clock: StepClock) -> None:
    guarded, shown, welcome = ENTRY[fact]
    with serving(settings(**guarded), clock, secrets) as server, client(server, clock, secrets, **shown) as http:
        outcome = contextlib.nullcontext() if welcome else pytest.raises(AuthError, match="401 Unauthorized")
        with outcome:
            http.get("/status", dict[str, bool], deadline=DEADLINE)


def test_a_rotated_secret_is_read_again(secrets: Path, clock: StepClock) -> None:
    guarded = settings(token_file="token")
    with serving(guarded, clock, secrets) as server, client(server, clock, secrets, token_file="other") as http:
        with pytest.raises(AuthError):
            http.get("/status", dict[str, bool], deadline=DEADLINE)
        (secrets / "other").write_text("token-1")
        assert http.get("/status", dict[str, bool], deadline=DEADLINE)[0] == STATUS


def test_an_echoed_secret_is_masked(secrets: Path, clock: StepClock) -> None:
    basic = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
    echo = f"Basic {basic} {basic} {PASSWORD}"
    endpoint = {"username": "me", "password_file": "password"}
    with serving(settings(), clock) as server, client(server, clock, secrets, **endpoint) as http:
        server.faulty_app.inject(Fault(path="/status", method="GET", status=400, body=echo))
        with pytest.raises(RequestRejected) as caught:
            http.get("/status", dict[str, bool], deadline=DEADLINE)
        shown = [str(caught.value), repr(caught.value), repr(http), repr(http.__dict__)]
        assert not [text for text in shown if PASSWORD in text or basic in text]
        assert str(caught.value) == "system: GET /status: 400 Bad Request: *** *** ***"


#: fact: (endpoint, content of the file "secret" or `None`, message)
BAD_SECRETS: dict[str, tuple[dict[str, str], str | None, str]] = {
    "no token": ({"token_file": "secret"}, None, "tokenFile {}/secret: cannot be read: No such file or directory"),
    "no password": (
        {"username": "me", "password_file": "secret"},
        None,
        "passwordFile {}/secret: cannot be read: No such file or directory",
    ),
    "an empty one": ({"token_file": "secret"}, "\n", "tokenFile {}/secret: expected one line of printable characters"),
    "two lines": ({"token_file": "secret"}, "a\nb", "tokenFile {}/secret: expected one line of printable characters"),
    "a blank at its end": (
        {"token_file": "secret"},
        "a \n",
        "tokenFile {}/secret: expected one line of printable characters",
    ),
    "invalid in a header": (
        {"token_file": "secret"},
        "ä",
        "tokenFile {}/secret: expected one line of printable characters",
    ),
    "no CA": ({"ca_file": "secret"}, None, "caFile {}/secret: cannot be read: No such file or directory"),
    "an invalid CA": ({"ca_file": "secret"}, "hm", "caFile {}/secret: no usable PEM certificate: "),
    "an invalid certificate": (
        {"client_cert_file": "secret"},
        "hm",
        "clientCertFile {}/secret: no usable PEM certificate: ",
    ),
}


@pytest.mark.parametrize("fact", BAD_SECRETS)
def test_bad_secrets_are_configuration_errors(fact: str, tmp_path: Path) -> None:
    endpoint, content, message = BAD_SECRETS[fact]
    if content is not None:
        (tmp_path / "secret").write_text(content)
    with pytest.raises(ConfigError) as caught:
        Credentials(Endpoint(url="https://a", **endpoint), tmp_path)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message.format(tmp_path))


#: fact: (settings of the server, endpoint, error and its text or `None`)
HANDSHAKES: dict[str, tuple[dict[str, str], dict[str, str], tuple[type[Exception], str] | None]] = {
    "our own CA": ({}, {"ca_file": "ca.pem"}, None),
    "a CA that is not trusted": ({}, {}, (Unsent, "certificate verify failed")),
    "another CA": ({}, {"ca_file": "stranger.pem"}, (Unsent, "certificate verify failed")),
    "a client certificate": (
        {"client_ca_file": "ca.pem"},
        {"ca_file": "ca.pem", "client_cert_file": "client.pem"},
        None,
    ),
    "a client certificate with a separate key": (
        {"client_ca_file": "ca.pem"},
        {"ca_file": "ca.pem", "client_cert_file": "client.crt", "client_key_file": "client.key"},
        None,
    ),
    "no client certificate": ({"client_ca_file": "ca.pem"}, {"ca_file": "ca.pem"}, (NoResponse, "no answer")),
}


@pytest.mark.parametrize("fact", HANDSHAKES)
def test_handshakes_succeed_only_with_trusted_certificates(fact: str, certificates: Path, clock: StepClock) -> None:
    guarded, endpoint, refusal = HANDSHAKES[fact]
    served = settings(cert_file="server.pem", **guarded)
    with serving(served, clock, certificates) as server, client(server, clock, certificates, **endpoint) as http:
        outcome = pytest.raises(refusal[0], match=refusal[1]) if refusal else contextlib.nullcontext()
        with outcome:
            assert http.get("/status", dict[str, bool], deadline=DEADLINE)[0] == STATUS


def test_a_renewed_certificate_is_used(certificates: Path, tmp_path: Path, clock: StepClock) -> None:
    (tmp_path / "ca.pem").write_bytes((certificates / "ca.pem").read_bytes())
    stranger = (certificates / "stranger.pem").read_text() + (certificates / "stranger.key").read_text()
    (tmp_path / "client.pem").write_text(stranger)
    served = settings(cert_file="server.pem", client_ca_file="ca.pem")
    endpoint = {"ca_file": "ca.pem", "client_cert_file": "client.pem"}
    with serving(served, clock, certificates) as server, client(server, clock, tmp_path, **endpoint) as http:
        with pytest.raises(NoResponse):
            http.get("/status", dict[str, bool], deadline=DEADLINE)
        (tmp_path / "client.pem").write_text((certificates / "client.pem").read_text())
        assert http.get("/status", dict[str, bool], deadline=clock.monotonic() + DEADLINE)[0] == STATUS


def test_an_encrypted_key_is_an_error_without_a_prompt(certificates: Path) -> None:
    endpoint = Endpoint(url="https://a", client_cert_file="client.crt", client_key_file="encrypted.key")
    with pytest.raises(ConfigError, match="no usable PEM private key"):
        Credentials(endpoint, certificates)


def test_bodies_are_json_with_a_content_type(clock: StepClock) -> None:
    with serving(settings(), clock) as server, client(server, clock) as http:
        http.send("POST", "/pool/size", {"desiredSize": 4}, deadline=DEADLINE)
        assert json.loads(server.faulty_app.requests[-1].body) == {"desiredSize": 4}
        assert server.pool.size()["desiredSize"] == 4


@pytest.mark.parametrize(
    "message_of", [cherry_error_text, stackpoint_error_text, liqo_error_text, cloudpool_error_text]
)
def test_a_deeply_nested_error_has_a_message(message_of: Callable[[bytes], str]) -> None:
    assert isinstance(message_of(DEEP.encode()), str)
