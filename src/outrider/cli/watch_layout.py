"""The panes of the live view, its tables, and how one frame is drawn on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, assert_never

import msgspec
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.coordinate import Coordinate
from textual.widgets import ContentSwitcher, DataTable, Input, Static

from outrider.cli import watch_draw
from outrider.cli.queues import queue_pairs
from outrider.cli.terminal import STATES, format_count
from outrider.cli.watch_draw import per_minute, plain_text, short_count, short_time
from outrider.frontier.reports import DeadLetter
from outrider.monitoring.connection import Presence
from outrider.monitoring.dead_letters import DeadLetters
from outrider.monitoring.hosts import Host, HostOrder, Hosts
from outrider.monitoring.monitor import Observation
from outrider.monitoring.rates import RateHistory

CHART_SECONDS: Final = 300.0  # of the chart
MAX_HOSTS: Final = 100  # in the table
SIDE_HOSTS: Final = 5  # in each list at the side
SIDE_FROM: Final = 116  # columns, for the pane at the side
SIDE_WIDTH: Final = 38
TALL_FROM: Final = 34  # lines, for a higher chart
KEYS: Final = (
    *(("p", "pause"), ("r", "retire"), ("s", "slow"), ("f", "faster"), ("z", "snooze")),
    *(("w", "wake"), ("t", "sort"), ("/", "filter"), ("d", "dead"), ("m", "map")),
    *(("k", "workers"),),
    *(("?", "help"), ("q", "quit")),
)
OPTIONAL_KEYS: Final = frozenset("fwmk")  # not listed on a narrow terminal
ALL_KEYS_FROM: Final = 104  # columns
Tab: TypeAlias = Literal["hosts", "dead", "heat", "workers"]
TABS: Final[dict[Tab, str]] = {
    "hosts": "hosts",
    "dead": "dead letters",
    "heat": "heatmap",
    "workers": "workers",
}


class Frame(msgspec.Struct, frozen=True):
    """Everything that one drawing of the view shows."""

    seen: Observation
    place: str
    stale_for: float  # seconds without an answer; 0: the numbers are fresh
    history: RateHistory
    hosts: Hosts
    letters: DeadLetters
    order: HostOrder
    part: str  # filter: part of the keys that are shown
    tab: Tab
    answer: Text


class Layout(Vertical):
    """The layout: numbers at the top, one of four tabs, the last answer, and the keys."""

    DEFAULT_CSS = f"""
    Layout {{ background: $background; }}
    Layout Static {{ height: auto; }}
    Layout #numbers {{ height: auto; }}
    Layout #body {{ height: 1fr; }}
    Layout ContentSwitcher {{ width: 1fr; height: 1fr; }}
    Layout #side {{ width: {SIDE_WIDTH}; padding: 0 0 0 2; display: none; scrollbar-size: 1 1; }}
    Layout.-wide #side {{ display: block; }}
    Layout.-tall #rates, Layout.-tall #states {{ margin-top: 1; }}
    Layout.-tall #tabs {{ margin-top: 1; }}
    Layout #heat, Layout #workers {{ scrollbar-size: 1 1; }}
    Layout #answer, Layout #keys, Layout #tabs {{ height: 1; }}
    Layout #filter {{ height: 1; border: none; padding: 0; display: none; background: $boost; }}
    Layout.-stale #numbers, Layout.-stale #body {{ text-opacity: 40%; }}
    """

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[str, Text] = {}

    def compose(self) -> ComposeResult:
        """Compose the panes from top to bottom."""
        yield Static(id="head", markup=False)
        with Vertical(id="numbers"):
            for name in ("counters", "rates", "progress", "states"):
                yield Static(id=name, markup=False)
        yield Static(id="tabs", markup=False)
        with Horizontal(id="body"):
            with ContentSwitcher(initial="hosts"):
                yield TableWidget(id="hosts")
                with Vertical(id="dead"):
                    yield Static(id="reasons", markup=False)
                    yield TableWidget(id="letters")
                with VerticalScroll(id="heat"):
                    yield Static(id="map", markup=False)
                with VerticalScroll(id="workers"):
                    yield Static(id="metrics", markup=False)
            with VerticalScroll(id="side", can_focus=False):
                yield Static(id="aside", markup=False)
        yield Static(id="answer", markup=False)
        yield Input(
            id="filter", placeholder="part of a host's name; enter keeps the filter, escape ends it"
        )
        yield Static(id="keys", markup=False)

    def rows(self, name: str) -> TableWidget:
        """The table of this id."""
        return self.query_one(f"#{name}", TableWidget)

    def show_tab(self, tab: Tab) -> None:
        """Show a tab, and give it the focus."""
        self.query_one(ContentSwitcher).current = tab
        self.query_one({"dead": "#letters"}.get(tab, f"#{tab}")).focus()

    def open_filter(self, part: str) -> None:
        """Show the filter input in place of the answer."""
        input_ = self.query_one(Input)
        input_.value, input_.display = part, True
        self.query_one("#answer").display = False
        input_.focus()

    def close_filter(self) -> None:
        """Hide the filter input, and focus the hosts."""
        self.query_one(Input).display = False
        self.query_one("#answer").display = True
        self.rows("hosts").focus()

    def draw(self, frame: Frame) -> None:
        """Draw everything."""
        self.set_class(self.size.width >= SIDE_FROM, "-wide")
        self.set_class(self.size.height >= TALL_FROM, "-tall")
        self.draw_header(frame)
        self._draw_numbers(frame)
        self._update("tabs", _tabs_text(frame))
        self._draw_tab(frame)
        if self.has_class("-wide"):
            self._draw_side(frame)
        self._update("keys", _keys_text(self.size.width))

    def draw_header(self, frame: Frame) -> None:
        """Draw what changes without a new sample."""
        self.set_class(frame.stale_for > 0, "-stale")
        width = self.size.width
        self._update("head", watch_draw.head(frame.seen, frame.place, width, frame.stale_for))
        self._update("answer", frame.answer)

    def _draw_numbers(self, frame: Frame) -> None:
        sample, width = frame.seen.sample, self.size.width
        height = 5 if self.has_class("-tall") else 2
        pace = frame.history.pace(max(8, width - watch_draw.RATES_WIDTH), CHART_SECONDS)
        self._update("counters", watch_draw.counters(sample, width))
        rates = None if frame.seen.presence is Presence.ALONE else sample.rates
        self._update("rates", watch_draw.rates(rates, pace, width, height))
        self._update("progress", watch_draw.progress(sample.progress, width))
        self._update("states", watch_draw.states(sample, width))

    def _draw_tab(self, frame: Frame) -> None:
        match frame.tab:
            case "hosts":
                self._draw_hosts(frame)
            case "dead":
                self._draw_letters(frame)
            case "heat":
                self._draw_map(frame)
            case "workers":
                self._draw_workers(frame)
            case _:
                assert_never(frame.tab)

    def _draw_hosts(self, frame: Frame) -> None:
        columns = host_columns(self._width() - 1)
        hosts = frame.hosts.ranked(frame.order, MAX_HOSTS, frame.part)
        self.rows("hosts").show(columns, [host_row(host, columns) for host in hosts])

    def _draw_letters(self, frame: Frame) -> None:
        columns, sample = letter_columns(self._width() - 1), frame.seen.sample
        rows = [letter_row(one, columns, sample.at) for one in frame.letters.latest]
        self._update("reasons", _reasons_text(frame.letters, sample.crawl.known))
        self.rows("letters").show(columns, rows)

    def _draw_map(self, frame: Frame) -> None:
        self._update("map", watch_draw.heatmap(frame.seen.sample, self._width() - 2))

    def _draw_workers(self, frame: Frame) -> None:
        sample = frame.seen.sample
        self._update("metrics", watch_draw.workers(sample, self._width() - 2))

    def _draw_side(self, frame: Frame) -> None:
        space, ranked = SIDE_WIDTH - 4, frame.hosts.ranked
        drawn = [
            watch_draw.leaders(
                "busiest", ranked(HostOrder.BUSIEST, SIDE_HOSTS), space, by_pace=True
            ),
            watch_draw.leaders(
                "slowest", ranked(HostOrder.SLOWEST, SIDE_HOSTS), space, by_pace=False
            ),
        ]
        host = frame.hosts.get(self.rows("hosts").selected or "")
        if host is not None and frame.tab == "hosts":
            drawn.append(watch_draw.pairs(queue_pairs(host.view), space))
        self._update("aside", Text("\n\n").join(drawn))

    def _width(self) -> int:
        return self.size.width - (SIDE_WIDTH if self.has_class("-wide") else 0)

    def _update(self, name: str, drawn: Text) -> None:
        """Update a pane if its text changed; lay out again only if its number of lines did."""
        before = self._texts.get(name)
        if drawn != before:
            self._texts[name] = drawn
            is_moved = before is None or before.plain.count("\n") != drawn.plain.count("\n")
            self.query_one(f"#{name}", Static).update(drawn, layout=is_moved)


def _tabs_text(frame: Frame) -> Text:
    drawn = Text(no_wrap=True, overflow="ellipsis")
    dead = frame.seen.sample.crawl.dead
    for tab, name in TABS.items():
        count = f" {watch_draw.short_count(dead)}" if tab == "dead" and dead else ""
        drawn.append(f" {name}{count} ", "bold reverse" if tab == frame.tab else "dim")
        drawn.append(" ")
    if frame.tab == "hosts":
        drawn.append(f"  {_HEADINGS[frame.order]}", "dim")
    if frame.part:
        drawn.append_text(plain_text(f"  /{frame.part}", "bold yellow"))
    return drawn


_HEADINGS: Final = {
    HostOrder.BUSIEST: "busiest first",
    HostOrder.PENDING: "most pending first",
    HostOrder.SLOWEST: "slowest first",
    HostOrder.WAITING: "longest wait first",
    HostOrder.ERRORS: "most errors in a row first",
    HostOrder.DEAD: "most dead letters first",
    HostOrder.KEY: "by key",
}


def _keys_text(width: int) -> Text:
    drawn = Text(no_wrap=True, overflow="ellipsis")
    for key, name in KEYS:
        if width >= ALL_KEYS_FROM or key not in OPTIONAL_KEYS:
            drawn.append(key, "bold yellow").append(f" {name}  ", "dim")
    return drawn


def _reasons_text(letters: DeadLetters, known: int) -> Text:
    lines = [
        Text.assemble((f"{n:>8,} ", "bold red"), plain_text(r)) for r, n in letters.most_common
    ]
    if not letters.is_whole:
        done = letters.scanned / known if known else 1.0
        lines.insert(
            0, Text(f"looking through {format_count(known, 'task')}: {done:.0%}", "yellow")
        )
    elif not lines:
        lines.append(Text("no dead letters", "dim"))
    return Text("\n").join(lines)


# ---- rows of the tables


_MIN_KEY: Final = 16
_WIDE_FROM: Final = 96  # columns, for the reason beside the state
_STATE: Final = 9
_STATE_WIDE: Final = 24


def host_columns(width: int) -> Sequence[Column]:
    """The columns of a host; its key takes the remaining width."""
    state = _STATE_WIDE if width >= _WIDE_FROM else _STATE
    rest = (
        Column("state", state, is_number=False),
        Column("pending", 8),
        Column("now", 4),
        Column("done", 8),
        Column("/min", 6),
        Column("delay", 6),
        Column("wakes", 6),
        Column("err", 4),
    )
    return (Column("host", _remaining_width(width, rest), is_number=False), *rest)


def host_row(host: Host, columns: Sequence[Column]) -> Row:
    """The row of a host."""
    view, is_wide = host.view, columns[1].width == _STATE_WIDE
    why = f" ({view.reason})" if view.reason and is_wide else ""
    key = plain_text(view.key)
    key.truncate(columns[0].width - 1, overflow="ellipsis")
    cells = (
        *(key, plain_text(f"{view.state}{why}", STATES[view.state])),
        *(
            _number_cell(short_count(view.pending)),
            _number_cell(short_count(view.in_flight), view.in_flight),
        ),
        *(_number_cell(short_count(view.done)), _number_cell(per_minute(host.pace), host.pace)),
        *(_number_cell(short_time(view.delay)), _number_cell(short_time(view.wakes_in or None))),
        _number_cell(short_count(view.errors_in_row), view.errors_in_row, "red"),
    )
    return Row(view.key, cells)


def letter_columns(width: int) -> Sequence[Column]:
    """The columns of a dead letter; its URL takes the remaining width."""
    rest = (Column("died", 7), Column("tries", 6), Column("", 1), Column("reason", 20, False))
    return (*rest, Column("URL", _remaining_width(width, rest), is_number=False))


def letter_row(letter: DeadLetter, columns: Sequence[Column], now: float) -> Row:
    """The row of a dead letter."""
    url, reason = plain_text(letter.url), plain_text(letter.reason, "red")
    url.truncate(columns[4].width, overflow="ellipsis")
    reason.truncate(columns[3].width - 1, overflow="ellipsis")
    ago, tries = short_time(max(0.0, now - letter.died_at)), str(len(letter.attempts))
    return Row(letter.url, (_number_cell(ago), _number_cell(tries), Text(""), reason, url))


def _remaining_width(width: int, rest: Sequence[Column]) -> int:
    return max(_MIN_KEY, width - sum(column.width for column in rest))


def _number_cell(drawn: str, value: float | None = 1, style: str = "") -> Text:
    """A cell aligned right; zero is dimmed."""
    return Text(drawn, style if value else "dim", justify="right", no_wrap=True)


# ---- the table widget


_IDLE: Final = "-idle"


class Column(NamedTuple):
    """A column's header and width; numbers are aligned right."""

    name: str
    width: int
    is_number: bool = True


