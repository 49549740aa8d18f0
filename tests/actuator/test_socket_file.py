"""The file of an actuator's socket: who may connect, who came second, what is left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
from pathlib import Path

import pytest

from actuator.unix_socket.socket_file import SocketTaken, listen
from wattpack import ending


def files_in(directory: Path) -> list[str]:
    """All files."""
    return sorted(one.name for one in directory.iterdir())


@pytest.mark.parametrize("moment", ["chmod", "hardlink_to"])
def test_a_process_that_is_ended_while_it_begins_to_listen_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """What ends the process at once comes right after a file is there."""
    before, call = len(ending._LAST_STEPS), getattr(Path, moment)

    class EndedError(Exception):
        """Nothing runs after this but the last steps."""

    def ended_now(self: Path, given: int | Path) -> None:
        call(self, given)
        assert self.exists()
        for step in reversed(ending._LAST_STEPS[before:]):
            step()
        assert files_in(tmp_path) == []
        raise EndedError

    monkeypatch.setattr(Path, moment, ended_now)
    with pytest.raises(EndedError):
        listen(tmp_path / "a.sock", None)


def test_the_root_folder_is_no_socket() -> None:
    with pytest.raises(SocketTaken, match="not a socket"):
        listen(Path("/"), None)


def test_who_finds_the_file_may_connect_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, link = tmp_path / "a.sock", Path.hardlink_to
    seen = []

    def looked_at(self: Path, target: Path) -> None:
        seen.append(path.exists())
        link(self, target)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        seen.append(True)

    monkeypatch.setattr(Path, "hardlink_to", looked_at)
    listener, keep_file = listen(path, None)
    with listener:
        keep_file()
        assert seen == [False, True]
        assert files_in(tmp_path) == ["a.sock"]


def test_of_two_that_start_together_one_is_told_that_it_came_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, link = tmp_path / "a.sock", Path.hardlink_to
    with socket.socket(socket.AF_UNIX) as first:

        def too_late(self: Path, target: Path) -> None:
            first.bind(str(path))
            first.listen()
            link(self, target)

        monkeypatch.setattr(Path, "hardlink_to", too_late)
        with pytest.raises(SocketTaken, match="came first"):
            listen(path, None)
        assert files_in(tmp_path) == ["a.sock"]


def test_of_two_that_find_a_dead_file_the_second_never_removes_the_first_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were refused by the dead file, one listened, and the other removed what it found."""
    path, remove = tmp_path / "a.sock", Path.unlink
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    told: list[object] = []

    def begins() -> None:
        try:
            told.append(listen(path, None))
        except SocketTaken as taken:
            told.append(taken)

    other = threading.Thread(target=begins)

    def between(self: Path, missing_ok: bool = False) -> None:
        if self == path and other.ident is None:
            other.start()
            other.join()
        remove(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", between)
    listener, keep_file = listen(path, None)
    other.join()
    keep_file()
    with listener:
        assert [type(one) for one in told] == [SocketTaken]


def test_who_listens_and_accepts_nobody_is_waited_for_by_no_other(tmp_path: Path) -> None:
    """Whoever connects to a full queue would wait in it until somebody accepts."""
    path = tmp_path / "a.sock"
    with contextlib.ExitStack() as stack:
        hung = stack.enter_context(socket.socket(socket.AF_UNIX))
        hung.bind(str(path))
        hung.listen(0)
        with contextlib.suppress(BlockingIOError):
            for _ in range(8):
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(str(path))
        with pytest.raises(SocketTaken):
            listen(path, None)


def test_who_finds_another_listener_leaves_its_file_alone(tmp_path: Path) -> None:
    path, before = tmp_path / "a.sock", len(ending._LAST_STEPS)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(SocketTaken):
            listen(path, None)
    assert path.exists()
    assert len(ending._LAST_STEPS) == before


def test_two_sockets_of_one_directory_begin_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of two containers: both processes have the id 1 there."""
    link, more = Path.hardlink_to, []

    def beside(self: Path, target: Path) -> None:
        if self.name == "a.sock":
            more.append(listen(tmp_path / "b.sock", None))
        link(self, target)

    monkeypatch.setattr(Path, "hardlink_to", beside)
    made = {"a": listen(tmp_path / "a.sock", None), "b": more[0]}
    with contextlib.ExitStack() as stack:
        for name, (listener, keep_file) in made.items():
            stack.enter_context(listener)
            keep_file()
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(tmp_path / f"{name}.sock"))
            accepted, _ = listener.accept()
            stack.enter_context(accepted)
    assert files_in(tmp_path) == ["a.sock", "b.sock"]


def test_a_lock_that_was_removed_meanwhile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder had ended between this process's look at the file and its lock."""
    lock, flock, locked = tmp_path / ".a.sock.lock", fcntl.flock, []

    def late(held: int, how: int) -> None:
        if not locked:
            lock.unlink()
        flock(held, how)
        locked.append(os.fstat(held).st_nlink)

    monkeypatch.setattr(fcntl, "flock", late)
    listener, keep_file = listen(tmp_path / "a.sock", None)
    with listener:
        keep_file()
    assert locked == [0, 1]
    assert files_in(tmp_path) == ["a.sock"]
