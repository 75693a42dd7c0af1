"""Benchmarks of Scrapy and Crawlee on the same workload, each in its own environment."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from outrider.bench import file_store, workload
from outrider.bench.measurement import Measure, best, run
from outrider.errors import InvalidInput

HOSTS = 2_000
SCRIPT = Path("benchmarks/peers/run.py")


def ratios(size: int, rounds: int) -> Iterator[Measure]:
    """Yield Outrider's rates divided by the peers'; the name of a missing one says why."""
    if not SCRIPT.exists():
        raise InvalidInput(f"{SCRIPT} is not here; run the bench in Outrider's own directory")
    raw = list(workload.stream(workload.pages(size)))
    spread = workload.pages(size // 2, hosts=HOSTS)
    title = "file: adds, raw text, beside peers"
    yield from (added := best(title, lambda: run(file_store.raw_adds(raw)), rounds))
    tasks = file_store.tasks_of(workload.parsed(spread))
    title = "file: claim + finish, 2,000 hosts"
    yield from (visited := best(title, lambda: run(file_store.visits(tasks)), rounds))
    title = "file: claims alone, 2,000 hosts"
    yield from (claimed := best(title, lambda: run(file_store.claims(tasks)), rounds))
    adds, visits, claims = added[0].value, visited[0].value, claimed[0].value
    theirs = _measured(raw, spread)
    slow = _rate(theirs, "scrapy.canonicaliser")
    with_w3lib = 1 / (1 / adds + 1 / slow) if slow else 0.0
    yield from (
        _ratio("adds ÷ Scrapy's memory queue", adds, theirs, "scrapy.adds_plain", 3),
        _ratio("adds ÷ Scrapy's default queue", adds, theirs, "scrapy.adds", 3),
        _ratio("adds ÷ Scrapy's, ours with w3lib too", with_w3lib, theirs, "scrapy.adds_plain"),
        _ratio("adds ÷ Scrapy's without w3lib", adds, theirs, "scrapy.adds_as_written"),
        _ratio("claims ÷ Scrapy's default queue", claims, theirs, "scrapy.claims_default", 20),
        _ratio("claim + finish ÷ Scrapy's claims", visits, theirs, "scrapy.claims_default"),
        _ratio("claim + finish ÷ Crawlee's SQLite", visits, theirs, "crawlee.sqlite.claims", 50),
        _ratio("adds ÷ Crawlee's SQLite", adds, theirs, "crawlee.sqlite.adds"),
    )


def _measured(raw: list[str], spread: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        lines, claims, out = (Path(place) / name for name in ("adds", "claims", "out"))
        lines.write_text("\n".join(raw) + "\n")
        claims.write_text("\n".join(spread) + "\n")
        command = [sys.executable, str(SCRIPT), "--workload", str(lines), "--claims", str(claims)]
        subprocess.run([*command, "--json", str(out)], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        figures: dict[str, Any] = json.loads(out.read_text())["figures"]
        return figures


def _rate(theirs: dict[str, Any], name: str) -> float:
    return theirs.get(name, {}).get("best") or 0.0


def _ratio(
    name: str, ours: float, theirs: dict[str, Any], peer: str, target: float | None = None
) -> Measure:
    rate = _rate(theirs, peer)
    if not rate:
        why = theirs.get(peer, {}).get("reason") or "not measured"
        return Measure(f"{name}: {why}"[:90], 0.0, "×", target)
    return Measure(f"{name} ({rate:,.0f}/s)", ours / rate, "×", target)
