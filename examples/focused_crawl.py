"""A focused crawl: python examples/focused_crawl.py https://example.org/ WORD [SETTINGS].

Only sections that interest us, the pages that speak of a word first, and so many pages at most.
"""

import asyncio
import sys
import tomllib
from pathlib import Path

import msgspec

from outrider import crawl
from outrider.core.url import Url
from outrider.fetch.page import Page

SECTIONS = ("", "harbour", "market", "river")
MOST = 6


def is_of_interest(url: Url) -> bool:
    """The scope: asked for every link, before anything is known of its page."""
    return str(url).split("/")[3] in SECTIONS


class Focus:
    """Follows the links of pages that speak of a word sooner than those of others."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.found: list[str] = []

    def __call__(self, page: Page) -> None:
        """Lower is sooner: 0 for links of a page that speaks of it, 100 for others."""
        speaks = self.word in page.text
        if speaks:
            self.found.append(page.url)
        priority = 0.0 if speaks else "low"
        page.links[:] = [msgspec.structs.replace(link, priority=priority) for link in page.links]


def main(url: str, word: str, *files: str) -> None:
    """Stop at `MOST` pages; what is left stays in the line, if a store keeps it."""
    settings = tomllib.loads(Path(files[0]).read_text("utf-8")) if files else {}
    settings |= {
        "scope": {"mode": "domain", "function": is_of_interest},
        "limits": {"done": MOST},
    }
    focus = Focus(word)
    report = asyncio.run(crawl(url, focus, settings=settings))
    print(report.ending.how, report.ending.reason, report.stats.done, "done")
    print(len(focus.found), "pages speak of", word)


if __name__ == "__main__":
    main(*sys.argv[1:])
