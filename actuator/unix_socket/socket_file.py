"""The file of an actuator's socket: there once somebody listens, one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from wattpack.ending import last_step
from wattpack.errors import InputError, PermanentError

__all__ = ["SocketTaken", "listen"]

_BACKLOG: Final = 128
"""Who finds it full waits in line, in the order of coming."""

_MAX_PATH_BYTES: Final = 107
"""sockaddr_un holds 108 bytes with the final zero (unix(7))."""


class SocketTaken(PermanentError):
    """Another process answers on this socket, or the path is not a socket."""


def listen(path: Path, gid: int | None) -> tuple[socket.socket, Callable[[], None]]:
    """A listening socket of mode 0660; a dead predecessor's file is removed.

    The file is there only once somebody listens: who finds it may connect, and a second process
    never takes the socket of one that is just starting for a dead one's.

    Returns:
        The socket, and what takes back that its file goes when the process ends at once.

    Raises:
        SocketTaken: if somebody answers there already.
        InputError: if the path is too long for a socket.
    """
    # Of this socket and no other in the directory: containers may give two processes one id.
    draft = path.parent / f".{path.name}"
    if len(os.fsencode(draft)) > _MAX_PATH_BYTES:  # It is one longer than the path.
        raise InputError("socket", f"a path of at most {_MAX_PATH_BYTES - 1} bytes", str(path))
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    if path.exists() and not path.is_socket():
        raise SocketTaken(f"{path} exists and is not a socket")
    with _alone(path):
        return _listen_alone(path, draft, gid)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Inside, no other process begins to listen on this path; it ends with this process."""
    lock = path.parent / f".{path.name}.lock"
    held = _locked(lock, path)
    keep_lock = last_step(partial(lock.unlink, missing_ok=True))
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        keep_lock()
        os.close(held)


def _locked(lock: Path, path: Path) -> int:
    """A descriptor of the lock that is there: one that was removed meanwhile holds nobody back."""
    while True:
        held = os.open(lock, os.O_RDONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(held), lock.stat()):
                return held
        except BlockingIOError as error:
            os.close(held)
            raise SocketTaken(f"another process begins to listen on {path}") from error
        except FileNotFoundError:
            pass
        os.close(held)


def _listen_alone(
    path: Path, draft: Path, gid: int | None
) -> tuple[socket.socket, Callable[[], None]]:
    _remove_dead(path)
    keep_draft = last_step(partial(_remove_draft, draft, path))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        draft.unlink(missing_ok=True)
        # fchmod before bind is what the file is created with: it is never more open than 0660.
        os.fchmod(listener.fileno(), 0o660)
        listener.bind(os.fspath(draft))
        draft.chmod(0o660)
        if gid is not None:
            os.chown(draft, -1, gid)
        listener.setblocking(False)
        listener.listen(_BACKLOG)
        path.hardlink_to(draft)
        keep_file = last_step(partial(path.unlink, missing_ok=True))
    except FileExistsError as error:
        listener.close()
        raise SocketTaken(f"{path}: another process came first") from error
    except BaseException:
        listener.close()
        raise
    finally:
        draft.unlink(missing_ok=True)
        keep_draft()
    return listener, keep_file


def _remove_draft(draft: Path, path: Path) -> None:
    """And ``path``, where it is the same file already."""
    with contextlib.suppress(OSError):
        if path.samefile(draft):
            path.unlink()
    draft.unlink(missing_ok=True)


def _remove_dead(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:  # It is there, and as many wait for it as may.
            pass
    raise SocketTaken(f"another process answers on {path}")
