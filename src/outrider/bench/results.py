"""The figures of a benchmark run, told as each is measured: a run that is cut off keeps them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from outrider.bench.measurement import Measure

_NAME: Final = 62  # letters of a name in a line
_HEAD: Final = ("measure", "value", "", "promise", "kept")


class Results:
    """Prints a line for each figure, and keeps a JSON file of all so far."""

    def __init__(
        self, path: Path | None, about: Mapping[str, Any], out: TextIO | None = None
    ) -> None:
        self._path = path
        self._report: dict[str, Any] = {**about, "complete": False, "measures": []}
        self._out = out or sys.stdout
        self._print(_HEAD)

    def add(self, measure: Measure, **more: str) -> None:
        """Take one figure in: it is in the file before its line is printed."""
        figure = {"name": measure.name, "value": measure.value, "unit": measure.unit}
        judged = {"promise": measure.target, "kept": measure.is_kept}
        self._report["measures"].append({**figure, **judged, **more})
        self._write()
        self._print((*row(measure), *more.values()))

    def note(self, name: str, value: object) -> None:
        """Put something else that was found beside the figures."""
        self._report[name] = value
        self._write()

    def complete(self) -> None:
        """Say that the run was not cut off."""
        self.note("complete", value=True)

    def _write(self) -> None:
        if self._path is not None:
            write_json(self._path, self._report)

    def _print(self, cells: Iterable[str]) -> None:
        name, value, unit, promise, *rest = cells
        line = f"{name:<{_NAME}} {value:>12} {unit:<3} {promise:>12}  {'  '.join(rest)}"
        self._out.write(f"{line.rstrip()}\n")
        self._out.flush()


def measure_parts(
    results: Results, parts: Iterable[tuple[str, Callable[[], Iterable[Measure]]]]
) -> None:
    """Measure one part after the other, and tell every figure at once."""
    for title, part in parts:
        sys.stderr.write(f"{title}…\n")
        for measure in part():
            results.add(measure)
    results.complete()


def row(measure: Measure) -> tuple[str, str, str, str, str]:
    """A figure beside its promise, in words."""
    promise = ""
    if measure.target is not None:
        promise = f"{'≤' if measure.is_most else '≥'} {measure.target:,.6g}"
    kept = {None: "", True: "yes", False: "no"}[measure.is_kept]
    is_whole = measure.value == int(measure.value) or abs(measure.value) >= 1000
    shown = f"{measure.value:,.0f}" if is_whole else f"{measure.value:,.3g}"
    return measure.name, shown, measure.unit, promise, kept


def write_json(path: Path, value: object) -> None:
    """Replace a JSON file in one step: a reader sees the old figures or the new ones."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(value, indent=1) + "\n")
    part.replace(path)
