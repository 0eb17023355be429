"""The database: sources beside each other, expiry, restarts, and files that are of no use."""

import datetime as dt
import errno
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rescheduler.errors import InputError, UsageError
from rescheduler.liqo.discovery.messages import Listed, Said
from rescheduler.liqo.discovery.store import AGENT, SECRET, Store, Word
from rescheduler.liqo.nodemanager import store as records
from tests.backends.clocks import START as NOW

SECOND = dt.timedelta(seconds=1)
LATER = NOW + dt.timedelta(minutes=5)
DESCRIBED = Said(kubeconfig="k", resources={"cpu": "8"}, labels={"country": "it"}, has_nat=True, price=2.0)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "discovery.db")


@pytest.fixture
def store(path: str) -> Iterator[Store]:
    one = Store(path)
    yield one
    one.close()


def names(store: Store, now: dt.datetime = NOW) -> list[str]:
    return [one.name for one in store.clusters(now)]


def test_nothing_is_known_at_first(store: Store) -> None:
    assert list(store.clusters(NOW)) == []


def test_what_an_agent_says_goes_before_what_the_secret_says_until_it_expires(store: Store) -> None:
    store.change(SECRET, {"one": Word(DESCRIBED)}, (), NOW)
    said = Said(price=0.5, free={"cpu": "3"}, has_nat=False)
    store.change(AGENT, {"one": Word(said, expires=LATER)}, (), NOW + SECOND)
    both = Listed(
        name="one",
        kubeconfig="k",
        resources={"cpu": "8"},
        labels={"country": "it"},
        has_nat=False,
        price=0.5,
        free={"cpu": "3"},
        last_seen=NOW + SECOND,
    )
    described = Listed(
        name="one",
        kubeconfig="k",
        resources={"cpu": "8"},
        labels={"country": "it"},
        has_nat=True,
        price=2.0,
        last_seen=NOW,
    )
    assert list(store.clusters(LATER - SECOND)) == [both]
    assert list(store.clusters(LATER)) == [described]
    assert list(store.expire(LATER)) == ["one"]
    assert list(store.expire(LATER)) == []
    assert list(store.clusters(LATER)) == [described]


def test_a_source_forgets_only_what_it_said_itself(store: Store) -> None:
    store.change(SECRET, {"one": Word(DESCRIBED), "two": Word(DESCRIBED)}, (), NOW)
    store.change(AGENT, {"one": Word(Said(price=1.0), LATER), "three": Word(Said(price=1.0), LATER)}, (), NOW)
    assert store.change(AGENT, {}, ("one", "unknown"), NOW) == 1
    assert names(store) == ["one", "three", "two"]
    store.replace(SECRET, {"two": Word(DESCRIBED)}, NOW)
    assert names(store) == ["three", "two"]


def test_what_a_source_said_is_known_until_it_expires(store: Store) -> None:
    store.change(AGENT, {"one": Word(DESCRIBED, LATER)}, (), NOW)
    assert store.said(AGENT, "one", NOW) == DESCRIBED
    assert (store.said(SECRET, "one", NOW), store.said(AGENT, "one", LATER)) == (Said(), Said())


def test_a_change_is_done_as_a_whole_or_not_at_all(store: Store) -> None:
    store.change(AGENT, {"one": Word(DESCRIBED, LATER)}, (), NOW)
    broken = Word(Said(price=object()), LATER)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        store.change(AGENT, {"two": Word(DESCRIBED, LATER), "three": broken}, ("one",), NOW)
    assert names(store) == ["one"]


def test_all_is_there_after_a_restart(store: Store, path: str) -> None:
    store.change(SECRET, {"one": Word(DESCRIBED)}, (), NOW)
    before = store.clusters(NOW)
    store.close()
    again = Store(path)
    assert list(again.clusters(NOW)) == list(before)
    again.close()


