"""References → URLs, seen from a base. Most links of a site are on all of its pages: they are
looked up in a bounded memory, which only saves time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from outrider.core.url import Refusal, Url, UrlRules, parse_url

REMEMBERED: Final = 16_384
LONGEST: Final = 256  # characters of a reference that is remembered

_ASCII_WHITESPACE: Final = "\t\n\f\r "
_ELSEWHERE: Final = re.compile(
    "(?:javascript|mailto|tel|data|sms|callto|skype|whatsapp|tg|viber|about|blob|intent|market"
    "|ftp|file|irc|magnet|webcal|geo|maps|chrome|android-app|ios-app):",
    re.IGNORECASE,
).match


class Base:
    """What references of one page are seen from."""

    __slots__ = ("_folder", "_origin", "_rules", "url")

    def __init__(self, url: Url, rules: UrlRules) -> None:
        self.url = url
        self._rules = rules
        path = url.text.partition("?")[0]
        self._folder = path[: path.rindex("/") + 1]
        self._origin = path[: path.index("/", len("https://")) + 1]

    def moved(self, reference: str) -> Base:
        """The base that `<base href>` makes of this one; itself, if that is no URL."""
        url = self.resolve(reference)
        return Base(url, self._rules) if isinstance(url, Url) else self

    def resolve(self, reference: str) -> Url | Refusal | None:
        """The URL that is meant; None for what leads to no other page."""
        reference = reference.strip(_ASCII_WHITESPACE)
        first = reference[:1]
        if not first or first == "#":
            return None
        if first == "?" or len(reference) > LONGEST:
            return None if _ELSEWHERE(reference) else parse_url(reference, self._rules, self.url)
        # `/\\host` and `//host` are hosts; the folder's scheme is all that counts for them.
        if first == "/" and reference[1:2] not in "/\\\t\n\r":
            return _remembered(reference, self._origin, self._rules)
        return _remembered(reference, self._folder, self._rules)

    def resolve_all(self, references: Iterable[str], most: int) -> tuple[list[Url], int]:
        """The URLs in order, each once, at most so many; and how many references were none."""
        urls: dict[str, Url] = {}
        bad = 0
        for reference in references:
            if len(urls) >= most:
                break
            url = self.resolve(reference)
            if type(url) is Url:
                urls.setdefault(url.identity, url)
            elif url is not None:
                bad += 1
        return list(urls.values()), bad


@lru_cache(maxsize=REMEMBERED)
def _remembered(reference: str, base: str, rules: UrlRules) -> Url | Refusal | None:
    """As seen from any URL that begins with `base`, which ends in a slash."""
    if _ELSEWHERE(reference):
        return None
    seen_from = parse_url(base, rules)
    return parse_url(reference, rules, seen_from) if isinstance(seen_from, Url) else seen_from
