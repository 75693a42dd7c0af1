"""Reads pages: ordinary ones at once, those that may be costly in a limited child process.

A hostile page may take quadratic time or gigabytes in an HTML parser, or find a flaw in it. What is
read here has a low upper bound of both (`parse_cost`); the worst such page found takes 0.3 s.
"""

from __future__ import annotations

from typing import Any, Final, Self

import msgspec

from outrider.core.url import UrlRules
from outrider.fetch.apart import SECONDS, Apart, Fault
from outrider.fetch.document import Document, HeaderFields
from outrider.fetch.found import Found, ReadingRules, reading_rules
from outrider.fetch.links import form_of, read
from outrider.fetch.page import Page
from outrider.fetch.parse_cost import LARGE
from outrider.fetch.tree_check import tree_fault
from outrider.settings.worker_schema import FetchSettings

CHILDREN: Final = 2
MEMORY: Final = 2**29  # bytes a child may take for one page
MAX_WAIT: Final = 60.0  # seconds for a child to come free: half of what a handler may take


def is_dangerous(document: Document) -> bool:
    """Whether reading may take harmful time or memory; cheap to ask."""
    form, size = form_of(document), len(document.body)
    if form == "other":
        return False
    if form == "gzip" or size > LARGE:
        return True
    return form == "html" and document.is_costly


class _Task(msgspec.Struct, frozen=True, array_like=True):
    """A document on its way to the other process."""

    url: str
    fields: HeaderFields
    body: bytes
    type: str
    depth: int
    indexes: int
    rules: ReadingRules


class _Answer(msgspec.Struct, frozen=True, array_like=True):
    """What the child process found, and why the page's tree may not be built elsewhere."""

    found: Found
    tree_fault: str | None


def read_apart(told: Any) -> _Answer:
    """What the other process does."""
    task = msgspec.convert(told, _Task)
    document = Document(task.url, task.fields, task.body)
    document.type, document.depth, document.indexes = task.type, task.depth, task.indexes
    fault = tree_fault(document) if form_of(document) == "html" else None
    return _Answer(read(document, task.rules), fault)


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
        self._apart = Apart(
            target,
            seconds=seconds,
            memory=memory,
            children=CHILDREN,
            quick=seconds / 10,
            max_wait=MAX_WAIT,
        )

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
        answer = await self._apart.call(task, _Answer, key=page.lease.key)
        if isinstance(answer, Fault):
            page.tree_fault = f"{answer.kind}: {answer.detail}"
            return Found("other", page.depth + 1, fault=page.tree_fault)
        page.tree_fault = answer.tree_fault
        return answer.found
