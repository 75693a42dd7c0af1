"""Retry-After: how long a host asks us to stay away, in seconds; what cannot be read is no answer.

A date is counted from the host's own Date, so its clock may be wrong: only the difference counts.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from outrider.fetch.response import Response

MOST: Final = 86_400.0  # D3: honoured up to a day

_SECONDS: Final = re.compile(r"([+-]?)(\d{1,18})(?:\.\d{0,18})?", re.ASCII).fullmatch
# The three forms of RFC 9110: Sun, 06 Nov 1994 08:49:37 GMT · Sunday, 06-Nov-94 08:49:37 GMT ·
# Sun Nov  6 08:49:37 1994. All are UTC. (strptime would ask the locale for the names.)
_DATES: Final = tuple(
    re.compile(form, re.ASCII | re.IGNORECASE).fullmatch
    for form in (
        r"[a-z]{3}, (?P<d>\d{1,2}) (?P<m>[a-z]{3}) (?P<y>\d{4}) (?P<t>\d\d:\d\d:\d\d) (GMT|UTC)",
        r"[a-z]{6,9}, (?P<d>\d\d)-(?P<m>[a-z]{3})-(?P<y>\d\d) (?P<t>\d\d:\d\d:\d\d) (GMT|UTC)",
        r"[a-z]{3} (?P<m>[a-z]{3}) (?P<d>[ \d]\d) (?P<t>\d\d:\d\d:\d\d) (?P<y>\d{4})",
    )
)
_MONTHS: Final = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)


def retry_after_of(response: Response, now: float) -> float | None:
    """Seconds the host asks for, 0 to a day; None if it does not ask, or not in words we know."""
    value = response.header("retry-after")
    if value is None:
        return None
    return retry_after(value, response.header("date"), now)


def retry_after(value: str, date: str | None, now: float) -> float | None:
    """The field's value in seconds; `date` is the response's Date, `now` our clock if it has none.

    >>> retry_after("120", None, now=0.0)
    120.0
    """
    value = value.strip(" \t")
    plain = _SECONDS(value)
    if plain is not None:
        return 0.0 if plain[1] == "-" else min(float(value), MOST)
    until = http_date(value, now)
    if until is None:
        return None
    since = None if date is None else http_date(date, now)
    return min(max(until - (now if since is None else since), 0.0), MOST)


def http_date(text: str, now: float) -> float | None:
    """An HTTP date as seconds since 1970; `now` tells the century of a year with two digits."""
    text = text.strip(" \t")
    found = next(filter(None, (form(text) for form in _DATES)), None)
    if found is None or found["m"].lower() not in _MONTHS:
        return None
    year, month = int(found["y"]), _MONTHS.index(found["m"].lower()) + 1
    if len(found["y"]) == 2:
        year = _full_year(year, now)
    hour, minute, second = map(int, found["t"].split(":"))
    try:
        # A leap second is written as 60, which datetime does not know.
        at = datetime(year, month, int(found["d"]), hour, minute, min(second, 59), tzinfo=UTC)
    except ValueError:
        return None
    return at.timestamp()


def _full_year(year: int, now: float) -> int:
    """RFC 9110: what seems to be more than fifty years ahead is past."""
    this = datetime.fromtimestamp(now, UTC).year
    full = this - this % 100 + year
    return full - 100 if full > this + 50 else full
