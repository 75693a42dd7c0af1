"""`outrider events`: what the workers of a crawl and its store report, as JSON lines (O3)."""

from __future__ import annotations

import asyncio
import os
import sys
from math import inf
from typing import Annotated, Final

import typer

from outrider.cli.options import Crawl, Store
from outrider.cli.stop_signals import INTERRUPTED, StopSignals
from outrider.cli.terminal import print_json, print_note
from outrider.clock import SystemClock
from outrider.errors import StoreError
from outrider.events import GAP, Event
from outrider.frontier import Frontier
from outrider.frontier.event_follower import POLL_INTERVAL, RECONNECT_INTERVAL, EventFollower
from outrider.monitoring.connection import CrawlConnection
from outrider.store.address import show_address

OVER_INTERVAL: Final = 1.0  # seconds between two looks at whether the crawl is over


def events(
    store: Store,
    *,
    crawl: Crawl = "default",
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Print events as they come, until the crawl ends."),
    ] = False,
    since: Annotated[
        int | None,
        typer.Option(
            "--since",
            metavar="N",
            min=0,
            help="Start after the event of this number.  [default: what is kept; --follow: now]",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="NAME", help="Only events of this name; repeatable."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Only events of this queue, or of a suffix such as .org."),
    ] = None,
    breakdown: Annotated[
        bool, typer.Option("--breakdown", help="Have `added` carry the terms of the priority.")
    ] = False,
) -> None:
    """Print the events of a crawl as JSON lines: those of the store, and those of its workers.

    Workers publish their events only while it is followed the crawl.
    """
    follower = EventFollower(
        crawl,
        SystemClock(),
        since=since,
        names=name or (),
        key=key,
        breakdown=breakdown,
    )
    printer = EventPrinter(CrawlConnection(store, crawl), follower)
    try:
        code = asyncio.run(_stoppable(printer, follows=follow))
        sys.stdout.flush()
    except BrokenPipeError:  # who reads has seen enough; Python flushes once more at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    raise typer.Exit(code)


async def _stoppable(printer: EventPrinter, *, follows: bool) -> int:
    """Run until the end or a signal; return the exit code."""
    with StopSignals() as signals:
        try:
            await (printer.follow() if follows else printer.print_kept())
        except asyncio.CancelledError:
            if not signals.count:
                raise
        finally:
            await printer.close()
    return INTERRUPTED if signals.count else 0


class EventPrinter:
    """Prints events of a crawl through whichever process holds its store."""

    def __init__(self, connection: CrawlConnection, follower: EventFollower) -> None:
        self._connection, self._follower = connection, follower
        self._is_lost = False
        self._is_over = False  # the crawl, when it was looked at
        self._looked_at = -inf

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def print_kept(self) -> None:
        """Print the events that are kept."""

        async def read(frontier: Frontier) -> list[Event] | None:
            return await self._follower.read_kept(frontier.store)

        is_whole = self._follower.since is None
        while (found := await self._connection.call(read)) is not None:
            if is_whole and found[:1] and found[0].name == GAP:
                del found[0]  # what was forgotten before all that is kept was not asked for
            is_whole = False
            _print_all(found)

    async def follow(self) -> None:
        """Print events as they come, until the crawl is over and nothing came for a second."""
        loop, is_first, idle_since = asyncio.get_running_loop(), True, 0.0
        while True:
            was_over = self._is_over
            try:
                found = await self._read()
            except (StoreError, OSError) as error:
                if is_first:
                    raise
                self._note_outage(error)
                await asyncio.sleep(RECONNECT_INTERVAL)
                continue
            self._note_return()
            if found is not None or is_first or not was_over:
                is_first, idle_since = False, loop.time()
            elif loop.time() - idle_since >= OVER_INTERVAL:
                return
            if found is None:
                await asyncio.sleep(POLL_INTERVAL)
            else:
                _print_all(found)

    async def _read(self) -> list[Event] | None:
        """Read what is new; of a file that no process holds only if it was changed."""
        if self._connection.is_served():
            return await self._connection.call(self._read_served)
        return await self._connection.call_if_changed(self._read_file)

    async def _read_served(self, frontier: Frontier) -> list[Event] | None:
        found = await self._follower.read(frontier.store)
        if found is None:
            await self._look_whether_over(frontier)
        return found

    async def _read_file(self, frontier: Frontier) -> list[Event] | None:
        found = await self._follower.read_kept(frontier.store)
        self._looked_at = -inf
        await self._look_whether_over(frontier)
        return found

    async def _look_whether_over(self, frontier: Frontier) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._looked_at >= OVER_INTERVAL:
            self._looked_at = now
            self._is_over = await self._follower.is_crawl_over(frontier.store)

    def _note_outage(self, error: Exception) -> None:
        if not self._is_lost:
            self._is_lost = True
            print_note(f"{error}; trying again")

    def _note_return(self) -> None:
        if self._is_lost:
            self._is_lost = False
            print_note(f"connected to {show_address(self._connection.store)} again")


def _print_all(found: list[Event]) -> None:
    for event in found:
        print_json(event)
    sys.stdout.flush()
