"""The panes of the live view, and how one picture of a crawl is drawn on them."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, assert_never

import msgspec
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import ContentSwitcher, Input, Static

from outrider.cli import queue, watch_draw
from outrider.cli.showing import many
from outrider.cli.watch_draw import plain
from outrider.cli.watch_table import Rows
from outrider.cli.watch_tables import host_columns, host_row, letter_columns, letter_row
from outrider.monitoring.connection import Presence
from outrider.monitoring.dead_letters import DeadLetters
from outrider.monitoring.hosts import HostOrder, Hosts
from outrider.monitoring.monitor import Observation
from outrider.monitoring.rates import RateHistory

SPAN: Final = 300.0  # seconds of the chart
SHOWN: Final = 100  # hosts of the table
LEADERS: Final = 5  # hosts of the lists at the side
SIDE_FROM: Final = 116  # columns, for the pane at the side
SIDE: Final = 38
TALL_FROM: Final = 34  # lines, for a higher chart
KEYS: Final = (
    *(("p", "pause"), ("r", "retire"), ("s", "slow"), ("f", "faster"), ("z", "snooze")),
    *(("w", "wake"), ("t", "sort"), ("/", "filter"), ("d", "dead"), ("m", "map")),
    *(("?", "help"), ("q", "quit")),
)
LEFT_OUT: Final = frozenset("fwm")  # of the keys named at the bottom, where there is no room
ALL_KEYS_FROM: Final = 92  # columns
Tab: TypeAlias = Literal["hosts", "dead", "heat"]
TABS: Final[dict[Tab, str]] = {"hosts": "hosts", "dead": "dead letters", "heat": "heatmap"}


class Picture(msgspec.Struct, frozen=True):
    """All that is drawn at one time."""

    seen: Observation
    place: str
    stale_for: float  # seconds without an answer; 0: the numbers are fresh
    history: RateHistory
    hosts: Hosts
    letters: DeadLetters
    order: HostOrder
    part: str  # of the keys that are shown
    tab: Tab
    answer: Text


class View(Vertical):
    """Lines of numbers at the top, one of three pages, what was answered, and the keys."""

    DEFAULT_CSS = f"""
    View {{ background: $background; }}
    View Static {{ height: auto; }}
    View #numbers {{ height: auto; }}
    View #body {{ height: 1fr; }}
    View ContentSwitcher {{ width: 1fr; height: 1fr; }}
    View #side {{ width: {SIDE}; padding: 0 0 0 2; display: none; scrollbar-size: 1 1; }}
    View.-wide #side {{ display: block; }}
    View.-tall #rates, View.-tall #states {{ margin-top: 1; }}
    View.-tall #tabs {{ margin-top: 1; }}
    View #heat {{ scrollbar-size: 1 1; }}
    View #answer, View #keys, View #tabs {{ height: 1; }}
    View #filter {{ height: 1; border: none; padding: 0; display: none; background: $boost; }}
    View.-stale #numbers, View.-stale #body {{ text-opacity: 40%; }}
    """

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, Text] = {}

    def compose(self) -> ComposeResult:
        """From the top to the bottom."""
        yield Static(id="head", markup=False)
        with Vertical(id="numbers"):
            for name in ("counters", "rates", "states"):
                yield Static(id=name, markup=False)
        yield Static(id="tabs", markup=False)
        with Horizontal(id="body"):
            with ContentSwitcher(initial="hosts"):
                yield Rows(id="hosts")
                with Vertical(id="dead"):
                    yield Static(id="reasons", markup=False)
                    yield Rows(id="letters")
                with VerticalScroll(id="heat"):
                    yield Static(id="map", markup=False)
            with VerticalScroll(id="side", can_focus=False):
                yield Static(id="aside", markup=False)
        yield Static(id="answer", markup=False)
        yield Input(
            id="filter", placeholder="part of a host's name; enter keeps it, escape ends it"
        )
        yield Static(id="keys", markup=False)

    def rows(self, name: str) -> Rows:
        """One of the tables."""
        return self.query_one(f"#{name}", Rows)

    def turn_to(self, tab: Tab) -> None:
        """Show this page, and let keys reach it."""
        self.query_one(ContentSwitcher).current = tab
        self.query_one({"hosts": "#hosts", "dead": "#letters", "heat": "#heat"}[tab]).focus()

    def ask_part(self, part: str) -> None:
        """Let a part of a key be typed, in place of the answer."""
        asking = self.query_one(Input)
        asking.value, asking.display = part, True
        self.query_one("#answer").display = False
        asking.focus()

    def end_part(self) -> None:
        """Back to the list."""
        self.query_one(Input).display = False
        self.query_one("#answer").display = True
        self.rows("hosts").focus()

    def draw(self, picture: Picture) -> None:
        """All of it."""
        self.set_class(self.size.width >= SIDE_FROM, "-wide")
        self.set_class(self.size.height >= TALL_FROM, "-tall")
        self.draw_head(picture)
        self._draw_numbers(picture)
        self._tell("tabs", _tabs(picture))
        self._draw_page(picture)
        if self.has_class("-wide"):
            self._draw_aside(picture)
        self._tell("keys", _keys(self.size.width))

    def draw_head(self, picture: Picture) -> None:
        """What changes without a new sample."""
        self.set_class(picture.stale_for > 0, "-stale")
        width = self.size.width
        self._tell("head", watch_draw.head(picture.seen, picture.place, width, picture.stale_for))
        self._tell("answer", picture.answer)

    def _draw_numbers(self, picture: Picture) -> None:
        sample, width = picture.seen.sample, self.size.width
        height = 5 if self.has_class("-tall") else 2
        pace = picture.history.pace(max(8, width - watch_draw.RATES_ROOM), SPAN)
        self._tell("counters", watch_draw.counters(sample, width))
        rates = None if picture.seen.presence is Presence.ALONE else sample.rates
        self._tell("rates", watch_draw.rates(rates, pace, width, height))
        self._tell("states", watch_draw.states(sample, width))

    def _draw_page(self, picture: Picture) -> None:
        match picture.tab:
            case "hosts":
                self._draw_hosts(picture)
            case "dead":
                self._draw_letters(picture)
            case "heat":
                self._draw_map(picture)
            case _:
                assert_never(picture.tab)

    def _draw_hosts(self, picture: Picture) -> None:
        columns = host_columns(self._room() - 1)
        hosts = picture.hosts.ranked(picture.order, SHOWN, picture.part)
        self.rows("hosts").show(columns, [host_row(host, columns) for host in hosts])

    def _draw_letters(self, picture: Picture) -> None:
        columns, sample = letter_columns(self._room() - 1), picture.seen.sample
        rows = [letter_row(one, columns, sample.at) for one in picture.letters.latest]
        self._tell("reasons", _reasons(picture.letters, sample.crawl.known))
        self.rows("letters").show(columns, rows)

    def _draw_map(self, picture: Picture) -> None:
        self._tell("map", watch_draw.heatmap(picture.seen.sample, self._room() - 2))

    def _draw_aside(self, picture: Picture) -> None:
        room, ranked = SIDE - 4, picture.hosts.ranked
        told = [
            watch_draw.leaders("busiest", ranked(HostOrder.BUSIEST, LEADERS), room, by_pace=True),
            watch_draw.leaders("slowest", ranked(HostOrder.SLOWEST, LEADERS), room, by_pace=False),
        ]
        host = picture.hosts.get(self.rows("hosts").chosen or "")
        if host is not None and picture.tab == "hosts":
            told.append(watch_draw.pairs(queue.pairs_of(host.view), room))
        self._tell("aside", Text("\n\n").join(told))

    def _room(self) -> int:
        return self.size.width - (SIDE if self.has_class("-wide") else 0)

    def _tell(self, name: str, told: Text) -> None:
        """Only what is other is drawn; only another number of lines moves the rest."""
        before = self._told.get(name)
        if told != before:
            self._told[name] = told
            is_moved = before is None or before.plain.count("\n") != told.plain.count("\n")
            self.query_one(f"#{name}", Static).update(told, layout=is_moved)


def _tabs(picture: Picture) -> Text:
    told = Text(no_wrap=True, overflow="ellipsis")
    dead = picture.seen.sample.crawl.dead
    for tab, name in TABS.items():
        count = f" {watch_draw.short(dead)}" if tab == "dead" and dead else ""
        told.append(f" {name}{count} ", "bold reverse" if tab == picture.tab else "dim")
        told.append(" ")
    if picture.tab == "hosts":
        told.append(f"  {_HEADINGS[picture.order]}", "dim")
    if picture.part:
        told.append_text(plain(f"  /{picture.part}", "bold yellow"))
    return told


_HEADINGS: Final = {
    HostOrder.BUSIEST: "busiest first",
    HostOrder.PENDING: "most pending first",
    HostOrder.SLOWEST: "slowest first",
    HostOrder.WAITING: "longest wait first",
    HostOrder.ERRORS: "most errors in a row first",
    HostOrder.DEAD: "most dead letters first",
    HostOrder.KEY: "by key",
}


def _keys(width: int) -> Text:
    told = Text(no_wrap=True, overflow="ellipsis")
    for key, name in KEYS:
        if width >= ALL_KEYS_FROM or key not in LEFT_OUT:
            told.append(key, "bold yellow").append(f" {name}  ", "dim")
    return told


def _reasons(letters: DeadLetters, known: int) -> Text:
    lines = [Text.assemble((f"{n:>8,} ", "bold red"), plain(r)) for r, n in letters.most_common]
    if not letters.is_whole:
        done = letters.scanned / known if known else 1.0
        lines.insert(0, Text(f"looking through {many(known, 'task')}: {done:.0%}", "yellow"))
    elif not lines:
        lines.append(Text("no dead letters", "dim"))
    return Text("\n").join(lines)
