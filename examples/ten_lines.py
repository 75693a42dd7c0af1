"""Your own handler in ten lines: python examples/ten_lines.py https://example.org/ [SETTINGS]."""

import sys
import tomllib
from pathlib import Path

from outrider.blocking import crawl
from outrider.fetch.page import Page

url, *files = sys.argv[1:]


def show(page: Page) -> None:
    """Called with every page."""
    print(page.status, page.url, page.title)


crawl(url, show, settings=tomllib.loads(Path(files[0]).read_text("utf-8")) if files else {})
