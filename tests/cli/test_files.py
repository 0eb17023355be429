"""Tests that only regular files of a reasonable size are read, without blocking."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from rescheduler.net import files


def test_files_and_symbolic_links_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes("käse\r\n".encode())
    (tmp_path / "link").symlink_to("file")
    assert [files.read_text(tmp_path / name) for name in ("file", "link")] == ["käse\n"] * 2
    with files.opened(str(tmp_path / "link")) as opened:
        assert opened.read(2) == b"k\xc3"


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(files.MOST + 1)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


#: function that creates the file → message
OTHERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda _: None, "No such file"),
    "a directory": (Path.mkdir, "Is a directory"),
    "a FIFO": (os.mkfifo, "expected a regular file"),
    "a socket": (_socket, "expected a regular file"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "expected a regular file"),
    "a loop of links": (lambda path: path.symlink_to(path), "Too many levels"),
    "more than is read": (_sparse, "larger than 16 MiB"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_kinds_of_files_are_reported(name: str, tmp_path: Path) -> None:
    make, message = OTHERS[name]
    path = tmp_path / "here"
    make(path)
    with pytest.raises(OSError, match=message) as caught:
        files.read_bytes(path)
    assert message in (caught.value.strerror or "")


def test_paths_with_nul_are_rejected() -> None:
    with pytest.raises(OSError, match="NUL"):
        files.check("a\0b")


def test_a_path_in_a_message_is_one_line() -> None:
    assert files.printable("a\nb\0") == "a\\nb\\x00"
    assert files.printable(Path("käse")) == "käse"
