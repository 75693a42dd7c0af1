"""Where a file's socket stands, and who may come through it: its owner's user, nobody else."""

from __future__ import annotations

import os
import socket
import stat
import struct
import tempfile
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from outrider.errors import StoreError

LONGEST: Final = 103  # bytes of a socket's path that every system takes (macOS: 104 with a NUL)


def socket_path(file: Path) -> Path:
    """Beside the file; if that is too long for a socket, in a private directory by its hash."""
    real = file.resolve()
    beside = real.with_name(real.name + ".sock")
    if len(os.fsencode(beside)) <= LONGEST:
        return beside
    digest = blake2b(os.fsencode(real), digest_size=12).hexdigest()
    return _private_directory() / f"{digest}.sock"


def _private_directory() -> Path:
    return Path(tempfile.gettempdir()) / f"outrider-{os.geteuid()}"


def bound(path: Path) -> socket.socket:
    """A socket at this path that only we may connect to, once it listens.

    Until then everybody is refused, so nobody comes between the bind and the change of its mode.
    The caller holds the file: a socket nobody answers at is left over from a dead owner.
    """
    if path.parent == _private_directory():
        _make_private(path.parent)
    _clear_stale(path)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        door.bind(os.fspath(path))
        path.chmod(0o600)
    except OSError as error:
        door.close()
        raise StoreError(f"no socket can be made at {path}: {error.strerror or error}") from error
    return door


def _make_private(directory: Path) -> None:
    """Made by us, or refused: in a shared directory anybody may have been here first."""
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise StoreError(f"{directory} is not a private directory of this user: remove it")


def _clear_stale(path: Path) -> None:
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise StoreError(f"{path} is in the way: a socket is wanted there, and it is none")
    if _answers(path):
        raise StoreError(f"another process serves {path} already")
    path.unlink(missing_ok=True)


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
