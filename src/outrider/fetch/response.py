"""The result of a request: a response with its header fields, or the reason why there is none.

The table `REASONS` maps each reason to the outcome it is reported as (G0). A reason is short and
stable: a word, or a word, a colon and a detail, and nothing that a host wrote. Faults of this
machine are not in the table, since they are no outcome (fetch/local_faults.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec

from outrider.core.outcome import Dropped, Failed, Unreachable
from outrider.core.url import Refusal, Url, UrlRules, parse_url


class Response(msgspec.Struct, frozen=True, gc=False):
    """One response to one request: no redirect is followed, every size is bounded."""

    url: str  # as requested
    status: int
    headers: tuple[tuple[str, str], ...]  # in order; names as the host wrote them
    body: bytes  # decompressed
    seconds: float  # from sending the request to the last byte
    at: float  # when the request was sent, in seconds since 1970, by the system's clock
    reason: str = ""
    version: str = "1.1"
    address: str = ""  # of the host
    packed: bytes | None = None  # the body as sent, if it was compressed
    request: bytes | None = None  # as sent, if it is kept; of HTTP/2 its fields as HTTP/1.1

    def header(self, name: str) -> str | None:
        """Return the first field of a name, in any letter case."""
        return next(self.fields(name), None)

    def fields(self, name: str) -> Iterator[str]:
        """Return all fields of a name, in order."""
        wanted = name.lower()
        return (value for key, value in self.headers if key.lower() == wanted)


# ---- redirects

REDIRECT_STATUSES: Final = frozenset({301, 302, 303, 307, 308})


def redirect_target(response: Response, rules: UrlRules) -> Url | Refusal | None:
    """Return the redirect's target, why it is refused, or None if the response is no redirect."""
    if response.status not in REDIRECT_STATUSES:
        return None
    base = parse_url(response.url, rules)
    location = response.header("location")
    if location is None or not isinstance(base, Url):
        return None
    return parse_url(location, rules, base)


# ---- Retry-After and HTTP dates

MAX_RETRY_AFTER: Final = 86_400.0  # D3: honoured up to a day

_SECONDS: Final = re.compile(r"([+-]?)(\d{1,18})(?:\.\d{0,18})?", re.ASCII).fullmatch
# The three forms of RFC 9110: Sun, 06 Nov 1994 08:49:37 GMT · Sunday, 06-Nov-94 08:49:37 GMT ·
# Sun Nov  6 08:49:37 1994. All are UTC. (strptime would use the locale's names.)
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
    """Return the seconds of a response's Retry-After, 0 to a day; None if absent or unreadable."""
    value = response.header("retry-after")
    if value is None:
        return None
    return retry_after(value, response.header("date"), now)


def retry_after(value: str, date: str | None, now: float) -> float | None:
    """Return a field's value in seconds. A date is counted from `date`, the response's Date, so
    that a wrong clock of the host does not matter; from `now` if it has none.

    >>> retry_after("120", None, now=0.0)
    120.0
    """
    value = value.strip(" \t")
    plain = _SECONDS(value)
    if plain is not None:
        return 0.0 if plain[1] == "-" else min(float(value), MAX_RETRY_AFTER)
    until = http_date(value, now)
    if until is None:
        return None
    since = None if date is None else http_date(date, now)
    return min(max(until - (now if since is None else since), 0.0), MAX_RETRY_AFTER)


def http_date(text: str, now: float) -> float | None:
    """Return an HTTP date as seconds since 1970; `now` tells the century of a two-digit year."""
    text = text.strip(" \t")
    found = next(filter(None, (form(text) for form in _DATES)), None)
    if found is None or found["m"].lower() not in _MONTHS:
        return None
    year, month = int(found["y"]), _MONTHS.index(found["m"].lower()) + 1
    if len(found["y"]) == 2:
        year = _full_year(year, now)
    hour, minute, second = map(int, found["t"].split(":"))
    try:
        # A leap second is written as 60, which datetime refuses.
        at = datetime(year, month, int(found["d"]), hour, minute, min(second, 59), tzinfo=UTC)
    except ValueError:
        return None
    return at.timestamp()


def _full_year(year: int, now: float) -> int:
    """Return the year in full; more than fifty years ahead means the past century (RFC 9110)."""
    this = datetime.fromtimestamp(now, UTC).year
    full = this - this % 100 + year
    return full - 100 if full > this + 50 else full


# ---- reasons

RequestFailure: TypeAlias = Failed | Unreachable | Dropped

BAD_URL: Final = "bad-url"
HEADERS_TOO_LARGE: Final = "headers"
PRIVATE_ADDRESS: Final = "private-address"
BODY_TOO_LARGE: Final = "size"
PROTOCOL_SWITCHED: Final = "protocol: switched"
BAD_ENCODING: Final = "unpacking"

# Word → (outcome, meaning, details).
REASONS: Final[dict[str, tuple[type[RequestFailure], str, tuple[str, ...]]]] = {
    "dns": (
        Unreachable,
        "the name has no address",
        ("no such host", "no answer", "failed", "time limit"),
    ),
    "connect": (
        Unreachable,
        "no connection was made",
        ("refused", "reset", "no route", "time limit", "failed"),
    ),
    "tls": (
        Unreachable,
        "no secure connection was made; the detail is OpenSSL's word for it",
        ("certificate has expired", "self-signed certificate", "hostname mismatch"),
    ),
    "time limit": (
        Failed,
        "connected, but no byte came for `read_timeout`, or the answer took `total_timeout`",
        ("read", "total"),
    ),
    "cut": (
        Failed,
        "the connection ended before the answer did, or a packed body ends too early",
        ("no answer", "reset", "head", "body", "packed body"),
    ),
    "protocol": (
        Failed,
        "what came is not HTTP",
        ("status line", "header", "message", "switched"),
    ),
    BODY_TOO_LARGE: (Dropped, "the body is, or unpacks to, more than `max_body`", ()),
    HEADERS_TOO_LARGE: (
        Dropped,
        "a header field, or all of them, are more than `max_headers` allows",
        (),
    ),
    BAD_ENCODING: (Dropped, "the body is not compressed as its header says", ()),
    PRIVATE_ADDRESS: (Dropped, "the host is inside a private network; nothing was sent", ()),
    BAD_URL: (Dropped, "no request can be made of the URL; nothing was sent", ()),
}

_UNSENT: Final = frozenset((PRIVATE_ADDRESS, BAD_URL))


class NoConnection(OSError):
    """No connection was made; `reason` is one of the table."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def outcome_of_reason(reason: str, seconds: float) -> RequestFailure:
    """Return a reason as the outcome it is reported as."""
    kind = REASONS[reason.partition(":")[0]][0]
    if kind is Unreachable:
        return Unreachable(reason)
    if kind is Failed:
        return Failed(reason, seconds)
    return Dropped(reason, seconds, visited=reason not in _UNSENT)
