"""The path of a file's socket, and the check that a peer runs as the same user.

The socket is beside the file. Where that is impossible (the path is too long, something else has
the name, the file system supports no sockets) it is in a private directory, named by the hash of
the file's path. The server binds the first usable path; clients try the same ones in order.
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

MAX_PATH_BYTES: Final = 103  # of a socket's path, on every system (macOS: 104 with a NUL)


class SocketPathBlocked(StoreError):
    """A socket path can't be used; the message names the path and the fix."""


def socket_path(file: Path) -> Path:
    """Return the first path that holds a socket of this user, or else the first path.

    Sockets and files of other users are ignored.
    """
    paths = list(_candidate_paths(file))
    return next((path for path in paths if _is_own_socket(path)), paths[0])


def _candidate_paths(file: Path) -> Iterator[Path]:
    """Yield every path that a file's socket may have, the preferred one first."""
    real = file.resolve()
    beside = real.with_name(real.name + ".sock")
    digest = blake2b(os.fsencode(real), digest_size=12).hexdigest()
    private = [directory / f"{digest}.sock" for directory in _private_directories()]
    fitting = [path for path in (beside, *private) if len(os.fsencode(path)) <= MAX_PATH_BYTES]
    yield from fitting or private


def _private_directories() -> list[Path]:
    """The second serves when another user has created the first in the temporary directory."""
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


def bind_for(file: Path) -> tuple[socket.socket, Path]:
    """Bind a socket at the first usable path of this file; return both.

    Raises `SocketPathBlocked` if a file is in the way, `OSError` if the system supports no socket.
    """
    errors: list[Exception] = []
    for path in _candidate_paths(file):
        try:
            return bind_socket(path), path
        except (SocketPathBlocked, OSError) as error:
            errors.append(error)
    reasons = "; ".join(map(str, errors))
    if any(isinstance(error, SocketPathBlocked) for error in errors):
        raise SocketPathBlocked(f"{file} cannot be served to other processes: {reasons}")
    raise OSError(reasons)


def bind_socket(path: Path) -> socket.socket:
    """Bind a socket at this path, with access for this user only.

    It does not listen yet, so no connection is accepted between the bind and the change of mode.
    The caller holds the file, so a socket without a listener was left by a dead process.
    """
    if path.parent in _private_directories():
        _make_private(path.parent)
    _clear_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(path))
        path.chmod(0o600)
    except OSError as error:
        listener.close()
        what = f"no socket can be made at {path}: {error.strerror or error}"
        raise OSError(error.errno, what) from error
    except BaseException:
        listener.close()
        raise
    return listener


def _make_private(directory: Path) -> None:
    """Create the directory; refuse one that another user may have created first."""
    with suppress(FileExistsError):  # of whichever kind
        directory.mkdir(mode=0o700)
    if not _is_private(directory):
        raise SocketPathBlocked(f"{directory} is not a private directory of this user: remove it")


def _is_private(directory: Path) -> bool:
    found = directory.lstat()
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return is_own and not found.st_mode & 0o077


def _clear_stale(path: Path) -> None:
    if not os.path.lexists(path):
        return
    found = path.lstat()
    if not stat.S_ISSOCK(found.st_mode):
        raise SocketPathBlocked(
            f"{path} is in the way of a socket but is not a socket: move or remove it"
        )
    if _has_listener(path):
        if found.st_uid != os.geteuid():
            raise SocketPathBlocked(f"{path} is a socket of another user: have it removed")
        raise StoreError(f"another process serves {path} already")
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise SocketPathBlocked(
            f"{path} is left over and cannot be removed: {error.strerror}"
        ) from error


def _has_listener(path: Path) -> bool:
    """Whether a process listens there, of any user, even if its backlog is full."""
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
    """Whether the peer process runs as the same user as this one."""
    return _peer_uid(connection) in (None, os.geteuid())


def _peer_uid(connection: Any) -> int | None:
    """Return None where the system can't tell; then the socket's mode alone protects it."""
    if hasattr(socket, "SO_PEERCRED"):
        ucred = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _pid, uid, _gid = struct.unpack("3i", ucred)
        return int(uid)
    if hasattr(socket, "LOCAL_PEERCRED"):  # BSD and macOS: level 0, struct xucred
        _version, uid = struct.unpack_from("=II", connection.getsockopt(0, 1, 256))
        return int(uid)
    return None
