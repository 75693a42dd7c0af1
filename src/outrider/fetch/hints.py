"""What headers and meta tags tell a crawler: robots directives and Link relations (RFC 8288).

Directives for everybody and for us add up: the stricter word holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

FEED_TYPES: Final = frozenset(
    {
        "application/rss+xml",
        "application/atom+xml",
        "application/rdf+xml",
        "application/feed+json",
    }
)
_PAGE_TYPES: Final = FEED_TYPES | {"", "text/html", "application/xhtml+xml"}
_LEADING: Final = frozenset({"next", "prev", "previous", "canonical"})
_MOST_RELATIONS: Final = 1000


# What is asked of crawlers, as bits of one number: an enum's cost several times as much.
NOFOLLOW: Final = 1
NOINDEX: Final = 2
_ASKS: Final = {"nofollow": NOFOLLOW, "noindex": NOINDEX, "none": NOFOLLOW | NOINDEX}
_VALUED: Final = frozenset(
    {"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"}
)


def asked_of_all(content: str) -> int:
    """The directives of a robots meta tag."""
    asks = 0
    for word in content.lower().split(","):
        asks |= _ASKS.get(word.strip(), 0)
    return asks


def asked_by_headers(values: Iterable[str], product: str) -> int:
    """The directives of X-Robots-Tag fields; `name:` speaks to one robot until the next name."""
    asks = 0
    for value in values:
        is_for_us = True
        for piece in value.lower().split(","):
            name, colon, word = piece.partition(":")
            if colon and name.strip() not in _VALUED:
                is_for_us = name.strip() == product
                asks |= _ASKS.get(word.strip(), 0) * is_for_us
            elif is_for_us:
                asks |= _ASKS.get(piece.strip(), 0)
    return asks


class Relation(NamedTuple):
    """A typed link of a page or of its headers."""

    reference: str
    names: frozenset[str]
    type: str = ""

    def leads(self) -> bool:
        """Whether it names another page or a feed, rather than a part of this one."""
        if self.names & _LEADING:
            return True
        is_other = "alternate" in self.names and "stylesheet" not in self.names
        return is_other and self.type.partition(";")[0].strip().lower() in _PAGE_TYPES


# Possessive, and no reference holds `<`, so that nothing is read twice: it takes linear time.
_LINK: Final = re.compile(
    r"""<([^<>]*+)>((?:[ \t]*+;[ \t]*+[^=;,"\s]*+(?:[ \t]*+=[ \t]*+"""
    r"""(?:"(?:[^"\\]|\\.)*+"|[^;,"]*+))?+)*+)"""
).finditer
_PARAMETER: Final = re.compile(
    r""";[ \t]*+([^=;,"\s]++)[ \t]*+=[ \t]*+(?:"((?:[^"\\]|\\.)*+)"|([^;,"\s]*+))"""
).findall


def relations(values: Iterable[str]) -> Iterator[Relation]:
    """The links of Link header fields; one about another page (`anchor`) is passed over."""
    count = 0
    for value in values:
        for found in _LINK(value):
            count += 1
            if count > _MOST_RELATIONS:
                return
            told: dict[str, str] = {}
            for name, quoted, bare in _PARAMETER(found[2]):
                told.setdefault(name.lower(), quoted or bare)
            if "anchor" not in told:
                names = frozenset(told.get("rel", "").lower().split())
                yield Relation(found[1], names, told.get("type", ""))
