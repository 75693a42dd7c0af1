"""`outrider simulate`: play seeds with faults, or repeat one exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

if TYPE_CHECKING:
    from outrider.simulation.run import SimulationResult

_SHOWN: Final = 10  # violations of a long run that are told in full
_LARGEST: Final = 2**53


def simulate(
    *,
    seed: Annotated[
        int | None, typer.Option(min=0, max=_LARGEST, help="Repeat this one seed, in detail.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=10_000_000, help="How many seeds.")] = 200,
    start: Annotated[int, typer.Option("--from", min=0, max=_LARGEST, help="The first seed.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Processes to share the work.")] = 1,
    trace: Annotated[bool, typer.Option("--trace", help="With --seed: show every call.")] = False,
) -> None:
    """Play simulated crawls with faults, and check every promise.

    Workers crash, hang and repeat themselves, calls are lost, delayed and doubled, operators
    meddle; all of it comes from the seed. Leaves with 1 if a promise was broken.
    """
    console = Console(highlight=False)
    if seed is not None:
        _repeat(seed, console, with_trace=trace)
        return
    results = _played(range(start, start + seeds), jobs)
    _summarise(results, seeds, console)


def _repeat(seed: int, console: Console, *, with_trace: bool) -> None:
    from outrider.cli.simulate_report import print_seed, print_trace
    from outrider.simulation.run import simulate as play
    from outrider.simulation.scenario import scenario_of

    result = play(seed, trace=True)
    if with_trace:
        print_trace(result, console)
    print_seed(scenario_of(seed), result, console)
    if result.violation is not None:
        raise typer.Exit(1)


def _played(seeds: range, jobs: int) -> Iterator[SimulationResult]:
    """The results in the order of the seeds, however many processes share the work."""
    from outrider.simulation.run import simulate as play

    if jobs == 1:
        yield from map(play, seeds)
        return
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(play, seeds, chunksize=max(1, min(50, len(seeds) // jobs)))


def _summarise(results: Iterator[SimulationResult], count: int, console: Console) -> None:
    from rich.progress import track

    from outrider.cli.simulate_report import print_summary, print_violation

    sums: Counter[str] = Counter()
    longest, broken = 0.0, 0
    quiet = not console.is_terminal
    for result in track(results, "Playing", count, console=console, transient=True, disable=quiet):
        sums.update(counts_of(result))
        longest = max(longest, result.finished_in)
        if result.violation is not None:
            broken += 1
            if broken <= _SHOWN:
                print_violation(result, console)
    print_summary(sums, longest, broken, console)
    if broken:
        raise typer.Exit(1)


def counts_of(result: SimulationResult) -> Counter[str]:
    """What adds up over seeds."""
    return Counter(
        {
            "seeds": 1,
            "hosts": result.hosts,
            "requests": result.requests,
            "pages": result.view.known if result.view else 0,
            "operators' acts": result.acts,
            "runs finished": result.view.runs if result.view else 0,
            "crashes": result.outcomes.get("crashed", 0),
            **{f"calls: {name}": count for name, count in result.faults.items()},
        }
    )
