"""The socket of a file: where it is, and which processes may connect: those of the same user.

It is beside the file. Where that is impossible (the path is too long, something else has the name,
the file system takes no sockets) it is in a private directory, by the hash of the file's path. The
process that serves a file takes the first place that can be had, and clients look at the same ones.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from outrider.errors import StoreError

LONGEST: Final = 103  # bytes of a socket's path that every system takes (macOS: 104 with a NUL)


class Blocked(StoreError):
    """A place of a socket that cannot be had; the message names the path and the fix."""


def socket_path(file: Path) -> Path:
    """The place of a file's socket: the first that holds a socket of this user, or else the first.

    Whatever another user puts at one of the places is passed over.
    """
    places = list(_places(file))
    return next((path for path in places if _is_own_socket(path)), places[0])


def _places(file: Path) -> Iterator[Path]:
    """Every place that a file's socket may have, the best one first."""
    real = file.resolve()
    beside = real.with_name(real.name + ".sock")
    digest = blake2b(os.fsencode(real), digest_size=12).hexdigest()
    private = [directory / f"{digest}.sock" for directory in _private_directories()]
    fitting = [path for path in (beside, *private) if len(os.fsencode(path)) <= LONGEST]
    yield from fitting or private


def _private_directories() -> list[Path]:
    """Another user may take the name in the temporary directory, but not the one at home."""
    found = [Path(tempfile.gettempdir()) / f"outrider-{os.geteuid()}"]
    with suppress(RuntimeError):  # this user has no home
        found.append(Path.home() / ".outrider-sockets")
    return found


def _is_own_socket(path: Path) -> bool:
    try:
        found = path.lstat()
        is_safe = path.parent not in _private_directories() or _is_private(path.parent)
    except OSError:
        return False
    return is_safe and stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()


def bound_for(file: Path) -> tuple[socket.socket, Path]:
    """A socket at the first place of this file that can be had, and that place.

    Blocked: something stands at a place, so there is a fix. OSError: the system takes no socket.
    """
    troubles: list[Exception] = []
    for path in _places(file):
        try:
            return bound(path), path
        except (Blocked, OSError) as error:
            troubles.append(error)
    said = "; ".join(map(str, troubles))
    if any(isinstance(error, Blocked) for error in troubles):
        raise Blocked(f"{file} cannot be served to other processes: {said}")
    raise OSError(said)


def bound(path: Path) -> socket.socket:
    """A socket at this path that only we may connect to, once it listens.

    Until then everybody is refused, so nobody comes between the bind and the change of its mode.
    The caller holds the file: a socket nobody answers at is left over from a dead owner.
    """
    if path.parent in _private_directories():
        _make_private(path.parent)
    _clear_stale(path)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        door.bind(os.fspath(path))
        path.chmod(0o600)
    except OSError as error:
        door.close()
        what = f"no socket can be made at {path}: {error.strerror or error}"
        raise OSError(error.errno, what) from error
    except BaseException:
        door.close()
        raise
    return door


def _make_private(directory: Path) -> None:
    """Made by us, or refused: in a shared directory anybody may have been here first."""
    with suppress(FileExistsError):  # of whichever kind
        directory.mkdir(mode=0o700)
    if not _is_private(directory):
        raise Blocked(f"{directory} is not a private directory of this user: remove it")


def _is_private(directory: Path) -> bool:
    found = directory.lstat()
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return is_own and not found.st_mode & 0o077


def _clear_stale(path: Path) -> None:
    if not os.path.lexists(path):
        return
    found = path.lstat()
    if not stat.S_ISSOCK(found.st_mode):
        raise Blocked(f"{path} is in the way of a socket and is none: move it, or remove it")
    if _answers(path):
        if found.st_uid != os.geteuid():
            raise Blocked(f"{path} is a socket of another user: have it removed")
        raise StoreError(f"another process serves {path} already")
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise Blocked(f"{path} is left over and cannot be removed: {error.strerror}") from error


def _answers(path: Path) -> bool:
    """Whether somebody listens there; one too busy to let us in does, and so does a stranger."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def is_same_user(connection: Any) -> bool:
    """Whether the process at the other end runs as the user that we run as."""
    return _peer_uid(connection) in (None, os.geteuid())


def _peer_uid(connection: Any) -> int | None:
    """None: this system does not tell, and the socket's mode alone has to do."""
    if hasattr(socket, "SO_PEERCRED"):
        ucred = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _pid, uid, _gid = struct.unpack("3i", ucred)
        return int(uid)
    if hasattr(socket, "LOCAL_PEERCRED"):  # BSD and macOS: level 0, struct xucred
        _version, uid = struct.unpack_from("=II", connection.getsockopt(0, 1, 256))
        return int(uid)
    return None
