"""Calls of a function in a process of its own: whatever it does there, the answer is a value.

A child that dies, hangs, grows or raises is a `Fault`; it is replaced when the next call comes. If
this machine cannot start one, that is a `LocalFault`. A child ends with us, even if we are killed:
its pipe ends, and its own alarm ends what hangs.

Children are few, and calls that exhaust their limits hold them long. So keys take turns. With a
`quick` limit, a call is first given only that much time; one that needs more, and every call of a
key whose last one exhausted a limit, is run with the whole limit in a slot of its own kind. So a
well-behaved key waits for the quick limit of those before it, and for no more.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any, Final, Literal, TypeVar

import msgspec

from outrider.fetch import inside
from outrider.fetch.fair_slots import FairSlots, FaultRecord
from outrider.fetch.inside import ANSWERED, HEADER, Terms, framed
from outrider.fetch.local_faults import PROCESSES, local_fault, local_fault_of

T = TypeVar("T")

SECONDS: Final = 5.0
MEMORY: Final = 2**30
LONGEST_START: Final = 60.0  # seconds to import what the function needs
MOST_BYTES: Final = 64 * 2**20  # of one answer
# With -P nothing in the working directory stands in for a module.
_COMMAND: Final = (sys.executable, "-P", inside.__file__)


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """Why a call has no answer."""

    kind: Literal["time", "memory", "died", "raised", "size", "start", "local", "busy"]
    detail: str = ""


_EXHAUSTED: Final = frozenset({"time", "memory", "died", "size"})
_DIED: Final = Fault("died", "its process ended")


def _too_long(seconds: float) -> Fault:
    return Fault("time", f"took longer than {seconds:g} s")


def call_once(
    target: str, argument: Any, answer: type[T], *, seconds: float, memory: int
) -> T | Fault:
    """The answer of `module:function` in a process that ends afterwards; blocks the caller."""
    terms = Terms(sys.path, target, seconds, memory, MOST_BYTES)
    frames = framed(msgspec.msgpack.encode(terms)) + framed(msgspec.msgpack.encode(argument))
    try:
        ended = subprocess.run(  # noqa: S603 - a program of our own
            _COMMAND,
            input=frames,
            stdout=subprocess.PIPE,
            check=False,
            timeout=LONGEST_START + seconds,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return _too_long(seconds)
    except OSError as error:
        return Fault("start", str(error))
    if ended.returncode == -signal.SIGALRM:
        return _too_long(seconds)
    return _second_answer(ended.stdout, answer)


def _second_answer(told: bytes, answer: type[T]) -> T | Fault:
    """The answer to the argument; the one before says that the child has started."""
    size = int.from_bytes(told[:HEADER], "big")
    told = told[HEADER + size + HEADER :]
    if told[:1] == ANSWERED:
        return _read(told[1:], answer)
    return _read(told[1:], Fault) if told else _DIED


class Apart:
    """`module:function`, called elsewhere, one argument and one answer, both plain data."""

    def __init__(
        self,
        target: str,
        *,
        seconds: float = SECONDS,
        memory: int = MEMORY,
        children: int = 1,
        quick: float | None = None,
        max_wait: float | None = None,
    ) -> None:
        self._terms = Terms(sys.path, target, seconds, memory, MOST_BYTES)
        self._quick, self._max_wait = quick, max_wait
        self._faults = FaultRecord()
        self._slots = FairSlots(children, self._faults)
        # Those that need the whole limit have one more child, beside the others.
        self._slow_slots = self._slots if quick is None else FairSlots(1, self._faults)
        self._idle: list[_Child] = []
        self._alive: set[_Child] = set()  # or not yet reaped

    async def call(
        self,
        argument: Any,
        answer: type[T] = Any,  # type: ignore[assignment]  # a variable has no default type
        *,
        key: str = "",
    ) -> T | Fault:
        """The function's answer, as this type; or why there is none. Keys take turns."""
        request = framed(msgspec.msgpack.encode(argument))
        told: bytes | Fault | None = None
        if self._quick is not None and not self._faults[key]:
            told = await self._called(self._slots, key, request, self._quick)
            if isinstance(told, Fault) and told.kind == "time":
                self._faults.add(key)  # its other calls need not try; a success clears it
                told = None
        if told is None:
            told = await self._called(self._slow_slots, key, request, self._terms.seconds)
        if not isinstance(told, Fault):
            self._faults.clear(key)
            return _read(told, answer)
        if told.kind in _EXHAUSTED:
            self._faults.add(key)
        return told

    async def _called(
        self, slots: FairSlots, key: str, request: bytes, seconds: float
    ) -> bytes | Fault:
        try:
            async with slots.slot(key, self._max_wait):
                child = self._idle.pop() if self._idle else await self._started()
                if isinstance(child, Fault):
                    return child
                return await self._told(child, request, seconds)
        except TimeoutError:
            return Fault("busy", f"no process was free within {self._max_wait:g} s")

    async def close(self) -> None:
        """End the children, also those at work; none is left behind."""
        self._idle.clear()
        alive, self._alive = self._alive, set()
        for child in alive:
            child.kill()
        for child in alive:
            await child.process.wait()

    async def _started(self) -> _Child | Fault:
        try:
            child = _Child(await _spawned())
        except (OSError, RuntimeError, MemoryError) as error:
            if isinstance(error, BlockingIOError):  # the limit of processes
                raise local_fault(PROCESSES, str(error)) from error
            if fault := local_fault_of(error):
                raise fault from error
            return Fault("start", str(error))
        self._alive.add(child)
        terms = framed(msgspec.msgpack.encode(self._terms))
        told = await self._told(child, terms, LONGEST_START)
        if isinstance(told, Fault):
            return Fault("start", told.detail)
        self._idle.remove(child)
        return child

    async def _told(self, child: _Child, request: bytes, seconds: float) -> bytes | Fault:
        """One request and its answer. Only a child that is well is kept for another."""
        told: bytes | Fault = _DIED
        try:
            async with asyncio.timeout(seconds):
                told = await child.ask(request)
        except TimeoutError:
            told = _too_long(seconds)
        except (asyncio.IncompleteReadError, OSError):
            pass  # it died
        finally:
            is_well = isinstance(told, bytes) or told.kind == "raised"
            if is_well and child in self._alive:
                self._idle.append(child)
            else:
                self._end(child)
        return told

    def _end(self, child: _Child) -> None:
        child.kill()
        self._alive = {one for one in self._alive if one.process.returncode is None}


