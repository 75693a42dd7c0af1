"""Titles of a site as CSV.

    python examples/titles_to_csv.py https://example.org/ OUT.csv [SETTINGS]

Kill it and start it again: the crawl goes on, and what was found before is in its items.
"""

import csv
import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from outrider.blocking import crawl
from outrider.fetch.page import Page

FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")  # the last four: full width
FIELDS = ("url", "title", "depth", "bytes", "links")


def titles(page: Page) -> Iterator[dict[str, object]]:
    """One item a page; Outrider writes it once, whatever happens."""
    if page.media_type == "text/html":
        yield {
            "url": page.url,
            "title": page.title,
            "depth": page.depth,
            "bytes": len(page.body),
            "links": len(page.links),
        }


def plain(value: object) -> object:
    """A cell that no spreadsheet takes for a formula: titles and URLs are other people's text."""
    if isinstance(value, str) and (value.startswith(FORMULA) or value.lstrip().startswith(FORMULA)):
        return f"'{value}"
    return value


def write_csv(items: Path, out: Path) -> None:
    """JSON lines to CSV."""
    with items.open(encoding="utf-8") as lines, out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for line in lines:
            writer.writerow({name: plain(value) for name, value in json.loads(line).items()})


def main(url: str, out: str, *files: str) -> None:
    """Crawl, then convert."""
    stem = Path(out).with_suffix("")
    settings = tomllib.loads(Path(files[0]).read_text("utf-8")) if files else {}
    settings["output"] = {"path": str(stem)}
    report = crawl(url, titles, store=f"{stem}.outrider", settings=settings)
    write_csv(Path(f"{stem}.items.jsonl"), Path(out))
    print(f"{report.ending.how}: {report.stats.done} done, {report.stats.dead} dead → {out}")


if __name__ == "__main__":
    main(*sys.argv[1:])
