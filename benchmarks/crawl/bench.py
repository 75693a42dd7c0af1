"""`make bench-crawl`: whole crawls on the test web: Outrider, Scrapy and Crawlee in one run.

python benchmarks/crawl/bench.py [--quick] [--only rates|manners|kills|memory] [--rounds N]
                                 [--json OUT]
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import kills
import manners
import memory
import rates
from webs import cores, pin

from outrider import __version__
from outrider.bench.measurement import Measure, Results

PARTS = ("rates", "manners", "kills", "memory")
ROUNDS = 3
Found: TypeAlias = Callable[[Measure], None]


def main() -> None:
    """Measure; every figure is printed and written when it is there."""
    asked = _asked()
    pin(os.getpid(), cores()[0])  # whoever looks on does so beside the server
    part, rounds = (0.1, 1) if asked.quick else (1.0, asked.rounds)
    results = Results(asked.json, _about())
    found: dict[str, Any] = {}
    for name in asked.only or PARTS:
        began = time.perf_counter()
        details = _measured(name, part, rounds, results.add)
        found[name] = {**details, "seconds": time.perf_counter() - began}
        results.note("parts", found)
    results.complete()


def _measured(name: str, part: float, rounds: int, found: Found) -> dict[str, Any]:
    match name:
        case "rates":
            # Half at least: less would be mostly start-up.
            return rates.measure(max(part, 0.5), rounds, _tell, found)
        case "manners":
            return manners.measure(part, _tell, found)
        case "kills":
            return kills.measure(_tell, found)
        case _:
            return memory.measure(part, _tell, found)


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


def _about() -> dict[str, Any]:
    return {
        "outrider": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {platform.system()}, {os.cpu_count()} cores",
        "cores": dict(zip(("server", "crawler"), cores(), strict=True)),
        "durability": "ours: process (a kill loses nothing); the peers: memory",
    }


if __name__ == "__main__":
    main()
