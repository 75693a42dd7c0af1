"""Runs the block detector over real HTML pages on disk: `detector_pages.py DIRECTORY…`.

Each page is shown to it as an answer with status 200, and once more with status 403. None of them
is a block, so every hit is a false positive. Good food: the documentation packages of a
distribution (`apt-get download python3.11-doc apache2-doc …`, unpacked with `dpkg-deb -x`).
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from outrider.fetch.block_detector import detect
from outrider.fetch.response import Response

FIELDS = (("Content-Type", "text/html; charset=utf-8"), ("Server", "nginx"))
SPEAKS = re.compile(
    rb"captcha|cloudflare|akamai|access denied|403 forbidden|forbidden|are you a robot",
    re.IGNORECASE,
).search


def pages(directories: list[str]) -> Iterator[tuple[Path, bytes]]:
    """Every HTML file, links to files aside."""
    for directory in directories:
        for path in sorted(Path(directory).rglob("*.htm*")):
            if path.is_file() and not path.is_symlink() and path.suffix in {".html", ".htm"}:
                yield path, path.read_bytes()


def main(directories: list[str]) -> None:
    """Print each hit, and the sums."""
    sums: Counter[str] = Counter()
    for path, body in pages(directories):
        sums["pages"] += 1
        sums["speak of blocks"] += SPEAKS(body) is not None
        for status in (200, 403):
            reason = detect(Response("", status, FIELDS, body, 0.0, 0.0))
            if reason is not None:
                sums[f"taken for a block with status {status}"] += 1
                print(status, reason, path)
    for name, count in sums.items():
        print(f"{count:8,} {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
