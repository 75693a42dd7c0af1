"""Hosts and dead letters as rows of a table as wide as there is room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from outrider.cli.showing import STATES
from outrider.cli.watch_draw import brief, per_minute, plain, short
from outrider.cli.watch_table import Column, Row
from outrider.frontier.reports import DeadLetter
from outrider.monitoring.hosts import Host

_LEAST_KEY: Final = 16
_WIDE_FROM: Final = 96  # columns, for the reason beside the state
_STATE: Final = 9
_STATE_WIDE: Final = 24


def host_columns(width: int) -> Sequence[Column]:
    """What is told of a host; its key takes the room that is left."""
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
    return (Column("host", _left(width, rest), is_number=False), *rest)


def host_row(host: Host, columns: Sequence[Column]) -> Row:
    """One host."""
    view, is_wide = host.view, columns[1].width == _STATE_WIDE
    why = f" ({view.reason})" if view.reason and is_wide else ""
    key = plain(view.key)
    key.truncate(columns[0].width - 1, overflow="ellipsis")
    cells = (
        *(key, plain(f"{view.state}{why}", STATES[view.state])),
        *(_number(short(view.pending)), _number(short(view.in_flight), view.in_flight)),
        *(_number(short(view.done)), _number(per_minute(host.pace), host.pace)),
        *(_number(brief(view.delay)), _number(brief(view.wakes_in or None))),
        _number(short(view.errors_in_row), view.errors_in_row, "red"),
    )
    return Row(view.key, cells)


def letter_columns(width: int) -> Sequence[Column]:
    """What is told of a dead letter; its URL takes the room that is left."""
    rest = (Column("died", 7), Column("tries", 6), Column("", 1), Column("reason", 20, False))
    return (*rest, Column("URL", _left(width, rest), is_number=False))


def letter_row(letter: DeadLetter, columns: Sequence[Column], now: float) -> Row:
    """One dead letter."""
    url, reason = plain(letter.url), plain(letter.reason, "red")
    url.truncate(columns[4].width, overflow="ellipsis")
    reason.truncate(columns[3].width - 1, overflow="ellipsis")
    ago, tries = brief(max(0.0, now - letter.died_at)), str(len(letter.attempts))
    return Row(letter.url, (_number(ago), _number(tries), Text(""), reason, url))


def _left(width: int, rest: Sequence[Column]) -> int:
    return max(_LEAST_KEY, width - sum(column.width for column in rest))


def _number(told: str, value: float | None = 1, style: str = "") -> Text:
    """At the right; nothing is dim."""
    return Text(told, style if value else "dim", justify="right", no_wrap=True)
