"""`outrider bench`: measure the store on this machine, beside what the project promises."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from outrider import __version__
from outrider.errors import InvalidInput

if TYPE_CHECKING:
    from outrider.bench.figures import Measure

PARTS: Final = ("memory", "scoring", "file", "peers", "scale")


def bench(
    *,
    quick: Annotated[
        bool, typer.Option(help="A tenth of the size, in a tenth of the time.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="A part alone: memory, scoring, file, peers or scale; may be repeated."),
    ] = None,
    tasks: Annotated[int, typer.Option(help="Tasks of the part called scale.")] = 10_000_000,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Also write the figures to this file.")
    ] = None,
) -> None:
    """Measure the stores of one process: rates, flatness, memory, the longest call, opening.

    Beside them the peers, Scrapy and Crawlee, in environments of their own. CPU seconds of one
    thread, the best of several rounds. Machines are noisy: compare figures of one run, and with
    the bound at the top, which is plain Python without any rules.
    """
    console = Console(highlight=False)
    table = Table("measure", "value", "", "promise", "kept")
    for column in (1, 3):
        table.columns[column].justify = "right"
    measures = []
    for title, part in _parts(quick=quick, only=only or list(PARTS), tasks=tasks):
        with console.status(title):
            found = part()
        measures += found
        for measure in found:
            table.add_row(*_row(measure))
        table.add_section()
    console.print(table)
    if json_path is not None:
        json_path.write_text(json.dumps(_report(measures), indent=1) + "\n")


def _parts(
    *, quick: bool, only: list[str], tasks: int
) -> Iterator[tuple[str, Callable[[], list[Measure]]]]:
    from outrider.bench import files, measures, peers, scale, scoring

    unknown = [name for name in only if name not in PARTS]
    if unknown:
        raise InvalidInput(f"--only {unknown[0]}: one of {', '.join(PARTS)}")
    size, rounds = (10, 3) if quick else (1, 5)
    if "memory" in only:
        yield "rates in memory", lambda: measures.rates(200_000 // size, rounds)
        yield "flatness", lambda: measures.flatness(1000, 1_000_000 // size, rounds * 2)
        yield "idle claims", lambda: measures.idle(1_000_000 // size)
        yield "the longest call", lambda: measures.longest_calls(5_000_000 // size)
    if "scoring" in only:
        yield "scoring", lambda: scoring.scores(rounds)
        yield "rescoring", lambda: scoring.rescoring(1_000_000 // size)
    if "file" in only:
        yield "rates of a file", lambda: files.rates(500_000 // size, 3)
    if "peers" in only:
        yield "peers", lambda: peers.ratios(100_000 // size, rounds)
    if "scale" in only:
        yield "scale", lambda: scale.measures(tasks // size)


def _row(measure: Measure) -> tuple[str, str, str, str, str]:
    promise = ""
    if measure.target is not None:
        promise = f"{'≤' if measure.is_most else '≥'} {measure.target:,.6g}"
    kept = {None: "", True: "yes", False: "[red]no[/red]"}[measure.is_kept]
    digits = 0 if measure.value >= 1000 else 2
    return measure.name, f"{measure.value:,.{digits}f}", measure.unit, promise, kept


def _report(measures: list[Measure]) -> dict[str, object]:
    return {
        "outrider": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {platform.system()}",
        "durability": "memory; the file: process (≤ some seconds at power loss), not synced",
        "measures": [
            {"name": m.name, "value": m.value, "unit": m.unit, "promise": m.target}
            for m in measures
        ],
    }