def test_all_is_there_after_a_kill(path: str, tmp_path: Path) -> None:
    program = tmp_path / "killed.py"
    program.write_text(
        "import os, signal, sys\n"
        "from rescheduler.liqo.discovery.store import AGENT, Store, Word\n"
        "from rescheduler.liqo.discovery.messages import Said\n"
        "from tests.backends.clocks import START\n"
        "store = Store(sys.argv[1])\n"
        "store.change(AGENT, {'one': Word(Said(price=1.0))}, (), START)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, program, path], env={"PYTHONPATH": "."}, timeout=120, check=False)
    assert done.returncode == -9
    again = Store(path)
    assert names(again) == ["one"]
    again.close()


def test_nobody_else_may_read_it(store: Store, path: str, tmp_path: Path) -> None:
    store.change(SECRET, {"one": Word(DESCRIBED)}, (), NOW)
    assert {stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()} == {0o600}
    store.close()
    Path(path).chmod(0o644)
    Store(path).close()
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600


def test_a_file_that_others_may_go_on_reading_is_not_used(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def chmod(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", chmod)
    with pytest.raises(UsageError, match=f"--database {path}: cannot be kept from others' eyes: Operation not"):
        Store(path)


def test_two_processes_do_not_share_it(store: Store, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rescheduler.liqo.database._BUSY_SECONDS", 0.01)
    with pytest.raises(InputError, match=f"--database {path}: no usable database: database is locked"):
        Store(path)


def test_files_of_no_use_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--database .*/no/folder\.db: cannot be written: No such file or directory"):
        Store(str(tmp_path / "no" / "folder.db"))
    text = tmp_path / "text"
    text.write_text("This is no database, and long enough to be seen as none." * 20)
    with pytest.raises(UsageError, match=f"--database {text}: no usable database: file is not a database"):
        Store(str(text))
    newer = tmp_path / "newer"
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(UsageError, match=f"--database {newer}: it is of version 7, expected 1"):
        Store(str(newer))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o644)
    with pytest.raises(UsageError, match=f"--database {pipe}: expected a file"):
        Store(str(pipe))
    assert stat.S_IMODE(pipe.stat().st_mode) == 0o644


def _changed(path: Path, *statements: str) -> str:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return str(path)


def test_the_database_of_something_else_stays_as_it_is(tmp_path: Path) -> None:
    """The node manager's has our number of version, other programs' often have none."""
    records.Store(str(tmp_path / "node-manager")).close()
    _changed(tmp_path / "foreign", "CREATE TABLE precious (a)")
    for name in ("node-manager", "foreign"):
        file = tmp_path / name
        file.chmod(0o644)
        before = file.read_bytes()
        with pytest.raises(UsageError, match=f"--database .*/{name}: it is the database of something else"):
            Store(str(file))
        assert file.read_bytes() == before
        assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_damaged_file_is_told_at_the_start(store: Store, path: str) -> None:
    words = {f"cluster-{number}": Word(Said(labels={"a": "b" * 200})) for number in range(100)}
    store.change(SECRET, words, (), NOW)
    store.close()
    with Path(path).open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * 4096)
    with pytest.raises(InputError, match=f"--database {path}: it is damaged: "):
        Store(path)


def test_a_damaged_entry_is_told_without_quoting_it(store: Store, path: str) -> None:
    store.change(SECRET, {"one": Word(Said(kubeconfig="token: sesame"))}, (), NOW)
    store.close()
    _changed(Path(path), "UPDATE clusters SET said = substr(said, 1, 20)")
    again = Store(path)
    with pytest.raises(InputError, match=r"^--database: it is damaged: an entry is no Said$"):
        again.clusters(NOW)
    again.close()


def test_no_secret_is_shown() -> None:
    said = Said(kubeconfig="token: sesame", price=1.0)
    listed = Listed(name="one", kubeconfig="token: sesame", last_seen=NOW)
    assert (repr(said), repr(listed)) == ("Said(kubeconfig, price)", "Listed(one)")
