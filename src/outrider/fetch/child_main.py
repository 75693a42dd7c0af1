"""The main program of a child of `child_pool`: reads a frame, calls the function, answers.

Run as a file, it imports nothing of Outrider, so that a child starts in a fraction of the time.
Nothing that the function prints reaches the pipe.
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

HEADER: Final = 4  # bytes of a frame's length
ANSWER: Final = b"\0"  # begins a frame that holds the answer
FAULT: Final = b"\1"  # begins a frame that holds a fault: its kind and its detail
_LOCAL_ERRNOS: Final = frozenset((EMFILE, ENFILE, ENOMEM, ENOBUFS, ENOSPC, EDQUOT))
ALARM_GRACE: Final = 1.0  # seconds after which the child's own alarm ends it, if its parent did not


class ChildTerms(msgspec.Struct, frozen=True, array_like=True):
    """The first frame to a child."""

    path: list[str]  # the parent's sys.path
    target: str
    seconds: float
    memory: int
    max_bytes: int  # bytes of an answer


def frame(data: bytes) -> bytes:
    """Return data with its length in front."""
    return len(data).to_bytes(HEADER, "big") + data


def main() -> NoReturn:
    """Serve requests until the parent closes the pipe."""
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
        # The alarm's default action ends the process, whatever it is doing.
        signal.setitimer(signal.ITIMER_REAL, terms.seconds + ALARM_GRACE)
        answer = _answer(function, request, terms.max_bytes)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(answers, answer)


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    """Duplicate both pipes; stdin becomes /dev/null, and stdout becomes standard error."""
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
    """Import the function, or return why that failed."""
    sys.path[:] = terms.path
    module, _, name = terms.target.partition(":")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:  # noqa: BLE001 - importing runs user code
        return f"{terms.target}: {type(error).__name__}: {error}"[:500]
    return found if callable(found) else f"{terms.target} cannot be called"


def _limit(memory: int) -> None:
    """Limit the memory beyond what the imports took."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError):  # the system may have no such limit
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        max_bytes = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))


def _answer(function: Callable[[Any], Any], request: bytes, max_bytes: int) -> bytes:
    try:
        data = ANSWER + msgspec.msgpack.encode(function(msgspec.msgpack.decode(request)))
    except MemoryError:
        return _fault("memory", "took more memory than it may")
    except Exception as error:  # noqa: BLE001 - user code
        kind = "local" if _is_local(error) else "raised"
        return _fault(kind, f"{type(error).__name__}: {error}"[:500])
    return data if len(data) <= max_bytes else _fault("size", f"an answer of {len(data)} bytes")


def _is_local(error: Exception) -> bool:
    """Whether an error is a local fault; see fetch/local_faults.py."""
    number, reason = getattr(error, "errno", None), str(getattr(error, "reason", ""))
    return number in _LOCAL_ERRNOS or reason.startswith("local:")


def _fault(kind: str, detail: str) -> bytes:
    return FAULT + msgspec.msgpack.encode((kind, detail))


if __name__ == "__main__":
    main()
