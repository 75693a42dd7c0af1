"""Reads pages: ordinary ones at once, dangerous ones in a process of their own.

A hostile page may take quadratic time in an HTML parser, or find a flaw in it. So what is read here
is small, has few tags, and no tag of very many attributes; the worst such page found takes 0.3 s.
"""

from __future__ import annotations

import re
from typing import Any, Final, Self

import msgspec

from outrider.core.url import UrlRules
from outrider.fetch.apart import MEMORY, SECONDS, Apart, Fault
from outrider.fetch.document import Document, HeaderFields
from outrider.fetch.found import Found, ReadingRules, reading_rules
from outrider.fetch.links import form_of, read
from outrider.fetch.page import Page
from outrider.settings.visiting import FetchSettings

SMALL: Final = 16 * 1024  # bytes: too few for a tag of harmful length
LARGE: Final = 256 * 1024
MOST_OPEN: Final = 2000  # start tags, thus elements in one another
MOST_TAGS: Final = 4000
CHILDREN: Final = 2

# A tag of 200 attributes, tokenised as browsers do: a `>` within quotes does not end it. Possessive
# and bounded, so that with MOST_TAGS places to begin at it takes no harmful time itself.
_CROWDED_TAG: Final = re.compile(
    rb"<[a-zA-Z](?:[ \t\n\r\f/]*+(?:=[^ \t\n\r\f/>=]{0,512}+|[^ \t\n\r\f/>=]{1,512}+)"
    rb"(?:[ \t\n\r\f]*+=[ \t\n\r\f]*+"
    rb"(?:\"[^\"]*+\"|'[^']*+'|[^ \t\n\r\f>\"'][^ \t\n\r\f>]{0,512}+)?+)?+){200}+"
).search
# In these a tag is not written as in ASCII.
_OPAQUE: Final = frozenset({"utf-16-le", "utf-16-be", "iso2022_jp"})


def is_dangerous(document: Document) -> bool:
    """Whether reading may take harmful time or memory; cheap to ask."""
    form, size = form_of(document), len(document.body)
    if form == "other":
        return False
    if form == "gzip" or size > LARGE:
        return True
    if form != "html":
        return False
    return _has_many_tags(document.body) or (size > SMALL and _may_be_crowded(document))


def _has_many_tags(body: bytes) -> bool:
    tags = body.count(b"<")
    return tags > MOST_OPEN and (tags > MOST_TAGS or tags - body.count(b"</") > MOST_OPEN)


def _may_be_crowded(document: Document) -> bool:
    return document.charset in _OPAQUE or _CROWDED_TAG(document.body) is not None


class _Task(msgspec.Struct, frozen=True, array_like=True):
    """A document on its way to the other process."""

    url: str
    fields: HeaderFields
    body: bytes
    type: str
    depth: int
    indexes: int
    rules: ReadingRules


def read_apart(told: Any) -> Found:
    """What the other process does."""
    task = msgspec.convert(told, _Task)
    document = Document(task.url, task.fields, task.body)
    document.type, document.depth, document.indexes = task.type, task.depth, task.indexes
    return read(document, task.rules)


class Reader:
    """Reads the pages of one crawl; open it with `async with`, so that no process is left."""

    def __init__(
        self,
        settings: FetchSettings,
        url_rules: UrlRules,
        *,
        seconds: float = SECONDS,
        memory: int = MEMORY,
    ) -> None:
        self._rules = reading_rules(settings, url_rules)
        target = f"{__name__}:{read_apart.__name__}"
        self._apart = Apart(target, seconds=seconds, memory=memory, children=CHILDREN)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the other processes."""
        await self._apart.close()

    async def read(self, page: Page) -> Found:
        """What the page leads to and says of itself; the page knows it afterwards."""
        found = await self._read_apart(page) if is_dangerous(page) else read(page, self._rules)
        page.found, page.links = found, found.links
        return found

    async def _read_apart(self, page: Page) -> Found:
        fields, about = page.headers.fields, (page.type, page.depth, page.indexes)
        task = _Task(page.url, fields, page.body, *about, self._rules)
        found = await self._apart.call(task, Found)
        if isinstance(found, Fault):
            return Found("other", page.depth + 1, fault=f"{found.kind}: {found.detail}")
        return found
