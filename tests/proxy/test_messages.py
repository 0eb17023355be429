"""Bodies of removals are decoded as by the original, and responses have the original's format."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rescheduler.cloudpool.proxy.messages import (
    BadRequest,
    OnMachine,
    SetMembership,
    error_document,
    on_machine,
    set_membership,
    set_size,
)

NO_SIZE = "setDesiredSize message did not specify a desiredSize"
NEGATIVE = "setDesiredSize message: desiredSize must be non-negative"
UNREADABLE = "failed to decode setDesiredSize message"

#: body: the size, or the error message
SIZES: dict[bytes, int | str] = {
    b'{"desiredSize": 3}': 3,
    b'{"desiredSize": 0}': 0,
    b'{"desiredSize": -0}': 0,
    b' \t\r\n{"desiredSize":3}\n': 3,
    b'{"DESIREDSIZE": 3}': 3,
    b'{"desiredsize": 3}': 3,
    '{"de\u017fired\u017fize": 3}'.encode(): 3,
    b'{"desired\\u0053ize": 3}': 3,
    b'{"desiredSize": 3, "other": [1.5, {}]}': 3,
    b'{"desiredSize": 3, "desiredSize": 4}': 4,
    b'{"desiredSize": 3, "DesiredSize": 4}': 4,
    b'{"desiredSize": 9223372036854775807}': 2**63 - 1,
    b'{"desiredSize": 3, "\xff": 1}': 3,
    b'{"desiredSize": 3, "desiredSize": null}': NO_SIZE,
    b'{"desiredSize": null}': NO_SIZE,
    b"{}": NO_SIZE,
    b"null": NO_SIZE,
    b'{"size": 3}': NO_SIZE,
    b'{"desiredSize": -1}': NEGATIVE,
    b'{"desiredSize": "3"}': UNREADABLE,
    b'{"desiredSize": 3.0}': UNREADABLE,
    b'{"desiredSize": 3e0}': UNREADABLE,
    b'{"desiredSize": true}': UNREADABLE,
    b'{"desiredSize": [3]}': UNREADABLE,
    b'{"desiredSize": 9223372036854775808}': UNREADABLE,
    b'{"desiredSize": 1' + b"0" * 5000 + b"}": UNREADABLE,
    b'{"desiredSize": 03}': UNREADABLE,
    b'{"desiredSize": +3}': UNREADABLE,
    b'{"desiredSize": NaN}': UNREADABLE,
    b'{"desiredSize": 3, "x": Infinity}': UNREADABLE,
    b'{"desiredSize": 3,}': UNREADABLE,
    b'{"desiredSize": 3} x': UNREADABLE,
    b'{"desiredSize": 3}{}': UNREADABLE,
    b"{'desiredSize': 3}": UNREADABLE,
    b"": UNREADABLE,
    b"[]": UNREADABLE,
    b'"x"': UNREADABLE,
    b"3": UNREADABLE,
    b'\xef\xbb\xbf{"desiredSize": 3}': UNREADABLE,
    '{"desiredSize": 3}'.encode("utf-16"): UNREADABLE,
    b"[" * 100_000: UNREADABLE,
    b'{"desiredSize": 3, "x": "\n"}': UNREADABLE,
}


@pytest.mark.parametrize("body", SIZES, ids=lambda body: repr(body[:40]))
def test_size_messages_are_decoded_or_rejected(body: bytes) -> None:
    expected = SIZES[body]
    if isinstance(expected, int):
        assert set_size(body) == expected
        return
    with pytest.raises(BadRequest) as caught:
        set_size(body)
    assert caught.value.message == expected
    assert bool(caught.value.detail) is (expected == UNREADABLE)


NO_MACHINE = "terminateMachine message did not specify a machineId"
UNREADABLE_MACHINE = "failed to decode terminateMachine message"

#: body: the message, or the error message
MACHINES: dict[bytes, OnMachine | str] = {
    b'{"machineId": "i-1", "decrementDesiredSize": true}': OnMachine("i-1", decrement=True),
    b'{"machineID": "i-1", "decrementdesiredsize": true}': OnMachine("i-1", decrement=True),
    b'{"machineId": "i-1"}': OnMachine("i-1", decrement=False),
    b'{"machineId": "i-1", "decrementDesiredSize": null}': OnMachine("i-1", decrement=False),
    b'{"machineId": "\\ud800"}': OnMachine("\ud800", decrement=False),
    b'{"machineId": ""}': NO_MACHINE,
    b'{"machineId": null}': NO_MACHINE,
    b"{}": NO_MACHINE,
    b"null": NO_MACHINE,
    b'{"machineId": 1}': UNREADABLE_MACHINE,
    b'{"machineId": "i-1", "decrementDesiredSize": "true"}': UNREADABLE_MACHINE,
    b'{"machineId": "i-1", "decrementDesiredSize": 1}': UNREADABLE_MACHINE,
    b"": UNREADABLE_MACHINE,
    b"{": UNREADABLE_MACHINE,
}


@pytest.mark.parametrize("body", MACHINES)
def test_machine_messages_are_decoded_or_rejected(body: bytes) -> None:
    expected = MACHINES[body]
    if isinstance(expected, OnMachine):
        assert on_machine(body, "terminateMachine") == expected
        return
    with pytest.raises(BadRequest) as caught:
        on_machine(body, "terminateMachine")
    assert caught.value.message == expected


#: body: decrement
IN_PATH = {b"": False, b"{}": False, b'{"decrementDesiredSize": true}': True, b'{"machineId": "other"}': False}


@pytest.mark.parametrize("body", IN_PATH)
def test_the_machine_in_the_path_takes_precedence(body: bytes) -> None:
    assert on_machine(body, "terminateMachine", "i-1") == OnMachine("i-1", decrement=IN_PATH[body])


#: membershipStatus: (active, evictable, disposable)
MEMBERSHIPS = {
    b"{}": (True, True, False),
    b'{"active": false}': (False, True, True),
    b'{"ACTIVE": false, "evictable": null}': (False, True, True),
    b'{"active": false, "evictable": true}': (False, True, True),
    b'{"active": false, "evictable": false}': (False, False, False),
    b'{"active": true, "evictable": false}': (True, False, False),
    b'{"active": true, "active": false}': (False, True, True),
}


@pytest.mark.parametrize("status", MEMBERSHIPS)
def test_membership_statuses_are_decoded(status: bytes) -> None:
    message = set_membership(b'{"machineId": "i-1", "membershipStatus": ' + status + b"}")
    active, evictable, disposable = MEMBERSHIPS[status]
    assert (message, message.disposable) == (SetMembership("i-1", active=active, evictable=evictable), disposable)


@pytest.mark.parametrize(
    "body",
    [
        b'{"machineId": "i-1"}',
        b'{"machineId": "i-1", "membershipStatus": null}',
        b'{"machineId": "i-1", "membershipStatus": "x"}',
        b'{"machineId": "i-1", "membershipStatus": {"active": 0}}',
        b'{"membershipStatus": {"active": true}}',
    ],
)
def test_invalid_membership_statuses_are_rejected(body: bytes) -> None:
    with pytest.raises(BadRequest):
        set_membership(body)


@given(st.binary())
def test_any_body_is_decoded_or_rejected(body: bytes) -> None:
    for read in (set_size, set_membership, lambda data: on_machine(data, "terminateMachine")):
        try:
            read(body)
        except BadRequest as error:
            json.loads(error_document(error.message, error.detail))


def test_an_error_has_exactly_the_bytes_of_the_original() -> None:
    expected = (
        b'{\n  "message": "failed to set desired size",\n'
        b'  "detail": "a \\u003cb\\u003e \\u0026 \\"c\\"\\n\xc3\xa4\\u2028"\n}'
    )
    assert error_document("failed to set desired size", 'a <b> & "c"\nä\u2028') == expected


@given(st.text())
def test_errors_preserve_any_text(text: str) -> None:
    assert json.loads(error_document("m", text)) == {"message": "m", "detail": text}
