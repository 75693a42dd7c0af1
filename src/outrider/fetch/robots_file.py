"""A robots.txt as text: the lines that are meant for one robot, and the sitemaps.

Groups of other robots are left out before anything is made of them: a parser that keeps them all
takes minutes and gigabytes for a file of ten thousand names and as many rules.
"""

from __future__ import annotations

import re
from typing import Final

MOST_BYTES: Final = 500 * 1024  # that are read, as RFC 9309 asks for
MOST_LINE: Final = 8 * 1024  # no URL that we visit is longer
MOST_SITEMAPS: Final = 1000

_EVERYBODY: Final = "*"
_LINES: Final = re.compile(r"[\r\n]+")
# Also as they are often misspelt: whoever writes `Dissallow` means it.
_FIELD: Final = re.compile(
    r"[ \t]*(user[- ]?agent|site-?maps?|allow|diss?all?[oa]w|diasllow|crawl[- ]?delay"
    r"|request[- ]?rate)[ \t]*[: \t][ \t]*([^#]*)",
    re.IGNORECASE,
).match
_KINDS: Final = {  # by the first letter
    "u": "user-agent",
    "s": "sitemap",
    "a": "allow",
    "d": "disallow",
    "c": "crawl-delay",
    "r": "request-rate",
}


def text_of(body: bytes) -> str:
    """The beginning of a file, up to the end of a line."""
    if len(body) > MOST_BYTES:
        end = max(body.rfind(b"\n", 0, MOST_BYTES), body.rfind(b"\r", 0, MOST_BYTES))
        body = body[: end + 1]
    return body.decode("utf-8-sig", "replace").replace("\0", "")


def product(user_agent: str) -> str:
    """The name that groups are looked up by: `Outrider/1.0 (+…)` is `outrider`."""
    return re.split(r"[/\s(;,]", user_agent.strip(), maxsplit=1)[0].lower()


class RobotsFile:
    """What a file says to one robot: rules of the groups that name it, or else of everybody's."""

    def __init__(self, text: str, name: str) -> None:
        self._names = (name, _EVERYBODY)
        self._groups: dict[str, list[tuple[str, str]]] = {}
        self._named: set[str] = set()
        self._is_naming = False
        self._sitemaps: dict[str, None] = {}
        for line in _LINES.split(text):
            found = _FIELD(line) if len(line) <= MOST_LINE else None
            if found is not None:
                self._take(_KINDS[found[1][0].lower()], found[2].strip())
        ours = next((self._groups[one] for one in self._names if one in self._groups), [])
        self.rules = tuple(dict.fromkeys(f"{kind}: {value}" for kind, value in ours if value))
        self.sitemaps = tuple(self._sitemaps)

    def _take(self, kind: str, value: str) -> None:
        if kind == "user-agent":
            name = product(value)
            self._name(name.rstrip("*") or name)
        elif kind == "sitemap":
            self._point_to(value)
        else:
            self._is_naming = False
            for name in self._named:
                self._groups[name].append((kind, value))

    def _name(self, name: str) -> None:
        """Names in a row share a group; the first after a rule begins another."""
        if not self._is_naming:
            self._named = set()
        self._is_naming = True
        if name in self._names:
            self._named.add(name)
            self._groups.setdefault(name, [])

    def _point_to(self, url: str) -> None:
        is_absolute = url[:8].lower().startswith(("http://", "https://"))
        if is_absolute and len(self._sitemaps) < MOST_SITEMAPS:
            self._sitemaps[url] = None