class Row(NamedTuple):
    """The key of a row, and its cells."""

    key: str
    cells: Sequence[Text]


class TableWidget(DataTable[Text]):
    """A table whose rows are replaced every second, and whose cursor stays on its row's key.

    There is no cursor until a row is selected: the list may be watched without being held. Cells
    are `Text` only: the widget would read strings as markup.
    """

    DEFAULT_CSS = """
    TableWidget { height: 1fr; max-height: 1fr; background: $background; scrollbar-size: 1 1; }
    TableWidget:focus { background-tint: $foreground 0%; }
    TableWidget > .datatable--header {
        background: $background; color: $text-muted; text-style: none;
    }
    TableWidget:focus > .datatable--header { background-tint: $foreground 0%; }
    TableWidget.-idle > .datatable--cursor, TableWidget.-idle:focus > .datatable--cursor {
        background: $background; color: $foreground; text-style: none;
    }
    TableWidget > .datatable--hover { background: $background; }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(cursor_type="row", cell_padding=0, id=id, classes=_IDLE)
        self.keys: list[str] = []
        self._columns: Sequence[Column] = ()
        self._shown: Sequence[Row] = ()

    @property
    def selected(self) -> str | None:
        """The key of the row under the cursor; None if no row was selected."""
        if self.has_class(_IDLE) or not 0 <= self.cursor_row < len(self.keys):
            return None
        return self.keys[self.cursor_row]

    def show(self, columns: Sequence[Column], rows: Sequence[Row]) -> None:
        """Replace the rows."""
        chosen = self.selected
        with self.app.batch_update():
            if columns != self._columns:
                self._set_columns(columns)
            self._set_rows(rows)
        self.keys = [row.key for row in rows]
        self._keep_cursor_on(chosen)

    def select_first(self) -> bool:
        """Put the cursor on the first row if there was none; return whether that was so."""
        if not self.has_class(_IDLE) or not self.keys:
            return False
        self.remove_class(_IDLE)
        self.move_cursor(row=0)
        return True

    def deselect(self) -> None:
        """Remove the cursor."""
        self.add_class(_IDLE)
        self.move_cursor(row=0)

    def _set_columns(self, columns: Sequence[Column]) -> None:
        self.clear(columns=True)
        self._columns, self._shown = columns, []
        for column in columns:
            head = Text(column.name, justify="right" if column.is_number else "left")
            self.add_column(head, width=column.width)

    def _set_rows(self, rows: Sequence[Row]) -> None:
        before, self._shown = self._shown, rows
        for number in range(len(before) - 1, len(rows) - 1, -1):
            self.remove_row(str(number))
        for number, row in enumerate(rows):
            if number >= len(before):
                self.add_row(*row.cells, key=str(number))
            elif row.cells != before[number].cells:
                self._set_cells(number, before[number].cells, row.cells)

    def _set_cells(self, number: int, before: Sequence[Text], cells: Sequence[Text]) -> None:
        for place, (old, new) in enumerate(zip(before, cells, strict=True)):
            if old != new:
                self.update_cell_at(Coordinate(number, place), new)

    def _keep_cursor_on(self, chosen: str | None) -> None:
        if chosen is None:
            return
        if chosen not in self.keys:
            self.deselect()
        elif self.keys.index(chosen) != self.cursor_row:
            self.move_cursor(row=self.keys.index(chosen), animate=False)

    # ---- the first key press only shows the cursor

    def action_cursor_down(self) -> None:
        """Move one row down."""
        if not self.select_first():
            super().action_cursor_down()

    def action_cursor_up(self) -> None:
        """Move one row up."""
        if not self.select_first():
            super().action_cursor_up()

    def action_page_down(self) -> None:
        """Move one screen down."""
        if not self.select_first():
            super().action_page_down()

    def action_select_cursor(self) -> None:
        """Open the row under the cursor."""
        if not self.select_first():
            super().action_select_cursor()

    def on_click(self) -> None:
        """Select a row by a click."""
        self.remove_class(_IDLE)
