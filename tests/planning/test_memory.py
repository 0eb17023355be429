"""Tests of the memory's stored form: complete, small, and rejected if it is damaged."""

import base64
import datetime as dt
import gzip
import json
import random
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rescheduler.errors import InputError
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt, OpenDebt
from rescheduler.planning.forms import LIMIT
from rescheduler.planning.memory import ENTRY_LIMIT, Memory, dump, fitted, load
from rescheduler.planning.movements import (
    ControllerMoves,
    LeftoverMoves,
    Move,
    Movements,
    NotRecovered,
    OwnerWait,
)
from rescheduler.planning.owner_records import OwnerRecord
from rescheduler.planning.pools import PoolRecord
from rescheduler.planning.refusals import KubeletRefusal, KubeletRefusals
from rescheduler.planning.waits import Cooldown, Cooldowns, Pause, Waits
from tests.planning.builders import NOW
from tests.planning.memories import large

HOUR = timedelta(hours=1)
WAITS = Waits()


def controller(name: str) -> Controller:
    return Controller("default", "Deployment", name, f"uid-{name}")


def owed(name: str, at: dt.datetime = NOW, node: str = "od-1") -> OpenDebt:
    return OpenDebt(node, at, Debt(controller(name), 2, 3, "digest", 1, ("rs-1", "rs-2")))


FULL = Memory(
    drained_at=NOW,
    cooldowns=Cooldowns({"od-1": Cooldown("uid", 2, NOW + HOUR, "eviction-refused", "a webhook says no")}),
    not_recovered=NotRecovered({"default/Deployment/web": OwnerWait(1, NOW + HOUR)}),
    returned=Pause(2, NOW + 2 * HOUR),
    debts=(owed("web"), owed("db")),
    movements=Movements(
        {"uid-web": ControllerMoves((Move(NOW - HOUR, 3), Move(NOW, 1)), 2, returned=True, until=NOW + HOUR)}
    ),
    refusals=KubeletRefusals().noted(
        KubeletRefusal(controller("web"), "digest", (("pool", "a"), ("spot", None)), "spot-1", "OutOfcpu", NOW)
    ),
)

moments = st.datetimes(timezones=st.just(dt.UTC))
nows = st.integers(0, 100 * 365).map(lambda days: NOW + timedelta(days=days))
counts = st.integers(0, 10**9)
texts = st.text(max_size=20)
debts = st.builds(
    Debt, st.builds(Controller, texts, texts, texts, texts), counts, counts, texts, counts, st.tuples(texts, texts)
)
records = st.builds(
    ControllerMoves,
    st.lists(st.builds(Move, moments, counts), min_size=1, max_size=4).map(tuple),
    counts,
    st.booleans(),
    st.none() | moments,
)
memories = st.builds(
    Memory,
    drained_at=st.none() | moments,
    cooldowns=st.builds(
        Cooldowns, st.dictionaries(texts, st.builds(Cooldown, texts, counts, moments, texts, texts), max_size=4)
    ),
    not_recovered=st.builds(NotRecovered, st.dictionaries(texts, st.builds(OwnerWait, counts, moments), max_size=4)),
    returned=st.builds(Pause, counts, st.none() | moments),
    debts=st.lists(st.builds(OpenDebt, texts, moments, debts), max_size=4).map(tuple),
    movements=st.builds(Movements, st.dictionaries(texts, records, max_size=4)),
)


@given(memories)
def test_a_stored_memory_is_loaded_unchanged(memory: Memory) -> None:
    assert load(dump(memory)) == memory


@given(memories, nows)
def test_every_stored_value_can_be_used_after_reading(memory: Memory, now: dt.datetime) -> None:
    bounded = memory.bounded(now, WAITS)
    assert bounded.bounded(now, WAITS) == bounded
    assert bounded.current(now, WAITS).current(now, WAITS) == bounded.current(now, WAITS)
    assert bounded.summary(now)
    assert all(cooldown.until <= now + WAITS.cooldown.longest for cooldown in bounded.cooldowns.by_node.values())


def test_equal_memories_give_equal_bytes() -> None:
    first = Cooldowns({name: Cooldown("u", 1, NOW) for name in ("a", "b", "c")})
    second = Cooldowns({name: Cooldown("u", 1, NOW) for name in ("c", "a", "b")})
    assert dump(Memory(cooldowns=first)) == dump(Memory(cooldowns=second))
    assert dump(FULL)[4:8] == bytes(4)  # gzip's MTIME field


