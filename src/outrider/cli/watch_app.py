"""The live view: polls a crawl and turns keys into actions; it draws nothing itself.

Text that others wrote reaches the screen as `Text`, so no page can style or imitate the view.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Input, Static

from outrider.cli import watch_actions, watch_draw
from outrider.cli.queues import queue_pairs
from outrider.cli.tasks import letter_pairs
from outrider.cli.watch import ENDED
from outrider.cli.watch_draw import pairs, plain_text
from outrider.cli.watch_layout import Frame, Layout, Tab
from outrider.errors import OutriderError
from outrider.monitoring.connection import Presence
from outrider.monitoring.hosts import HostOrder
from outrider.monitoring.monitor import CrawlMonitor, Observation
from outrider.monitoring.sampler import SampleRequest

if TYPE_CHECKING:
    from outrider.frontier import Frontier


FRESH_HOSTS: Final = 20  # first hosts of the list that every sample reads
STALE_AFTER: Final = (
    3.0  # seconds without an answer, beyond the interval, after which the view says so
)
HELP: Final = (
    ("↑ ↓", "choose a host or a letter; escape ends that"),
    ("enter", "show all details"),
    ("p", "pause the host, or resume it"),
    ("P", "pause the whole crawl, or resume it"),
    ("r", "retire the host with its tasks; asks first"),
    ("R", "revive it"),
    ("s", "slow: double its delay, to at least a second"),
    ("f", "faster: halve that delay, down to the crawl's own rules"),
    ("z", "snooze: no visits for ten minutes"),
    ("w", "wake it; the delay after its last visit still applies"),
    ("t", "sort by: pace, pending, delay, wait, errors, dead, key"),
    ("/", "filter by part of the key; a whole key finds any host"),
    ("h d m k", "hosts, dead letters, heatmap of pending tasks, workers and metrics"),
    ("q", "quit; the crawl continues"),
)


class WatchApp(App[None]):
    """The view of one crawl, sampled at an interval."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit"),
        Binding("p", "host('pause')"),
        Binding("r", "retire"),
        Binding("R", "host('revive')"),
        Binding("z", "host('snooze')"),
        Binding("w", "host('wake')"),
        Binding("s", "host('slow')"),
        Binding("f", "host('speed_up')"),
        Binding("P", "toggle_crawl"),
        Binding("t", "sort"),
        Binding("h", "tab('hosts')"),
        Binding("d", "tab('dead')"),
        Binding("m", "tab('heat')"),
        Binding("k", "tab('workers')"),
        Binding("slash", "filter"),
        Binding("escape", "deselect"),
        Binding("question_mark", "help"),
    ]

    def __init__(self, monitor: CrawlMonitor, seen: Observation, *, every: float) -> None:
        super().__init__()
        self._monitor, self._seen, self._every = monitor, seen, every
        self._order, self._part = HostOrder.BUSIEST, ""
        self._tab: Tab = "hosts"
        self._answer = Text("↑ ↓ choose a host, ? lists all keys", "dim")
        self._poll_now = asyncio.Event()
        self._fresh_at = 0.0
        delays = watch_actions.HostDelays()
        self._actions: dict[str, Callable[[Frontier, str], Awaitable[str]]] = {
            "pause": watch_actions.toggle_host,
            "retire": watch_actions.retire_host,
            "revive": watch_actions.revive_host,
            "snooze": watch_actions.snooze_host,
            "wake": watch_actions.wake_host,
            "slow": delays.slow,
            "speed_up": delays.speed_up,
        }

    def compose(self) -> ComposeResult:
        """Compose the screen of one layout."""
        yield Layout()

    def on_mount(self) -> None:
        """Start to poll."""
        self._fresh_at = self._now()
        self._layout.rows("hosts").focus()
        self._report_changes(self._seen)
        self.run_worker(self._poll(), group="poll")
        self.set_interval(1.0, self._draw_header)

    def on_resize(self) -> None:
        """Draw for the new size, once the panes have it."""
        self.call_after_refresh(self._draw)

    # ---- polling

    async def _poll(self) -> None:
        while self.is_running:
            seen = await self._monitor.poll(self._request())
            if seen.presence is not Presence.LOST:
                self._fresh_at = self._now()
            self._report_changes(seen)
            self._seen = seen
            self._draw()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._poll_now.wait()
            self._poll_now.clear()

    def _request(self) -> SampleRequest:
        rows = self._layout.rows("hosts")
        keys = [*rows.keys[:FRESH_HOSTS], rows.selected, self._part]
        return SampleRequest(
            tuple({key for key in keys if key}),
            dead_letters=self._tab == "dead",
            metrics=self._tab == "workers",
        )

    def _report_changes(self, seen: Observation) -> None:
        """Show what has changed since the last observation."""
        last, status = self._seen, seen.sample.crawl.status
        if seen.problem and seen.problem != last.problem:
            place = self._monitor.connection.store
            self._show_answer(
                f"{seen.problem.replace(place, Path(place).name)}; trying again", "red"
            )
        elif seen.presence is not last.presence and seen.presence is Presence.ATTACHED:
            self._show_answer("attached", "green")
        elif seen.presence is not last.presence and seen.presence is Presence.ALONE:
            self._show_answer(
                "no process runs this crawl now: the numbers are from its file", "yellow"
            )
        if status in ENDED and (status is not last.sample.crawl.status or seen is last):
            self._show_answer(f"the crawl is {status}; q quits", "bold cyan")

    # ---- drawing

    @property
    def _layout(self) -> Layout:
        return self.screen_stack[0].query_one(Layout)

    def _draw(self) -> None:
        if self.is_running:
            self._layout.draw(self._frame())

    def _draw_header(self) -> None:
        if self.is_running:  # an action may be answered after the user has quit
            self._layout.draw_header(self._frame())

    def _frame(self) -> Frame:
        sampler = self._monitor.sampler
        return Frame(
            self._seen,
            self._monitor.connection.store,
            self._stale_for(),
            sampler.rate_history,
            sampler.hosts,
            sampler.dead_letters,
            self._order,
            self._part,
            self._tab,
            self._answer,
        )

    def _stale_for(self) -> float:
        age = self._now() - self._fresh_at
        is_stale = self._seen.presence is Presence.LOST or age > self._every + STALE_AFTER
        return max(0.1, age) if is_stale else 0.0

    def _show_answer(self, answer: str, style: str = "") -> None:
        self._answer = watch_draw.plain_text(answer, style)
        self._draw_header()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # ---- keys that change the crawl

    def action_host(self, name: str) -> None:
        """Apply an action to the host under the cursor."""
        key = self._selected_host()
        if key is not None:
            self._start_action(lambda frontier: self._actions[name](frontier, key))

    async def action_retire(self) -> None:
        """Ask, then retire the host."""
        key = self._selected_host()
        if key is not None:
            await self.push_screen(Question(f"Retire {key}?"), partial(self._retire, key))

    def _retire(self, key: str, is_confirmed: bool | None) -> None:
        if is_confirmed:
            self._start_action(lambda frontier: watch_actions.retire_host(frontier, key))

    def action_toggle_crawl(self) -> None:
        """Pause or resume the whole crawl."""
        self._start_action(watch_actions.toggle_crawl)

    def _selected_host(self) -> str | None:
        key = self._layout.rows("hosts").selected if self._tab == "hosts" else None
        if key is None:
            self._show_answer("choose a host first: ↑ ↓ in the list of hosts", "yellow")
        return key

    def _start_action(self, work: Callable[[Frontier], Awaitable[str]]) -> None:
        self._show_answer("…", "dim")
        self.run_worker(self._run_action(work), group="actions")

    async def _run_action(self, work: Callable[[Frontier], Awaitable[str]]) -> None:
        try:
            self._show_answer(await self._monitor.connection.call(work))
        except (OutriderError, OSError) as error:
            self._show_answer(str(error), "red")
        self._poll_now.set()

    # ---- keys that change the view

    def action_sort(self) -> None:
        """Switch to the next sort order."""
        self._order = self._order.next
        self._draw()

    def action_tab(self, tab: Tab) -> None:
        """Switch to another tab."""
        self._tab = tab
        self._layout.show_tab(tab)
        self._draw()
        self._poll_now.set()

    def action_deselect(self) -> None:
        """Remove cursor and filter."""
        self._part = ""
        self._layout.close_filter()
        for name in ("hosts", "letters"):
            self._layout.rows(name).deselect()
        self._draw()

    async def action_help(self) -> None:
        """Show all keys."""
        await self.push_screen(TextDialog("outrider watch", HELP))

    def action_filter(self) -> None:
        """Ask for a part of a key."""
        self.action_tab("hosts")
        self._layout.open_filter(self._part)

    @on(Input.Changed)
    def _part_changed(self, event: Input.Changed) -> None:
        self._part = event.value.strip()
        self._draw()

    @on(Input.Submitted)
    def _part_given(self) -> None:
        self._layout.close_filter()
        self._poll_now.set()

    @on(DataTable.RowSelected, "#hosts")
    async def _show_host(self) -> None:
        host = self._monitor.sampler.hosts.get(self._layout.rows("hosts").selected or "")
        if host is not None:
            await self.push_screen(TextDialog(host.view.key, queue_pairs(host.view)))

    @on(DataTable.RowSelected, "#letters")
    async def _show_letter(self) -> None:
        url = self._layout.rows("letters").selected
        for letter in self._monitor.sampler.dead_letters.latest:
            if letter.url == url:
                await self.push_screen(TextDialog(letter.url, letter_pairs(letter)))

    @on(DataTable.RowHighlighted, "#hosts")
    def _redraw_for_host(self) -> None:
        self._draw()