class _Child:
    """One process and its two pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def ask(self, request: bytes) -> bytes | Fault:
        """Write a frame and read one: an answer's bytes, or the child's own word of a fault."""
        writer, reader = self.process.stdin, self.process.stdout
        if writer is None or reader is None:
            raise AssertionError("a child is spawned with both pipes")
        writer.write(request)
        await writer.drain()
        size = int.from_bytes(await reader.readexactly(HEADER), "big")
        if not 0 < size <= MOST_BYTES:
            return Fault("size", f"an answer of {size} bytes")
        told = await reader.readexactly(size)
        return told[1:] if told[:1] == ANSWERED else _read(told[1:], Fault)

    def kill(self) -> None:
        """End it and whatever it started, at once, and close its pipes, whoever else holds them."""
        with suppress(ProcessLookupError, PermissionError):
            if self.process.returncode is None:  # a number that was reaped may be another's by now
                os.killpg(self.process.pid, signal.SIGKILL)
        self._close_pipes()

    def _close_pipes(self) -> None:
        """Not the whole transport: that would ask how the child ended, and the loop would not."""
        transport = self.process._transport  # type: ignore[attr-defined]  # noqa: SLF001 - no other way
        stdin, stdout = transport.get_pipe_transport(0), transport.get_pipe_transport(1)
        if not stdin.is_closing():
            stdin.abort()  # what was not read yet is for nobody
        stdout.close()


async def _spawned() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *_COMMAND,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is ours to hear
    )


def _read(data: bytes, answer: type[T]) -> T | Fault:
    try:
        return msgspec.msgpack.decode(data, type=answer)
    except msgspec.DecodeError as error:
        return Fault("died", f"its answer is unreadable: {error}")