def test_the_format_is_gzip_compressed_json() -> None:
    stored = json.loads(gzip.decompress(dump(FULL)))
    assert stored["version"] == 1
    assert stored["memory"]["drained_at"] == "2026-01-01T12:00:00Z"


def test_fields_of_newer_versions_are_ignored() -> None:
    stored = json.loads(gzip.decompress(dump(FULL)))
    stored["version"], stored["more"], stored["memory"]["more"] = 7, 1, {"x": []}
    stored["memory"]["debts"][0]["debt"]["more"] = True
    assert load(gzip.compress(json.dumps(stored).encode())) == FULL


def packed(text: bytes | str) -> bytes:
    return gzip.compress(text if isinstance(text, bytes) else text.encode())


def written(change: Callable[[dict[str, Any]], object]) -> bytes:
    stored = json.loads(gzip.decompress(dump(FULL)))
    change(stored)
    return packed(json.dumps(stored))


BROKEN: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "expected one whole gzip member"),
    "not gzip": (b"{}", "expected gzip"),
    "truncated": (dump(FULL)[:-9], "expected one whole gzip member"),
    "a changed byte": (dump(FULL)[:40] + b"\xff" + dump(FULL)[41:], "expected"),
    "trailing data": (dump(FULL) + b"x", "expected one whole gzip member"),
    "too much": (packed(bytes(65 << 20)), "expected one whole gzip member of at most 64 MiB"),
    "not JSON": (packed("{"), "expected the memory as JSON"),
    "not UTF-8": (packed(b'{"version": 1, "memory": {"debts": "\xff"}}'), "expected the memory as JSON"),
    "deep": (packed("[" * 100_000), "expected the memory as JSON"),
    "something else": (packed("{}"), "expected the memory as JSON"),
    "no version": (packed('{"memory": {}}'), "missing required field `version`"),
    "an invalid version": (packed('{"version": 0, "memory": {}}'), "$.version"),
    "a time without a zone": (written(lambda doc: doc["memory"].update(drained_at="2026-01-01T12:00:00")), "timezone"),
    "an invalid time": (written(lambda doc: doc["memory"].update(drained_at="soon")), "$.memory.drained_at"),
    "a number that is too large": (written(lambda doc: doc["memory"]["returned"].update(times=10**30)), "<="),
    "an empty list of moves": (
        packed('{"version": 1, "memory": {"movements": {"by_uid": {"u": {"moves": []}}}}}'),
        "$.memory.movements.by_uid[...].moves",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "message"), BROKEN.values(), ids=BROKEN)
def test_damaged_content_is_rejected(content: bytes, message: str) -> None:
    with pytest.raises(InputError) as error:
        load(content)
    assert message in str(error.value)


@given(st.binary(max_size=200), st.booleans())
def test_any_content_is_read_or_rejected(content: bytes, zipped: bool) -> None:
    with pytest.raises(InputError):
        load(gzip.compress(content) if zipped else content)


# Size


def config_map(memory: Memory) -> int:
    """Return the size in bytes of a ConfigMap with *memory*, in JSON."""
    content = base64.b64encode(dump(memory)).decode()
    return len(msgspec.json.encode({"binaryData": {"memory": content}, "data": {"summary": memory.summary(NOW)}}))


def test_a_day_of_drains_with_the_default_delay_is_stored_completely() -> None:
    """144 drains of 30 pods each, from 30 controllers that are moved once; a tenth of 5,000 nodes is in cooldown."""
    memory = large(500, 144 * 30)
    memory = msgspec.structs.replace(
        memory,
        cooldowns=Cooldowns(
            {node: Cooldown(c.uid, c.failures, c.until) for node, c in memory.cooldowns.by_node.items()}
        ),
        movements=Movements({uid: ControllerMoves(moves.moves[-1:]) for uid, moves in memory.movements.by_uid.items()}),
    )
    assert load(dump(memory)) == memory
    assert config_map(memory) < 256 * 1024


def test_at_5000_nodes_the_oldest_entries_are_dropped_but_no_debts() -> None:
    memory = large(5_000, 20_000)
    assert config_map(memory) <= 256 * 1024
    kept = load(dump(memory))
    assert (kept.debts, kept.drained_at) == (memory.debts, memory.drained_at)
    assert kept.movements.by_uid.items() <= memory.movements.by_uid.items()
    assert kept.cooldowns.by_node.items() <= memory.cooldowns.by_node.items()
    ages = {("node", node): cooldown.until for node, cooldown in memory.cooldowns.by_node.items()} | {
        ("uid", uid): moves.last for uid, moves in memory.movements.by_uid.items()
    }
    remaining = {("node", node) for node in kept.cooldowns.by_node} | {("uid", uid) for uid in kept.movements.by_uid}
    assert len(remaining) > 1_000
    assert max(age for key, age in ages.items() if key not in remaining) <= min(ages[key] for key in remaining)


