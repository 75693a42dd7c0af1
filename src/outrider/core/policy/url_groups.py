"""Groups of a URL, from coarse to fine: what is learned of one URL is learned of its groups (F10).

The name of a group is readable, bounded text, and the same in every process.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

TAG_PATH: Final = "tag_path"  # where in a link's meta the path of its anchor is

_LITERAL: Final = 2  # leading segments that are kept as they are
_MAX_SEGMENTS: Final = 6  # segments looked at
_MAX_NAME: Final = 24  # letters of a segment that is a name, and no title
_MAX_WORDS: Final = 3  # of a name
_SHAPE: Final = 200
_WORD: Final = 120
_HEX: Final = re.compile(r"[0-9a-f-]{8,}", re.IGNORECASE).fullmatch
_DIGITS: Final = re.compile(r"[0-9]+")
_EXTENSION: Final = re.compile(r"(.*)(\.[a-z][a-z0-9]{0,4})", re.IGNORECASE).fullmatch


def groups_of(url: str, origin: str, tag_path: object) -> tuple[str, ...]:
    """Return the groups of a link, the coarsest first."""
    host, shape = place_of(url)
    origin, path = _word(origin), _word(tag_path)
    return (
        "all",
        f"origin {origin}",
        f"shape {shape}",
        f"site {host} {shape}",
        f"link {host} {shape} {origin} {path}",
    )


def lead_groups_of(url: str) -> tuple[str, str]:
    """Return the groups of a page as a source of links, the coarsest first."""
    host, shape = place_of(url)
    return f"leads {shape}", f"leads {host} {shape}"


@lru_cache(maxsize=16_384)
def place_of(url: str) -> tuple[str, str]:
    """Return the host of a URL, and the shape of its path and query."""
    host, _, rest = url.partition("://")[2].partition("/")
    path, _, query = rest.partition("?")
    *folders, page = path.split("/")
    segments = [_folder(one, place) for place, one in enumerate(folders[:_MAX_SEGMENTS])]
    names = sorted({_generic(one.partition("=")[0]) for one in query.split("&")}) if query else []
    shape = "/" + "/".join([*segments, _page(page)]) + ("?" + "&".join(names) if names else "")
    return host[:255], shape[:_SHAPE]


def _folder(segment: str, place: int) -> str:
    name = _generic(segment)
    return name if place < _LITERAL or name == "#" else "*"


def _page(segment: str) -> str:
    """Generalise the last segment: pages have names of their own, only their kind is shared."""
    found = _EXTENSION(segment)
    stem, extension = found.groups() if found else (segment, "")
    if not stem:
        return extension
    is_numbered = stem[0].isdigit() or stem[-1].isdigit() or _HEX(stem)
    return ("#" if is_numbered else "*") + extension.lower()


def _generic(segment: str) -> str:
    """Generalise a segment: numbers, dates, identifiers and titles belong to one page."""
    if _HEX(segment) or segment[:1].isdigit():
        return "#"
    words = 1 + segment.count("-") + segment.count("_") + segment.count("%20")
    is_title = words > _MAX_WORDS or len(segment) > _MAX_NAME
    return "*" if is_title else _DIGITS.sub("#", segment)


def _word(text: object) -> str:
    """Return untrusted text as a part of a name."""
    return text[:_WORD] if isinstance(text, str) and text.isprintable() else ""