# ---- dialogs


MAX_WIDTH: Final = 100  # columns, at most


class Question(ModalScreen[bool]):
    """Asks a question; every answer but yes is no."""

    DEFAULT_CSS = """
    Question { align: center middle; }
    Question Vertical { width: 60; max-width: 90%; height: auto; padding: 1 2; background: $panel;
        border: round $warning; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)"),
        Binding("n,escape,q,enter", "answer(False)"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """Compose the question and its keys."""
        keys = (("y", "bold"), " yes   ", ("n", "bold"), " no")
        question = Text.assemble(plain_text(self._question, "bold"), "\n\n", *keys)
        question.no_wrap, question.overflow = False, "fold"
        with Vertical():
            yield Static(question, markup=False)

    def action_answer(self, answer: bool) -> None:
        """Close the dialog with the answer."""
        _ = self.dismiss(answer)


class TextDialog(ModalScreen[None]):
    """Shows a title and lines until a key is pressed."""

    DEFAULT_CSS = f"""
    TextDialog {{ align: center middle; }}
    TextDialog VerticalScroll {{ width: 90%; max-width: {MAX_WIDTH}; height: auto; max-height: 100%;
        padding: 1 2; background: $panel; border: round $primary; scrollbar-size: 1 1; }}
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark", "leave", "back"),
    ]

    def __init__(self, title: str, pairs: Iterable[tuple[str, str]]) -> None:
        super().__init__()
        self._title, self._pairs = title, list(pairs)

    def compose(self) -> ComposeResult:
        """Compose the text, scrollable."""
        width = min(MAX_WIDTH, self.app.size.width * 9 // 10) - 7
        lines = pairs(self._pairs, width)
        with VerticalScroll():
            text = Text.assemble(plain_text(self._title, "bold"), "\n\n", lines)
            yield Static(text, markup=False)

    def action_leave(self) -> None:
        """Close the dialog."""
        _ = self.dismiss(None)
