"""The database: concurrent sources, expiry, restarts, and unusable files."""

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
from rescheduler.liqo.discovery.app import AGENT, SECRET, ClusterStore, DatedDescription
from rescheduler.liqo.discovery.messages import Description, Listed
from rescheduler.liqo.node_manager import store as records
from tests.providers.clocks import START as NOW

SECOND = dt.timedelta(seconds=1)
IN_FIVE_MINUTES = NOW + dt.timedelta(minutes=5)
DESCRIBED = Description(kubeconfig="k", resources={"cpu": "8"}, labels={"country": "it"}, has_nat=True, price=2.0)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "discovery.db")


@pytest.fixture
def store(path: str) -> Iterator[ClusterStore]:
    opened = ClusterStore(path)
    yield opened
    opened.close()


def names(store: ClusterStore, now: dt.datetime = NOW) -> list[str]:
    return [cluster.name for cluster in store.clusters(now)]


def test_a_new_database_is_empty(store: ClusterStore) -> None:
    assert list(store.clusters(NOW)) == []


def test_an_agents_update_takes_precedence_over_a_secret_until_it_expires(store: ClusterStore) -> None:
    store.change(SECRET, {"one": DatedDescription(DESCRIBED)}, (), NOW)
    description = Description(price=0.5, free={"cpu": "3"}, has_nat=False)
    store.change(AGENT, {"one": DatedDescription(description, expires=IN_FIVE_MINUTES)}, (), NOW + SECOND)
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
    assert list(store.clusters(IN_FIVE_MINUTES - SECOND)) == [both]
    assert list(store.clusters(IN_FIVE_MINUTES)) == [described]
    assert list(store.expire(IN_FIVE_MINUTES)) == ["one"]
    assert list(store.expire(IN_FIVE_MINUTES)) == []
    assert list(store.clusters(IN_FIVE_MINUTES)) == [described]


def test_a_source_deletes_only_its_own_entries(store: ClusterStore) -> None:
    store.change(SECRET, {"one": DatedDescription(DESCRIBED), "two": DatedDescription(DESCRIBED)}, (), NOW)
    store.change(
        AGENT,
        {
            "one": DatedDescription(Description(price=1.0), IN_FIVE_MINUTES),
            "three": DatedDescription(Description(price=1.0), IN_FIVE_MINUTES),
        },
        (),
        NOW,
    )
    assert store.change(AGENT, {}, ("one", "unknown"), NOW) == 1
    assert names(store) == ["one", "three", "two"]
    store.replace(SECRET, {"two": DatedDescription(DESCRIBED)}, NOW)
    assert names(store) == ["three", "two"]


def test_entries_of_a_source_are_kept_until_they_expire(store: ClusterStore) -> None:
    store.change(AGENT, {"one": DatedDescription(DESCRIBED, IN_FIVE_MINUTES)}, (), NOW)
    assert store.description(AGENT, "one", NOW) == DESCRIBED
    assert (store.description(SECRET, "one", NOW), store.description(AGENT, "one", IN_FIVE_MINUTES)) == (
        Description(),
        Description(),
    )


def test_changes_are_atomic(store: ClusterStore) -> None:
    store.change(AGENT, {"one": DatedDescription(DESCRIBED, IN_FIVE_MINUTES)}, (), NOW)
    broken = DatedDescription(Description(price=object()), IN_FIVE_MINUTES)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        store.change(AGENT, {"two": DatedDescription(DESCRIBED, IN_FIVE_MINUTES), "three": broken}, ("one",), NOW)
    assert names(store) == ["one"]


def test_entries_survive_a_restart(store: ClusterStore, path: str) -> None:
    store.change(SECRET, {"one": DatedDescription(DESCRIBED)}, (), NOW)
    before = store.clusters(NOW)
    store.close()
    again = ClusterStore(path)
    assert list(again.clusters(NOW)) == list(before)
    again.close()


