"""Trap guards: URLs of endless sites are refused; each guard refuses over, not at, its limit (A5).

Guards read the identity, so that escapes and tracking parameters can't hide what repeats.
"""

import re
from collections import Counter
from typing import Final

import msgspec

from outrider.core.url import Url

PATH_DEPTH: Final = "path-depth"
REPEATED_SEGMENT: Final = "repeated-segment"
MANY_PARAMETERS: Final = "many-parameters"
CALENDAR: Final = "calendar"

# A word stands alone: `daylight` and `update` name no calendar.
CALENDAR_WORDS: Final = (
    r"(?<![a-z])(?:calend[ae]r|kalender|calendario|calendrier|viewcal"
    r"|years?|months?|weeks?|days?|dates?)(?![a-z])"
)
_CALENDAR: Final = re.compile(
    CALENDAR_WORDS
    + r"|(?<!\d)(?:19|20)\d\d[/-](?:0?[1-9]|1[0-2])[/-](?:0?[1-9]|[12]\d|3[01])(?!\d)",
    re.IGNORECASE,
)


class Traps(msgspec.Struct, frozen=True):
    """The limits of the guards; 0 turns a guard off."""

    path_depth: int = 20  # segments of a path, empty ones inside it included
    repeated_segment: int = 3  # times that one segment occurs in a path
    many_parameters: int = 30  # parameters of a query
    calendar: bool = False  # refuse days and calendar words; would cost news sites their articles


DEFAULT: Final = Traps()


def trap(url: Url, traps: Traps = DEFAULT) -> str | None:
    """Name the first guard that refuses the URL, or None if it may pass."""
    identity = url.identity
    # Segments are at most the slashes after `//host`: few enough of them clear both path guards.
    slashes = identity.count("/") - 2
    if slashes > traps.repeated_segment or slashes > traps.path_depth:
        reason = _path_trap(_segments(identity), traps)
        if reason is not None:
            return reason
    if "?" in identity and 0 < traps.many_parameters < _parameter_count(identity):
        return MANY_PARAMETERS
    if traps.calendar and _CALENDAR.search(identity, identity.index("/", len("https://"))):
        return CALENDAR
    return None


def _path_trap(segments: list[str], traps: Traps) -> str | None:
    if 0 < traps.path_depth < len(segments):
        return PATH_DEPTH
    # Too few doubles for any to be over the limit: the common case, without counting each.
    if len(segments) - len(set(segments)) < traps.repeated_segment:
        return None
    return REPEATED_SEGMENT if 0 < traps.repeated_segment < _most_repeated(segments) else None


def _segments(identity: str) -> list[str]:
    segments = identity.partition("?")[0].split("/")[3:]
    return segments if segments[-1] else segments[:-1]


def _parameter_count(identity: str) -> int:
    return identity.partition("?")[2].count("&") + 1


def _most_repeated(segments: list[str]) -> int:
    return max(Counter(filter(None, segments)).values(), default=0)
