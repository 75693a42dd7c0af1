"""`make bench-stores`: Outrider's stores on real servers, the raw engines and peers, in one run.

python benchmarks/stores/bench.py [--quick] [--only redis|postgres|redis:idle|…] [--tasks N]
                                  [--queues N] [--held SECONDS] [--json OUT]
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import on_postgres
import on_redis
from calls import Line
from sizes import Sizes, quick

from outrider import __version__
from outrider.bench.measurement import Results

ENGINES = {"redis": on_redis, "postgres": on_postgres}
PARTS = [f"{name}:{part}" for name, engine in ENGINES.items() for part in engine.PARTS]
SYNCS = 200


def main() -> None:
    """Measure; each part's figures are printed and written as soon as they are there."""
    asked = _asked()
    sizes = _sizes(asked)
    results = Results(asked.json, _about(sizes))
    found: dict[str, Any] = {}
    failed: list[str] = []
    for name in PARTS:
        engine, _, part = name.partition(":")
        if asked.only is None or {engine, name} & set(asked.only):
            _tell(f"{name}…")
            began = time.perf_counter()
            try:
                some, details = ENGINES[engine].measure(part, sizes)
            except RuntimeError as error:  # this part has no figure; the others have theirs
                _tell(f"{name}: {error}")
                failed.append(name)
                continue
            for line in (_named(engine, line) for line in some):
                results.add(line.measure, durability=line.durability)
            found[name] = {**details, "seconds": time.perf_counter() - began}
            results.note("parts", found)
    syncs = _sync_rate()
    print(f"This disk syncs {syncs:,.0f} times a second.")
    results.note("syncs_per_second", syncs)
    results.complete()
    sys.exit(f"no figures: {', '.join(failed)}" if failed else 0)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure our stores on real servers.")
    parser.add_argument("--quick", action="store_true", help="small sizes, some three minutes")
    parts = [*ENGINES, *PARTS]
    parser.add_argument("--only", choices=parts, action="append", help="a part; may be repeated")
    parser.add_argument("--tasks", type=int, help="tasks that wait while claims are measured")
    parser.add_argument("--queues", type=int, help="queues of the largest store")
    parser.add_argument("--held", type=float, help="seconds for which a snapshot is held")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser.parse_args()


def _sizes(asked: argparse.Namespace) -> Sizes:
    sizes = quick() if asked.quick else Sizes()
    given = {name: getattr(asked, name) for name in ("tasks", "queues", "held")}
    return msgspec.structs.replace(
        sizes, **{name: value for name, value in given.items() if value is not None}
    )


def _named(part: str, line: Line) -> Line:
    measure = msgspec.structs.replace(line.measure, name=f"{part}: {line.measure.name}")
    return msgspec.structs.replace(line, measure=measure)


def _sync_rate() -> float:
    """What the disk gives: writes waited for, a second."""
    with tempfile.TemporaryFile() as file:
        began = time.perf_counter()
        for _ in range(SYNCS):
            file.write(b"x" * 100)
            file.flush()
            os.fdatasync(file.fileno())
        return SYNCS / (time.perf_counter() - began)


def _about(sizes: Sizes) -> dict[str, Any]:
    return {
        "outrider": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {platform.system()}, {os.cpu_count()} cores",
        "sizes": msgspec.to_builtins(sizes),
    }


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
