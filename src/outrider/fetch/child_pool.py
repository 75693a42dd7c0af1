"""A pool of child processes that call one function: whatever it does there, the result is a value.

A child that dies, hangs, grows or raises is a `Fault`; it is replaced at the next call. If this
machine cannot start one, that is a `LocalFault`. A child ends with its parent, even if that is
killed: its pipe ends, and its own alarm ends what hangs.

Children are few, and calls that exhaust their limits occupy them long. So keys take turns
(`FairSlots`). With a `quick` limit, a call first gets only that much time; one that needs more, and
every call of a key whose last one exhausted a limit, runs with the whole limit in a slot of its own
kind. So a well-behaved key waits for the quick limit of those before it, and for no more.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Literal, TypeVar

import msgspec

from outrider.fetch import child_main
from outrider.fetch.child_main import ANSWER, HEADER, ChildTerms, frame
from outrider.fetch.local_faults import PROCESSES, local_fault, local_fault_of

# ---- fair slots

MAX_KEYS: Final = 10_000  # whose faults are counted
MAX_FAULTS: Final = 10  # counted per key


class FaultRecord:
    """How often in a row the calls of each key exhausted their limits; a success clears it."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, int] = OrderedDict()

    def __getitem__(self, key: str) -> int:
        return self._counts.get(key, 0)

    def add(self, key: str) -> None:
        """Count a fault."""
        self._counts[key] = min(self[key] + 1, MAX_FAULTS)
        self._counts.move_to_end(key)
        if len(self._counts) > MAX_KEYS:
            self._counts.popitem(last=False)

    def clear(self, key: str) -> None:
        """Forget the faults of a key."""
        self._counts.pop(key, None)


class FairSlots:
    """A number of slots that keys share fairly. A key is a queue's: usually one host.

    Of the keys that wait, the one with the fewest faults is served first, then the one that holds
    the fewest slots, then the one that was served longest ago.
    """

    def __init__(self, count: int, faults: FaultRecord) -> None:
        self._free = count
        self._faults = faults
        self._held: Counter[str] = Counter()
        # In order of arrival; a key is absent as soon as none of its calls waits.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._turns = 0
        self._last_turn: dict[str, int] = {}  # of the keys that wait or hold a slot

    @asynccontextmanager
    async def slot(self, key: str, max_wait: float | None = None) -> AsyncIterator[None]:
        """Hold a slot while the block lasts; TimeoutError if none became free in time."""
        await self._take(key, max_wait)
        try:
            yield
        finally:
            self._give_back(key)

    async def _take(self, key: str, max_wait: float | None) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        self._serve()
        try:
            async with asyncio.timeout(max_wait):
                await turn
        except BaseException:
            self._leave(key, turn)
            raise

    def _leave(self, key: str, turn: asyncio.Future[None]) -> None:
        """Stop waiting; a slot that was given in the same moment is freed."""
        if turn.done() and not turn.cancelled():
            self._give_back(key)
            return
        turns = self._waiting.get(key, deque())
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(key, None)
        self._forget(key)

    def _give_back(self, key: str) -> None:
        self._free += 1
        self._held[key] -= 1
        if self._held[key] <= 0:
            del self._held[key]
        self._forget(key)
        self._serve()

    def _forget(self, key: str) -> None:
        if key not in self._waiting and key not in self._held:
            self._last_turn.pop(key, None)

    def _serve(self) -> None:
        while self._free and self._waiting:
            key = min(self._waiting, key=self._rank)
            turns = self._waiting[key]
            turn = turns.popleft()
            if not turns:
                del self._waiting[key]
            if not turn.done():
                self._free -= 1
                self._held[key] += 1
                self._turns += 1
                self._last_turn[key] = self._turns
                turn.set_result(None)

    def _rank(self, key: str) -> tuple[int, int, int]:
        return self._faults[key], self._held[key], self._last_turn.get(key, 0)


# ---- the pool

T = TypeVar("T")

DEFAULT_SECONDS: Final = 5.0
DEFAULT_MEMORY: Final = 2**30
START_TIMEOUT: Final = 60.0  # seconds, with the function's imports
MAX_ANSWER_BYTES: Final = 64 * 2**20  # of one answer
# -P: no file of the working directory is imported in place of a module.
_COMMAND: Final = (sys.executable, "-P", child_main.__file__)


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """Why a call has no result."""

    kind: Literal["time", "memory", "died", "raised", "size", "start", "local", "busy"]
    detail: str = ""


_EXHAUSTED: Final = frozenset({"time", "memory", "died", "size"})
_DIED: Final = Fault("died", "its process ended")


def _time_fault(seconds: float) -> Fault:
    return Fault("time", f"took longer than {seconds:g} s")


