"""Cache-Control, Expires and Age: how long a response may be used again (RFC 9111)."""

from __future__ import annotations

import re
from typing import Final

from outrider.fetch.response import Response
from outrider.fetch.retry_after import http_date

MOST_AGE: Final = 365 * 86_400.0

_DIRECTIVE: Final = re.compile(r'([a-z0-9-]{1,40})[ \t]*(?:=[ \t]*"?([^",]{0,40}))?', re.IGNORECASE)


def directives(response: Response) -> dict[str, str]:
    """The directives of Cache-Control, lower-case, with values; the first of a name counts."""
    found: dict[str, str] = {}
    for field in response.fields("cache-control"):
        for part in field[:1024].split(","):
            match = _DIRECTIVE.match(part.strip())
            if match is not None:
                found.setdefault(match[1].lower(), (match[2] or "").strip())
    return found


def max_age_of(response: Response) -> float | None:
    """The seconds of max-age, at most a year; None if it says none."""
    text = directives(response).get("max-age", "")
    return min(float(text), MOST_AGE) if text.isascii() and text.isdigit() else None


def may_be_kept(response: Response) -> bool:
    """Whether the host allows that the response is kept at all."""
    return "no-store" not in directives(response) and response.header("vary") != "*"


def usable(response: Response, now: float, max_stale: float) -> bool:
    """Whether a kept response may stand in without asking, up to `max_stale` seconds too old.

    A host that insists on being asked is taken at its word.
    """
    said = directives(response)
    if "no-cache" in said or "no-store" in said:
        return False
    allowance = 0.0 if "must-revalidate" in said else max_stale
    return max(now - response.at, 0.0) <= _lifetime(response, now) + allowance


def _lifetime(response: Response, now: float) -> float:
    """Seconds it is fresh from when we got it."""
    age = response.header("age") or ""
    gone = min(float(age), MOST_AGE) if age.isascii() and age.isdigit() else 0.0
    given = max_age_of(response)
    if given is not None:
        return max(given - gone, 0.0)
    made = _date(response, "date", now)
    made = response.at if made is None else made
    expires = _date(response, "expires", now)
    if response.header("expires") is not None:
        return 0.0 if expires is None else min(max(expires - made, 0.0), MOST_AGE)
    return _guessed(made, _date(response, "last-modified", now))


def _guessed(made: float, modified: float | None) -> float:
    """A tenth of how long it had not changed, at most a day."""
    return 0.0 if modified is None else min(max(made - modified, 0.0) / 10, 86_400.0)


def _date(response: Response, name: str, now: float) -> float | None:
    text = response.header(name)
    return None if text is None else http_date(text, now)
