"""Tests of lists that are split into items while they are read, for every producer and every chunk boundary."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rescheduler.snapshot_file.items import ListError, each

Json = dict[str, Any]

KINDS = ("Pod", "Node")


def _chunks(text: bytes, size: int) -> Iterator[bytes]:
    return (text[at : at + size] for at in range(0, len(text), size))


def _refuse(error: ValueError) -> None:
    raise error


def _read(text: bytes, size: int = 1 << 20) -> list[tuple[str, Json]]:
    items = []

    def take(kind: str, item: bytes) -> None:
        try:
            items.append((kind, msgspec.json.decode(item)))
        except msgspec.DecodeError as error:
            raise ValueError("cannot be read") from error

    each(_chunks(text, size), KINDS, take, _refuse)
    return items


def _item(kind: str, name: str, **fields: Any) -> Json:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


#: Items whose text contains the separator of two items.
NESTED = [{"apiVersion": "v1", "kind": "Pod"}, {"apiVersion": "v1", "kind": "Node"}, {"metadata": {}}]
ITEMS = [
    _item("Node", "n"),
    _item("Pod", "plain"),
    _item("Pod", "nested", owners=NESTED, items=[{"a": 1}]),
    _item("ReplicaSet", "passed over", template=NESTED),
    _item("Pod", "text", text='},{"apiVersion":"v1","kind":"Pod"}'),
    _item("Pod", "last"),
]
MIXED: Json = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": ITEMS}
TYPED: Json = {
    **MIXED,
    "kind": "PodList",
    "items": [{"metadata": {"name": name}, "a": [{"metadata": 1}]} for name in "abc"],
}

FORMS: dict[str, bytes] = {
    "kubectl": json.dumps(MIXED, indent=4, sort_keys=True).encode(),
    "compact": json.dumps(MIXED, separators=(",", ":")).encode(),
    "Python's": json.dumps(MIXED).encode(),
    "kind last": json.dumps(MIXED, sort_keys=True).encode(),
    "tabs": json.dumps(MIXED, indent="\t").encode(),
    "one item per line": b'{"kind":"List","items":[\n'
    + b",\n".join(json.dumps(item).encode() for item in ITEMS)
    + b"\n]}\n",
    "differently formatted items": b'{"kind":"List","items":['
    + b" ,\n".join(json.dumps(item, indent=i or None).encode() for i, item in enumerate(ITEMS))
    + b"]}",
    "kind first in items": json.dumps({**MIXED, "items": [dict(reversed(item.items())) for item in ITEMS]}).encode(),
}
TYPED_FORMS: dict[str, bytes] = {
    "the API's": json.dumps(TYPED, separators=(",", ":")).encode(),
    "indented": json.dumps(TYPED, indent=2).encode(),
    "kind last": json.dumps(TYPED, sort_keys=True).encode(),
}


@pytest.mark.parametrize("size", [1, 7, 100, 1 << 20])
@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_items_are_found_in_every_format_of_lists(text: bytes, size: int) -> None:
    assert _read(text, size) == [(item["kind"], item) for item in ITEMS if item["kind"] in KINDS]


@pytest.mark.parametrize("size", [1, 50, 1 << 20])
@pytest.mark.parametrize("text", TYPED_FORMS.values(), ids=TYPED_FORMS)
def test_a_typed_list_gives_the_kind_of_its_items(text: bytes, size: int) -> None:
    assert _read(text, size) == [("Pod", item) for item in TYPED["items"]]


STREAMED = {name: FORMS[name] for name in ("kubectl", "compact", "tabs", "one item per line")}


@pytest.mark.parametrize("text", STREAMED.values(), ids=STREAMED)
def test_items_are_returned_while_the_list_is_being_read(text: bytes) -> None:
    items: list[str] = []
    counts = []

    def chunks() -> Iterator[bytes]:
        for chunk in _chunks(text, 200):
            counts.append(len(items))
            yield chunk

    each(chunks(), KINDS, lambda kind, item: items.append(msgspec.json.decode(item)["kind"] + kind), _refuse)
    assert (counts[0], counts[-1] > 0) == (0, True)


_TEXTS = st.sampled_from(["v1", "Pod", '"},{"apiVersion":', "},\n{", "\\", "\u2028é"])
_KEYS = st.sampled_from(["apiVersion", "kind", "items", "metadata", "a"])
_VALUES = st.recursive(
    _TEXTS | st.none(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(_KEYS, values, max_size=3),
    max_leaves=8,
)
_ITEMS = st.fixed_dictionaries(
    {"apiVersion": st.just("v1"), "kind": st.sampled_from(["Pod", "X"])}, optional={"a": _VALUES}
)


@given(st.lists(_ITEMS, max_size=5), st.sampled_from([None, 0, 1]), st.booleans(), st.integers(1, 300))
def test_any_items_are_found(items: list[Json], indent: int | None, sort_keys: bool, size: int) -> None:
    text = json.dumps({"kind": "List", "items": items}, indent=indent, sort_keys=sort_keys).encode()
    assert _read(text, size) == [("Pod", item) for item in items if item["kind"] == "Pod"]


@pytest.mark.parametrize("text", [FORMS["kubectl"], FORMS["compact"], FORMS["kind last"]])
@pytest.mark.parametrize("size", [10, 1 << 20])
def test_invalid_json_is_rejected_at_its_position(text: bytes, size: int) -> None:
    for at in range(1, len(text) - 1, 11):
        broken = text[:at] + b"\x01" + text[at + 1 :]
        with pytest.raises(msgspec.DecodeError) as expected:
            msgspec.json.decode(broken, type=msgspec.Raw)
        with pytest.raises(ListError, match=r"^expected a JSON object of kind List, as kubectl") as caught:
            _read(broken, size)
        assert _byte(caught.value) == _byte(expected.value)


def _byte(error: Exception) -> str:
    return str(error).rpartition(" (byte ")[2]


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_a_truncated_list_is_rejected(text: bytes) -> None:
    for end in range(0, len(text.rstrip()) - 1, 13):
        with pytest.raises(ListError):
            _read(text[:end], 64)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"kind":"List","items":[{"kind":"X"},{"kind":"X"}],"items":[]}', "got two"),
        (b'{"kind":"List","items":[{"kind":"X"},{"kind":"X"}],"items":[{"kind":"Y"}]}', "got two"),
        (b'{"kind":"List","items":[{"kind":"X"},{"a":2}]}', "item 1 of the List has no kind"),
        (b'{"items":[{"kind":"X"},{"a":2}],"kind":"List"}', "item 1 of the List has no kind"),
        (b'{"kind":"List","items":[{"kind":"PodList","items":[]}]}', "item 0 of the List is a PodList"),
        (b'{"kind":"List","items":[{"kind":"Pod"},5]}', "item 1 of the List is not an object"),
        (b'{"kind":"List","items":[{"kind":"X"},{"kind":"X"},null]}', "item 2 of the List is not an object"),
        (
            b'{"kind":"Status","message":"Unauthorized"}',
            "it contains an error of the API server instead of objects: Unauthorized",
        ),
        (b'{"kind":"List","items":[{"kind":"Status","message":"forbidden"}]}', "instead of objects: forbidden"),
        (b'{"items":null}', "got 'no kind'"),
    ],
)
def test_other_documents_are_reported(text: bytes, message: str) -> None:
    with pytest.raises(ListError, match=message):
        _read(text)


def test_a_list_without_items_has_none() -> None:
    assert [_read(b'{"kind":"List"%b}' % items) for items in (b"", b',"items":null', b',"items":[]')] == [[], [], []]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("form", ["kubectl", "compact", "differently formatted items", "kind last"])
def test_unreadable_items_are_rejected_and_the_others_are_returned(form: str, size: int) -> None:
    taken: list[str] = []
    refused: list[str] = []

    def take(_: str, item: bytes) -> None:
        name = msgspec.json.decode(item, type=dict[str, Any])["metadata"]["name"]
        if name in ("nested", "last"):
            raise ValueError(name)
        taken.append(name)

    def take_json(kind: str, item: bytes) -> None:
        try:
            take(kind, item)
        except msgspec.DecodeError as error:
            raise ValueError("no JSON") from error

    each(_chunks(FORMS[form], size), KINDS, take_json, lambda error: refused.append(str(error)))
    assert (taken, refused) == (["n", "plain", "text"], ["nested", "last"])
