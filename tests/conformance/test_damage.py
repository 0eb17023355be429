"""Snapshots that are not as they should be get the right verdict, or one clear line that says what is wrong."""

import json
from pathlib import Path
from random import Random

import pytest

from rescheduler import dump
from rescheduler.errors import InputError
from tests.conformance import damage, ours
from tests.conformance.generate import cluster
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle, OracleError
from tests.conformance.verdicts import PerNode, claiming, differences, of_oracle

SEEDS = range(12)


def _judge(path: Path, content: bytes) -> dict[str, PerNode]:
    path.write_bytes(content)
    return ours.judge_all(dump.read(str(path)))


def _encoded(snapshot: Json) -> bytes:
    return json.dumps(snapshot, indent=4).encode()


@pytest.mark.parametrize("oddity", damage.ODD)
def test_odd_snapshots_get_the_scheduler_s_verdict(oracle: Oracle, tmp_path: Path, oddity: str) -> None:
    for seed in SEEDS:
        rng = Random(seed)
        given = cluster(seed)
        damage.ODD[oddity](given["items"], rng)
        mine = _judge(tmp_path / "list.json", _encoded(given))
        assert not list(differences(of_oracle(oracle.explain(given)), mine, claiming(given))), f"seed {seed}"


def test_oddities_come_together(oracle: Oracle, tmp_path: Path) -> None:
    for seed in range(60):
        given = damage.damage(cluster(seed), Random(seed))
        mine = _judge(tmp_path / "list.json", _encoded(given))
        assert not list(differences(of_oracle(oracle.explain(given)), mine, claiming(given))), f"seed {seed}"


@pytest.mark.parametrize("kind", damage.BROKEN)
def test_what_the_api_could_not_read_is_left_out_and_named(oracle: Oracle, tmp_path: Path, kind: str) -> None:
    """What the API's own decoder does read, as the amount "1 ", we read too, and judge alike."""
    path = tmp_path / "list.json"
    for seed in SEEDS:
        given = cluster(seed)
        damage.BROKEN[kind](given["items"], Random(seed))
        try:
            theirs = of_oracle(oracle.explain(given))
        except OracleError:
            path.write_bytes(_encoded(given))
            [unreadable] = dump.read(str(path)).unreadable
            assert unreadable.why.startswith(f"{unreadable.kind} {unreadable.key}: ")
            assert "\n" not in unreadable.why
        else:
            assert not list(differences(theirs, _judge(path, _encoded(given)), claiming(given))), f"seed {seed}"


def _is_one_line_about(path: Path, error: InputError) -> bool:
    return str(error).startswith(f"{path}: ") and "\n" not in str(error)


@pytest.mark.parametrize("kind", damage.texts(cluster(0), Random(0)))
def test_what_is_no_snapshot_is_one_clear_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "list.json"
    with pytest.raises(InputError) as caught:
        _judge(path, damage.texts(cluster(0), Random(0))[kind])
    assert _is_one_line_about(path, caught.value)
