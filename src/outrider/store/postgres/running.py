"""A verb is one transaction, run in a thread over a pooled connection, and again if it was undone.

A deadlock, somebody who was first, a line lost before the commit: nothing happened, and the verb is
run again. Only a line that is lost while committing leaves the answer unknown.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from os import dup
from socket import SHUT_RDWR, socket
from threading import Event, Lock
from typing import Any, Final, Literal, TypeAlias, TypeVar

import psycopg
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from outrider.clock import Clock, is_virtual
from outrider.errors import Closed, StoreUnavailable
from outrider.store.postgres import faults
from outrider.store.postgres import statements as sql
from outrider.store.postgres.address import Address
from outrider.store.postgres.attempt import Attempt, Rulebooks
from outrider.store.postgres.crawl import NeedsWhole
from outrider.store.postgres.watching import Bell, channel_of, word_of
from outrider.store.postgres.wire import Wire

T = TypeVar("T")
Way: TypeAlias = Literal["reads", "shares", "holds"]  # what a verb has of the crawls it touches
Verb: TypeAlias = Callable[[Attempt], Coroutine[Any, Any, T]]

POOL_MOST: Final = 10  # M4
POOL_KEPT: Final = 5
POOL_WAIT: Final = 4.0  # seconds
TRIES: Final = 20
PATIENCE: Final = 30.0  # seconds a verb may take
THREADS: Final = 4 * POOL_MOST  # more than connections: whoever waits for one is told so
FOLD_AFTER: Final = 1000  # rows of counters


class Call:
    """A verb under way; one that waits too long for a silent server is cut off."""

    def __init__(self) -> None:
        self._connection: psycopg.Connection[Any] | None = None
        self._lock = Lock()
        self.is_late = False

    def goes_over(self, connection: psycopg.Connection[Any] | None) -> None:
        """This is its line from now on; None: it has none, and the line is somebody else's."""
        with self._lock:
            self._connection = connection

    def hang_up(self) -> None:
        """Its thread finds the line broken, wherever it waits."""
        self.is_late = True
        with self._lock, suppress(OSError, psycopg.Error):
            if self._connection is not None:
                with socket(fileno=dup(self._connection.fileno())) as line:
                    line.shutdown(SHUT_RDWR)


class Runner:
    """Connections, threads, and what is remembered from one verb to the next."""

    def __init__(self, address: Address, clock: Clock, store: str) -> None:
        self._address, self._clock, self._id = address, clock, store
        self._pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool(
            address.url,
            min_size=POOL_KEPT,
            max_size=POOL_MOST,
            timeout=POOL_WAIT,
            open=False,
            name=f"outrider {address.shown}",
            kwargs={
                "autocommit": True,
                "application_name": "outrider",
                "connect_timeout": 10,
                "tcp_user_timeout": 20_000,
            },
        )
        self._threads = ThreadPoolExecutor(THREADS, "outrider-postgres")
        self._rulebooks, self._bell = Rulebooks(), Bell()
        self._prepares = True
        self._is_closed = False
        self._appended = 0

    async def open(self) -> None:
        """Begin to connect."""
        await asyncio.to_thread(self._pool.open)

    async def close(self) -> None:
        """Let go of every connection, once the verbs under way have ended."""
        self._is_closed = True
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self._pool.close)

    async def run(self, verb: Verb[T], way: Way) -> T:
        """In a thread; whoever stops waiting leaves it to its end."""
        if self._is_closed:
            raise Closed(f"{self._address.shown} was closed")
        loop, call = asyncio.get_running_loop(), Call()
        running = loop.run_in_executor(self._threads, self._done, verb, way, call)
        if is_virtual(self._clock):
            return await running
        late = loop.call_later(PATIENCE, call.hang_up)
        try:
            return await running
        finally:
            late.cancel()

    def _done(self, verb: Verb[T], way: Way, call: Call) -> T:
        tries = TRIES
        while True:
            tries -= 1
            connection = self._connected()
            call.goes_over(connection)
            wire = Wire(connection, prepares=self._prepares)
            try:
                return self._once(verb, wire, way)
            except NeedsWhole:
                way = "holds"
            except psycopg.Error as error:
                self._go_on_after(error, wire, 0 if call.is_late else tries)
            finally:
                wire.abandon()
                call.goes_over(None)
                self._pool.putconn(connection)

    def _connected(self) -> psycopg.Connection[Any]:
        try:
            connection: psycopg.Connection[Any] = self._pool.getconn()
        except PoolTimeout as error:
            raise StoreUnavailable(
                f"{self._address.shown}: no connection for {POOL_WAIT:g} s; the pool has at most "
                f"{POOL_MOST}, all in use or the server away; safe to repeat"
            ) from error
        except PoolClosed as error:
            raise Closed(f"{self._address.shown} was closed") from error
        return connection

    def _once(self, verb: Verb[T], wire: Wire, way: Way) -> T:
        """All of it, or nothing."""
        wire.begin(reads=way == "reads")
        time = self._clock.now_ms() if is_virtual(self._clock) else None
        opening = wire.send(sql.OPEN, (time, self._address.schema))
        attempt = Attempt(
            self._id,
            self._clock,
            wire,
            self._rulebooks,
            time=time,
            opening=opening,
            reads=way == "reads",
            holds=way == "holds",
        )
        answer = _run_through(verb(attempt))
        if way != "reads":
            self._appended += attempt.close_all()
            self._ring(wire, attempt)
        wire.commit()
        if self._appended > FOLD_AFTER:
            self._appended = 0
            with suppress(psycopg.Error):  # the verb is done; whoever comes next folds
                self._fold(wire, attempt)
        return answer

    def _ring(self, wire: Wire, attempt: Attempt) -> None:
        """Whoever waits hears of new work; not of every piece, and not of claims."""
        for crawl in attempt.stirred():
            if self._bell.is_due(crawl):
                wire.send(sql.NOTIFY, (channel_of(self._id), word_of(crawl)))

    def _fold(self, wire: Wire, attempt: Attempt) -> None:
        """What was appended to the counters is added up; whoever else is at it does it all."""
        for crawl, key in attempt.counted():
            wire.begin(reads=False)
            wire.send(sql.OPEN, (None, self._address.schema))
            ((is_mine,),) = wire.rows(sql.FOLDING, (key,))
            if is_mine:
                wire.send(sql.FOLD, (crawl, crawl))
            wire.commit()

    def _go_on_after(self, error: psycopg.Error, wire: Wire, tries: int) -> None:
        """Return if the verb may be run again; nothing of it has happened then."""
        if isinstance(error, faults.UNPREPARED):
            self._prepares = False
        elif not _may_go_on(error, wire):
            raise faults.told(error, self._address.shown) from error
        if tries <= 0:
            raise StoreUnavailable(
                f"{self._address.shown}: given up ({type(error).__name__}: {error}); safe to repeat"
            ) from error
        Event().wait(random.uniform(0, 0.002 * (TRIES - tries)))


def _may_go_on(error: psycopg.Error, wire: Wire) -> bool:
    """Whether nothing has happened, and it may go better next time."""
    is_undone = faults.is_lost(error) and not wire.is_committing
    return is_undone or isinstance(error, faults.TRY_AGAIN)


def _run_through(verb: Coroutine[Any, Any, T]) -> T:
    """Nothing inside a verb waits for the loop, so it ends at its first step."""
    try:
        verb.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise AssertionError("a verb waited")
