"""`outrider bench`: measure the store on this machine, beside what the project promises."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from outrider import __version__
from outrider.errors import InvalidInput

if TYPE_CHECKING:
    from outrider.bench.measurement import Measure

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
        Path | None,
        typer.Option("--json", help="Also write the figures to this file, each as it is measured."),
    ] = None,
) -> None:
    """Measure the stores of one process: rates, flatness, memory, the longest call, opening.

    Beside them the peers, Scrapy and Crawlee, in environments of their own. CPU seconds of one
    thread, the best of several rounds. Machines are noisy: compare figures of one run, and with
    the bound at the top, which is plain Python without any rules. Every figure is printed, and
    written to the file, when it is measured: a run that is cut off leaves what it has.
    """
    from outrider.bench.measurement import Results, measure_parts

    parts = _parts(quick=quick, only=only or list(PARTS), tasks=tasks)
    measure_parts(Results(json_path, _about()), parts)


def _parts(
    *, quick: bool, only: list[str], tasks: int
) -> list[tuple[str, Callable[[], Iterable[Measure]]]]:
    from outrider.bench import file_store, memory_store, peers, scale, scoring

    unknown = [name for name in only if name not in PARTS]
    if unknown:
        raise InvalidInput(f"--only {unknown[0]}: one of {', '.join(PARTS)}")
    size, rounds = (10, 3) if quick else (1, 5)
    found: dict[str, list[tuple[str, Callable[[], Iterable[Measure]]]]] = {
        "memory": [
            ("rates in memory", lambda: memory_store.rates(200_000 // size, rounds)),
            ("flatness", lambda: memory_store.flatness(1000, 1_000_000 // size, rounds * 2)),
            ("idle claims", lambda: memory_store.idle(1_000_000 // size)),
            ("the longest call", lambda: memory_store.longest_calls(5_000_000 // size)),
        ],
        "scoring": [
            ("scoring", lambda: scoring.scores(rounds)),
            ("rescoring", lambda: scoring.rescoring(1_000_000 // size)),
        ],
        "file": [("rates of a file", lambda: file_store.rates(500_000 // size, 3))],
        "peers": [("peers", lambda: peers.ratios(100_000 // size, rounds))],
        "scale": [("scale", lambda: scale.measures(tasks // size))],
    }
    return [part for name in PARTS if name in only for part in found[name]]


def _about() -> dict[str, object]:
    return {
        "outrider": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {platform.system()}",
        "durability": "memory; the file: process (≤ some seconds at power loss), not synced",
    }