def call_once(
    target: str, argument: Any, answer: type[T], *, seconds: float, memory: int
) -> T | Fault:
    """Return the result of `module:function` in a process that ends afterwards; blocks."""
    terms = ChildTerms(sys.path, target, seconds, memory, MAX_ANSWER_BYTES)
    frames = frame(msgspec.msgpack.encode(terms)) + frame(msgspec.msgpack.encode(argument))
    try:
        ended = subprocess.run(  # noqa: S603 - Outrider's own program
            _COMMAND,
            input=frames,
            stdout=subprocess.PIPE,
            check=False,
            timeout=START_TIMEOUT + seconds,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return _time_fault(seconds)
    except OSError as error:
        return Fault("start", str(error))
    if ended.returncode == -signal.SIGALRM:
        return _time_fault(seconds)
    return _decode_second_frame(ended.stdout, answer)


def _decode_second_frame(result: bytes, answer: type[T]) -> T | Fault:
    """Decode the second frame; the first says that the child has started."""
    size = int.from_bytes(result[:HEADER], "big")
    result = result[HEADER + size + HEADER :]
    if result[:1] == ANSWER:
        return _decode_answer(result[1:], answer)
    return _decode_answer(result[1:], Fault) if result else _DIED


class ChildPool:
    """Calls `module:function` in child processes, with one argument and one result, plain data."""

    def __init__(
        self,
        target: str,
        *,
        seconds: float = DEFAULT_SECONDS,
        memory: int = DEFAULT_MEMORY,
        children: int = 1,
        quick: float | None = None,
        max_wait: float | None = None,
    ) -> None:
        self._terms = ChildTerms(sys.path, target, seconds, memory, MAX_ANSWER_BYTES)
        self._quick, self._max_wait = quick, max_wait
        self._faults = FaultRecord()
        self._slots = FairSlots(children, self._faults)
        # Calls that need the whole limit have one more child, beside the others.
        self._slow_slots = self._slots if quick is None else FairSlots(1, self._faults)
        self._idle: list[_Child] = []
        self._alive: set[_Child] = set()  # and those not yet reaped

    async def call(
        self,
        argument: Any,
        answer: type[T] = Any,  # type: ignore[assignment]  # a type variable has no default
        *,
        key: str = "",
    ) -> T | Fault:
        """Return the function's result as this type, or the fault. Keys take turns."""
        request = frame(msgspec.msgpack.encode(argument))
        result: bytes | Fault | None = None
        if self._quick is not None and not self._faults[key]:
            result = await self._call(self._slots, key, request, self._quick)
            if isinstance(result, Fault) and result.kind == "time":
                self._faults.add(key)  # its other calls skip the quick attempt; a success clears it
                result = None
        if result is None:
            result = await self._call(self._slow_slots, key, request, self._terms.seconds)
        if not isinstance(result, Fault):
            self._faults.clear(key)
            return _decode_answer(result, answer)
        if result.kind in _EXHAUSTED:
            self._faults.add(key)
        return result

    async def _call(
        self, slots: FairSlots, key: str, request: bytes, seconds: float
    ) -> bytes | Fault:
        try:
            async with slots.slot(key, self._max_wait):
                child = self._idle.pop() if self._idle else await self._start()
                if isinstance(child, Fault):
                    return child
                return await self._request(child, request, seconds)
        except TimeoutError:
            return Fault("busy", f"no process was free within {self._max_wait:g} s")

    async def close(self) -> None:
        """End all children, also busy ones."""
        self._idle.clear()
        alive, self._alive = self._alive, set()
        for child in alive:
            child.kill()
        for child in alive:
            await child.process.wait()

    async def _start(self) -> _Child | Fault:
        try:
            child = _Child(await _spawn())
        except (OSError, RuntimeError, MemoryError) as error:
            if isinstance(error, BlockingIOError):  # the limit of processes
                raise local_fault(PROCESSES, str(error)) from error
            if fault := local_fault_of(error):
                raise fault from error
            return Fault("start", str(error))
        self._alive.add(child)
        terms = frame(msgspec.msgpack.encode(self._terms))
        result = await self._request(child, terms, START_TIMEOUT)
        if isinstance(result, Fault):
            return Fault("start", result.detail)
        self._idle.remove(child)
        return child

    async def _request(self, child: _Child, request: bytes, seconds: float) -> bytes | Fault:
        """Send a request and return the answer; only a child that is well is kept."""
        result: bytes | Fault = _DIED
        try:
            async with asyncio.timeout(seconds):
                result = await child.ask(request)
        except TimeoutError:
            result = _time_fault(seconds)
        except (asyncio.IncompleteReadError, OSError):
            pass  # it died
        finally:
            is_well = isinstance(result, bytes) or result.kind == "raised"
            if is_well and child in self._alive:
                self._idle.append(child)
            else:
                self._end(child)
        return result

    def _end(self, child: _Child) -> None:
        child.kill()
        self._alive = {one for one in self._alive if one.process.returncode is None}


class _Child:
    """One process and its two pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def ask(self, request: bytes) -> bytes | Fault:
        """Write a frame and read one: the answer's bytes, or the fault that the child reports."""
        writer, reader = self.process.stdin, self.process.stdout
        if writer is None or reader is None:
            raise AssertionError("a child is spawned with both pipes")
        writer.write(request)
        await writer.drain()
        size = int.from_bytes(await reader.readexactly(HEADER), "big")
        if not 0 < size <= MAX_ANSWER_BYTES:
            return Fault("size", f"an answer of {size} bytes")
        result = await reader.readexactly(size)
        return result[1:] if result[:1] == ANSWER else _decode_answer(result[1:], Fault)

    def kill(self) -> None:
        """Kill it and its own children, and close its pipes even if others hold them."""
        with suppress(ProcessLookupError, PermissionError):
            if self.process.returncode is None:  # the pid of a reaped process may be another's
                os.killpg(self.process.pid, signal.SIGKILL)
        self._close_pipes()

    def _close_pipes(self) -> None:
        """Close the pipes, not the transport: that would reap the child, which the loop does."""
        transport = self.process._transport  # type: ignore[attr-defined]  # noqa: SLF001 - no other way
        stdin, stdout = transport.get_pipe_transport(0), transport.get_pipe_transport(1)
        if not stdin.is_closing():
            stdin.abort()  # nothing reads the rest
        stdout.close()


async def _spawn() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *_COMMAND,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C must not reach it
    )


def _decode_answer(data: bytes, answer: type[T]) -> T | Fault:
    try:
        return msgspec.msgpack.decode(data, type=answer)
    except msgspec.DecodeError as error:
        return Fault("died", f"its answer is unreadable: {error}")
