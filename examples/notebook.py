"""Cell by cell, as in a notebook: python examples/notebook.py https://example.org/ [SETTINGS].

Nothing here awaits: the crawl has a thread and a loop of its own.
"""

# %% Where, and how
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from outrider.blocking import Frontier, crawl
from outrider.fetch.page import Page

url, *files = sys.argv[1:] or ["https://example.org/"]
settings = tomllib.loads(Path(files[0]).read_text("utf-8")) if files else {}

# %% Crawl, and keep the pages
pages: dict[str, dict[str, Any]] = {}


def keep(page: Page) -> None:
    """A dict of what matters."""
    pages[page.url] = {
        "title": page.title,
        "links": len(page.links),
        "words": len(page.text.split()),
    }


report = crawl(url, keep, store="notebook.outrider", settings=settings)
print(report.ending.how, len(pages), "pages")

# %% Look at them
longest = max(pages, key=lambda one: pages[one]["words"])
print("most words:", pages[longest]["words"])
print("sections:", Counter(one.split("/")[3] for one in pages).most_common(3))

# %% Ask the crawl itself, any time later
with Frontier.attach("notebook.outrider") as frontier:
    stats = frontier.stats()
    print(stats.known, "known,", stats.done, "done,", stats.dropped, "left alone")
    print(frontier.explain(url).task.state)
