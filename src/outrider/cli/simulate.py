"""`outrider simulate`: runs simulated crawls with faults, or repeats one seed exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outrider.settings import to_mapping

if TYPE_CHECKING:
    from outrider.simulation.run import SimulationResult
    from outrider.simulation.scenario import Scenario

_MAX_VIOLATIONS: Final = 10  # of a long run, shown in full
_MAX_SEED: Final = 2**53


def simulate(
    *,
    seed: Annotated[
        int | None, typer.Option(min=0, max=_MAX_SEED, help="Repeat one seed, in detail.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=10_000_000, help="Number of seeds.")] = 200,
    start: Annotated[int, typer.Option("--from", min=0, max=_MAX_SEED, help="First seed.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Number of processes.")] = 1,
    trace: Annotated[bool, typer.Option("--trace", help="With --seed: show every call.")] = False,
) -> None:
    """Run simulated crawls with faults, and check every invariant.

    Workers crash, hang and repeat calls; calls are lost, delayed and duplicated; operators act. All
    of it is determined by the seed. Exits with 1 if an invariant was violated.
    """
    console = Console(highlight=False)
    if seed is not None:
        _repeat_seed(seed, console, with_trace=trace)
        return
    results = _run_seeds(range(start, start + seeds), jobs)
    _summarise(results, seeds, console)


def _repeat_seed(seed: int, console: Console, *, with_trace: bool) -> None:
    from outrider.cli.simulate import print_seed, print_trace
    from outrider.simulation.run import simulate as run_seed
    from outrider.simulation.scenario import scenario_of

    result = run_seed(seed, trace=True)
    if with_trace:
        print_trace(result, console)
    print_seed(scenario_of(seed), result, console)
    if result.violation is not None:
        raise typer.Exit(1)


def _run_seeds(seeds: range, jobs: int) -> Iterator[SimulationResult]:
    """The results in the order of the seeds, for any number of processes."""
    from outrider.simulation.run import simulate as run_seed

    if jobs == 1:
        yield from map(run_seed, seeds)
        return
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_seed, seeds, chunksize=max(1, min(50, len(seeds) // jobs)))


def _summarise(results: Iterator[SimulationResult], count: int, console: Console) -> None:
    from rich.progress import track

    from outrider.cli.simulate import print_summary, print_violation

    sums: Counter[str] = Counter()
    longest, broken = 0.0, 0
    quiet = not console.is_terminal
    for result in track(
        results, "Simulating", count, console=console, transient=True, disable=quiet
    ):
        sums.update(counts_of(result))
        longest = max(longest, result.finished_in)
        if result.violation is not None:
            broken += 1
            if broken <= _MAX_VIOLATIONS:
                print_violation(result, console)
    print_summary(sums, longest, broken, console)
    if broken:
        raise typer.Exit(1)


def counts_of(result: SimulationResult) -> Counter[str]:
    """The counters that are summed over seeds."""
    return Counter(
        {
            "seeds": 1,
            "hosts": result.hosts,
            "requests": result.requests,
            "pages": result.view.known if result.view else 0,
            "operators' actions": result.acts,
            "runs finished": result.view.runs if result.view else 0,
            "crashes": result.outcomes.get("crashed", 0),
            **{f"calls: {name}": count for name, count in result.faults.items()},
        }
    )


# ---- reports


_COUNTERS: Final = ("known", "done", "dead", "dropped", "held", "visits", "runs")
_TRACE_LINES: Final = 40  # lines of the trace shown before a violation


def print_seed(scenario: Scenario, result: SimulationResult, console: Console) -> None:
    """Print one seed: its scenario, its counters, and whether every invariant held."""
    console.print(_scenario_table(scenario))
    console.print(_counts_table(result))
    if result.violation is None:
        kept = Text.assemble(("Every invariant held. ", "bold green"), _end_text(result))
        console.print(kept)
        return
    console.print(Text("The last calls before it:", "bold"))
    for line in result.trace[-_TRACE_LINES:]:
        console.print(Text(line, "dim"), soft_wrap=True)
    print_violation(result, console)


def print_trace(result: SimulationResult, console: Console) -> None:
    """Print every call with its virtual time."""
    for line in result.trace:
        console.print(Text(line), soft_wrap=True)


def print_violation(result: SimulationResult, console: Console) -> None:
    """Print the violated invariant, and the command that repeats it."""
    broken = result.violation
    if broken is None:
        return
    head = Text.assemble(
        (f"Seed {result.seed} violated {broken.rule}", "bold red"), f" at {broken.at:.3f} s: "
    )
    console.print(head + Text(broken.detail), soft_wrap=True)
    console.print(Text.assemble("  repeat it with: ", (result.command, "bold")), soft_wrap=True)


def print_summary(sums: Mapping[str, int], longest: float, broken: int, console: Console) -> None:
    """Print the sums over many seeds."""
    table = Table(box=box.SIMPLE_HEAD, title="Simulated", title_justify="left", title_style="bold")
    table.add_column("counter")
    table.add_column("total", justify="right")
    for name in sorted(sums, key=lambda name: (name != "seeds", name)):
        table.add_row(name, f"{sums[name]:,}")
    console.print(table)
    style = "bold red" if broken else "bold green"
    console.print(Text(f"{broken:,} of {sums['seeds']:,} seeds violated an invariant.", style))
    from outrider.simulation.run import BOUND

    hours, bound = longest / 3600, BOUND / 3600
    console.print(
        f"After the faults ended, the longest took {hours:.1f} virtual hours; allowed: {bound:.0f}."
    )


def _scenario_table(scenario: Scenario) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    hosts = ", ".join(f"{host.name} ({host.kind}, {host.size})" for host in scenario.web.hosts)
    table.add_row("seed", str(scenario.seed))
    table.add_row("hosts", hosts)
    table.add_row("workers", f"{scenario.workers}, claiming up to {scenario.limit}")
    table.add_row("faults end", f"after {scenario.heal_at:.0f} virtual seconds")
    for section, changed in to_mapping(scenario.settings).items():
        table.add_row(section, _format_pairs(changed))
    return table


def _format_pairs(changed: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in changed.items())


def _counts_table(result: SimulationResult) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    counts = {"requests": result.requests, "acts": result.acts}
    if result.view is not None:
        counts |= {name: getattr(result.view, name) for name in _COUNTERS}
    for name in counts:
        table.add_column(name, justify="right")
    table.add_row(*(f"{count:,}" for count in counts.values()))
    faults = _format_pairs(result.faults) or "none"
    table.caption = f"visits: {_format_pairs(result.outcomes)}\nfaults: {faults}"
    table.caption_justify = "left"
    return table


def _end_text(result: SimulationResult) -> str:
    return f"It ended {result.finished_in:.0f} virtual seconds after the faults."
