"""Every request to the node manager gets a valid response, never an unhandled exception."""

import asyncio
import json
from typing import Any

import httpx2
from hypothesis import given, settings
from hypothesis import strategies as st

from rescheduler.liqo.node_manager.app import node_manager
from tests.liqo_services.builders import bench, cluster

GETS = (
    "/nodegroup",
    "/nodegroup/ownership",
    "/nodegroup/current-size",
    "/nodegroup/nodes",
    "/nodegroup/template",
    "/nodegroup/nodeprice",
    "/nodegroup/podprice",
    "/nodegroup/scaleup",
    "/nodegroup/scaledown",
    "/nodegroup/destroy",
    "/nodegroup/create",
    "/version",
    "/v1/fleet",
    "/v1/groups/STANDARD/template",
    "/v1/machines/rome-1/price",
)
POSTS = ("/nodegroup/create", "/nodegroup/scaleup", "/v1/groups/STANDARD/machines", "/v1/podprice", "/v1/fleet")
DELETES = ("/v1/groups/STANDARD/machines/rome-1", "/v1/groups/NONE/machines/%2e%2e", "/nodegroup/destroy")
WORDS = st.sampled_from(
    [
        *("STANDARD", "rome-1", "liqo://rome-1", "template-node-for-STANDARD-1", "1", "9" * 400, "٣", "{}"),
        *(
            '{"cpu": "1"}',
            "2024-05-01T12:00:00Z",
            "2024-05-01T12:00:00",
            "0001-01-01T00:00:00+14:00",
            "9999-12-31T23:59:59-12:00",
        ),
    ]
) | st.text(max_size=12)
PARAMS = st.dictionaries(st.sampled_from(["id", "count", "nodegroupid", "start", "end", "requests"]), WORDS, max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
KEYS = ["id", "maxSize", "minSize", "currentSize", "nodes", "resources", "labels", "taints", "cost", "selector"]
BODIES = (
    st.dictionaries(st.sampled_from([*KEYS, "count", "requests", "start", "end", "min"]), VALUES).map(json.dumps)
    | st.fixed_dictionaries(
        {"requests": st.dictionaries(WORDS, st.floats() | st.integers(), max_size=2), "start": WORDS, "end": WORDS}
    ).map(json.dumps)
    | VALUES.map(json.dumps)
).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=30)
REQUESTS = st.one_of(
    st.tuples(st.just("GET"), st.sampled_from(GETS), PARAMS, st.just(b"")),
    st.tuples(st.just("POST"), st.sampled_from(POSTS), PARAMS, BODIES),
    st.tuples(st.just("DELETE"), st.sampled_from(DELETES), PARAMS, BODIES),
)


@settings(deadline=None, max_examples=60)
@given(requests=st.lists(REQUESTS, min_size=1, max_size=20))
def test_any_request_gets_a_valid_response(requests: list[tuple[str, str, dict[str, str], bytes]]) -> None:
    """The transport raises exceptions that the application does not handle."""
    with bench(cluster("rome")) as here:
        here.liqo.add("rome-1", "STANDARD", "rome")
        asyncio.run(send_all(httpx2.ASGITransport(node_manager(here.service)), requests))
        here.step()
        assert here.size() <= 10


async def send_all(transport: httpx2.ASGITransport, requests: list[tuple[str, str, dict[str, str], bytes]]) -> None:
    async with httpx2.AsyncClient(transport=transport, base_url="http://manager") as client:
        for method, path, params, body in requests:
            response = await client.request(method, path, params=params, content=body)
            assert response.status_code in {200, 202, 400, 404, 405, 409, 503}, (response.status_code, response.text)
            if response.status_code >= 400:
                decoded: dict[str, Any] = response.json()
                assert decoded.keys() == {"error"}
                assert "\n" not in decoded["error"]
