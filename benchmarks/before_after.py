"""What a change costs on the hot paths: an earlier revision and this tree, in turns.

.venv/bin/python benchmarks/before_after.py REVISION [--rounds N] [--json OUT]

Each round measures both in processes of their own, the earlier one first in every other round, with
the rates of `outrider bench` in memory and in a file. The machine's speed moves by the minute, so a
round gives a ratio of its two figures, and the result is the median of the ratios; the ratio of the
best windows of all rounds stands beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from outrider.bench.measurement import write_json

HERE: Final = Path(__file__).resolve().parents[1]
# The measures are those of the revision itself; a name in both is compared.
_CHILD: Final = """
import json, sys
from outrider.bench import file_store, memory_store
for part, size in ((memory_store, 50_000), (file_store, 50_000)):
    for measure in part.rates(size, 2):
        print(json.dumps([measure.name, measure.value]), flush=True)
"""

Figures = dict[str, float]


def main() -> None:
    """Measure, and print a line a figure after every round."""
    args = _arguments()
    before: list[Figures] = []
    after: list[Figures] = []
    with _tree_of(args.revision) as earlier:
        for number in range(args.rounds):
            turns = [(earlier, before), (HERE, after)]
            for tree, figures in turns if number % 2 == 0 else reversed(turns):
                figures.append(_measure(tree))
            rows = list(_rows(before, after))
            _show(number + 1, rows)
            if args.json is not None:
                about = {"before": args.revision, "rounds": number + 1}
                write_json(args.json, {**about, "measures": rows})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", help="the earlier revision, as git names it")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


@contextmanager
def _tree_of(revision: str) -> Iterator[Path]:
    """Check a revision out beside this tree, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="outrider-before-") as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", str(tree), revision)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*words: str) -> None:
    subprocess.run(["git", "-C", HERE, *words], check=True, capture_output=True)  # noqa: S603, S607


def _measure(tree: Path) -> Figures:
    env = {**os.environ, "PYTHONPATH": str(tree / "src")}  # noqa: TID251 - the caller's, whole
    command = [sys.executable, "-c", _CHILD]
    done = subprocess.run(command, check=True, env=env, capture_output=True, text=True)  # noqa: S603
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: value for name, value in found if not name.startswith((" ", "bound"))}


def _rows(before: Sequence[Figures], after: Sequence[Figures]) -> Iterator[dict[str, object]]:
    for name in before[0].keys() & after[0].keys():
        pairs = [(old[name], new[name]) for old, new in zip(before, after, strict=True)]
        best_before, best_after = (max(side) for side in zip(*pairs, strict=True))
        yield {
            "name": name,
            "before": best_before,
            "after": best_after,
            "ratio of best": best_after / best_before,
            "median ratio": median(new / old for old, new in pairs),
        }


def _show(rounds: int, rows: Sequence[dict[str, object]]) -> None:
    title = f"rounds: {rounds}"
    print(f"{title:<42}{'before':>10}{'after':>10}{'best':>7}{'median':>8}")
    for row in sorted(rows, key=lambda row: str(row["name"])):
        rates = f"{row['before']:>10,.0f}{row['after']:>10,.0f}"
        print(f"{row['name']:<42}{rates}{row['ratio of best']:>7.3f}{row['median ratio']:>8.3f}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