def test_entries_survive_a_kill(path: str, tmp_path: Path) -> None:
    program = tmp_path / "killed.py"
    program.write_text(
        "import os, signal, sys\n"
        "from rescheduler.liqo.discovery.app import AGENT, ClusterStore, DatedDescription\n"
        "from rescheduler.liqo.discovery.messages import Description\n"
        "from tests.providers.clocks import START\n"
        "store = ClusterStore(sys.argv[1])\n"
        "store.change(AGENT, {'one': DatedDescription(Description(price=1.0))}, (), START)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, program, path], env={"PYTHONPATH": "."}, timeout=120, check=False)
    assert done.returncode == -9
    again = ClusterStore(path)
    assert names(again) == ["one"]
    again.close()


def test_other_users_cannot_read_the_database(store: ClusterStore, path: str, tmp_path: Path) -> None:
    store.change(SECRET, {"one": DatedDescription(DESCRIBED)}, (), NOW)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    store.close()
    Path(path).chmod(0o644)
    ClusterStore(path).close()
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600


def test_a_file_that_remains_readable_by_others_is_rejected(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def chmod(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", chmod)
    with pytest.raises(UsageError, match=f"--database {path}: cannot be made private: Operation not"):
        ClusterStore(path)


def test_two_processes_do_not_share_a_database(store: ClusterStore, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rescheduler.liqo.database._BUSY_SECONDS", 0.01)
    with pytest.raises(InputError, match=f"--database {path}: no usable database: database is locked"):
        ClusterStore(path)


def test_unusable_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--database .*/no/folder\.db: cannot be written: No such file or directory"):
        ClusterStore(str(tmp_path / "no" / "folder.db"))
    text = tmp_path / "text"
    text.write_text("This is no database, and long enough to be seen as none." * 20)
    with pytest.raises(UsageError, match=f"--database {text}: no usable database: file is not a database"):
        ClusterStore(str(text))
    newer = tmp_path / "newer"
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(UsageError, match=f"--database {newer}: it has version 7, expected 1"):
        ClusterStore(str(newer))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o644)
    with pytest.raises(UsageError, match=f"--database {pipe}: expected a file"):
        ClusterStore(str(pipe))
    assert stat.S_IMODE(pipe.stat().st_mode) == 0o644


def _changed(path: Path, *statements: str) -> str:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return str(path)


def test_databases_of_other_programs_are_unchanged(tmp_path: Path) -> None:
    """The node manager's database has the same version number; databases of other programs often have none."""
    records.NodeManagerStore(str(tmp_path / "node-manager")).close()
    _changed(tmp_path / "foreign", "CREATE TABLE precious (a)")
    for name in ("node-manager", "foreign"):
        file = tmp_path / name
        file.chmod(0o644)
        before = file.read_bytes()
        with pytest.raises(UsageError, match=f"--database .*/{name}: it is another program's database"):
            ClusterStore(str(file))
        assert file.read_bytes() == before
        assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_damaged_file_is_reported_at_the_start(store: ClusterStore, path: str) -> None:
    clusters = {f"cluster-{number}": DatedDescription(Description(labels={"a": "b" * 200})) for number in range(100)}
    store.change(SECRET, clusters, (), NOW)
    store.close()
    with Path(path).open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * 4096)
    with pytest.raises(InputError, match=f"--database {path}: it is damaged: "):
        ClusterStore(path)


def test_a_damaged_entry_is_reported_without_its_content(store: ClusterStore, path: str) -> None:
    store.change(SECRET, {"one": DatedDescription(Description(kubeconfig="token: sesame"))}, (), NOW)
    store.close()
    _changed(Path(path), "UPDATE clusters SET said = substr(said, 1, 20)")
    again = ClusterStore(path)
    with pytest.raises(InputError, match=r"^--database: it is damaged: an entry is not a Description$"):
        again.clusters(NOW)
    again.close()


def test_secrets_are_not_printed() -> None:
    description = Description(kubeconfig="token: sesame", price=1.0)
    listed = Listed(name="one", kubeconfig="token: sesame", last_seen=NOW)
    assert (repr(description), repr(listed)) == ("Description(kubeconfig, price)", "Listed(one)")
