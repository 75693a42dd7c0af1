"""A table whose rows come anew every second, and whose cursor stays with the row it was put on.

Until somebody chooses a row there is no cursor: the list may be watched without being held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.text import Text
from textual.coordinate import Coordinate
from textual.widgets import DataTable

_IDLE: Final = "-idle"


class Column(NamedTuple):
    """A head, and how many cells it is wide; numbers stand at its right."""

    name: str
    width: int
    is_number: bool = True


class Row(NamedTuple):
    """What a row is of, and its cells."""

    key: str
    cells: Sequence[Text]


class Rows(DataTable[Text]):
    """Cells are `Text` only: this widget would read others' strings as markup."""

    DEFAULT_CSS = """
    Rows { height: 1fr; max-height: 1fr; background: $background; scrollbar-size: 1 1; }
    Rows:focus { background-tint: $foreground 0%; }
    Rows > .datatable--header { background: $background; color: $text-muted; text-style: none; }
    Rows:focus > .datatable--header { background-tint: $foreground 0%; }
    Rows.-idle > .datatable--cursor, Rows.-idle:focus > .datatable--cursor {
        background: $background; color: $foreground; text-style: none;
    }
    Rows > .datatable--hover { background: $background; }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(cursor_type="row", cell_padding=0, id=id, classes=_IDLE)
        self.keys: list[str] = []
        self._heads: Sequence[Column] = ()
        self._shown: Sequence[Row] = ()

    @property
    def chosen(self) -> str | None:
        """What the cursor is on, if somebody put it there."""
        if self.has_class(_IDLE) or not 0 <= self.cursor_row < len(self.keys):
            return None
        return self.keys[self.cursor_row]

    def show(self, columns: Sequence[Column], rows: Sequence[Row]) -> None:
        """These instead of those before."""
        chosen = self.chosen
        with self.app.batch_update():
            if columns != self._heads:
                self._set_heads(columns)
            self._set_rows(rows)
        self.keys = [row.key for row in rows]
        self._stay_with(chosen)

    def choose(self) -> bool:
        """Put the cursor on the first row, if there was none."""
        if not self.has_class(_IDLE) or not self.keys:
            return False
        self.remove_class(_IDLE)
        self.move_cursor(row=0)
        return True

    def let_go(self) -> None:
        """Watch again."""
        self.add_class(_IDLE)
        self.move_cursor(row=0)

    def _set_heads(self, columns: Sequence[Column]) -> None:
        self.clear(columns=True)
        self._heads, self._shown = columns, []
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

    def _stay_with(self, chosen: str | None) -> None:
        if chosen is None:
            return
        if chosen not in self.keys:
            self.let_go()
        elif self.keys.index(chosen) != self.cursor_row:
            self.move_cursor(row=self.keys.index(chosen), animate=False)

    # ---- the first key only shows the cursor

    def action_cursor_down(self) -> None:
        """One further down."""
        if not self.choose():
            super().action_cursor_down()

    def action_cursor_up(self) -> None:
        """One further up."""
        if not self.choose():
            super().action_cursor_up()

    def action_page_down(self) -> None:
        """A screen further down."""
        if not self.choose():
            super().action_page_down()

    def action_select_cursor(self) -> None:
        """What is there about this one."""
        if not self.choose():
            super().action_select_cursor()

    def on_click(self) -> None:
        """A click chooses as well."""
        self.remove_class(_IDLE)