def noise(n: int) -> str:
    """Return text that cannot be compressed, different for each *n*."""
    return base64.b85encode(random.Random(n).randbytes(64)).decode()


SMALL = Memory(
    cooldowns=Cooldowns({f"od-{n}": Cooldown(noise(n), 1, NOW + n * HOUR) for n in (1, 4)}),
    movements=Movements(
        {
            noise(12): ControllerMoves((Move(NOW - 2 * HOUR, 1),)),
            noise(13): ControllerMoves((Move(NOW - 3 * HOUR, 1),), 1, until=NOW + 3 * HOUR),
        }
    ),
    debts=(owed(noise(21), NOW - 2 * HOUR), owed(noise(22), NOW - HOUR)),
)
#: Oldest first: moves, the end of a cooldown, the end of a controller's wait, the end of a cooldown; then debts.
DROPPED = [(2, 2, 2), (2, 1, 2), (1, 1, 2), (1, 0, 2), (0, 0, 2), (0, 0, 1), (0, 0, 0)]


def test_entries_are_dropped_in_order() -> None:
    limit = len(dump(SMALL))
    seen: list[tuple[int, int, int]] = []
    while not seen or seen[-1] != (0, 0, 0):
        kept = load(dump(SMALL, limit))
        counted = len(kept.cooldowns.by_node), len(kept.movements.by_uid), len(kept.debts)
        seen += [counted] if counted not in seen else []
        if len(kept.debts) == 1:
            assert kept.debts == SMALL.debts[1:]
        limit -= 1
    assert seen == DROPPED


def test_the_limit_is_kept() -> None:
    assert LIMIT * 4 / 3 < 256 * 1024
    for limit in range(200, len(dump(SMALL)) + 10, 7):
        assert len(dump(SMALL, limit)) <= limit


def test_a_namespace_holds_at_most_a_tenth_of_the_store_and_an_entry_at_most_a_kibibyte() -> None:
    """One namespace fills the memory, with names of every length: debts, moves and waits of others are kept."""
    names = [noise(n) * (n % 40) for n in range(2_000)]
    greedy = [Controller("greedy", "Workflow", name, f"uid-{n}") for n, name in enumerate(names)]
    others = (owed("web"), owed("db", NOW - HOUR))
    waits = {f"greedy/Workflow/{name}": OwnerWait(1, NOW + HOUR) for name in names}
    large_debts = (OpenDebt("od", NOW + HOUR, Debt(owner, 1, 1, owner_uids=(noise(1),) * 40)) for owner in greedy)
    memory = Memory(
        debts=(*large_debts, *others),
        movements=Movements(
            {noise(n): ControllerMoves((Move(NOW + HOUR, 1),), namespace="greedy") for n in range(999)}
        ),
        not_recovered=NotRecovered({**waits, "default/Deployment/web": OwnerWait(1, NOW)}),
    )
    stored = fitted(memory)
    kept = load(stored.content)
    assert kept == stored.memory
    assert kept.debts[-2:] == others
    assert "default/Deployment/web" in kept.not_recovered.by_name
    assert len(stored.content) < 1.2 * LIMIT / 10
    assert all(len(msgspec.json.encode(debt)) <= ENTRY_LIMIT for debt in kept.debts)
    lost = len(memory.debts) - len(kept.debts), len(memory.movements.by_uid) - len(kept.movements.by_uid)
    assert (stored.dropped["debt"], stored.dropped["moves"]) == lost
    assert min(lost) > 0
    assert re.fullmatch("larger than 1024 bytes: .* records of namespace greedy; more than a tenth .*", stored.detail)


# Behavior


def test_a_waiver_releases_a_whole_namespace() -> None:
    waits = {name: OwnerWait(1, NOW) for name in ("default", "default/Deployment/web", "b/Deployment/web")}
    memory = Memory(debts=(owed("web"), owed("db")), not_recovered=NotRecovered(waits))
    assert memory.waived({"default"}) == Memory(not_recovered=NotRecovered({"b/Deployment/web": OwnerWait(1, NOW)}))
    released = memory.waived({"default/Deployment/web"})
    assert (released.debts, [*released.not_recovered.by_name]) == ((owed("db"),), ["b/Deployment/web"])


def test_a_waiver_removes_the_debts_to_a_controller() -> None:
    memory = Memory(drained_at=NOW, debts=(owed("web"), owed("db"), owed("web", node="od-2")))
    assert memory.waived({"default/Deployment/web", "default/Deployment/other"}) == Memory(
        drained_at=NOW, debts=(owed("db"),)
    )


