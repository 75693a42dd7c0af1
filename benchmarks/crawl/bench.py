"""`make bench-crawl`: whole crawls on a web of our own, beside Scrapy and Crawlee, in one run.

python benchmarks/crawl/bench.py [--quick] [--only rates|manners|kills|memory] [--rounds N]
                                 [--json OUT]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import kills
import manners
import memory
import rates
from rich.console import Console
from rich.table import Table
from webs import cores, pin

from outrider import __version__
from outrider.bench.figures import Measure

PARTS = ("rates", "manners", "kills", "memory")
ROUNDS = 3


def main() -> None:
    """Measure, print, write."""
    asked = _asked()
    pin(os.getpid(), cores()[0])  # whoever looks on does so beside the server
    part, rounds = (0.1, 1) if asked.quick else (1.0, asked.rounds)
    found: dict[str, Any] = {}
    measures: list[Measure] = []
    table = _table()
    for name in asked.only or PARTS:
        began = time.perf_counter()
        some, details = _measured(name, part, rounds)
        found[name] = {**details, "seconds": time.perf_counter() - began}
        measures += some
        for measure in some:
            table.add_row(*_row(measure))
        table.add_section()
    Console(highlight=False, width=120).print(table)
    if asked.json is not None:
        asked.json.write_text(json.dumps(_report(measures, found), indent=1) + "\n")


def _measured(name: str, part: float, rounds: int) -> tuple[list[Measure], dict[str, Any]]:
    match name:
        case "rates":
            # Half at least: less would be mostly start-up.
            return rates.measure(max(part, 0.5), rounds, _tell)
        case "manners":
            return manners.measure(part, _tell)
        case "kills":
            return kills.measure(_tell)
        case _:
            return memory.measure(part, _tell)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure whole crawls, ours and those of peers.")
    parser.add_argument(
        "--quick", action="store_true", help="a tenth; of rates, one round of half the pages"
    )
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; may be repeated")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of the part called rates")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser.parse_args()


def _tell(about: str, text: str) -> None:
    print(f"{about}: {text}…", file=sys.stderr, flush=True)


def _table() -> Table:
    table = Table("measure", "value", "", "promise", "kept")
    for column in (1, 3):
        table.columns[column].justify = "right"
    return table


def _row(measure: Measure) -> tuple[str, str, str, str, str]:
    promise = ""
    if measure.target is not None:
        promise = f"{'≤' if measure.is_most else '≥'} {measure.target:,.6g}"
    kept = {None: "", True: "yes", False: "[red]no[/red]"}[measure.is_kept]
    is_whole = measure.value == int(measure.value) or abs(measure.value) >= 1000
    shown = f"{measure.value:,.0f}" if is_whole else f"{measure.value:,.3g}"
    return measure.name, shown, measure.unit, promise, kept


def _report(measures: list[Measure], found: dict[str, Any]) -> dict[str, Any]:
    return {
        "outrider": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {platform.system()}, {os.cpu_count()} cores",
        "cores": dict(zip(("server", "crawler"), cores(), strict=True)),
        "durability": "ours: process (a kill loses nothing); the peers: memory",
        "measures": [
            {"name": m.name, "value": m.value, "unit": m.unit, "promise": m.target}
            for m in measures
        ],
        "parts": found,
    }


if __name__ == "__main__":
    main()
