"""Every failure on every server, longer than in the tests: losses, recovery and rates.

`make faults`, or, with `tests/support` on PYTHONPATH,
`python benchmarks/faults/play.py [--only postgres/kills] [--times N] [--json F]`.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from fleet.fake_web import World
from fleet.run import FleetRun, run
from outrider.bench.measurement import write_json

STEADY = World(hosts=40, pages=250)
SLOW = World(hosts=30, pages=150, duration=0.3, delay=0.05, lease=1.0)
PLAYS: dict[str, tuple[int, World]] = {
    "kills": (40, World(hosts=40, pages=300)),
    "stopped": (3, SLOW),
    "immediate": (4, STEADY),
    "orderly": (4, STEADY),
    "node-killed": (4, STEADY),
    "backends": (10, STEADY),
    "cut": (20, STEADY),
    "unplugged": (2, World(hosts=40, pages=250, lease=1.0)),
    "skewed": (4, STEADY),
    "snapshot": (60, World(hosts=40, pages=1200)),
}
SERVERS: dict[str, tuple[str, ...]] = {
    "postgres": tuple(name for name in PLAYS if name != "node-killed"),
    "redis": tuple(name for name in PLAYS if name not in ("node-killed", "snapshot")),
    "redis-everysec": ("orderly",),
    "cluster": ("kills", "immediate", "node-killed", "backends"),
}
HEAD = (
    "server",
    "fault",
    "rounds",
    "visits",
    "lost",
    "doubled",
    "too soon",
    "late",
    "back in",
    "share",
)


def row(server: str, scene: str, played: FleetRun) -> tuple[str, ...]:
    """One line of the table."""
    told = played.report
    counts = (len(told.lost), len(told.doubled), len(told.too_soon), told.late)
    back = "never" if played.recovery is None else f"{played.recovery:.2f} s"
    return (
        server,
        scene,
        str(played.failure.rounds),
        str(told.visits),
        *map(str, counts),
        back,
        f"{played.share:.2f}",
    )


def main() -> None:
    """Play, and print a line for each."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="", help="server/fault, or a part of it")
    options.add_argument("--times", type=int, default=1, help="how often each fault comes")
    options.add_argument("--json", type=Path)
    wanted = options.parse_args()
    rows = []
    print("  ".join(f"{name:>9}" for name in HEAD), flush=True)
    for server, scenes in SERVERS.items():
        for scene in scenes:
            if wanted.only not in f"{server}/{scene}":
                continue
            rounds, world = PLAYS[scene]
            with tempfile.TemporaryDirectory() as folder:
                played = run(server, scene, rounds * wanted.times, Path(folder), world)
            rows.append(row(server, scene, played))
            print("  ".join(f"{cell:>9}" for cell in rows[-1]), flush=True)
            for fault in (*played.report.lost, *played.report.doubled)[:3]:
                print("   ", fault, flush=True)
            if wanted.json:
                write_json(wanted.json, [dict(zip(HEAD, cells, strict=True)) for cells in rows])


if __name__ == "__main__":
    main()
