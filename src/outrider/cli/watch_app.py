"""The live view: follows a crawl, and turns keys into acts; it draws nothing itself.

Everything others wrote reaches the screen as `Text`, so that no page can style or fake the view.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Input

from outrider.cli import dead, queue, watch_acts, watch_draw
from outrider.cli.watch_plain import ENDED
from outrider.cli.watch_screens import Question, Reading
from outrider.cli.watch_view import Picture, Tab, View
from outrider.errors import OutriderError
from outrider.monitoring.connection import Presence
from outrider.monitoring.hosts import HostOrder
from outrider.monitoring.monitor import CrawlMonitor, Observation
from outrider.monitoring.sampler import SampleRequest

if TYPE_CHECKING:
    from outrider.frontier import Frontier

NEAR: Final = 20  # hosts read anew every time, however many there are
PATIENCE: Final = 3.0  # seconds without an answer, beyond those between samples, until it is said
HELP: Final = (
    ("↑ ↓", "choose a host or a letter; escape lets go of it"),
    ("enter", "all about it"),
    ("p", "pause the host, or resume it"),
    ("P", "pause the whole crawl, or resume it"),
    ("r", "retire the host, with its tasks; asks first"),
    ("R", "revive it"),
    ("s", "slow: twice its delay, at least a second"),
    ("f", "faster: half of that, at last the crawl's own rules"),
    ("z", "snooze: leave it alone for ten minutes"),
    ("w", "wake it; the delay after its last visit is kept"),
    ("t", "sort: pace, pending, delay, wait, errors, dead, key"),
    ("/", "filter by a part of the key; a whole key finds any"),
    ("h d m", "hosts, dead letters, heatmap of what is pending"),
    ("q", "quit; the crawl goes on"),
)


class WatchApp(App[None]):
    """One crawl, looked at every so many seconds."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit"),
        Binding("p", "host('pause')"),
        Binding("r", "retire"),
        Binding("R", "host('revive')"),
        Binding("z", "host('snooze')"),
        Binding("w", "host('wake')"),
        Binding("s", "host('slow')"),
        Binding("f", "host('hasten')"),
        Binding("P", "turn"),
        Binding("t", "sort"),
        Binding("h", "tab('hosts')"),
        Binding("d", "tab('dead')"),
        Binding("m", "tab('heat')"),
        Binding("slash", "filter"),
        Binding("escape", "let_go"),
        Binding("question_mark", "help"),
    ]

    def __init__(self, watch: CrawlMonitor, seen: Observation, *, every: float) -> None:
        super().__init__()
        self._watch, self._seen, self._every = watch, seen, every
        self._order, self._part = HostOrder.BUSIEST, ""
        self._tab: Tab = "hosts"
        self._answer = Text("↑ ↓ choose a host, ? tells all keys", "dim")
        self._nudge = asyncio.Event()
        self._fresh_at = 0.0
        pace = watch_acts.Pace()
        self._acts: dict[str, Callable[[Frontier, str], Awaitable[str]]] = {
            "pause": watch_acts.pause,
            "retire": watch_acts.retire,
            "revive": watch_acts.revive,
            "snooze": watch_acts.snooze,
            "wake": watch_acts.wake,
            "slow": pace.slow,
            "hasten": pace.hasten,
        }

    def compose(self) -> ComposeResult:
        """The view fills the screen."""
        yield View()

    def on_mount(self) -> None:
        """Begin to follow."""
        self._fresh_at = self._now()
        self._view.rows("hosts").focus()
        self._news(self._seen)
        self.run_worker(self._follow(), group="follow")
        self.set_interval(1.0, self._draw_head)

    def on_resize(self) -> None:
        """Draw for the new size, once it is known to the panes."""
        self.call_after_refresh(self._draw)

    # ---- following

    async def _follow(self) -> None:
        while self.is_running:
            seen = await self._watch.poll(self._asked())
            if seen.presence is not Presence.LOST:
                self._fresh_at = self._now()
            self._news(seen)
            self._seen = seen
            self._draw()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._nudge.wait()
            self._nudge.clear()

    def _asked(self) -> SampleRequest:
        rows = self._view.rows("hosts")
        near = [*rows.keys[:NEAR], rows.chosen, self._part]
        return SampleRequest(tuple({key for key in near if key}), dead_letters=self._tab == "dead")

    def _news(self, seen: Observation) -> None:
        """Say what is other than before, and what it means."""
        last, status = self._seen, seen.sample.crawl.status
        if seen.problem and seen.problem != last.problem:
            place = self._watch.connection.store
            self._say(f"{seen.problem.replace(place, Path(place).name)}; trying again", "red")
        elif seen.presence is not last.presence and seen.presence is Presence.ATTACHED:
            self._say("attached", "green")
        elif seen.presence is not last.presence and seen.presence is Presence.ALONE:
            self._say("nobody runs this crawl now: the numbers are those of its file", "yellow")
        if status in ENDED and (status is not last.sample.crawl.status or seen is last):
            self._say(f"the crawl is {status}; q leaves", "bold cyan")

    # ---- drawing

    @property
    def _view(self) -> View:
        return self.screen_stack[0].query_one(View)

    def _draw(self) -> None:
        if self.is_running:
            self._view.draw(self._picture())

    def _draw_head(self) -> None:
        if self.is_running:  # an act may be answered when somebody has left already
            self._view.draw_head(self._picture())

    def _picture(self) -> Picture:
        sampler = self._watch.sampler
        return Picture(
            self._seen,
            self._watch.connection.store,
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
        is_stale = self._seen.presence is Presence.LOST or age > self._every + PATIENCE
        return max(0.1, age) if is_stale else 0.0

    def _say(self, answer: str, style: str = "") -> None:
        self._answer = watch_draw.plain(answer, style)
        self._draw_head()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # ---- keys that act

    def action_host(self, name: str) -> None:
        """Do something to the host under the cursor."""
        key = self._chosen()
        if key is not None:
            self._do(lambda frontier: self._acts[name](frontier, key))

    async def action_retire(self) -> None:
        """Retire it, if that is really meant."""
        key = self._chosen()
        if key is not None:
            await self.push_screen(Question(f"Retire {key}?"), partial(self._retire, key))

    def _retire(self, key: str, is_meant: bool | None) -> None:
        if is_meant:
            self._do(lambda frontier: watch_acts.retire(frontier, key))

    def action_turn(self) -> None:
        """Pause or resume the whole crawl."""
        self._do(watch_acts.turn)

    def _chosen(self) -> str | None:
        key = self._view.rows("hosts").chosen if self._tab == "hosts" else None
        if key is None:
            self._say("choose a host first: ↑ ↓ in the list of hosts", "yellow")
        return key

    def _do(self, work: Callable[[Frontier], Awaitable[str]]) -> None:
        self._say("…", "dim")
        self.run_worker(self._done(work), group="acts")

    async def _done(self, work: Callable[[Frontier], Awaitable[str]]) -> None:
        try:
            self._say(await self._watch.connection.call(work))
        except (OutriderError, OSError) as error:
            self._say(str(error), "red")
        self._nudge.set()

    # ---- keys that look

    def action_sort(self) -> None:
        """By something else."""
        self._order = self._order.next
        self._draw()

    def action_tab(self, tab: Tab) -> None:
        """Another page."""
        self._tab = tab
        self._view.turn_to(tab)
        self._draw()
        self._nudge.set()

    def action_let_go(self) -> None:
        """No cursor, no filter."""
        self._part = ""
        self._view.end_part()
        for name in ("hosts", "letters"):
            self._view.rows(name).let_go()
        self._draw()

    async def action_help(self) -> None:
        """All keys."""
        await self.push_screen(Reading("outrider watch", HELP))

    def action_filter(self) -> None:
        """Type a part of a key."""
        self.action_tab("hosts")
        self._view.ask_part(self._part)

    @on(Input.Changed)
    def _part_changed(self, event: Input.Changed) -> None:
        self._part = event.value.strip()
        self._draw()

    @on(Input.Submitted)
    def _part_given(self) -> None:
        self._view.end_part()
        self._nudge.set()

    @on(DataTable.RowSelected, "#hosts")
    async def _about_host(self) -> None:
        host = self._watch.sampler.hosts.get(self._view.rows("hosts").chosen or "")
        if host is not None:
            await self.push_screen(Reading(host.view.key, queue.pairs_of(host.view)))

    @on(DataTable.RowSelected, "#letters")
    async def _about_letter(self) -> None:
        url = self._view.rows("letters").chosen
        for letter in self._watch.sampler.dead_letters.latest:
            if letter.url == url:
                await self.push_screen(Reading(letter.url, dead.pairs_of(letter)))

    @on(DataTable.RowHighlighted, "#hosts")
    def _another_host(self) -> None:
        self._draw()
