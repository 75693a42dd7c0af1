"""The runner of verbs: each is one transaction in a thread, run again if it was rolled back.

After a deadlock, a conflict with another transaction, or a connection lost before the commit,
nothing has happened, and the verb runs again. Only a connection that is lost while committing
leaves the outcome unknown.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from os import dup
from socket import SHUT_RDWR, socket
from threading import Event, Lock
from typing import Any, Final, Literal, TypeAlias, TypeVar

import psycopg
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from outrider.clock import Clock, is_virtual
from outrider.errors import Closed, StoreError, StoreUnavailable
from outrider.store.engine.verbs import EngineVerbs
from outrider.store.postgres import errors, sql
from outrider.store.postgres.address import Address
from outrider.store.postgres.crawls import PostgresCrawls, RulesCache
from outrider.store.postgres.notifications import (
    MIN_NOTIFY_INTERVAL,
    Listener,
    NotifyLimiter,
    channel_name,
    payload,
)
from outrider.store.postgres.pipeline import Pipeline
from outrider.store.postgres.session import NeedsExclusiveLock

T = TypeVar("T")
Access: TypeAlias = Literal["read", "shared", "exclusive"]  # to the crawls that a verb touches
Verb: TypeAlias = Callable[[EngineVerbs], T]

MAX_CONNECTIONS: Final = 10  # M4
MIN_CONNECTIONS: Final = 5
POOL_TIMEOUT: Final = 4.0  # seconds until a verb that waits for a connection fails
MAX_ATTEMPTS: Final = 20
CALL_TIMEOUT: Final = 30.0  # seconds until a verb's connection is cut
THREADS: Final = 4 * MAX_CONNECTIONS  # more than connections: a verb that waits for one can fail
MAX_DELTAS: Final = 1000  # counter differences this process appends until it adds them up


class Call:
    """A verb that is running; one that waits too long for the server is cut off."""

    def __init__(self) -> None:
        self._connection: psycopg.Connection[Any] | None = None
        self._lock = Lock()
        self.is_late = False
        self.news: list[str] = []  # crawls whose waiting claims are notified

    def use(self, connection: psycopg.Connection[Any] | None) -> None:
        """Set the verb's connection; None: it has none any more."""
        with self._lock:
            self._connection = connection

    def cut_off(self) -> None:
        """Shut the connection down: the verb's thread fails wherever it waits."""
        self.is_late = True
        with self._lock, suppress(OSError, psycopg.Error):
            if self._connection is not None:
                with socket(fileno=dup(self._connection.fileno())) as copy:
                    copy.shutdown(SHUT_RDWR)


