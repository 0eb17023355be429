"""Odd snapshots get the right verdicts, and broken ones a clear error of one line."""

import json
from pathlib import Path
from random import Random

import pytest

from rescheduler.errors import InputError
from rescheduler.settings import Scheduling
from rescheduler.snapshot_file import reader
from tests.conformance import damage, ours
from tests.conformance.generate import cluster
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle, OracleError
from tests.conformance.verdicts import PerNode, accepted, differences, of_oracle

SEEDS = range(12)


def _judge(path: Path, content: bytes, oracle: Oracle | None = None) -> dict[str, PerNode]:
    """Return our verdicts by the rules of the oracle's version."""
    path.write_bytes(content)
    scheduling = Scheduling() if oracle is None else Scheduling(oracle.version.minor)
    return ours.judge_all(reader.read(str(path), scheduling))


def _encoded(snapshot: Json) -> bytes:
    return json.dumps(snapshot, indent=4).encode()


@pytest.mark.parametrize("oddity", damage.ODD)
def test_odd_snapshots_get_the_verdicts_of_the_scheduler(oracle: Oracle, tmp_path: Path, oddity: str) -> None:
    for seed in SEEDS:
        rng = Random(seed)
        given = cluster(seed)
        damage.ODD[oddity](given["items"], rng)
        mine = _judge(tmp_path / "list.json", _encoded(given), oracle)
        assert not list(differences(of_oracle(oracle.explain(given)), mine, accepted(given))), f"seed {seed}"


def test_combined_oddities_get_the_verdicts_of_the_scheduler(oracle: Oracle, tmp_path: Path) -> None:
    for seed in range(60):
        given = damage.damage(cluster(seed), Random(seed))
        mine = _judge(tmp_path / "list.json", _encoded(given), oracle)
        assert not list(differences(of_oracle(oracle.explain(given)), mine, accepted(given))), f"seed {seed}"


@pytest.mark.parametrize("kind", damage.BROKEN)
def test_undecodable_objects_are_skipped_and_reported(oracle: Oracle, tmp_path: Path, kind: str) -> None:
    """What the API's decoder accepts, such as the quantity "1 ", is accepted with the same verdicts."""
    path = tmp_path / "list.json"
    for seed in SEEDS:
        given = cluster(seed)
        damage.BROKEN[kind](given["items"], Random(seed))
        try:
            expected = of_oracle(oracle.explain(given))
        except OracleError:
            path.write_bytes(_encoded(given))
            [unreadable] = reader.read(str(path)).unreadable
            assert unreadable.why.startswith(f"{unreadable.kind} {unreadable.key}: ")
            assert "\n" not in unreadable.why
        else:
            assert not list(differences(expected, _judge(path, _encoded(given), oracle), accepted(given))), (
                f"seed {seed}"
            )


def _is_one_line_about(path: Path, error: InputError) -> bool:
    return str(error).startswith(f"{path}: ") and "\n" not in str(error)


@pytest.mark.parametrize("kind", damage.texts(cluster(0), Random(0)))
def test_files_that_are_not_snapshots_give_an_error_of_one_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "list.json"
    with pytest.raises(InputError) as caught:
        _judge(path, damage.texts(cluster(0), Random(0))[kind])
    assert _is_one_line_about(path, caught.value)
