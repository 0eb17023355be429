"""Pod classes that are no longer used are dropped; the others are not decoded again."""

import json

import pytest

from predicates import wire
from predicates.objects import Pod, PodObject
from predicates.wire import Decoder, Interner
from tests.planning.builders import pod

KEPT, DROPPED = (json.dumps(pod(name, "n", cpu=cpu)).encode() for name, cpu in (("kept", "1"), ("dropped", "2")))


def test_after_a_cleanup_only_unknown_classes_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    interner = Interner()
    decoder = Decoder(interner)
    before, _ = (decoder.decode("Pod", raw) for raw in (KEPT, DROPPED))
    assert isinstance(before, Pod)
    interner.forget({before.cls})
    assert len(interner) == 1
    decoded: list[str] = []

    class RecordingDecoder:
        def decode(self, raw: bytes) -> PodObject:
            whole = original.decode(raw)
            decoded.append(str(whole.spec.containers[0].resources.requests["cpu"]))
            return whole

    original = wire._PODS
    monkeypatch.setattr(wire, "_PODS", RecordingDecoder())
    after, again = (decoder.decode("Pod", raw) for raw in (KEPT, DROPPED))
    assert isinstance(after, Pod)
    assert isinstance(again, Pod)
    assert after.cls is before.cls
    assert decoded == ["2"]
