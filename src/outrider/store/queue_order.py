"""Orders in which queues are listed without reading all of them, and cursors of pages (E8).

A cursor names the queue it is behind: by its key, or by its wake time and number. It stays valid
whatever happens to that queue.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias, get_args

from outrider.errors import InvalidInput

# "key": by code points. "wake": those that only wait for time, by wake time and number.
QueueOrder: TypeAlias = Literal["key", "wake"]

MAX_PREFIX_CHARS: Final = 1024
MAX_CURSOR_CHARS: Final = 1025
FIRST_CHARACTER: Final = "\x01"  # in no key, and nor is the last: they are not printable
LAST_CHARACTER: Final = "\U0010ffff"
_KEY_MARK: Final = ">"
_is_wake_cursor = re.compile(r"[0-9]{1,19}\.[0-9]{1,19}").fullmatch


def validate_order(order: str, prefix: str, after: str) -> None:
    """Raise InvalidInput unless queues may be listed so, from that cursor on."""
    if order not in get_args(QueueOrder):
        raise InvalidInput(f"order={order!r}: one of {', '.join(get_args(QueueOrder))}")
    if prefix and order != "key":
        raise InvalidInput(f"prefix={prefix[:50]!r}: only order='key' has one; leave it out")
    if len(prefix) > MAX_PREFIX_CHARS:
        raise InvalidInput(f"prefix={prefix[:50]!r}… is longer than {MAX_PREFIX_CHARS}")
    is_cursor = after.startswith(_KEY_MARK) if order == "key" else _is_wake_cursor(after)
    if after and not (is_cursor and len(after) <= MAX_CURSOR_CHARS):
        raise InvalidInput(
            f"after={after[:50]!r} is no cursor of order={order!r}: give '' for the first page, or"
            " the cursor of the page before"
        )


def key_cursor(key: str) -> str:
    """Return the cursor behind a key."""
    return _KEY_MARK + key


def key_range(prefix: str, after: str) -> tuple[str, str]:
    """Return the bounds of the keys with a prefix behind a cursor, the upper one excluded."""
    first = max(prefix, after.removeprefix(_KEY_MARK) + FIRST_CHARACTER) if after else prefix
    return first, prefix + LAST_CHARACTER


def wake_cursor(at: int, number: int) -> str:
    """Return the cursor behind a queue's wake time."""
    return f"{at}.{number}"


def wake_of_cursor(cursor: str) -> tuple[int, int]:
    """Return wake time and number of the queue that a cursor is behind; "": none."""
    at, _, number = (cursor or "0.0").partition(".")
    return int(at), int(number)
