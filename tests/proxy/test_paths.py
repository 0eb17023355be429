"""Every spelling of a removal is recognized; everything else is forwarded."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rescheduler.cloudpool.proxy.paths import Operation, Route, route

FORWARD = Route(Operation.FORWARD)
SIZE = Route(Operation.SIZE)
TERMINATE = Route(Operation.TERMINATE)
FORBIDDEN = Route(Operation.FORBIDDEN)
GCE = "https://www.googleapis.com/compute/v1/projects/p/zones/z/instances/n"

#: path of a POST: its meaning
POSTS = {
    "/pool/size": SIZE,
    "/pool/size/": SIZE,
    "/pool/size//": SIZE,
    "//pool/size": SIZE,
    "/pool//size": SIZE,
    "/pool/./size": SIZE,
    "/pool/size/.": SIZE,
    "/pool/x/../size": SIZE,
    "/x/../pool/size": SIZE,
    "/../pool/size": SIZE,
    "/%2e%2e/pool/size": SIZE,
    "/pool/size/x/..": SIZE,
    "/pool%2Fsize": SIZE,
    "/pool%2fsize": SIZE,
    "/pool%252Fsize": SIZE,
    "/pool/siz%65": SIZE,
    "/%70ool/size": SIZE,
    "/pool/siz%2565": SIZE,
    "/pool/%u0073ize": SIZE,
    "/pool%c0%afsize": SIZE,
    "/pool\\size": SIZE,
    "/pool%5Csize": SIZE,
    "/pool/size;x=1": SIZE,
    "/pool;a/size;b": SIZE,
    "/x/..;y/pool/size": SIZE,
    "/pool/size%3Fa=b": SIZE,
    "/pool/size%23": SIZE,
    "/pool/size%00": SIZE,
    "/pool/size%20": SIZE,
    "/pool/ size": SIZE,
    "/POOL/SIZE": SIZE,
    "/pool/Size": SIZE,
    "/Pool/%53ize/": SIZE,
    "//pool/./SIZE;v=1": SIZE,
    "/pool/%c5%bfize": SIZE,
    "/pool/s%c4%b1ze": SIZE,
    "/pool/%ef%bd%93ize": SIZE,
    "/pool%ef%bc%8fsize": SIZE,
    "/pool/size.": SIZE,
    "/pool/size.json": SIZE,
    "/pool/Terminate": TERMINATE,
    "/Pool/I-1/TERMINATE": Route(Operation.TERMINATE, "I-1"),
    "/pool/node.example.com/terminate": Route(Operation.TERMINATE, "node.example.com"),
    "/pool/MEMBERSHIPSTATUS": Route(Operation.MEMBERSHIP),
    "/Pool/i-1/Detach": Route(Operation.DETACH, "i-1"),
    "/CloudPools/other/Pool/Size": FORBIDDEN,
    # Servers differ in the order of these steps.
    "/pool//../size": SIZE,
    "/pool/%2e%2e/../size": SIZE,
    "/pool/%252e%252e/../size": SIZE,
    "/pool/a%5cb/../size": SIZE,
    "/pool/..;/../size": SIZE,
    "/%3f/../pool/size": SIZE,
    "/%23/../pool/size": SIZE,
    "/%00/../pool/size": SIZE,
    "/pool/%c0%ae%c0%ae/pool/size": SIZE,
    "/pool/%c1%b3ize": SIZE,
    "/pool//../i-1/terminate": FORBIDDEN,
    "pool/size": SIZE,
    "/pool/terminate": TERMINATE,
    "/pool/terminate/": TERMINATE,
    "/pool/%74erminate;x": TERMINATE,
    "/terminate": TERMINATE,
    "/pool/i-1/terminate": Route(Operation.TERMINATE, "i-1"),
    "/pool/i%2D1/terminate": Route(Operation.TERMINATE, "i-1"),
    "/pool/i-1/terminate/": Route(Operation.TERMINATE, "i-1"),
    f"/pool/{quote(GCE, safe='')}/terminate": Route(Operation.TERMINATE, GCE),
    "/pool/a/b/terminate": Route(Operation.TERMINATE, "a/b"),
    "/pool/detach": Route(Operation.DETACH),
    "/pool/i-1/detach": Route(Operation.DETACH, "i-1"),
    "/pool/membershipStatus": Route(Operation.MEMBERSHIP),
    "/pool/i-1/membershipStatus": Route(Operation.MEMBERSHIP, "i-1"),
    "/cloudpools/other/terminate": FORBIDDEN,
    "/cloudpools/other/pool/size": FORBIDDEN,
    "/../cloudpools/other/pool/terminate": FORBIDDEN,
    "/pool": FORWARD,
    "/pool/attach": FORWARD,
    "/pool/serviceState": FORWARD,
    "/pool/sizes": FORWARD,
    "/size": FORWARD,
    "/pool/size/x": FORWARD,
    "/pool/terminate/x": FORWARD,
    "/pool/..;/size": FORWARD,
    "/config": FORWARD,
    "/start": FORWARD,
    "/": FORWARD,
    "": FORWARD,
    "/..": FORWARD,
    "/%": FORWARD,
    "/%zz": FORWARD,
    "/%ff": FORWARD,
}


@pytest.mark.parametrize("path", POSTS)
def test_each_post_has_its_route(path: str) -> None:
    assert route("POST", path) == POSTS[path]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/pool/size", "/pool/terminate", "/pool/detach"])
def test_other_methods_are_forwarded(method: str, path: str) -> None:
    assert route(method, path) == FORWARD


@pytest.mark.parametrize("method", ["post", "Post", "pOST"])
def test_methods_are_case_insensitive(method: str) -> None:
    assert route(method, "/pool/size") == SIZE


def spelled(segments: list[str]) -> st.SearchStrategy[str]:
    """Return spellings that some server decodes to these segments."""
    separators = st.sampled_from(["/", "//", "/./", "/x/../", "%2F", "%252f", "\\", "/..;p/../x/../"])
    characters = st.sampled_from(["plain", "upper", "%", "%25", "%u"])
    ends = st.sampled_from(["", "/", ";a=b", "/.", "%20", "%00", "%3Fq"])

    def write(text: str, way: str) -> str:
        first, rest = text[0], text[1:]
        code = ord(first)
        forms = {"plain": first, "upper": first.upper(), "%": f"%{code:02x}", "%25": f"%25{code:02X}"}
        forms["%u"] = f"%u{code:04x}"
        return forms[way] + (rest.upper() if way == "upper" else rest)

    parts = [st.tuples(separators, st.builds(write, st.just(segment), characters)).map("".join) for segment in segments]
    return st.tuples(*parts, ends).map("".join).map(lambda path: path.replace("/..;p/../x/../", "/x/..;p/"))


@given(path=spelled(["pool", "size"]))
def test_every_spelling_of_the_size_is_recognized(path: str) -> None:
    assert route("POST", path) == SIZE


@given(path=spelled(["pool", "terminate"]))
def test_every_spelling_of_a_termination_is_recognized(path: str) -> None:
    assert route("POST", path) == TERMINATE


@given(path=st.text())
def test_any_path_has_a_meaning(path: str) -> None:
    assert isinstance(route("POST", path), Route)