class Runner:
    """Connections, threads, and what is remembered from one verb to the next."""

    def __init__(self, address: Address, clock: Clock, store: str) -> None:
        self._address, self._clock, self._id = address, clock, store
        self._sender = uuid.uuid4().hex
        self.listener = Listener(address, store, self._sender, connects=not is_virtual(clock))
        self._pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool(
            address.url,
            min_size=MIN_CONNECTIONS,
            max_size=MAX_CONNECTIONS,
            timeout=POOL_TIMEOUT,
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
        self._rules, self._limiter = RulesCache(), NotifyLimiter()
        self._prepares = True
        self._is_closed = False
        self._deltas = 0
        self._late: asyncio.Task[None] | None = None  # sends the notifications that were kept

    async def open(self) -> None:
        """Begin to connect."""
        await asyncio.to_thread(self._pool.open)

    async def close(self) -> None:
        """Close every connection, once the running verbs have ended."""
        self._is_closed = True
        await self.listener.close()
        if self._late is not None:
            self._late.cancel()
            with suppress(asyncio.CancelledError):
                await self._late
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self._pool.close)

    async def run(self, verb: Verb[T], access: Access) -> T:
        """Run a verb in a thread; it runs to its end even if the caller stops waiting."""
        if self._is_closed:
            raise Closed(f"{self._address.shown} was closed")
        loop, call = asyncio.get_running_loop(), Call()
        running = loop.run_in_executor(self._threads, self._run, verb, access, call)
        if is_virtual(self._clock):
            return self._ring(await running, call)
        timer = loop.call_later(CALL_TIMEOUT, call.cut_off)
        try:
            return self._ring(await running, call)
        finally:
            timer.cancel()

    def _ring(self, answer: T, call: Call) -> T:
        """C6: notify the subscribers of this process; others later, if not yet."""
        if call.news:
            self.listener.ring(call.news)
        is_sending = self._late is not None and not self._late.done()
        if self._limiter.has_late and not is_sending and not self._is_closed:
            self._late = asyncio.get_running_loop().create_task(self._notify_late())
        return answer

    async def _notify_late(self) -> None:
        await asyncio.sleep(MIN_NOTIFY_INTERVAL)
        with suppress(StoreError, psycopg.Error, RuntimeError):  # those who wait also poll
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads, self._send_late)

    def _send_late(self) -> None:
        connection = self._connection()
        try:
            for crawl in self._limiter.take_late():
                connection.execute(sql.NOTIFY, (channel_name(self._id), self._payload(crawl)))
        finally:
            self._pool.putconn(connection)

    def _payload(self, crawl: str) -> str:
        return payload(crawl, self._sender)

    def _run(self, verb: Verb[T], access: Access, call: Call) -> T:
        attempts = MAX_ATTEMPTS
        while True:
            attempts -= 1
            connection = self._connection()
            call.use(connection)
            pipeline = Pipeline(connection, prepares=self._prepares)
            try:
                return self._run_once(verb, pipeline, access, call)
            except NeedsExclusiveLock:
                access = "exclusive"
            except psycopg.Error as error:
                self._check_retry(error, pipeline, 0 if call.is_late else attempts)
            finally:
                pipeline.close()
                call.use(None)
                self._pool.putconn(connection)

    def _connection(self) -> psycopg.Connection[Any]:
        try:
            connection: psycopg.Connection[Any] = self._pool.getconn()
        except PoolTimeout as error:
            raise StoreUnavailable(
                f"{self._address.shown}: no connection for {POOL_TIMEOUT:g} s; the pool has at "
                f"most {MAX_CONNECTIONS}, all in use or the server away; safe to repeat"
            ) from error
        except PoolClosed as error:
            raise Closed(f"{self._address.shown} was closed") from error
        return connection

    def _run_once(self, verb: Verb[T], pipeline: Pipeline, access: Access, call: Call) -> T:
        """Run a verb as one transaction: all of it, or nothing."""
        pipeline.begin(reads=access == "read")
        time = self._clock.now_ms() if is_virtual(self._clock) else None
        opening = pipeline.send(sql.OPEN_TRANSACTION, (time, self._address.schema))
        crawls = PostgresCrawls(
            self._id,
            pipeline,
            self._rules,
            clock=time,
            opening=opening,
            reads=access == "read",
            is_exclusive=access == "exclusive",
        )
        answer = verb(EngineVerbs(crawls))
        if access != "read":
            self._deltas += crawls.close()
            self._notify(pipeline, crawls)
        pipeline.commit()
        if self._deltas > MAX_DELTAS:
            self._deltas = 0
            with suppress(psycopg.Error):  # the verb is done; a later one adds them up
                self._fold_counters(pipeline, crawls)
        call.news = crawls.to_notify()
        return answer

    def _notify(self, pipeline: Pipeline, crawls: PostgresCrawls) -> None:
        """Notify the processes that wait, some times a second at most."""
        for crawl in crawls.to_notify():
            if self._limiter.is_due(crawl):
                pipeline.send(sql.NOTIFY, (channel_name(self._id), self._payload(crawl)))

    def _fold_counters(self, pipeline: Pipeline, crawls: PostgresCrawls) -> None:
        """Add up the counters' differences, unless another process is doing so."""
        for crawl, lock in crawls.counted():
            pipeline.begin(reads=False)
            pipeline.send(sql.OPEN_TRANSACTION, (None, self._address.schema))
            ((is_locked,),) = pipeline.rows(sql.TRY_LOCK, (lock,))
            if is_locked:
                pipeline.send(sql.FOLD_COUNTERS, (crawl, crawl))
            pipeline.commit()

    def _check_retry(self, error: psycopg.Error, pipeline: Pipeline, attempts: int) -> None:
        """Wait, if the verb may run again; raise otherwise."""
        if isinstance(error, errors.UNPREPARED):
            self._prepares = False
        elif not _is_rolled_back(error, pipeline):
            raise errors.translate_error(error, self._address.shown) from error
        if attempts <= 0:
            raise StoreUnavailable(
                f"{self._address.shown}: given up ({type(error).__name__}: {error}); safe to repeat"
            ) from error
        Event().wait(random.uniform(0, 0.002 * (MAX_ATTEMPTS - attempts)))


def _is_rolled_back(error: psycopg.Error, pipeline: Pipeline) -> bool:
    """Return whether nothing has happened, and another attempt may succeed."""
    is_undone = errors.is_connection_lost(error) and not pipeline.is_committing
    is_again = isinstance(error, errors.RETRYABLE) or errors.is_crawl_removed(error)
    return is_undone or is_again
