"""A site as WARC, and what is in it.

    python examples/warc_archive.py https://example.org/ [SETTINGS]

Give your contact: an archive is kept for long, and says who made it.
"""

import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from warcio.archiveiterator import ArchiveIterator

from outrider.blocking import crawl


def records(folder: Path, stem: str) -> Iterator[Any]:
    """Every record of all files, in order."""
    for path in sorted(folder.glob(f"{stem}-*.warc.gz")):
        with path.open("rb") as file:
            yield from ArchiveIterator(file)


def main(url: str, *files: str) -> None:
    """Crawl, then read what was written."""
    settings = tomllib.loads(Path(files[0]).read_text("utf-8")) if files else {}
    settings["output"] = {"format": "warc", "path": "archive"}
    report = crawl(url, store="archive.outrider", settings=settings)
    kinds = Counter(record.rec_type for record in records(Path(), "archive"))
    print(report.ending.how, dict(kinds))


if __name__ == "__main__":
    main(*sys.argv[1:])
