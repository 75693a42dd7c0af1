"""Log lines of Outrider: every record is escaped before a handler sees it.

Texts from stores, runtime settings and pages appear in log lines, and a handler writes them to a
terminal as they are. So each module takes its logger from `logger_of`, whose records hold no
control characters: no escape sequence, no second line, no change of the writing direction.
"""

from __future__ import annotations

import logging
import traceback
from typing import Final


def printable(text: str) -> str:
    """Return text on one line, with control characters and invisible characters escaped."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _spelled(letter) for letter in text)


def logger_of(name: str) -> logging.Logger:
    """Return the logger of a module; its records are safe to print."""
    logger = logging.getLogger(name)
    logger.addFilter(_ESCAPE)
    return logger


def escape(record: logging.LogRecord) -> bool:
    """Escape a record's message and traceback; always True."""
    try:
        record.msg, record.args = printable(record.getMessage()), ()
    except Exception:  # noqa: BLE001 - arguments that do not fit, or cannot be formatted
        record.msg, record.args = printable(str(record.msg)), ()
    if record.exc_info and record.exc_info[0] is not None:
        lines = "".join(traceback.format_exception(*record.exc_info)).splitlines()
        # Formatters use it if it is set. Indented: no line of it looks like a record.
        record.exc_text = "\n".join(f"  {printable(line)}" for line in lines)
    return True


class _Escape(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return escape(record)


_ESCAPE: Final = _Escape()


def _spelled(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
