"""HTTP/1.1 requests from hypothesis: valid ones, unusual ones, and damaged bytes."""

import itertools
import json
from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st

from tests.fuzz.wire import End, Exchange

METHODS: Final = ("GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "X-Y", "*")

#: Out-of-range numbers and durations, and characters that are invalid in a path.
ODD: Final = (2**31, 2**63, -(2**63) - 1, 10**400, 1e308, "a\0b", "9" * 400 + "h", "100000000h", "87600h")

#: Methods with a response that does not depend on the rest of the request.
VALUES: Final[st.SearchStrategy[Any]] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(ODD),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_JSON: Final = b"Content-Type: application/json"
_LARGE: Final = (1 << 16, 1 << 20, (1 << 20) + 1, 4 << 20)
_SOUP: Final = (
    b"Connection: close",
    b"Connection: authorization, x",
    b"Connection: upgrade",
    b"Upgrade: websocket",
    b"Upgrade: h2c",
    b"Expect: 100-continue",
    b"Expect: 200-never",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: xchunked",
    b"Content-Length: 0",
    b"Content-Length: -1",
    b"Content-Length: 1e3",
    b"Content-Length: 99999999999999999999",
    b"Content-Length: 5, 5",
    b"Content-Type: text/html; charset=\xff",
    b"Accept: text/html",
    b"Accept: application/openmetrics-text; version=nonsense",
    b"Accept: " + b"a/b;q=x," * 50,
    b"Accept-Encoding: gzip;q=0, *",
    b"Cookie: a=b; c",
    b"X-Forwarded-For: 10.0.0.1, \xc3\xa4",
    b"X-Forwarded-For:",
    b"Forwarded: for=_hidden",
    b"Range: bytes=-1,5-",
    b"If-None-Match: *",
    b"Te: trailers",
    b"Trailer: authorization",
    b"Proxy-Connection: keep-alive",
    b"Authorization: Basic !!!",
    b"Authorization: Bearer ",
    b"Host: a\x00b",
    b"Host: elsewhere, twice",
    b"X-HTTP-Method-Override: DELETE",
    b"x_http_method_override: POST",
    b"X-Original-URL: /pool/size",
    b"X-Rewrite-URL: /pool/terminate",
    b" leading: space",
    b"no colon",
    b": no name",
    b"folded: a\r\n b",
    b"big: " + b"x" * 70_000,
)


def _escaped(text: str) -> bytes:
    return "".join(
        char if char.isalnum() or char in "/._-%;=?&+:\\" else f"%{ord(char) % 256:02x}" for char in text
    ).encode()


def targets(paths: Sequence[str]) -> st.SearchStrategy[bytes]:
    """Return request targets: the server's own paths in many spellings, and others."""
    known = st.sampled_from(paths)
    spelled = st.one_of(
        known,
        known.map(lambda path: "/" + path),
        known.map(lambda path: path + "/"),
        known.map(lambda path: path + "?a=b&format=json&c=%ff"),
        known.map(lambda path: path.replace("/", "%2f")),
        known.map(lambda path: path.replace("/", "/./x/../")),
        known.map(lambda path: path + ";a=b"),
        known.map(lambda path: path.replace("/", "%5c")),
        known.map(lambda path: "http://elsewhere:1" + path),
        st.text(max_size=30).map(lambda text: "/" + text),
        st.sampled_from(
            ("*", "/", "", "//", "/..", "/%", "/%zz", "/%00", "/" + "a" * 60_000, "http://", "elsewhere:80")
        ),
    )
    return spelled.map(_escaped) | st.binary(max_size=20)


def bodies(documents: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """Return bodies: nearly valid JSON, other JSON, and arbitrary bytes."""
    text = (documents | VALUES).map(json.dumps)
    return st.one_of(
        text.map(str.encode),
        text.map(str.encode).flatmap(_damaged),
        st.binary(max_size=200),
        st.sampled_from(_LARGE).map(lambda size: b'{"desiredSize": ' + b" " * size + b"1}"),
        st.sampled_from(_LARGE).map(lambda size: b"\xff" * size),
        st.sampled_from((100, 5_000, 200_000)).map(lambda depth: b"[" * depth),
        st.integers(1, 6000).map(lambda digits: b'{"desiredSize": ' + b"9" * digits + b"}"),
        st.just(b""),
    )


def _damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    """Replace one byte, or truncate the text."""
    place = st.integers(0, max(0, len(whole) - 1))
    other = st.builds(lambda at, byte: whole[:at] + bytes([byte]) + whole[at + 1 :], place, st.integers(0, 255))
    return other | place.map(lambda at: whole[:at])


def _chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def _request(method: bytes, target: bytes, headers: Sequence[bytes], body: bytes, framing: str) -> bytes:
    lines = [b"%b %b HTTP/1.1" % (method, target), b"Host: localhost", *headers]
    match framing:
        case "length":
            lines.append(b"Content-Length: %d" % len(body))
        case "chunked":
            lines.append(b"Transfer-Encoding: chunked")
            body = _chunked(body, max(1, len(body) // 3))
        case "both":
            lines += [b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked"]
            body = _chunked(body, max(1, len(body) // 2))
        case "short":
            lines.append(b"Content-Length: %d" % (len(body) // 2))
        case "long":
            lines.append(b"Content-Length: %d" % (len(body) + 10))
        case "damaged chunks":
            lines.append(b"Transfer-Encoding: chunked")
            body = b"5\r\nabc\r\nzz\r\n" + body
        case "endless chunk":
            lines.append(b"Transfer-Encoding: chunked")
            body = b"ffffffffffffffff\r\n" + body
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


FRAMINGS: Final = ("none", "length", "length", "chunked", "both", "short", "long", "damaged chunks", "endless chunk")


def requests(
    paths: Sequence[str], documents: st.SearchStrategy[Any], headers: Sequence[bytes]
) -> st.SearchStrategy[bytes]:
    """Return requests to *paths*, most of them with *headers* (credentials)."""
    methods = st.sampled_from(METHODS).map(str.encode) | st.binary(max_size=8)
    soup = st.lists(st.sampled_from(_SOUP) | st.binary(max_size=40), max_size=4)
    shown = st.sampled_from(((*headers, _JSON), (*headers, _JSON), tuple(headers), ()))
    return st.builds(
        lambda method, target, own, more, body, framing: _request(method, target, [*own, *more], body, framing),
        methods,
        targets(paths),
        shown,
        soup,
        bodies(documents),
        st.sampled_from(FRAMINGS),
    )


def valid(
    paths: Sequence[str], documents: st.SearchStrategy[Any], headers: Sequence[bytes]
) -> st.SearchStrategy[Exchange]:
    """Return valid requests with credentials, each on its own connection; the server must respond to them."""
    valid_requests = st.builds(
        lambda method, path, body, framing: _request(
            method, path, [*headers, _JSON, b"Connection: close"], body, framing
        ),
        st.sampled_from((b"POST", b"POST", b"GET", b"PUT", b"DELETE")),
        st.sampled_from(paths).map(str.encode),
        bodies(documents),
        st.sampled_from(("length", "chunked")),
    )
    # A server may close without reading the rest of a large body; then its response can be lost.
    return valid_requests.map(lambda request: Exchange((request,), whole=len(request) < _LARGE[0]))


def exchanges(
    paths: Sequence[str], documents: st.SearchStrategy[Any], headers: Sequence[bytes]
) -> st.SearchStrategy[Exchange]:
    """Return exchanges of one or several requests on a connection, in pieces with pauses, with each kind of `End`."""
    single = requests(paths, documents, headers)
    stream = st.lists(single | single.flatmap(_damaged) | st.binary(max_size=100), min_size=1, max_size=4).map(b"".join)
    odd = st.builds(
        lambda whole, cuts, pause, end: Exchange(_cut(whole, cuts), pause if len(cuts) else 0.0, end),
        stream,
        st.lists(st.floats(0, 1), max_size=6),
        st.sampled_from((0.0, 0.0, 0.0, 0.02)),
        st.sampled_from(End),
    )
    return valid(paths, documents, headers) | odd


def _cut(whole: bytes, at: Sequence[float]) -> list[bytes]:
    places = [0, *sorted(int(share * len(whole)) for share in at), len(whole)]
    return [whole[start:stop] for start, stop in itertools.pairwise(places)]