def test_a_waiver_forgets_what_kubelets_have_refused() -> None:
    assert FULL.waived({"default/Deployment/db"}).refusals == FULL.refusals
    assert FULL.waived({"default"}).refusals == FULL.waived({"default/Deployment/web"}).refusals == KubeletRefusals()


def test_what_kubelets_have_refused_is_remembered_for_a_day() -> None:
    assert FULL.current(NOW + 23 * HOUR, WAITS).refusals == FULL.refusals
    assert FULL.current(NOW + 24 * HOUR, WAITS).refusals == KubeletRefusals()
    [refusal] = FULL.bounded(NOW - HOUR, WAITS).refusals.by_key.values()
    assert refusal.at == NOW - HOUR


def test_debts_added_by_others_are_merged_but_old_ones_are_not() -> None:
    """Our replica has settled the debt to *db*; another leader added the debt to *api* and finished a later drain."""
    base = Memory(drained_at=NOW - HOUR, debts=(owed("web"), owed("db")))
    ours = Memory(drained_at=NOW - HOUR, returned=Pause(1, NOW), debts=(owed("web"),))
    stored = Memory(drained_at=NOW, debts=(owed("web"), owed("db"), owed("api")))
    assert ours.merged(stored, base) == Memory(drained_at=NOW, returned=Pause(1, NOW), debts=(owed("web"), owed("api")))
    assert ours.merged(Memory(), base) == ours
    assert Memory().merged(Memory(), base) == Memory()


@given(memories, memories)
def test_a_merge_keeps_what_only_one_has_changed(one: Memory, other: Memory) -> None:
    """Except for debts, and the time of the last drain: the more and the later of both count."""
    for merged in (other.merged(one, one), one.merged(other, one)):
        assert replace(merged, drained_at=None, debts=()) == replace(other, drained_at=None, debts=())


@given(memories, memories)
def test_a_merge_of_what_two_have_noted_has_all_of_both(one: Memory, other: Memory) -> None:
    merged = one.merged(other, Memory())
    for each in (one, other):
        assert set(each.debts) <= set(merged.debts)
        for node, cooldown in each.cooldowns.by_node.items():
            assert merged.cooldowns.by_node[node].until >= cooldown.until
        for name, wait in each.not_recovered.by_name.items():
            kept = merged.not_recovered.by_name[name]
            assert (kept.until, kept.failures) >= (wait.until, 0)
            assert kept.failures >= wait.failures
        for uid, moves in each.movements.by_uid.items():
            found = merged.movements.by_uid[uid]
            assert {move.at for move in moves.moves} <= {move.at for move in found.moves}
            assert sum(move.pods for move in moves.moves[:1]) <= sum(move.pods for move in found.moves)
            assert found.returns >= moves.returns
        assert merged.returned.times >= each.returned.times


def test_the_controllers_above_an_owed_one_are_stored_as_far_as_they_fit() -> None:
    """The largest names that the API allows."""
    above = tuple(Controller("n" * 63, "K" * 63, letter * 253, "u" * 36, "g" * 60) for letter in "abcd")
    small = tuple(controller(name) for name in ("set", "top"))
    for chain, stored in ((above, above[:0]), (small, small), (small + above, small)):
        debt = Debt(controller("web"), 1, 1, owner_uids=tuple(f"{n:036}" for n in range(9)), above=chain)
        memory = Memory(debts=(OpenDebt("od-1", NOW, debt),))
        [owed] = load(dump(memory)).debts
        assert owed.debt.above == stored
        assert len(owed.debt.owner_uids) == 8


def test_two_failures_of_a_node_are_merged_to_the_later_end() -> None:
    old, new = Cooldown("uid", 3, NOW), Cooldown("uid", 1, NOW + HOUR, "eviction-refused")
    assert old.or_later(new) == new.or_later(old) == replace(new, failures=3)
    assert replace(old, uid="other").or_later(new) == new
    assert old.or_later(replace(new, failures=0)) == replace(new, failures=0)


def test_moves_of_an_owner_on_one_day_add_up() -> None:
    base = OwnerRecord(NOW - HOUR).moved(3, NOW - HOUR)
    one, other = base.moved(1, NOW), base.moved(5, NOW + HOUR).ran(20)
    both = base.moved(6, NOW + HOUR).ran(20)
    assert one.with_others(other, base) == other.with_others(one, base) == both
    assert base.with_others(other, None).in_a_week(NOW) == 3 + 8


