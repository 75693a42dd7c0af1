"""The child's side of `apart`: reads a frame, calls the function, answers, until the pipe ends.

Run as a file, it imports nothing of ours: a child is there in a fraction of the time. Nothing that
the function prints reaches the pipe.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from errno import EDQUOT, EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSPC
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

import msgspec

HEADER: Final = 4  # bytes that tell the length of a frame
ANSWER: Final = b"\0"  # begins a frame that holds the answer
FAULT: Final = b"\1"  # begins a frame that holds a fault: its kind and its detail
_LOCAL_ERRNOS: Final = frozenset((EMFILE, ENFILE, ENOMEM, ENOBUFS, ENOSPC, EDQUOT))
ALARM_GRACE: Final = 1.0  # seconds after which our own alarm ends us, if nobody else did


class ChildTerms(msgspec.Struct, frozen=True, array_like=True):
    """The first words to a child."""

    path: list[str]  # where modules are
    target: str
    seconds: float
    memory: int
    most: int  # bytes of an answer


def frame(data: bytes) -> bytes:
    """Data with its length before it."""
    return len(data).to_bytes(HEADER, "big") + data


def main() -> NoReturn:
    """Serve one parent until it is gone."""
    requests, answers = _pipes()
    terms = msgspec.msgpack.decode(_read_frame(requests), type=ChildTerms)
    function = _load(terms)
    if isinstance(function, str):
        _send(answers, _fault("start", function))
        os._exit(1)
    _limit(terms.memory)
    _send(answers, ANSWER)
    while True:
        request = _read_frame(requests)
        # The alarm's default ends the process, whatever it is doing and whoever else is gone.
        signal.setitimer(signal.ITIMER_REAL, terms.seconds + ALARM_GRACE)
        answer = _answer(function, request, terms.most)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(answers, answer)


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    """Our two pipes; the usual numbers become nothing and standard error."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return requests, answers


def _read_frame(requests: BinaryIO) -> bytes:
    header = requests.read(HEADER)
    size = int.from_bytes(header, "big")
    body = requests.read(size)
    if len(header) < HEADER or len(body) < size:
        os._exit(0)  # the parent is gone
    return body


def _send(answers: BinaryIO, data: bytes) -> None:
    try:
        answers.write(frame(data))
        answers.flush()
    except OSError:
        os._exit(0)


def _load(terms: ChildTerms) -> Callable[[Any], Any] | str:
    """The function, or why there is none."""
    sys.path[:] = terms.path
    module, _, name = terms.target.partition(":")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:  # noqa: BLE001 - importing runs a stranger's code
        return f"{terms.target}: {type(error).__name__}: {error}"[:500]
    return found if callable(found) else f"{terms.target} cannot be called"


def _limit(memory: int) -> None:
    """Bound what may be added to what importing took."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError):  # where a system has no such limit
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _answer(function: Callable[[Any], Any], request: bytes, most: int) -> bytes:
    try:
        data = ANSWER + msgspec.msgpack.encode(function(msgspec.msgpack.decode(request)))
    except MemoryError:
        return _fault("memory", "took more memory than it may")
    except Exception as error:  # noqa: BLE001 - a stranger's function
        kind = "local" if _is_local(error) else "raised"
        return _fault(kind, f"{type(error).__name__}: {error}"[:500])
    return data if len(data) <= most else _fault("size", f"an answer of {len(data)} bytes")


def _is_local(error: Exception) -> bool:
    """Whether this machine, or this process, is out of something; see fetch/local_faults.py."""
    number, reason = getattr(error, "errno", None), str(getattr(error, "reason", ""))
    return number in _LOCAL_ERRNOS or reason.startswith("local:")


def _fault(kind: str, detail: str) -> bytes:
    return FAULT + msgspec.msgpack.encode((kind, detail))


if __name__ == "__main__":
    main()