def test_losses_of_a_pool_add_up() -> None:
    base = PoolRecord(at=NOW).ran(10, NOW).lost(1, NOW, WAITS.pool)
    one, other = base.lost(2, NOW + HOUR, WAITS.pool), base.ran(4, NOW + 2 * HOUR)
    merged = one.with_others(other, base)
    assert (merged.losses, merged.last, merged.wait) == (3, one.last, one.wait)
    assert merged.at == NOW + 2 * HOUR
    assert merged.node_hours == pytest.approx(other.node_hours)
    assert merged.recent == pytest.approx(one.decayed(merged.at).recent)
    assert one.with_others(other, None).losses == 4


class TestMergedLeftovers:
    BEFORE = LeftoverMoves({"default/a": NOW - HOUR})

    def test_a_drain_that_another_process_began_has_ended_when_ours_begins(self) -> None:
        ours = self.BEFORE.beginning({"pod-b": "default/b"}, NOW)
        theirs = self.BEFORE.beginning({"pod-c": "default/c"}, NOW - HOUR)
        merged = ours.merged(theirs, self.BEFORE)
        assert (merged.begun, merged.begun_at) == ({"pod-b": "default/b"}, NOW)
        assert merged.resting(NOW, 2 * HOUR).keys() == {"default/a", "default/b", "default/c"}

    def test_a_drain_that_ended_here_has_ended(self) -> None:
        base = self.BEFORE.beginning({"pod-b": "default/b", "pod-c": "default/c"}, NOW - HOUR)
        ours, theirs = base.ended({"pod-c"}, NOW), base.moved(["default/d"], NOW)
        merged = ours.merged(theirs, base)
        assert merged.begun == {}
        assert merged.by_owner.keys() == {"default/a", "default/b", "default/d"}

    def test_the_first_of_several_moves_stays_the_first(self) -> None:
        ours, theirs = (self.BEFORE.moved(["default/a"], at) for at in (NOW, NOW + HOUR))
        merged = ours.merged(theirs, LeftoverMoves())
        assert (merged.since("default/a"), merged.by_owner["default/a"]) == (NOW - HOUR, NOW + HOUR)


def test_waits_are_limited_to_the_flags() -> None:
    ahead = Memory(
        drained_at=NOW + 100 * HOUR,
        cooldowns=Cooldowns({"od": Cooldown("u", 1, NOW + 100 * HOUR)}),
        not_recovered=NotRecovered({"ns": OwnerWait(1, NOW + 100 * HOUR)}),
        returned=Pause(1, NOW + 100 * HOUR),
        debts=(owed("web", NOW + 100 * HOUR),),
        settled=(owed("api", NOW + 100 * HOUR),),
        movements=Movements({"u": ControllerMoves((Move(NOW + HOUR, 1),), 1, until=NOW + 100 * HOUR)}),
    )
    assert ahead.bounded(NOW, WAITS) == Memory(
        drained_at=NOW,
        cooldowns=Cooldowns({"od": Cooldown("u", 1, NOW + 2 * HOUR)}),
        not_recovered=NotRecovered({"ns": OwnerWait(1, NOW + 24 * HOUR)}),
        returned=Pause(1, NOW + 4 * HOUR),
        debts=(owed("web"),),
        settled=(owed("api"),),
        movements=Movements({"u": ControllerMoves((Move(NOW, 1),), 1, returned=True, until=NOW + 24 * HOUR)}),
    )
    assert FULL.bounded(NOW, WAITS) == FULL


def test_the_summary_is_readable_text() -> None:
    assert FULL.summary(NOW) == (
        "replacement pods are owed to 2 controllers\n"
        "  default/Deployment/web: must have 3 pods again, 2 of them Ready, "
        "since 2026-01-01T12:00:00Z by the drain of od-1\n"
        "  default/Deployment/db: must have 3 pods again, 2 of them Ready, "
        "since 2026-01-01T12:00:00Z by the drain of od-1\n"
        "last drain: 2026-01-01T12:00:00Z\n"
        "owners and namespaces that wait, because their pods did not run in time: default/Deployment/web\n"
        "pause after returned pods until: 2026-01-01T14:00:00Z\n"
        "nodes cooling down: 1\n"
        "controllers moved in the last 24 h: 1, of which 1 wait\n"
        "owners whose pods a kubelet refused: default/Deployment/web (spot-1)\n"
    )
    many = Memory(debts=tuple(owed(f"web-{n}") for n in range(1000)))
    assert "  … and 980 more\n" in many.summary(NOW)
    assert Memory().summary(NOW).startswith("replacement pods are owed to 0 controllers")
